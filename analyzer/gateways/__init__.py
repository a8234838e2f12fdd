"""Request logs: one format per gateway in, canonical request records out."""

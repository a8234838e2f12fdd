"""One table per engine: its own names in, canonical signals out."""

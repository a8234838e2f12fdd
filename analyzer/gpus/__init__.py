"""GPU exporters: their own names in, canonical signals in base units out."""

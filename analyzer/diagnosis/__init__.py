"""What limits an engine: evidence in, one family and cause out. Pure functions."""

"""Judging benchmark results: goodput, intervals and curves over the load."""

"""Readers of what benchmark tools write, one module a tool."""

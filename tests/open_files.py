"""The files that a process holds open."""

from __future__ import annotations

from pathlib import Path


def open_files() -> int:
    """Returns how many files this process holds open, sockets among them."""
    return len(list(Path("/proc/self/fd").iterdir()))

"""Tells whether files have changed since they were read."""

from __future__ import annotations

from pathlib import Path

Stamp = tuple[int, int, int]


class Watch:
    """The files that something was read from, as they were just before.

    A change is seen by modification time, size and inode, so a file that was
    replaced, also behind a symbolic link, counts as changed. Missing files count.
    """

    def __init__(self) -> None:
        self._stamps: dict[Path, Stamp | None] = {}

    def add(self, path: Path) -> None:
        """Watches *path* from now on. Call it before reading the file."""
        self._stamps[path] = _stamp(path)

    def changed(self) -> bool:
        """Whether any file is not what it was."""
        return any(_stamp(path) != stamp for path, stamp in self._stamps.items())


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except (OSError, ValueError):  # a name that no file can have
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino

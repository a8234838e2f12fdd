"""A file that lines are appended to, and that is renamed away when it is long."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


class RotatingFile:
    """Appends to *path*; one older file is kept beside it as `.1`; has `close()`."""

    def __init__(self, path: Path, *, most_bytes: int) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._file = path.open("ab")

    def write(self, lines: Iterable[bytes]) -> None:
        """Appends whole *lines*. Raises OSError."""
        if self._file.tell() > self._most_bytes:
            self._file.close()
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._file = self._path.open("ab")
        self._file.write(b"".join(lines))
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

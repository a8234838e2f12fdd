"""Single lines of a log, found by their number while somebody else reads all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

READ_BYTES = 128 << 10  # memory of that size stays in the cache, and is used again
PEEKED = 1 << 16
_NEWLINE = ord("\n")


def ends_of(data: bytes) -> NDArray[np.int64]:
    """Returns where the newlines of *data* are."""
    found = np.frombuffer(data, dtype=np.uint8) == _NEWLINE
    return np.flatnonzero(found)


def newlines_in(data: bytes) -> int:
    """Returns how many newlines there are, in a third of the time of bytes.count."""
    return int(np.count_nonzero(np.frombuffer(data, dtype=np.uint8) == _NEWLINE))


def lines_at(data: bytes, rows: NDArray[np.int64]) -> list[bytes]:
    """Returns some lines of *data* by their numbers from 0, without newlines."""
    if not len(rows):
        return []
    ends = ends_of(data)
    begins = np.concatenate([[0], ends[:-1] + 1])
    return [data[begins[row] : ends[row]] for row in rows.tolist()]


class LineFinder:
    """Walks through a plain file from the begin of a line on.

    `position` is where the next line to be taken begins.
    """

    def __init__(self, path: Path, begin: int) -> None:
        self._file = path.open("rb", buffering=0)
        self.position = begin

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def peek(self) -> bytes:
        """Returns some of what lies ahead."""
        self._file.seek(self.position)
        return self._file.read(PEEKED) or b""

    def take(self, count: int, rows: NDArray[np.int64]) -> list[bytes]:
        """Goes on by *count* lines; returns those of them whose numbers are *rows*."""
        line = 0
        found: list[bytes] = []
        cut = b""  # the begin of a line whose end was not read yet
        self._file.seek(self.position)
        while line < count and (data := self._file.read(READ_BYTES)):
            ends = ends_of(data)[: count - line]
            first, behind = np.searchsorted(rows, [line, line + len(ends)])
            for row in (rows[first:behind] - line).tolist():
                begin = ends[row - 1] + 1 if row else 0
                found.append((b"" if row else cut) + data[begin : ends[row]])
            line += len(ends)
            if len(ends):
                rest = int(ends[-1]) + 1
                self.position += len(cut) + rest
                cut = data[rest:]
            else:
                cut += data
        return found

"""Single lines of a log, found by their number while somebody else reads all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

READ_BYTES = 1 << 20
PEEKED = 1 << 16


def lines_at(data: bytes, rows: NDArray[np.int64]) -> list[bytes]:
    """Returns some lines of *data* by their numbers from 0, without newlines."""
    if not len(rows):
        return []
    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 10)
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
        position, line = self.position, 0
        found: list[bytes] = []
        rest = b""
        self._file.seek(position)
        while line < count:
            data = self._file.read(READ_BYTES)
            if not data:
                break
            data = rest + data
            cut = data.rfind(b"\n") + 1
            here = data.count(b"\n")
            if line + here > count:
                ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 10)
                here = count - line
                cut = int(ends[here - 1]) + 1
            rest = data[cut:]
            first, behind = np.searchsorted(rows, [line, line + here])
            found += lines_at(data[:cut], rows[first:behind] - line)
            position += cut
            line += here
        self.position = position
        return found

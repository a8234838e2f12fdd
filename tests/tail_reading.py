"""A reader of log files that a test polls, restarts and moves through time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from rotating_log import line

from exporter.tail import Tail
from exporter.tail_batch import BATCH_BYTES, MAX_LINE_BYTES, Stats
from exporter.tail_position import Position

GRACE = 5.0


def append(path: Path, data: bytes) -> None:
    """Appends *data* to the file, as a writer that opens it for each line."""
    with path.open("ab") as file:
        file.write(data)


def lines(first: int, last: int) -> bytes:
    """Returns the numbered lines *first* to *last*."""
    return b"".join(line(number) for number in range(first, last + 1))


class Reading:
    """A `Tail`, the time it sees, and the sums of all that it has told."""

    def __init__(
        self,
        pattern: Path,
        *,
        start: str = "beginning",
        framing: str = "plain",
        max_line_bytes: int = MAX_LINE_BYTES,
        max_files: int = 256,
    ) -> None:
        self.pattern = str(pattern)
        self.now = 0.0
        self.lost: Counter[str] = Counter()
        self.total = Stats()
        self.last = Stats()
        self._start = start
        self._framing = framing
        self._max_line_bytes = max_line_bytes
        self._max_files = max_files
        self._position: Position | None = None
        self._tail = self._opened()

    def _opened(self) -> Tail:
        return Tail(
            self.pattern,
            position=self._position,
            start=self._start,
            framing=self._framing,
            max_line_bytes=self._max_line_bytes,
            max_files=self._max_files,
            grace=GRACE,
            monotonic=lambda: self.now,
        )

    @property
    def open_files(self) -> int:
        """How many files are open now."""
        return self._tail.open_files

    def once(self, limit: int = BATCH_BYTES) -> tuple[Sequence[bytes], bool]:
        """Polls once; returns the lines and whether some were left."""
        batch = self._tail.poll(limit)
        self._position = batch.position
        self.last = batch.stats
        self.lost.update(batch.stats.lost)  # a loss of 0 times stays, and is none
        self.total = replace(
            self.total,
            too_long=self.total.too_long + self.last.too_long,
            misframed=self.total.misframed + self.last.misframed,
            rotations=self.total.rotations + self.last.rotations,
            truncations=self.total.truncations + self.last.truncations,
        )
        return batch.lines, batch.more

    def poll(self, limit: int = BATCH_BYTES) -> list[bytes]:
        """Polls until no lines are left, and returns them all."""
        found: list[bytes] = []
        more = True
        while more:
            lines, more = self.once(limit)
            found += lines
        return found

    def stop(self) -> None:
        """Closes the files."""
        self._tail.close()

    def resume(self) -> None:
        """Starts again from the position, as it comes back from a state file."""
        encoded = msgspec.msgpack.encode(self._position)
        self._position = msgspec.msgpack.decode(encoded, type=Position)
        self._tail = self._opened()

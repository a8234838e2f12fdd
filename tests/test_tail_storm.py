"""Random walks of a writer, a rotating tool and a reader that is killed."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from rotating_log import compress, rotate

from exporter.tail import Tail
from exporter.tail_position import Position

MESSAGES = b"2026-11-29T14:10:48.123456789Z stdout %s %s\n"
RENAMING = (
    ("write", 4),
    ("rotate", 1),
    ("reopen", 2),
    ("compress", 1),
    ("poll", 3),
    ("kill", 1),
    ("wait", 1),
)
COPYING = (("write", 4), ("copy", 1), ("compress", 1), ("poll", 3), ("kill", 1))


class _Storm:
    """One log, its writer with the file that it has open, and its reader.

    A kill goes back to the last saved position and the counts saved with it. Lines
    are wrapped as containerd does it, in up to three parts that rotation may part.
    """

    def __init__(self, folder: Path, draw: random.Random, *, whole: bool) -> None:
        self.log = folder / "0.log"
        self.draw = draw
        self.written = 0
        self.lost: Counter[str] = Counter()
        self._whole = whole
        self._now = 0.0
        self._parts: list[bytes] = []
        self._writer = self.log.open("ab", buffering=0)
        self._saved: tuple[Position | None, Counter[int]] = (None, Counter())
        self.counts: Counter[int] = Counter()
        self._tail = self._opened()
        self.poll(saving=True)

    def _opened(self) -> Tail:
        return Tail(
            str(self.log),
            position=self._saved[0],
            start="beginning",
            framing="cri",
            grace=1.0,
            monotonic=lambda: self._now,
        )

    def write(self) -> None:
        """Writes up to 100 lines; may leave the last one without its last parts."""
        for _ in range(self.draw.randrange(100)):
            self._finish_line()
            self.written += 1
            text = b"%d %s" % (self.written, b"x" * (self.written % 200))
            cuts = [0, *sorted(self.draw.choices(range(len(text)), k=2)), len(text)]
            parts = [
                MESSAGES % (b"P", text[begin:end]) for begin, end in pairwise(cuts[:-1])
            ]
            self._parts = [*parts, MESSAGES % (b"F", text[cuts[-2] :])]
            self._writer.write(self._parts.pop(0))
        if self._whole or self.draw.random() < 0.5:
            self._finish_line()

    def _finish_line(self) -> None:
        self._writer.write(b"".join(self._parts))
        self._parts = []

    def rotate(self) -> None:
        """Renames all files; the writer keeps its own."""
        time.sleep(0.006)  # so that times of last writes tell files apart
        rotate(self.log)

    def copy(self) -> None:
        """Copies and truncates the live file."""
        time.sleep(0.006)
        rotate(self.log, copy=True)

    def reopen(self) -> None:
        """Makes the writer go to the live file."""
        self._writer.close()
        self._writer = self.log.open("ab", buffering=0)

    def compress(self) -> None:
        """Compresses one of the rotated files that the writer has not open."""
        chosen = Path(f"{self.log}.{self.draw.randrange(1, 4)}")
        inode = Path(f"/proc/self/fd/{self._writer.fileno()}").stat().st_ino
        if chosen.exists() and chosen.stat().st_ino != inode:
            compress(chosen)

    def poll(self, *, saving: bool | None = None) -> bool:
        """Reads some lines, saves most of the time; returns whether more are left."""
        batch = self._tail.poll(self.draw.choice([3_000, 20_000, 1 << 20]))
        self.counts.update(_numbers(batch.lines))
        self.lost.update(batch.stats.lost)
        if saving if saving is not None else self.draw.random() < 0.8:
            self._saved = batch.position, self.counts.copy()
        return batch.more

    def kill(self) -> None:
        """Starts another reader from what was saved."""
        self._tail.close()
        self.counts = self._saved[1].copy()
        self._tail = self._opened()

    def wait(self) -> None:
        """Lets less or more than the grace pass."""
        self._now += self.draw.choice([0.3, 1.5])

    def end(self) -> None:
        """Ends the writer and reads the rest."""
        self._finish_line()
        self._writer.close()
        for _ in range(3):
            while self.poll():
                pass
            self._now += 2.0
        self._tail.close()


def _numbers(lines: Sequence[bytes]) -> list[int]:
    found = []
    for text in lines:
        number, _, pad = text.partition(b" ")
        assert pad == b"x" * (int(number) % 200)
        found.append(int(number))
    return found


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("steps", [RENAMING, COPYING], ids=["rename", "copytruncate"])
def test_no_order_of_events_loses_or_doubles_a_line(
    tmp_path: Path, steps: tuple[tuple[str, int], ...], seed: int
) -> None:
    """Late writers, compression, full batches, kills at any point: each line once."""
    draw = random.Random(seed)
    names = [name for name, _ in steps]
    storm = _Storm(tmp_path, draw, whole=steps is COPYING)
    for step in draw.choices(names, [weight for _, weight in steps], k=60):
        getattr(storm, step)()
    storm.end()
    assert storm.counts == Counter(range(1, storm.written + 1))
    assert storm.lost == {}

"""A program that counts numbered lines and can be killed at any moment.

PATTERN STATE SECONDS LIMIT [FRAMING]: reads until it is killed, or until the file
STATE-stop is there and all was read. Totals and position are replaced in one step.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rotating_log import number

from exporter.tail import Tail
from exporter.tail_position import Position


@dataclass(frozen=True, slots=True)
class Totals:
    """What was counted; sums that no exchange of lines leaves as they are."""

    position: Position | None = None
    lines: int = 0
    total: int = 0
    squares: int = 0
    lost: int = 0


def expected(count: int) -> tuple[int, int, int]:
    """Returns lines, sum and sum of squares of the numbers 1 to *count*."""
    return (
        count,
        count * (count + 1) // 2,
        count * (count + 1) * (2 * count + 1) // 6,
    )


def load(state: Path) -> Totals:
    """Returns what was written last."""
    try:
        return msgspec.msgpack.decode(state.read_bytes(), type=Totals)
    except FileNotFoundError:
        return Totals()


def started(
    pattern: Path | str, state: Path, *, seconds: float = 0.05, limit: int = 1 << 20
) -> subprocess.Popen[bytes]:
    """Starts the program."""
    return subprocess.Popen(
        [sys.executable, __file__, str(pattern), str(state), str(seconds), str(limit)],
        # The tests may run without their folder on the path of programs.
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )


def main(pattern: str, state: Path, seconds: float, limit: int) -> None:
    """Counts until there is no more to count and `STATE-stop` says so."""
    totals = load(state)
    tail = Tail(pattern, position=totals.position, start="beginning", grace=1.0)
    stop = Path(f"{state}-stop")
    while True:
        last = stop.exists()
        batch = tail.poll(limit)
        found = [number(line) for line in batch.lines]
        totals = Totals(
            batch.position,
            totals.lines + len(found),
            totals.total + sum(found),
            totals.squares + sum(n * n for n in found),
            totals.lost + sum(batch.stats.lost.values()),
        )
        new = Path(f"{state}-new")
        new.write_bytes(msgspec.msgpack.encode(totals))
        new.replace(state)
        if last and not batch.more:
            return
        if not batch.more:
            time.sleep(seconds)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))

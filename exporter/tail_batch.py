"""What a source of log lines gives when it is asked: a batch of lines and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from exporter.tail_position import Position

MAX_LINE_BYTES = 1 << 20
BATCH_BYTES = 4 << 20

# Why lines were lost, each counted once an occurrence where it does not say else.
LOST_REASONS = (
    "file_gone",  # the rest of a file that was being read is nowhere to be found
    "rotated_out",  # files may have come and been deleted between two looks
    "truncated",  # a file was cut while lines in it had not been read yet
    "torn_line",  # a file was cut after half of a line, whose end is gone
    "damaged_archive",  # a compressed file that cannot be read to its end
    "unknown_archive",  # a compressed file that we cannot read at all
    "queue_full",  # datagrams: received faster than they were taken
    "kernel_buffer_full",  # datagrams: sent faster than they were received
)


@dataclass(frozen=True, slots=True)
class Stats:
    """What happened since the batch before, and how things stand now.

    Since the last batch: lines dropped because they are `too_long`, lines whose
    framing is another than the log's, rotations, truncations seen, and occurrences
    of loss by reason. Now: bytes not yet read, and what stands in the way by path.
    """

    too_long: int = 0
    misframed: int = 0
    rotations: int = 0
    truncations: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    lag_bytes: int = 0
    problems: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Tally:
    """The counts of one batch while it is being made, and its `errors`."""

    too_long: int = 0
    misframed: int = 0
    rotations: int = 0
    truncations: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    errors: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines without their newline, in order, and the position behind them.

    `errors` are lines that a container's program wrote to its standard error: most
    are its messages, but some programs write their log there.
    Whoever counts the lines writes the totals and `position` together; starting from
    that position, each line is counted once however often the process is killed.
    `position` is None for sources that cannot go back: datagrams and pipes. `more`
    says that lines were left because the batch was full; `ended` that the source
    has come to its end.
    """

    lines: Sequence[bytes]
    position: Position | None
    stats: Stats
    more: bool = False
    ended: bool = False
    errors: Sequence[bytes] = ()


class LineSource(Protocol):
    """Where lines come from. One caller at a time; nothing here waits or sleeps."""

    def poll(self, limit_bytes: int = BATCH_BYTES) -> Batch:
        """Returns the lines that are there, of about *limit_bytes* at most."""
        ...

    def close(self) -> None:
        """Lets go of files, sockets and threads."""
        ...

"""Reads log files by path or pattern through every rotation, each line once.

What it cannot do, because nobody could by looking now and then:
- copytruncate: lines written after the copy was made and before the truncation are
  on no disk. Lines that were copied are read from the copy when it stands beside.
- A file that was truncated and has grown beyond the offset again is noticed by its
  content, unless its first 1 KiB and the 256 bytes before the offset are the same.
- A line that a writer appends to a rotated file after a newer one has content and
  the file was quiet for the grace is not read.
- A file that comes and is deleted between two looks was never seen; when rotated
  files are there but the one read last is not, the loss `rotated_out` is counted.
- Rotated files are looked for beside the log, under the names that logrotate,
  container runtimes and the usual libraries give them, plain or as .gz.
"""

from __future__ import annotations

import fnmatch
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import PurePath

from analyzer.gateways.framing import Framing
from analyzer.sources.rotated_files import Identity, matching, rotated_from
from exporter.tail_batch import BATCH_BYTES, MAX_LINE_BYTES, Batch, Stats, Tally
from exporter.tail_file import LogFile
from exporter.tail_find import is_at
from exporter.tail_log import Log
from exporter.tail_open import Rules, regular
from exporter.tail_position import Position

CHUNK_BYTES = 256 << 10
MAX_FILES = 256
GRACE_SECONDS = 60.0
SECOND_NS = 1_000_000_000
# The kernel stamps files with a clock that may be a tick or two behind.
CLOCK_SLACK_NS = SECOND_NS // 10


class Tail:
    """The logs that *patterns* match, read from *position* on; a `LineSource`.

    Without a position, what is there at the first `poll` is read from its end (or
    its begin, with `start="beginning"`). What appears later is read from its begin.
    A file that was replaced is kept open until a newer one has content and nothing
    came for *grace* seconds. At most *max_files* are open at once; others wait.
    """

    def __init__(
        self,
        patterns: str | Sequence[str],
        *,
        position: Position | None = None,
        framing: str = Framing.AUTO,
        start: str = "end",
        max_line_bytes: int = MAX_LINE_BYTES,
        max_files: int = MAX_FILES,
        grace: float = GRACE_SECONDS,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if start not in ("end", "beginning"):
            raise ValueError(f"start must be end or beginning, got {start!r}")
        self._patterns = (patterns,) if isinstance(patterns, str) else tuple(patterns)
        self._at_end = start == "end"
        self._max_files = max_files
        self._clock = clock
        self._monotonic = monotonic
        self._rules = Rules(Framing(framing), max_line_bytes, grace, self._room)
        self._logs: dict[str, Log] = {}
        self._rotated: set[str] = set()  # matched paths that are another log's files
        self._turn = 0
        self._looked_at = position.looked_at if position else 0.0
        # Patterns whose logs were not watched before now.
        self._first = set(self._patterns) - set(position.patterns if position else ())
        for place in position.logs if position else ():
            path = os.fsdecode(place.path)
            if any(_matches(path, pattern) for pattern in self._patterns):
                self._logs[path] = Log(place, self._rules)

    def poll(self, limit_bytes: int = BATCH_BYTES) -> Batch:
        """Returns the lines that are there, of about *limit_bytes* at most."""
        tally = Tally()
        now = self._monotonic()
        looked_at = self._clock()
        if not self._looked_at:
            self._looked_at = looked_at
        since_ns = int(self._looked_at * SECOND_NS) - CLOCK_SLACK_NS
        self._discover(now)
        for log in self._logs.values():
            log.follow(now, since_ns, tally)
        self._looked_at = looked_at
        lines, more = self._read(limit_bytes, now, tally)
        if not more:
            for log in self._logs.values():
                lines += log.retire(now, tally)
        self._forget()
        position = Position(
            self._patterns,
            looked_at,
            tuple(log.position for log in self._logs.values()),
        )
        return Batch(lines, position, self._stats(tally), more, errors=tally.errors)

    def _read(
        self, limit_bytes: int, now: float, tally: Tally
    ) -> tuple[list[bytes], bool]:
        """Returns lines of all logs in turns, and whether some were left."""
        lines: list[bytes] = []
        logs = list(self._logs.values())
        self._turn = (self._turn + 1) % max(1, len(logs))
        logs = logs[self._turn :] + logs[: self._turn]
        left = limit_bytes
        while logs:
            busy = []
            for log in logs:
                if left <= 0:
                    return lines, True
                messages, work = log.read(min(CHUNK_BYTES, left), now, tally)
                lines += messages
                left -= work
                if work:
                    busy.append(log)
            logs = busy
        return lines, False

    def _discover(self, now: float) -> None:
        """Adds the logs that the patterns match now."""
        matched: dict[str, bool] = {}
        for pattern in self._patterns:
            first = pattern in self._first
            for path in matching(pattern):
                matched[path] = matched.get(path, True) and first
        self._rotated &= matched.keys()
        new = {
            path: first
            for path, first in matched.items()
            if path not in self._logs and path not in self._rotated
        }
        for path, first in new.items():
            if any(rotated_from(path, other) for other in (*matched, *self._logs)):
                self._rotated.add(path)
            else:
                self._add(path, first=first, now=now)
        self._first.clear()

    def _add(self, path: str, *, first: bool, now: float) -> None:
        """Adds a log; a file that another log reads is taken over, or left to it."""
        log = Log.new(path, self._rules)
        owner = self._owner(path)
        if owner is not None:
            other, file = owner
            if _identity(other.path) == file.identity:
                return  # another name of the same file
            other.release(file)
            log.take([file])
        elif first:
            log.begin(at_end=self._at_end, now=now)
        for known in [known for known in self._logs if rotated_from(known, path)]:
            log.take(self._logs.pop(known).files)
            self._rotated.add(known)
        self._logs[path] = log

    def _owner(self, path: str) -> tuple[Log, LogFile] | None:
        """Returns the log that reads the file at *path* under another name."""
        identity = _identity(path)
        for log in self._logs.values():
            for file in log.files:
                if file.identity == identity and (file.is_open or is_at(file, path)):
                    return log, file
        return None

    def _forget(self) -> None:
        """Drops the logs that are gone, but for the last ones: they may come back."""
        gone = [
            path
            for path, log in self._logs.items()
            if log.gone and not log.open_files and path not in self._patterns
        ]
        for path in gone[: max(0, len(gone) - self._max_files)]:
            del self._logs[path]

    @property
    def open_files(self) -> int:
        """How many files are open now."""
        return sum(log.open_files for log in self._logs.values())

    def _room(self, uncounted: int) -> bool:
        return self.open_files + uncounted < self._max_files

    def _stats(self, tally: Tally) -> Stats:
        return Stats(
            too_long=tally.too_long,
            misframed=tally.misframed,
            rotations=tally.rotations,
            truncations=tally.truncations,
            lost=Counter(tally.lost),
            lag_bytes=sum(log.lag for log in self._logs.values()),
            problems={
                log.path: log.problem for log in self._logs.values() if log.problem
            },
        )

    def close(self) -> None:
        """Closes all files."""
        for log in self._logs.values():
            log.close()


def _matches(path: str, pattern: str) -> bool:
    """Whether *pattern* may match *path*."""
    if path == pattern or "**" in pattern:
        return path == pattern or fnmatch.fnmatchcase(path, pattern)
    parts, wanted = PurePath(path).parts, PurePath(pattern).parts
    return len(parts) == len(wanted) and all(
        fnmatch.fnmatchcase(part, want)
        for part, want in zip(parts, wanted, strict=True)
    )


def _identity(path: str) -> Identity | None:
    try:
        found = regular(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino

"""One request log under watch: its lines, its totals, and where reading stands."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from analyzer.config import Config
from analyzer.config_gateways import GatewaySource
from analyzer.gateways.detect import AUTO
from analyzer.logflow import LogFlow, Waiting
from analyzer.requests_total import RequestTotals
from analyzer.sources.datagrams import SourceError
from exporter.log_state import LogState
from exporter.tail_batch import LineSource, Stats
from exporter.tail_position import Position

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
RETRY_SECONDS = 5.0


@dataclass(slots=True)
class LogMemory:
    """What of a log outlives the process: totals and position, always together.

    `lost` counts losses by reason; lines that were too long go to the failures of
    the totals. `waiting` was read before the position, and is in no total yet.
    """

    totals: RequestTotals = field(default_factory=RequestTotals)
    position: Position | None = None
    lost: dict[str, float] = field(default_factory=dict)
    waiting: Waiting = field(default_factory=Waiting)


class RequestLog:
    """Reads one log and counts its requests; `lock` guards totals against readers.

    Lines are counted and the position moved in one step under the lock, so that
    whoever writes both to disk under it counts each line once.
    """

    def __init__(
        self,
        source: GatewaySource,
        config: Config,
        lock: AbstractContextManager[object],
        *,
        open_source: Callable[[GatewaySource, Position | None], LineSource],
        flow: Callable[[GatewaySource, Config, LogMemory], LogFlow],
        memory: LogMemory | None = None,
    ) -> None:
        self.memory = memory or LogMemory()
        self.flow = flow(source, config, self.memory)
        self.stats = Stats()
        self._lock = lock
        self._open_source = open_source
        self._lines: LineSource | None = None
        self._open_error = ""
        self._retry_at = 0.0
        self._told: set[str] = set()
        self._open()

    @property
    def name(self) -> str:
        """The log's name in the configuration."""
        return self.flow.source.name

    def kept(self) -> LogMemory:
        """Returns what outlives the process; to be called under the lock."""
        self.memory.waiting = self.flow.waiting
        return self.memory

    def configure(self, source: GatewaySource, config: Config) -> None:
        """Takes over a reloaded configuration; another place is another log."""
        moved = source != self.flow.source
        with self._lock:
            self.flow.configure(source, config)
            if moved:
                self.close()
                self._open()

    def _open(self) -> None:
        """Opens the source; one that cannot be opened is tried again later."""
        self._open_error = ""
        try:
            self._lines = self._open_source(self.flow.source, self.memory.position)
        except SourceError as error:
            self._open_error = str(error)
            self._retry_at = time.monotonic() + RETRY_SECONDS

    def poll(self, *, seconds: float) -> None:
        """Counts what is there, for about *seconds* at most."""
        deadline = time.monotonic() + seconds
        more = True
        while more and time.monotonic() < deadline:
            more = self._step()

    def _step(self) -> bool:
        with self._lock:
            if self._lines is None and time.monotonic() >= self._retry_at:
                self._open()
            if self._lines is None:
                self._tell(Stats())
                return False
            at = time.time()
            batch = self._lines.poll()
            self.flow.take(batch.lines, at, errors=batch.errors)
            self.flow.mark(at)
            memory, stats = self.memory, batch.stats
            memory.position = batch.position
            self.stats = stats
            totals = memory.totals
            totals.failures["too_long"] += stats.too_long
            for reason, times in stats.lost.items():
                memory.lost[reason] = memory.lost.get(reason, 0.0) + times
        self._tell(stats)
        return batch.more

    def _tell(self, stats: Stats) -> None:
        """Logs each problem when it begins, not at each poll."""
        problems = set(self.problems())
        for problem in problems - self._told:
            logger.warning("request log gateway=%s problem=%r", self.name, problem)
        for reason, times in stats.lost.items():
            logger.warning(
                "request log lines lost gateway=%s reason=%s times=%d",
                self.name,
                reason,
                times,
            )
        self._told = problems

    def problems(self) -> list[str]:
        """Returns what stands in the way of reading, in sentences."""
        found = [f"{path}: {what}" for path, what in self.stats.problems.items()]
        return found + [p for p in (self._open_error, self.flow.problem) if p]

    def state(self) -> LogState:
        """Returns how it fares, for the status page."""
        flow, source = self.flow, self.flow.source
        wanted = {criterion for c in flow.classes for criterion in c.good}
        told = flow.format.criteria if flow.format else wanted
        return LogState(
            self.name,
            place=source.path or source.socket or source.syslog,
            detected=source.format == AUTO,
            undecided=flow.undecided,
            never=tuple(sorted(wanted - told)),
            blind=flow.format.blind if flow.format else (),
            counts=source.counts,
            lag_bytes=self.stats.lag_bytes,
            lost=dict(self.memory.lost),
            problems=tuple(self.problems()),
        )

    def close(self) -> None:
        """Lets go of files, sockets and threads."""
        self._retry_at = float("inf")
        lines, self._lines = self._lines, None
        if lines is not None:
            lines.close()

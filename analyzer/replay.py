"""Runs the live flow over a recording."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Protocol

from analyzer.catalogue import GPU_SCRAPE_FAILURES, SCRAPE_FAILURES
from analyzer.config import Config
from analyzer.config_gateways import GatewaySource
from analyzer.config_gpus import GpuSource
from analyzer.config_sources import EngineSource
from analyzer.flow import EngineFlow
from analyzer.gateways.framing import Framing, FramingState, Unframer
from analyzer.gpus.activity import engine_activity
from analyzer.gpus.flow import GpuFlow
from analyzer.hops import engine_hops
from analyzer.logflow import LogFlow
from analyzer.sources.recording import Scrape

DEFAULT_TARGET = "engine"
DEFAULT_GATEWAY = "gateway"
DEFAULT_GPU = "gpu"
LINES_AT_ONCE = 10_000
LINES_AHEAD = 64  # far fewer than are kept of a model


class TimedLog(Protocol):
    """A recorded log that can be read up to a time."""

    @property
    def flow(self) -> LogFlow:
        """The flow that takes its lines."""

    def until(self, at: float) -> None:
        """Takes every request that ended up to *at* (Unix seconds)."""


class GpuReplay:
    """A recorded GPU exporter: its `flow` as known at the time reached.

    It is the configuration's first one, or `gpu`.
    """

    def __init__(self, scrapes: Iterable[Scrape], config: Config) -> None:
        source = config.gpus[0] if config.gpus else GpuSource(DEFAULT_GPU, "")
        self.flow = GpuFlow(replace(source, url=""))
        self._scrapes = iter(scrapes)
        self._next = next(self._scrapes, None)

    def until(self, at: float) -> None:
        """Replays every scrape up to *at* (Unix seconds)."""
        while self._next is not None and self._next.at <= at:
            scrape, self._next = self._next, next(self._scrapes, None)
            if scrape.text is None:
                known = scrape.reason in GPU_SCRAPE_FAILURES
                self.flow.fail(
                    scrape.reason if known else "connection",
                    scrape.at,
                    seconds=scrape.seconds,
                    detail=scrape.reason,
                )
            else:
                page = self.flow.read(scrape.text, scrape.at)
                self.flow.observe(page, seconds=scrape.seconds)


class LogReplay:
    """A recorded request log: its `flow` as known at the time reached, or later.

    It is read as the configuration's first gateway, by the format and the framing its
    lines have when there is none. *aliases* maps other names to served models.
    """

    def __init__(
        self,
        lines: Iterable[bytes],
        config: Config,
        *,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        source = (
            config.gateways[0] if config.gateways else GatewaySource(DEFAULT_GATEWAY)
        )
        known = config.engines[0].aliases if config.engines else {}
        names = known if aliases is None else aliases
        self.flow = LogFlow(source, config, aliases=lambda: names)
        self._unframer = Unframer(FramingState(Framing(source.framing)))
        self._lines = iter(lines)

    def until(self, at: float) -> None:
        """Reads on until a request ended after *at* (Unix seconds), or all is read.

        Some lines more are read than that; what is recent goes by their own times.
        """
        while (self.flow.totals.last_record or 0.0) <= at:
            if not self._take(LINES_AHEAD):
                return

    def finish(self) -> LogFlow:
        """Returns the flow after every line."""
        while self._take(LINES_AT_ONCE):
            pass
        rest = self._unframer.flush()
        self.flow.take(rest.messages, math.inf, errors=rest.errors)
        self.flow.totals.failures["too_long"] += rest.too_long
        self.flow.finish(math.inf)
        return self.flow

    def _take(self, number: int) -> bool:
        """Counts the next lines, at most *number*; False when there are none."""
        batch = list(islice(self._lines, number))
        found = self._unframer.feed(batch)
        self.flow.take(found.messages, math.inf, errors=found.errors)
        self.flow.totals.failures["too_long"] += found.too_long
        return bool(batch)


def replay(
    scrapes: Iterable[Scrape],
    config: Config,
    *,
    gpus: GpuReplay | None = None,
    log: TimedLog | None = None,
    on_scrape: Callable[[EngineFlow, float], None] = lambda _flow, _at: None,
) -> tuple[EngineFlow, float] | None:
    """Returns the flow after every scrape, and the time of the last one.

    The target is the configuration's first engine, or `engine`; *gpus* and *log* are
    replayed beside it. *on_scrape* gets the flow and the time after each one. None
    when there is no scrape at all.
    """
    source = config.engines[0] if config.engines else EngineSource(DEFAULT_TARGET, "")
    flow: EngineFlow | None = None
    last = 0.0
    for scrape in scrapes:
        if flow is None:
            flow = EngineFlow(replace(source, url=""), config, since=scrape.at)
        if gpus is not None:
            gpus.until(scrape.at)
            flow.diagnosis.gpu = engine_activity([gpus.flow], source, scrape.at)
        if log is not None:
            log.until(scrape.at)
            flow.diagnosis.hops = engine_hops(flow, [flow], [log.flow], scrape.at)
        if scrape.text is None:
            reason = scrape.reason if scrape.reason in SCRAPE_FAILURES else "connection"
            flow.fail(reason, scrape.at, seconds=scrape.seconds, detail=scrape.reason)
        else:
            page = flow.read(scrape.text, scrape.at)
            flow.observe(page, seconds=scrape.seconds)
        last = scrape.at
        on_scrape(flow, last)
    return None if flow is None else (flow, last)


def replay_log(
    lines: Iterable[bytes], config: Config, *, aliases: Mapping[str, str]
) -> LogFlow:
    """Returns the flow of a recorded request log after every line."""
    return LogReplay(lines, config, aliases=aliases).finish()

"""Runs the live flow over a recording."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice

from analyzer.catalogue import SCRAPE_FAILURES
from analyzer.config import Config
from analyzer.config_sources import EngineSource, GatewaySource
from analyzer.flow import EngineFlow
from analyzer.gateways.framing import Framing, FramingState, Unframer
from analyzer.logflow import LogFlow
from analyzer.sources.recording import Scrape

DEFAULT_TARGET = "engine"
DEFAULT_GATEWAY = "gateway"
LINES_AT_ONCE = 10_000


def replay(
    scrapes: Iterable[Scrape],
    config: Config,
    *,
    on_scrape: Callable[[Scrape], None] = lambda _: None,
) -> tuple[EngineFlow, float] | None:
    """Returns the flow after every scrape, and the time of the last one.

    The target is the configuration's first engine, or `engine`. None when there is
    no scrape at all.
    """
    source = config.engines[0] if config.engines else EngineSource(DEFAULT_TARGET, "")
    flow: EngineFlow | None = None
    last = 0.0
    for scrape in scrapes:
        if flow is None:
            flow = EngineFlow(replace(source, url=""), config, since=scrape.at)
        if scrape.text is None:
            reason = scrape.reason if scrape.reason in SCRAPE_FAILURES else "connection"
            flow.fail(reason, scrape.at, seconds=scrape.seconds, detail=scrape.reason)
        else:
            page = flow.read(scrape.text, scrape.at)
            flow.observe(page, seconds=scrape.seconds)
        last = scrape.at
        on_scrape(scrape)
    return None if flow is None else (flow, last)


def replay_log(
    lines: Iterable[bytes], config: Config, *, aliases: Mapping[str, str]
) -> LogFlow:
    """Returns the flow of a recorded request log after every line.

    It is read as the configuration's first gateway, by the format and the framing
    its lines have when there is none. *aliases* maps other names to served models.
    """
    source = config.gateways[0] if config.gateways else GatewaySource(DEFAULT_GATEWAY)
    flow = LogFlow(source, config, aliases=lambda: aliases)
    unframer = Unframer(FramingState(Framing(source.framing)))
    remaining = iter(lines)
    while batch := list(islice(remaining, LINES_AT_ONCE)):
        found = unframer.feed(batch)
        flow.take(found.messages, math.inf, errors=found.errors)
        flow.totals.failures["too_long"] += found.too_long
    rest = unframer.flush()
    flow.take(rest.messages, math.inf, errors=rest.errors)
    flow.totals.failures["too_long"] += rest.too_long
    flow.finish(math.inf)
    return flow

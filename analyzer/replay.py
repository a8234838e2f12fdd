"""Runs the live flow over a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from analyzer.catalogue import SCRAPE_FAILURES
from analyzer.config import Config
from analyzer.config_sources import EngineSource
from analyzer.flow import EngineFlow
from analyzer.sources.recording import Scrape

DEFAULT_TARGET = "engine"


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
            flow.observe(scrape.text, scrape.at, seconds=scrape.seconds)
        last = scrape.at
        on_scrape(scrape)
    return None if flow is None else (flow, last)

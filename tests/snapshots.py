"""Snapshots of an engine made by hand, and what follows from one to the next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from analyzer.histogram import Histogram
from analyzer.snapshot import Group, Increase, Key, Snapshot, increase, merge

INF = math.inf
BOUNDS = (0.1, 0.5, 1.0, INF)
STARTED = 1000.0


def key(signal: str, rank: str = "0", origin: str = "") -> Key:
    """Returns the key of one series of model m."""
    return Key(Group(signal, "m", rank), (("WorkerId", origin),) if origin else ())


def histogram(*counts: float, total: float | None = None) -> Histogram:
    """Returns a histogram over BOUNDS; its sum is the least that its buckets allow."""
    bounds = BOUNDS if len(counts) == len(BOUNDS) else (*BOUNDS[:2], INF)
    result = Histogram(bounds, counts)
    least = result.sum_limits()[0]
    return Histogram(bounds, counts, least if total is None else total)


def page(
    at: float,
    values: Mapping[Key, float | Histogram],
    *,
    started: float | None = STARTED,
    created: Mapping[Key, float] | None = None,
    damaged: bool = False,
) -> Snapshot:
    """Returns one scrape."""
    return Snapshot(
        at,
        started,
        {k: v for k, v in values.items() if isinstance(v, float)},
        {k: v for k, v in values.items() if isinstance(v, Histogram)},
        dict(created or {}),
        damaged=damaged,
    )


def follow(
    pages: Sequence[Snapshot], *, watched_since: float = INF
) -> tuple[list[Increase], Snapshot]:
    """Returns the growth at each page, and what is remembered after the last."""
    memory: Snapshot | None = None
    grown = []
    for later in pages:
        found = increase(memory, later, watched_since=watched_since)
        memory = merge(memory, later, found.reset)
        grown.append(found)
    assert memory is not None
    return grown, memory


def totals(grown: Sequence[Increase]) -> dict[Group, float]:
    """Returns the growth of every counter, and of every histogram's count."""
    found: dict[Group, float] = {}
    for step in grown:
        for group, value in step.counters.items():
            found[group] = found.get(group, 0.0) + value
        for group, grown_by in step.histograms.items():
            found[group] = found.get(group, 0.0) + grown_by.count
    return found


TOKENS = key("generation_tokens")
PROMPTS = key("prompt_tokens")
TTFT = key("ttft")

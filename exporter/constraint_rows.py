"""Rows of what binds: the family in force, and when the KV cache will be full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from analyzer.flow import UNSEEN, EngineFlow
from analyzer.verdict import Family

Row = tuple[tuple[str, ...], float]


def constraints(flows: Iterable[EngineFlow], at: float) -> Iterator[Row]:
    """Yields the families of every rank; exactly one is 1.

    Of an engine that nobody has read lately only a fault is still true.
    """
    for flow in flows:
        stale = flow.stale(at)
        for rank, timeline in flow.timelines.items():
            latest = timeline.latest
            if rank == UNSEEN or latest is None:
                continue
            if stale and latest.verdict.family is not Family.FAULT:
                continue
            for family in Family:
                labels = (flow.source.name, *rank, family.value)
                yield labels, float(family is latest.verdict.family)


def exhaustions(flows: Iterable[EngineFlow], at: float) -> Iterator[Row]:
    """Yields the seconds until a rank's KV cache is full, while it is filling."""
    for flow in flows:
        if flow.stale(at):
            continue
        for rank, known in flow.diagnosis.ranks.items():
            if known.forecast is not None:
                yield (flow.source.name, *rank), known.forecast.seconds

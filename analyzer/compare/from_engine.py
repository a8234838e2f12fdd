"""Samples of recordings without a request log: bounds from the engine's histograms.

An engine tells how many requests met each criterion, not which, so the share of good
ones lies between two bounds and has no estimate. Each bound has an interval of its
own, from blocks of time; what is compared is all that lies between the outermost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from analyzer.compare.sample import (
    LATENCIES,
    LEVELS,
    CompareError,
    Figure,
    Lengths,
    Sample,
    Side,
)
from analyzer.compare.span import Span
from analyzer.config import Config
from analyzer.flow import EngineFlow
from analyzer.goodput import Bounds, Marginal, joint_bounds
from analyzer.histogram import empty
from analyzer.history import Totals
from analyzer.replay import replay
from analyzer.slo import NO_CLASS
from analyzer.sources.recording import RecordingError, Scrape, read_scrapes
from analyzer.sweep.intervals import Interval, counted_share

TOKENS = {
    "prompt_tokens": "goodput_engine_prompt_tokens_total",
    "output_tokens": "goodput_engine_generation_tokens_total",
}
PIECES = 64  # of time; counted_share joins them to blocks
KIND = "engine"
FINISHED_ONLY = (
    "bounds from the engine's histograms: requests that failed before the engine, or "
    "that it never finished, are not in them"
)
NO_OBSERVATIONS = empty(())
_NOTHING = Marginal(0.0, 0.0, 0.0)


def engine_side(name: str, path: Path, config: Config, span: Span) -> Side:
    """Returns the models of a recording's engine, by class. Raises CompareError."""
    points: dict[str, list[Totals]] = {}

    def remember(flow: EngineFlow, _at: float) -> None:
        for model, totals in flow.totals.items():
            known = points.setdefault(model, [])
            if not known or known[-1].at < totals.at:
                known.append(totals)

    try:
        replayed = replay(
            _within(read_scrapes(path), span),
            replace(config, engine_histograms=True),
            on_scrape=remember,
        )
    except RecordingError as error:
        raise CompareError(str(error)) from None
    samples = dict(_samples(replayed[0], points)) if replayed is not None else {}
    if not samples:
        what = "in its range" if span.limited else "while it was recorded"
        raise CompareError(f"{name}: no request finished {what}")
    return Side(name, KIND, samples, (FINISHED_ONLY,))


def _samples(
    flow: EngineFlow, points: Mapping[str, Sequence[Totals]]
) -> Iterator[tuple[str, Sample]]:
    """Yields the models of which a request finished, with their class."""
    for model, listed in sorted(points.items()):
        if not listed[-1].finished > 0:
            continue
        slo_class, reason = flow.class_of(model)
        in_flight = flow.in_flight_at_begin.get(model, 0.0)
        begin = Totals(flow.memory.since, 0.0, 0.0, in_flight)
        name = f"{slo_class.name if slo_class else NO_CLASS} {model}".strip()
        yield name, _sample(flow, model, [begin, *listed], reason=reason)


def _within(scrapes: Iterator[Scrape], span: Span) -> Iterator[Scrape]:
    return (scrape for scrape in scrapes if span.begin <= scrape.at < span.end)


def _sample(
    flow: EngineFlow, model: str, points: Sequence[Totals], *, reason: str
) -> Sample:
    """Returns what an engine did for a model between the first and the last point."""
    last = points[-1]
    seconds = last.at - points[0].at
    judged = {} if reason else last.marginals
    whole = joint_bounds(last.finished, judged, in_flight=points[0].in_flight)
    return Sample(
        requests=int(last.finished),
        seconds=seconds,
        attainment=None if reason else _share(whole, _pieces(points)),
        latencies=dict(_latencies(flow, model)),
        workload={
            name: Lengths(tokens / last.finished, {})
            for name, tokens in _tokens(flow, model)
        },
        rate=last.finished / seconds if seconds else None,
        throughput=last.finished / seconds if seconds else None,
        reason=reason,
    )


def _tokens(flow: EngineFlow, model: str) -> Iterator[tuple[str, float]]:
    """Yields the tokens of prompts and of answers that the engine has counted."""
    for name, metric in TOKENS.items():
        found = [value for key, value in flow.ledger.rows(metric) if key[0] == model]
        if found:
            yield name, sum(found)


def _pieces(points: Sequence[Totals]) -> list[Bounds]:
    """Returns the bounds of pieces of time, as if nothing had been under way between.

    They tell how much shares vary from piece to piece, not the shares themselves.
    """
    times = np.array([point.at for point in points])
    edges = np.linspace(times[0], times[-1], PIECES + 1)
    places = np.unique(np.searchsorted(times, edges, side="right") - 1).tolist()
    return [
        joint_bounds(
            points[end].finished - points[begin].finished,
            _grown(points[end].marginals, points[begin].marginals),
        )
        for begin, end in pairwise(places)
        if points[end].finished > points[begin].finished
    ]


def _grown(
    after: Mapping[str, Marginal], before: Mapping[str, Marginal]
) -> dict[str, Marginal]:
    found = {}
    for name, marginal in after.items():
        past = before.get(name, _NOTHING)
        found[name] = Marginal(
            marginal.events - past.events,
            marginal.lower - past.lower,
            marginal.upper - past.upper,
            marginal.reason,
        )
    return found


def _share(whole: Bounds, pieces: Sequence[Bounds]) -> Figure | None:
    """Returns the bounds on the share of good requests, with what chance adds."""
    if whole.ratios is None:
        return None
    lower, upper = whole.ratios
    judged = np.array([piece.finished for piece in pieces])
    least = counted_share(np.array([piece.lower for piece in pieces]), judged)
    most = counted_share(np.array([piece.upper for piece in pieces]), judged)
    interval = None
    if least is not None and most is not None:
        interval = Interval(
            (lower + upper) / 2,
            max(0.0, lower - (least.estimate - least.lower)),
            min(1.0, upper + (most.upper - most.estimate)),
        )
    return Figure(None, interval, bounds=(lower, upper))


def _latencies(
    flow: EngineFlow, model: str
) -> Iterator[tuple[tuple[str, str], Figure]]:
    """Yields the buckets that hold each percentile."""
    for latency in LATENCIES:
        rows = flow.ledger.histograms.get(f"goodput_engine_{latency}_seconds", {})
        histogram = rows.get((model,), NO_OBSERVATIONS)
        for level, at in LEVELS.items():
            bounds = histogram.quantile_bracket(at)
            if bounds is not None:
                yield (latency, level), Figure(None, bounds=bounds)

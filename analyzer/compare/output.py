"""A comparison as JSON and as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from analyzer.compare.quality import Change
from analyzer.compare.sample import LATENCIES, Sample, Side
from analyzer.compare.verdicts import SHARE, Comparison, Pair, Row, Verdict

NOT_CHECKED = "quality was not checked"


def document(found: Comparison, quality: Sequence[Change] | None) -> dict[str, Any]:
    """Returns the comparison for programs; *quality* None was not checked."""
    return {
        "verdict": found.verdict.value,
        "a": _side(found.a),
        "b": _side(found.b),
        "pairs": [_pair(pair) for pair in found.pairs],
        "unpaired": list(found.unpaired),
        "quality": None
        if quality is None
        else [
            {
                "metric": c.name,
                "a": c.a.value,
                "b": c.b.value,
                "verdict": c.verdict.value,
            }
            for c in quality
        ],
        "quality_reason": NOT_CHECKED if quality is None else "",
    }


def _side(side: Side) -> dict[str, Any]:
    return {"name": side.name, "kind": side.kind, "warnings": list(side.warnings)}


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        "name": pair.name,
        "verdict": pair.verdict.value,
        "a": _sample(pair.a),
        "b": _sample(pair.b),
        "metrics": [_row(row) for row in pair.rows],
        "workload_alike": None
        if all(d.alike is None for d in pair.drifts)
        else not pair.unlike,
        "workload": [
            {"property": d.name, "alike": d.alike, "message": d.message}
            for d in pair.drifts
        ],
    }


def _sample(sample: Sample) -> dict[str, Any]:
    return {
        "requests": sample.requests,
        "seconds": sample.seconds,
        "blocks": sample.blocks,
        "reason": sample.reason,
    }


def _row(row: Row) -> dict[str, Any]:
    difference = row.difference
    return {
        "metric": row.metric,
        "a": row.a,
        "b": row.b,
        "a_bounds": row.a_bounds,
        "b_bounds": row.b_bounds,
        "difference": None if row.a is None or row.b is None else row.b - row.a,
        "interval": None
        if difference is None
        else [difference.lower, difference.upper],
        "verdict": row.verdict.value,
    }


def lines(found: Comparison, quality: Sequence[Change] | None) -> Iterator[str]:
    """Yields the comparison as text."""
    yield f"A: {found.a.name} ({found.a.kind})"
    yield f"B: {found.b.name} ({found.b.kind})"
    for pair in found.pairs:
        yield ""
        yield from _text(pair)
    for name in found.unpaired:
        yield f"only one side has {name}"
    yield ""
    if quality is None:
        yield f"{NOT_CHECKED}: give --quality A.json B.json of an evaluation"
    for change in quality or ():
        told = f"{change.a.value:.4g} → {change.b.value:.4g}"
        yield f"quality: {change.name}: {told}: {change.verdict}"
    yield f"verdict: B is {_words(found.verdict)}"


def _words(verdict: Verdict) -> str:
    return {
        Verdict.SAME: "not distinguishable from A",
        Verdict.UNKNOWN: "unknown: there is no interval on one side",
        Verdict.UNLIKE: "not comparable with A: the loads differ",
    }.get(verdict, f"{verdict} than A")


def _text(pair: Pair) -> Iterator[str]:
    a, b = pair.a, pair.b
    yield f"{pair.name}: {a.requests} → {b.requests} requests: {pair.verdict}"
    for latency in ("", *LATENCIES):
        yield from _rows([row for row in pair.rows if _latency(row) == latency])
    half = pair.rows[0].difference
    if half is not None and pair.verdict is Verdict.SAME:
        least = max(-half.lower, half.upper)
        yield f"  these measurements leave room for a difference of {least:.0%}"
    for drift in pair.drifts:
        mark = {True: "alike", False: "DIFFERS", None: "not checked"}[drift.alike]
        yield f"  load {mark}: {drift.message}"
    for name, sample in (("A", a), ("B", b)):
        if sample.reason:
            yield f"  {name}: {sample.reason}"


def _latency(row: Row) -> str:
    """Returns the latency that a row is a quantile of, "" for other figures."""
    return row.metric.partition("_")[0] if row.metric.endswith("_seconds") else ""


def _rows(rows: Sequence[Row]) -> Iterator[str]:
    """Yields the rows of one latency on a line, others on a line each."""
    parts = []
    for row in rows:
        a, b = _told(row, row.a, row.a_bounds), _told(row, row.b, row.b_bounds)
        if not a or not b:
            continue
        latency = _latency(row)
        name = row.metric.removesuffix("_seconds").removeprefix(f"{latency}_")
        name = name.replace("_", " ")
        unit = " s" * bool(latency)
        parts.append(f"{name} {a} → {b}{unit}{_span(row)}")
    if rows and _latency(rows[0]):
        if parts:
            yield f"  {_latency(rows[0])}: {', '.join(parts)}"
        return
    yield from (f"  {part}" for part in parts)


def _told(row: Row, value: float | None, bounds: tuple[float, float] | None) -> str:
    """Returns a figure, or the bounds between which it lies; "" when unknown."""
    shape = ".2%" if row.metric == SHARE else ".4g"
    if bounds is not None:
        if bounds[1] == math.inf:
            return f"over {bounds[0]:{shape}}"
        return f"{bounds[0]:{shape}}–{bounds[1]:{shape}}"
    return "" if value is None else f"{value:{shape}}"


def _span(row: Row) -> str:
    if row.difference is None:
        return ""
    low, high = row.difference.lower, row.difference.upper
    if row.metric == SHARE:
        return f" ({low:+.1%} to {high:+.1%}: {row.verdict})"
    return f" ({low:+.3g} to {high:+.3g} s: {row.verdict})"

"""A sweep as text: a table a configuration, and what it says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from analyzer.slo import SloClass
from analyzer.sweep.curve import SHORT_TURNS, Curve, Note
from analyzer.sweep.document import best
from analyzer.sweep.point import FEW_REQUESTS, Point, meets
from analyzer.sweep.words import named, target

_HEAD = (
    "load",
    "req/s",
    "good/s",
    "attainment",
    "95 % interval",
    "tok/s",
    "tok/s/user",
    "TTFT p50",
    "p99",
    "TPOT p50",
    "p99",
    "E2E p99",
    "failed",
)
_SHARED = {
    "few_requests": f"fewer than {FEW_REQUESTS} requests, p99 is the largest or nearly",
    "short": f"shorter than {SHORT_TURNS:g} median answers, start and end weigh much",
}


def lines(curves: Sequence[Sequence[Curve]]) -> Iterator[str]:
    """Yields the text of *curves*, which are listed by class."""
    for listed in curves:
        if not listed:
            continue
        slo_class = listed[0].slo_class
        if slo_class is not None:
            yield f"class {slo_class.name}: {target(slo_class)}"
            yield ""
        for curve in listed:
            yield from _curve(curve)
        if len(listed) > 1:
            yield from _best(listed)


def _curve(curve: Curve) -> Iterator[str]:
    yield f"{named(curve.points[0].pool.config)}, by {curve.axis.replace('_', ' ')}:"
    rows = [_HEAD, *(_row(p, curve.slo_class) for p in curve.points)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    for row in rows:
        cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        yield "  " + "  ".join(cells)
    yield from (f"  {line}" for line in _findings(curve))
    yield from (f"  note: {line}" for line in _notes(curve.notes))
    yield ""


def _notes(notes: Sequence[Note]) -> Iterator[str]:
    """Yields the notes; those that many points share are put together."""
    for code, message in _SHARED.items():
        loads = [load(n.load) for n in notes if n.code == code and n.load is not None]
        if loads:
            yield f"at {', '.join(loads)}: {message}"
    for note in notes:
        if note.code not in _SHARED:
            place = "" if note.load is None else f"at {load(note.load)}: "
            yield place + note.message


def load(value: float) -> str:
    """Returns a load; one without a limit is all requests at once."""
    return f"{value:g}" if math.isfinite(value) else "all"


def _row(point: Point, slo_class: SloClass | None) -> tuple[str, ...]:
    goodput = point.goodput
    bounds = goodput.bounds if goodput else None
    exact = goodput.attainment if goodput else None
    if exact is None and bounds is not None:
        low, high = (point.rate_of(bound) or 0.0 for bound in bounds)
        good = f"{low:.2f}–{high:.2f}"
        share = f"{bounds[0]:.1%}–{bounds[1]:.1%}"
    else:
        rate = point.rate_of(exact)
        good = "—" if rate is None else f"{rate:.2f}"
        share = "—" if exact is None else f"{exact:.1%}"
    interval = goodput.interval if goodput else None
    tokens = point.output_tokens
    between = point.latencies.get(("tpot", "p50"))
    under = meets(point, slo_class) if slo_class else None
    mark = {True: "", False: " ✗", None: " ?" if slo_class else ""}[under]
    return (
        load(point.load),
        f"{point.throughput:.2f}",
        good,
        share + mark,
        "—" if interval is None else f"{interval.lower:.1%}–{interval.upper:.1%}",
        "—" if tokens is None else f"{tokens / point.seconds:.4g}",
        "—" if not between else f"{1 / between:.3g}",
        _time(point, "ttft", "p50"),
        _time(point, "ttft", "p99"),
        _time(point, "tpot", "p50"),
        _time(point, "tpot", "p99"),
        _time(point, "e2e", "p99"),
        str(point.failed),
    )


def _time(point: Point, latency: str, level: str) -> str:
    seconds = point.latencies.get((latency, level))
    if seconds is None:
        return "—"
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _findings(curve: Curve) -> Iterator[str]:
    axis = curve.axis.replace("_", " ")
    if curve.knee.index is None:
        yield f"knee: none: {curve.knee.reason}"
    else:
        point = curve.measured[curve.knee.index]
        yield f"knee: {axis} {point.load:g} at {point.throughput:.3g} req/s (Kneedle)"
    usl = curve.usl
    if usl is not None:
        peak = (
            f"peak at {usl.peak_load:.3g}"
            if math.isfinite(usl.peak_load)
            else "no peak"
        )
        doubt = f"; {curve.usl_reason}" if curve.usl_reason else ""
        yield (
            f"scalability law: {usl.rate:.3g} req/s alone, serial {usl.serial:.2g}, "
            f"crosstalk {usl.crosstalk:.2g}, {peak}, residuals up to "
            f"{usl.worst_residual:.0%}{doubt}"
        )
    if curve.plateau:
        low, high = curve.plateau
        yield f"plateau: throughput stays within 5 % from {axis} {low:g} to {high:g}"
    if curve.overshoot:
        begin, end, lost = curve.overshoot
        yield f"overshoot: throughput falls {lost:.0%} from {axis} {begin:g} to {end:g}"
    if curve.slo_class is None:
        return
    if curve.region:
        low, high = curve.region
        yield f"goodput region: the target is met from {axis} {low:g} to {high:g}"
    yield from _operating(curve, axis)


def _operating(curve: Curve, axis: str) -> Iterator[str]:
    found = curve.operating
    if found.point is None:
        yield f"operating point: none: {found.reason}"
        return
    point = found.point
    rate = point.rate_of(
        point.goodput.bounds[0] if point.goodput and point.goodput.bounds else None
    )
    sure = "" if found.certain else "; its interval reaches below the target"
    more = f"; {found.reason}" if found.reason else ""
    yield f"operating point: {axis} {point.load:g}, {rate:.3g} good req/s{sure}{more}"
    if found.beyond is not None:
        yield (
            f"  the limit lies between {axis} {point.load:g} and "
            f"{found.beyond.load:g}; measure between them to pin it down"
        )


def _best(curves: Sequence[Curve]) -> Iterator[str]:
    top = best(curves)
    name = named(top.points[0].pool.config)
    point = top.operating.point
    if point is None:
        yield f"most throughput: {name}"
        return
    rate = _surely_good(point)
    axis = top.axis.replace("_", " ")
    yield f"best under target: {name}, {rate:.3g} good req/s at {axis} {point.load:g}"


def _surely_good(point: Point) -> float:
    bounds = point.goodput.bounds if point.goodput else None
    return point.rate_of(bounds[0] if bounds else None) or 0.0

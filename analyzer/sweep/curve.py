"""A configuration's curve over the load: knee, goodput region, operating point."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analyzer.capacity.knee import USL_POINTS, Knee, Usl, fit_usl, kneedle
from analyzer.slo import SloClass
from analyzer.sweep.point import FEW_REQUESTS, Point, measure, meets
from analyzer.sweep.pool import CONCURRENCY, REQUEST_RATE, Pool

FLAT = 0.05  # throughput within this of the highest is the same
NOISY = 0.1  # repeats, or a dip on the way up, of more than this
MISFIT = 0.15  # a residual of the scalability law that says: not this machine
SHORT_TURNS = 10.0  # a run should last as many answers' times
KEPT_UP = 0.95  # an open loop that achieves less of its rate is saturated


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a reader of the curve must know; `load` None: all of it."""

    code: str
    message: str
    load: float | None = None


@dataclass(frozen=True, slots=True)
class Operating:
    """The last point under target, None for none, and the first beyond it.

    `certain`: the lower limit of its interval is under target too.
    """

    point: Point | None
    beyond: Point | None
    certain: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """One configuration judged by one class; points are in the order of load."""

    slo_class: SloClass | None
    points: tuple[Point, ...]
    knee: Knee
    usl: Usl | None
    usl_reason: str
    plateau: tuple[float, float] | None
    overshoot: tuple[float, float, float] | None
    region: tuple[float, float] | None
    operating: Operating
    notes: tuple[Note, ...]

    @property
    def axis(self) -> str:
        """What the load is: concurrency or request_rate."""
        return self.points[0].pool.axis

    @property
    def measured(self) -> tuple[Point, ...]:
        """The points whose load is a number."""
        return finite(self.points)


def finite(points: Sequence[Point]) -> tuple[Point, ...]:
    """Returns the points whose load is a number: not of all requests at once."""
    return tuple(p for p in points if math.isfinite(p.load))


def curve(pools: Sequence[Pool], slo_class: SloClass | None) -> Curve:
    """Returns the analysis of *pools*, which are in the order of their load."""
    points = tuple(measure(pool, slo_class) for pool in pools)
    known = finite(points)
    loads = [p.load for p in known]
    rates = [p.throughput for p in known]
    knee = kneedle(loads, rates)
    usl, why = _usl(points[0].pool.axis, loads, rates)
    operating = _operating(known, slo_class)
    return Curve(
        slo_class=slo_class,
        points=points,
        knee=knee,
        usl=usl,
        usl_reason=why,
        plateau=_plateau(loads, rates),
        overshoot=_overshoot(loads, rates),
        region=_region(known, slo_class),
        operating=operating,
        notes=tuple(_notes(points, loads, rates, slo_class)),
    )


def _usl(
    axis: str, loads: Sequence[float], rates: Sequence[float]
) -> tuple[Usl | None, str]:
    if axis != CONCURRENCY:
        return None, "the scalability law is for closed loops (concurrency)"
    if len(loads) < USL_POINTS:
        return None, f"{len(loads)} load points of the {USL_POINTS} needed"
    usl = fit_usl(loads, rates)
    if usl is None:
        return None, "no scalability law fits"
    if usl.worst_residual > MISFIT:
        return usl, "too far from the points to trust"
    return usl, ""


def _plateau(
    loads: Sequence[float], rates: Sequence[float]
) -> tuple[float, float] | None:
    """Returns the loads from and to which throughput stays flat, at its highest."""
    if not rates:
        return None
    floor = max(rates) * (1 - FLAT)
    top = max(range(len(rates)), key=lambda at: rates[at])
    first = last = top
    while first > 0 and rates[first - 1] >= floor:
        first -= 1
    while last + 1 < len(rates) and rates[last + 1] >= floor:
        last += 1
    return (loads[first], loads[last]) if last > first else None


def _overshoot(
    loads: Sequence[float], rates: Sequence[float]
) -> tuple[float, float, float] | None:
    """Returns the load of the peak, the last load, and the share lost on the way."""
    if not rates or rates[-1] >= max(rates) * (1 - FLAT):
        return None
    top = max(range(len(rates)), key=lambda at: rates[at])
    return loads[top], loads[-1], 1 - rates[-1] / rates[top]


def _region(
    points: Sequence[Point], slo_class: SloClass | None
) -> tuple[float, float] | None:
    """Returns the loads between which the target is met without a break."""
    if slo_class is None:
        return None
    first = None
    last = None
    for point in points:
        if meets(point, slo_class):
            first = point.load if first is None else first
            last = point.load
        elif first is not None:
            break
    return None if first is None or last is None else (first, last)


def _operating(points: Sequence[Point], slo_class: SloClass | None) -> Operating:
    if slo_class is None:
        return Operating(None, None, certain=False, reason="no SLO class was given")
    best = None
    for point in points:
        under = meets(point, slo_class)
        if under:
            best = point
            continue
        if best is None and point is points[0]:
            reason = (
                "the lowest load misses the target already; measure lower ones"
                if under is False
                else "the lowest load may or may not meet the target: only bounds"
            )
            return Operating(None, point, certain=False, reason=reason)
        return Operating(best, point, certain=_certain(best, slo_class))
    if best is None:
        return Operating(None, None, certain=False, reason="no load point")
    reason = "every load meets the target; measure higher ones"
    return Operating(best, None, certain=_certain(best, slo_class), reason=reason)


def _certain(point: Point | None, slo_class: SloClass) -> bool:
    interval = point.goodput.interval if point and point.goodput else None
    return interval is not None and interval.lower >= slo_class.objective


def _notes(
    points: Sequence[Point],
    loads: Sequence[float],
    rates: Sequence[float],
    slo_class: SloClass | None,
) -> Iterator[Note]:
    if len(loads) < USL_POINTS:
        yield Note(
            "few_points",
            f"{len(loads)} load points of the {USL_POINTS} that tell a curve",
        )
    for point in points:
        yield from _point_notes(point)
    top = max(range(len(rates)), key=lambda at: rates[at], default=0)
    for at in range(1, top):
        if rates[at] < rates[at - 1] * (1 - NOISY):
            drop = 1 - rates[at] / rates[at - 1]
            message = f"throughput dips by {drop:.0%} on the way up: noise, or a change"
            yield Note("noisy", message, loads[at])
    if slo_class is not None:
        missed = False
        for point in finite(points):
            under = meets(point, slo_class)
            if under and missed:
                message = "meets the target though a lower load does not: measure again"
                yield Note("not_monotone", message, point.load)
            missed = missed or under is False


def _point_notes(point: Point) -> Iterator[Note]:
    load = point.load
    if point.sent < FEW_REQUESTS:
        message = f"{point.sent} requests: p99 is the largest, or nearly"
        yield Note("few_requests", message, load)
    turns = point.turns
    if turns is not None and turns < SHORT_TURNS:
        message = f"lasts {turns:.1f} times a median answer: start and end weigh much"
        yield Note("short", message, load)
    spread = point.spread
    if spread is not None and spread > NOISY:
        yield Note("noisy", f"repeats differ by {spread:.0%} in throughput", load)
    kept = point.throughput / load if math.isfinite(load) else math.inf
    if point.pool.axis == REQUEST_RATE and kept < KEPT_UP:
        message = f"achieved {kept:.0%} of the rate asked: saturated, or too short"
        yield Note("saturated", message, load)
    if point.failed:
        message = (
            f"{point.failed} of {point.sent} requests failed; none of them is good"
        )
        yield Note("failed", message, load)
    for run in point.pool.runs:
        for text in run.notes:
            yield Note("file", f"{run.file}: {text}", load)

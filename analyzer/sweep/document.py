"""A sweep as one JSON document."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from analyzer.benchmarks.run import LATENCIES, Problem
from analyzer.slo import SloClass
from analyzer.sweep.curve import Curve
from analyzer.sweep.intervals import Interval
from analyzer.sweep.point import LEVELS, Point, meets

Document = dict[str, Any]


def document(
    curves: Sequence[Sequence[Curve]], problems: Sequence[Problem], files: Sequence[str]
) -> Document:
    """Returns the document of *curves*, which are listed by class.

    The first class is at the top; all of them are in `classes` when there are
    several. `knee` and `operating_point` are those of the best configuration.
    """
    by_class = [_class_row(listed) for listed in curves if listed]
    first = by_class[0] if by_class else {"points": [], "knee": None}
    return {
        **first,
        **({"classes": by_class} if len(by_class) > 1 else {}),
        "files": list(files),
        "problems": [
            {"file": p.file, "place": p.place, "message": p.message} for p in problems
        ],
    }


def _class_row(curves: Sequence[Curve]) -> Document:
    slo_class = curves[0].slo_class
    top = best(curves)
    rows = [_curve_row(c) for c in curves]
    chosen = rows[next(i for i, c in enumerate(curves) if c is top)]
    return {
        "class": slo_class.name if slo_class else None,
        "criteria": _criteria(slo_class),
        "objective": slo_class.objective if slo_class else None,
        "points": [_point_row(p, slo_class) for c in curves for p in c.points],
        "knee": chosen["knee"],
        "operating_point": chosen["operating_point"],
        "curves": rows,
    }


def _criteria(slo_class: SloClass | None) -> Document | None:
    if slo_class is None:
        return None
    return {
        criterion: {
            "seconds": threshold.seconds,
            "per_prompt_token_seconds": threshold.per_prompt_token,
        }
        for criterion, threshold in slo_class.good.items()
    }


def best(curves: Sequence[Curve]) -> Curve:
    """Returns the configuration with the most good requests a second under target.

    Where none has an operating point, that with the highest throughput.
    """

    def rank(curve: Curve) -> tuple[bool, float]:
        point = curve.operating.point
        if point is not None and point.goodput is not None and point.goodput.bounds:
            return True, point.rate_of(point.goodput.bounds[0]) or 0.0
        return False, max(p.throughput for p in curve.points)

    return max(curves, key=rank)


def _curve_row(curve: Curve) -> Document:
    return {
        "config": dict(curve.points[0].pool.config),
        "axis": curve.axis,
        "knee": _knee(curve),
        "operating_point": _operating(curve),
        "goodput_region": _ends(curve.region, curve.axis),
        "plateau": _ends(curve.plateau, curve.axis),
        "overshoot": None
        if curve.overshoot is None
        else {
            "from": curve.overshoot[0],
            "to": curve.overshoot[1],
            "throughput_lost_ratio": curve.overshoot[2],
        },
        "notes": [
            {"code": n.code, "load": _finite(n.load), "message": n.message}
            for n in curve.notes
        ],
    }


def _ends(loads: tuple[float, float] | None, axis: str) -> Document | None:
    return None if loads is None else {"axis": axis, "from": loads[0], "to": loads[1]}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _knee(curve: Curve) -> Document:
    usl = curve.usl
    row: Document = {
        "method": "kneedle",
        "concurrency": None,
        "request_rate": None,
        "requests_per_second": None,
        "reason": curve.knee.reason,
        "config": dict(curve.points[0].pool.config),
        "usl": None
        if usl is None
        else {
            "rate": usl.rate,
            "serial": usl.serial,
            "crosstalk": usl.crosstalk,
            "peak_concurrency": _finite(usl.peak_load),
            "residuals": list(usl.residuals),
            "worst_residual": usl.worst_residual,
        },
        "usl_reason": curve.usl_reason,
    }
    if curve.knee.index is not None:
        point = curve.measured[curve.knee.index]
        row[curve.axis] = point.load
        row["requests_per_second"] = point.throughput
    return row


def _operating(curve: Curve) -> Document:
    found = curve.operating
    row: Document = {
        "concurrency": None,
        "request_rate": None,
        "requests_per_second": None,
        "goodput_requests_per_second": None,
        "attainment": None,
        "certain": found.certain,
        "reason": found.reason,
        "beyond": None if found.beyond is None else found.beyond.load,
        "config": dict(curve.points[0].pool.config),
    }
    if found.point is not None:
        row.update(_point_row(found.point, curve.slo_class))
    return row


def _point_row(point: Point, slo_class: SloClass | None) -> Document:
    axis, goodput = point.pool.axis, point.goodput
    tokens = point.output_tokens
    attainment = goodput.attainment if goodput else None
    interval = goodput.interval if goodput else None
    return {
        "concurrency": _finite(point.load)
        if axis == "concurrency"
        else point.pool.config.get("max_concurrency"),
        "request_rate": point.load if axis == "request_rate" else None,
        "config": dict(point.pool.config),
        "runs": len(point.pool.runs),
        "tool": point.pool.runs[0].tool,
        "model": point.pool.runs[0].model or None,
        "requests": point.sent,
        "completed": point.completed,
        "failed": point.failed,
        "seconds": point.seconds,
        "requests_per_second": point.throughput,
        "goodput_requests_per_second": point.rate_of(attainment),
        "goodput_bounds_requests_per_second": None
        if goodput is None or goodput.bounds is None
        else [point.rate_of(bound) for bound in goodput.bounds],
        "output_tokens_per_second": None if tokens is None else tokens / point.seconds,
        "total_tokens_per_second": None
        if tokens is None or point.input_tokens is None
        else (tokens + point.input_tokens) / point.seconds,
        **_user_rates(point.latencies),
        **{
            f"{latency}_{level}_seconds": point.latencies.get((latency, level))
            for latency in LATENCIES
            for level in LEVELS
        },
        "attainment": attainment,
        "attainment_interval": _limits(interval),
        "attainment_bounds": list(goodput.bounds)
        if goodput and goodput.bounds
        else None,
        "blocks": goodput.blocks.number if goodput and goodput.blocks else None,
        "missed": dict(goodput.missed) if goodput else {},
        "meets_target": meets(point, slo_class) if slo_class else None,
        "reason": goodput.reason if goodput else "no SLO class was given",
        "reported_goodput_requests_per_second": point.pool.runs[0].reported_goodput
        if len(point.pool.runs) == 1
        else None,
        "files": [f"{r.file}{': ' * bool(r.place)}{r.place}" for r in point.pool.runs],
    }


def _user_rates(latencies: Mapping[tuple[str, str], float | None]) -> Document:
    """Returns tokens a second as one user sees them; p05 is of the slowest 5 %."""
    rows = {}
    for name, level in (("p50", "p50"), ("p05", "p95")):
        between = latencies.get(("tpot", level))
        rows[f"user_tokens_per_second_{name}"] = 1 / between if between else None
    return rows


def _limits(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.lower, interval.upper]

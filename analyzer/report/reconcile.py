"""Production laid over a benchmark's curve: whether they agree at the same load.

A sweep is of one server, so production's load is divided by its replicas. Compared are
stretches of time with enough requests, at loads between the least and the greatest that
the sweep measured; at another mix of lengths the two need not agree, and that is said.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from analyzer.report.report import Row, ratio
from analyzer.report.series import Series
from analyzer.report.summary import Summary
from analyzer.report.tables_time import bin_seconds
from analyzer.report.workload import total
from analyzer.sweep.curve import Curve
from analyzer.sweep.pool import CONCURRENCY

FEWEST = 20  # judged requests of a stretch
SLACK = 0.05  # of attainment, for what a stretch and a run have by chance
WIDEST = 0.4  # limits further apart hold nearly anything
ALIKE = 1.25  # mean lengths that differ by more make another workload


@dataclass(frozen=True, slots=True)
class Known:
    """What a sweep says at a load: the share of good requests, and its limits."""

    load: float
    expected: float
    lower: float
    upper: float


def reconciled(
    summary: Summary, curves: Sequence[Sequence[Curve]], replicas: int
) -> tuple[list[Row], list[Row]]:
    """Returns production's stretches beside each curve, and a verdict a curve."""
    points: list[Row] = []
    verdicts: list[Row] = []
    for listed in curves:
        for number, curve in enumerate(listed, 1):
            found = list(_points(summary, curve, replicas))
            name = f"{number} of {len(listed)}"
            points += ({**row, "curve": name} for row in found)
            verdicts.append({**_verdict(summary, curve, found), "curve": name})
    return points, verdicts


def known_of(curve: Curve) -> list[Known]:
    """Returns the points of a curve whose share is known, in the order of load."""
    found = []
    for point in curve.measured:
        goodput = point.goodput
        bounds = goodput.bounds if goodput is not None else None
        if goodput is None or bounds is None:
            continue
        share = goodput.attainment
        expected = share if share is not None else sum(bounds) / 2
        lower, upper = bounds
        if share is not None and goodput.interval is not None:
            lower, upper = goodput.interval.lower, goodput.interval.upper
        found.append(Known(point.load, expected, lower, upper))
    return found


def _points(summary: Summary, curve: Curve, replicas: int) -> Iterator[Row]:
    """Yields the stretches of a class with enough requests, and what is expected."""
    name = curve.slo_class.name if curve.slo_class else ""
    known = known_of(curve)
    width = bin_seconds(max(summary.last - summary.first, 0.0))
    widths = [s.at_least(width).seconds for s in summary.timeline.values()]
    width = max([width, summary.arrivals.at_least(width).seconds, *widths])
    loads = _loads(summary, width, by_concurrency=curve.axis == CONCURRENCY)
    counts: dict[int, list[float]] = {}
    for (class_name, _), series in summary.timeline.items():
        if class_name == name:
            bins, values = series.at_least(width).rows
            for at, row in zip(bins.tolist(), values.tolist(), strict=True):
                before = counts.get(at, [0.0, 0.0])
                counts[at] = [before[0] + row[1], before[1] + row[2]]
    for at, (good, bad) in sorted(counts.items()):
        if good + bad < FEWEST:
            continue
        load = loads.get(at, 0.0) / replicas
        expected = at_load(known, load)
        yield {
            "start": at * width,
            "class": name,
            "load": load,
            "axis": curve.axis,
            "requests": good + bad,
            "attainment": good / (good + bad),
            "expected": expected.expected if expected else None,
            "lower": expected.lower if expected else None,
            "upper": expected.upper if expected else None,
        }


def _loads(summary: Summary, width: int, *, by_concurrency: bool) -> dict[int, float]:
    """Returns the load of each bin, over all classes: at once, or a second."""
    series: Series = summary.arrivals.at_least(width)
    bins, values = series.rows
    figures = values[:, 2] / width
    if by_concurrency:
        before = np.cumsum(values[:, 0]) - values[:, 0]
        figures = before + values[:, 1] / width
    return dict(zip(bins.tolist(), figures.tolist(), strict=True))


def at_load(known: Sequence[Known], load: float) -> Known | None:
    """Returns what is to be expected at a load, None outside the loads measured.

    Between two of them the share is on the line, and its limits are the wider ones.
    """
    if not known or not known[0].load <= load <= known[-1].load:
        return None
    right = bisect_left([k.load for k in known], load)
    after = known[right]
    if after.load == load:
        return after
    before = known[right - 1]
    part = (load - before.load) / (after.load - before.load)
    return Known(
        load,
        before.expected + part * (after.expected - before.expected),
        min(before.lower, after.lower),
        max(before.upper, after.upper),
    )


def _verdict(summary: Summary, curve: Curve, found: Sequence[Row]) -> Row:
    """Returns whether production and a curve agree, and why that may not count."""
    inside = [row for row in found if row["expected"] is not None]
    requests = sum(row["requests"] for row in inside)

    def mean(name: str) -> float | None:
        return ratio(sum(row[name] * row["requests"] for row in inside), requests)

    share, lower, upper = mean("attainment"), mean("lower"), mean("upper")
    notes = list(_drift(summary, curve))
    if len(inside) < len(found):
        notes.append(
            f"{len(found) - len(inside)} of {len(found)} stretches are at loads that "
            "the sweep did not measure"
        )
    verdict = "not comparable"
    if share is None or lower is None or upper is None:
        notes.append("no stretch with enough requests is at a load of the sweep")
    elif upper - lower > WIDEST:
        verdict = "cannot be told"
        notes.append(
            "at these loads the sweep's shares are too uncertain, or fall too steeply "
            "between its points"
        )
    elif share < lower - SLACK:
        verdict = "production is worse"
    elif share > upper + SLACK:
        verdict = "production is better"
    else:
        verdict = "they agree"
    return {
        "class": curve.slo_class.name if curve.slo_class else "",
        "axis": curve.axis,
        "verdict": verdict,
        "stretches": len(inside),
        "requests": requests,
        "attainment": share,
        "expected": mean("expected"),
        "lower": lower,
        "upper": upper,
        "notes": "; ".join(notes),
        "points": [
            {
                "load": known.load,
                "expected": known.expected,
                "lower": known.lower,
                "upper": known.upper,
            }
            for known in known_of(curve)
        ],
    }


def _drift(summary: Summary, curve: Curve) -> Iterator[str]:
    """Yields how production's lengths differ from those of the sweep."""
    measured = curve.measured
    for name, what, tokens in (
        ("prompt_tokens", "prompts", [p.input_tokens for p in measured]),
        ("output_tokens", "answers", [p.output_tokens for p in measured]),
    ):
        live = total(summary, name).mean
        answers = sum(p.completed for p in measured)
        known = [t for t in tokens if t is not None]
        if live is None or len(known) < len(tokens) or not answers:
            yield f"whether {what} are as long as the sweep's is not known"
            continue
        swept = sum(known) / answers
        if not 1 / ALIKE <= (live / swept if swept else 0.0) <= ALIKE:
            yield (
                f"{what} have {live:.0f} tokens in the mean and {swept:.0f} in the "
                "sweep: another workload"
            )

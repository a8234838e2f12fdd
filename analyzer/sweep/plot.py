"""A sweep as a picture: throughput and goodput, and latencies, over the load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analyzer.sweep.curve import Curve
from analyzer.sweep.point import Point
from analyzer.sweep.words import named, target

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")
_GOOD, _ALL, _LINE = "#1a7f37", "#57606a", "#cf222e"  # told apart in grey too


def write(curves: Sequence[Curve], path: Path) -> None:
    """Writes the picture of *curves*, of one class, a column a configuration.

    Raises OSError when it cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  heavy
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(5.5 * len(curves), 7.5), layout="constrained")
    FigureCanvasAgg(figure)  # no window, and no global state of pyplot
    panels = figure.subplots(2, len(curves), squeeze=False, sharey="row", sharex="col")
    top = max(p.throughput for c in curves for p in c.points)
    for column, curve in enumerate(curves):
        panels[0][column].set_ylim(0, top * 1.15 or 1.0)
        _rates(panels[0][column], curve)
        _latencies(panels[1][column], curve)
    slo_class = curves[0].slo_class
    if slo_class is not None:
        figure.suptitle(f"{slo_class.name}: {target(slo_class)}", fontsize=10)
    figure.savefig(path, dpi=150)


def _rates(panel: Axes, curve: Curve) -> None:
    points = curve.measured
    loads = [p.load for p in points]
    panel.plot(loads, [p.throughput for p in points], "o--", color=_ALL, label="all")
    judged = [p for p in points if p.goodput is not None and p.goodput.bounds]
    if judged:
        at = [p.load for p in judged]
        exact = [p.rate_of(p.goodput.attainment if p.goodput else None) for p in judged]
        panel.plot(
            at,
            [math.nan if rate is None else rate for rate in exact],
            "o-",
            color=_GOOD,
            label="good",
        )
        spans = [_span(p) for p in judged]
        low, high = zip(*spans, strict=True)
        label = "interval or bounds of good"
        panel.fill_between(at, low, high, color=_GOOD, alpha=0.2, label=label)
    if curve.knee.index is not None:
        at_knee = points[curve.knee.index]
        panel.annotate(
            "knee",
            (at_knee.load, at_knee.throughput),
            xytext=(6, 6),
            textcoords="offset points",
        )
    if curve.operating.point is not None:
        panel.axvline(
            curve.operating.point.load,
            color=_GOOD,
            linestyle=":",
            label="operating point",
        )
    panel.set_title(named(curve.points[0].pool.config), fontsize=10)
    panel.set_ylabel("requests a second")
    panel.legend(fontsize=8)
    panel.grid(alpha=0.3)


def _span(point: Point) -> tuple[float, float]:
    """Returns the limits of good requests a second: the interval, else the bounds."""
    goodput = point.goodput
    if goodput is None or goodput.bounds is None:
        return math.nan, math.nan
    low, high = goodput.bounds
    if goodput.interval is not None:
        low, high = goodput.interval.lower, goodput.interval.upper
    return point.rate_of(low) or 0.0, point.rate_of(high) or 0.0


def _latencies(panel: Axes, curve: Curve) -> None:
    points = curve.measured
    for latency, mark in (("ttft", "o"), ("tpot", "s"), ("e2e", "^")):
        for level, style in (("p50", "-"), ("p99", ":")):
            known = [(p.load, p.latencies.get((latency, level))) for p in points]
            drawn = [(at, seconds) for at, seconds in known if seconds]
            if drawn:
                loads, seconds = zip(*drawn, strict=True)
                name = f"{latency.upper()} {level}"
                panel.plot(loads, seconds, mark + style, label=name, markersize=4)
    slo_class = curve.slo_class
    for criterion, threshold in (slo_class.good if slo_class else {}).items():
        panel.axhline(threshold.seconds, color=_LINE, linewidth=0.8, linestyle="--")
        panel.annotate(
            f"{criterion} limit",
            (0.01, threshold.seconds),
            xycoords=("axes fraction", "data"),
            va="bottom",
            fontsize=7,
            color=_LINE,
        )
    panel.set_yscale("log")
    if curve.axis == "concurrency":
        panel.set_xscale("log", base=2)
    panel.xaxis.set_major_formatter("{x:g}")
    panel.set_xlabel(f"{curve.axis.replace('_', ' ')}")
    panel.set_ylabel("seconds")
    panel.legend(fontsize=7, ncols=2)
    panel.grid(alpha=0.3)

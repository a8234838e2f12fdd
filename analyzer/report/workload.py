"""The shape of a workload: how fast requests come, how burstily, how many at once."""

from __future__ import annotations

import math

import numpy as np

from analyzer.report.report import Row
from analyzer.report.series import Series
from analyzer.report.sketch import Sketch
from analyzer.report.summary import LENGTHS, Summary

SCALES = (1, 15, 60, 300, 3600)
FEWEST_BINS = 20
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def workload(summary: Summary) -> Row:
    """Returns the shape of what was counted; a figure that is not known is None.

    `burstiness` is the index of dispersion of arrivals: the variance of their number
    in a bin over its mean, 1 for a Poisson process and 0 for a metronome.
    """
    seconds = summary.last - summary.first
    bins, values = summary.arrivals.rows
    arrived = float(values[:, 2].sum())
    shape: Row = {
        "requests": round(arrived),
        "undated": summary.undated,
        "requests_per_second": arrived / seconds if seconds > 0 else None,
        "peak_requests_per_second": [],
        "burstiness": [],
        "concurrency": concurrency(summary.arrivals),
    }
    for scale in SCALES:
        series = summary.arrivals.at_least(scale)
        if series.seconds != scale or scale > max(seconds, 1.0) or not len(bins):
            continue
        counts = series.rows[1][:, 2]
        number = math.floor(summary.last / scale) - math.floor(summary.first / scale)
        number += 1
        mean = arrived / number
        peak = float(counts.max()) / scale
        shape["peak_requests_per_second"].append({"bin_seconds": scale, "value": peak})
        if number >= FEWEST_BINS:
            variance = float((counts**2).sum()) / number - mean**2
            shape["burstiness"].append({"bin_seconds": scale, "value": variance / mean})
    for name in LENGTHS:
        shape[name] = described(total(summary, name), whole=True)
    return shape


def total(summary: Summary, name: str) -> Sketch:
    """Returns the sketch of a measure over all classes and models."""
    found = Sketch()
    for key, sketch in summary.sketches.items():
        if key[2] == name:
            found.merge(sketch)
    return found


def described(sketch: Sketch, *, whole: bool = False) -> Row:
    """Returns count, mean, percentiles and extremes; *whole* ones of whole numbers."""
    count = sketch.count
    return {
        "count": count,
        "mean": sketch.mean,
        **quantiles(sketch, whole=whole),
        "min": sketch.least if count else None,
        "max": sketch.greatest if count else None,
    }


def quantiles(sketch: Sketch, *, whole: bool = False) -> Row:
    """Returns the percentiles of a sketch, rounded to *whole* numbers."""
    found = {name: sketch.quantile(q) for name, q in QUANTILES.items()}
    if whole:
        return {name: None if v is None else round(v) for name, v in found.items()}
    return dict(found)


def concurrency(arrivals: Series) -> Row:
    """Returns how many requests were there at once: by time, in bins of the series."""
    bins, values = arrivals.rows
    if not len(bins):
        return {
            "mean": None,
            "p50": None,
            "p95": None,
            "max": None,
            "bin_seconds": None,
        }
    width = arrivals.seconds
    before = np.cumsum(values[:, 0]) - values[:, 0]
    inside = before + values[:, 1] / width
    gaps = np.diff(bins) - 1
    levels = np.concatenate([inside, (before + values[:, 0])[:-1][gaps > 0]])
    weights = np.concatenate([np.ones(len(bins)), gaps[gaps > 0]])
    order = np.argsort(levels, kind="stable")
    levels, weights = levels[order], weights[order]
    share = np.cumsum(weights) / weights.sum()

    def at(q: float) -> float:
        return float(levels[min(int(np.searchsorted(share, q)), len(levels) - 1)])

    return {
        "mean": float((levels * weights).sum() / weights.sum()),
        "p50": at(0.5),
        "p95": at(0.95),
        "max": float(levels[-1]),
        "bin_seconds": width,
    }

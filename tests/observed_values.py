"""Histograms made by counting values one by one."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.histogram import Histogram


def observed(bounds: Sequence[float], values: Sequence[float]) -> Histogram:
    """Returns the histogram of *values*, counted one by one."""
    counts = tuple(float(sum(v <= bound for v in values)) for bound in bounds)
    return Histogram(tuple(bounds), counts, sum(values))

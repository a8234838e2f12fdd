"""Were the loads alike: lengths of prompts and answers, rate, concurrency."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analyzer.compare.sample import LENGTHS, Lengths, Sample
from analyzer.sweep.intervals import Floats

APART = 0.1  # relative, and as a distance of distributions: less is the same load
CRITICAL = 1.63  # of Kolmogorov and Smirnov at 1 %


@dataclass(frozen=True, slots=True)
class Drift:
    """One property of the loads: alike, or not; None when it cannot be told."""

    name: str
    alike: bool | None
    message: str


def drifts(a: Sample, b: Sample) -> list[Drift]:
    """Returns how the loads of two samples compare, property by property.

    The concurrency of a closed loop is its load; of anything else the rate is, and
    concurrency follows from how fast the answers were.
    """
    found = [
        _lengths(name, a.workload.get(name), b.workload.get(name)) for name in LENGTHS
    ]
    if a.concurrency is not None or b.concurrency is not None:
        found.append(_number("concurrency", a.concurrency, b.concurrency))
    else:
        found.append(_number("rate", a.rate, b.rate))
    return found


def _lengths(name: str, a: Lengths | None, b: Lengths | None) -> Drift:
    words = name.replace("_", " ")
    if a is None or b is None:
        which = "both sides" if a is b else "A" if a is None else "B"
        return Drift(name, None, f"{words}: not known of {which}")
    changes = list(_changes(a, b))
    told = ", ".join(f"{level} {x:.4g} → {y:.4g}" for level, x, y in changes)
    if a.values is not None and b.values is not None:
        distance = _distance(a.values, b.values)
        number = len(a.values) * len(b.values) / (len(a.values) + len(b.values))
        alike = distance <= max(APART, CRITICAL / math.sqrt(number))
        return Drift(name, alike, f"{words}: {told}, distance {distance:.2f}")
    alike = all(_near(x, y) for _, x, y in changes)
    return Drift(name, alike, f"{words}: {told}")


def _changes(a: Lengths, b: Lengths) -> Iterator[tuple[str, float, float]]:
    yield "mean", a.mean, b.mean
    for level in ("p50", "p95"):
        if level in a.quantiles and level in b.quantiles:
            yield level, a.quantiles[level], b.quantiles[level]


def _near(a: float, b: float) -> bool:
    return abs(b - a) <= APART * max(abs(a), abs(b))


def _distance(a: Floats, b: Floats) -> float:
    """Returns the largest difference of two distributions (Kolmogorov–Smirnov)."""
    at = np.unique(np.concatenate([a, b]))
    shares = [np.searchsorted(np.sort(x), at, side="right") / len(x) for x in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max())


def _number(name: str, a: float | None, b: float | None) -> Drift:
    if a is None or b is None:
        return Drift(name, None, f"{name}: not known of both sides")
    unit = " a second" if name == "rate" else ""
    alike = a == b if math.isinf(a) or math.isinf(b) else _near(a, b)
    return Drift(name, alike, f"{name}: {a:.4g} → {b:.4g}{unit}")

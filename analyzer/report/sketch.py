"""Histograms of fixed logarithmic buckets: they add up exactly, and say their error.

A value of a bucket is told within RELATIVE_ERROR of itself, wherever it lies. Buckets
are the same everywhere, so that sketches of parts of a log add up to that of all.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

RELATIVE_ERROR = 0.01
LEAST, GREATEST = 1e-6, 1e8  # a microsecond to three years; a token to 10⁸ of them
_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_LOG_GAMMA = math.log(_GAMMA)
_OFFSET = math.floor(math.log(LEAST) / _LOG_GAMMA)
# The first bucket holds all that is at most LEAST, 0 among them.
BUCKETS = math.ceil(math.log(GREATEST) / _LOG_GAMMA) - _OFFSET + 2

Counts = NDArray[np.int64]

# Sums are of nanoseconds, so that those of a day are exact in any order.
_GRAIN = float(1 << 30)


def bucket_of(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Returns the bucket of each of *values*, none of which may be NaN."""
    with np.errstate(divide="ignore"):
        index = np.log(values)
    index /= _LOG_GAMMA
    np.ceil(index, out=index)
    index -= _OFFSET
    return np.clip(index, 0, BUCKETS - 1, out=index).astype(np.int64)


def value_of(bucket: int) -> float:
    """Returns the value that stands for a bucket: no more than the error off."""
    if bucket == 0:
        return 0.0
    upper = math.exp((bucket + _OFFSET) * _LOG_GAMMA)
    return upper * 2 / (1 + _GAMMA)


class Sketch:
    """How often values of each bucket came, with their sum and their extremes."""

    __slots__ = ("counts", "greatest", "least", "sum")

    def __init__(self) -> None:
        self.counts: Counts = np.zeros(BUCKETS, dtype=np.int64)
        self.sum = 0.0
        self.least = math.inf
        self.greatest = -math.inf

    def add(self, values: NDArray[np.float64]) -> None:
        """Adds *values*, of which NaN is none."""
        known = values[~np.isnan(values)]
        if not len(known):
            return
        self.counts += np.bincount(bucket_of(known), minlength=BUCKETS)
        grains = known * _GRAIN
        np.rint(grains, out=grains)
        grains /= _GRAIN
        self.sum += float(grains.sum())
        self.least = min(self.least, float(known.min()))
        self.greatest = max(self.greatest, float(known.max()))

    def merge(self, other: Sketch) -> None:
        """Adds what another one counted."""
        self.counts += other.counts
        self.sum += other.sum
        self.least = min(self.least, other.least)
        self.greatest = max(self.greatest, other.greatest)

    @property
    def count(self) -> int:
        """How many values there are."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float | None:
        """Their mean, None without any."""
        return self.sum / self.count if self.count else None

    def quantile(self, q: float) -> float | None:
        """Returns the value that the share *q* of all is at most, None without any.

        It is the ⌈q·n⌉th smallest, RELATIVE_ERROR off at most.
        """
        count = self.count
        if not count:
            return None
        rank = max(1, math.ceil(q * count))
        bucket = int(np.searchsorted(np.cumsum(self.counts), rank))
        return min(max(value_of(bucket), self.least), self.greatest)

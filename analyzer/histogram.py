"""Cumulative-bucket histograms with the quantile semantics of PromQL.

Semantics follow `BucketQuantile` and `BucketFraction` of Prometheus's
promql/quantile.go, so that a figure printed here equals the one in Grafana.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class Bracket(NamedTuple):
    """The number of events surely (lower) and possibly (upper) at a threshold."""

    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative counts per upper bound, and the sum of what was observed.

    *bounds* ascend and end with +Inf; *counts* has one cumulative number a bound.
    An increase between two scrapes is a `Histogram` as well. Raises ValueError for
    bounds that do not ascend, lack +Inf, or differ in number from the counts.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float = 0.0

    def __post_init__(self) -> None:
        if len(self.bounds) != len(self.counts):
            raise ValueError(f"{len(self.bounds)} bounds but {len(self.counts)} counts")
        if not self.bounds or self.bounds[-1] != math.inf:
            raise ValueError("the last bound must be +Inf")
        # Written so that NaN, which compares as false, does not pass.
        if not all(a < b for a, b in pairwise(self.bounds)):
            raise ValueError(f"bounds must ascend: {self.bounds}")

    @property
    def count(self) -> float:
        """The number of observations."""
        return self.counts[-1]

    @property
    def floor(self) -> float:
        """The least an observation can be: 0, or −Inf with a negative bound."""
        return 0.0 if self.bounds[0] >= 0 else -math.inf

    @property
    def mean(self) -> float | None:
        """The mean observation, None without observations."""
        return self.sum / self.count if self.count else None

    def __add__(self, other: Histogram) -> Histogram:
        """Adds bucket by bucket; different bounds meet on those they share."""
        if self.bounds == other.bounds:
            counts = tuple(map(float.__add__, map(float, self.counts), other.counts))
            return Histogram(self.bounds, counts, self.sum + other.sum)
        shared = sorted(set(self.bounds) & set(other.bounds))
        mine = dict(zip(self.bounds, self.counts, strict=True))
        theirs = dict(zip(other.bounds, other.counts, strict=True))
        return Histogram(
            tuple(shared),
            tuple(mine[bound] + theirs[bound] for bound in shared),
            self.sum + other.sum,
        )

    def __sub__(self, earlier: Histogram) -> Histogram:
        """Subtracts an earlier state of the same histogram (equal bounds)."""
        if self.bounds != earlier.bounds:
            raise ValueError("only histograms with equal bounds can be subtracted")
        counts = tuple(a - b for a, b in zip(self.counts, earlier.counts, strict=True))
        return Histogram(self.bounds, counts, self.sum - earlier.sum)

    def rebased(self, bounds: Sequence[float]) -> Histogram:
        """Returns this histogram on other *bounds*, as a running total needs it.

        Counts at bounds it has are kept; at a new bound the count starts at that
        of the next lower one, the part that is certain, so no series steps back.
        """
        counts = []
        for bound in bounds:
            at = bisect_right(self.bounds, bound)
            counts.append(self.counts[at - 1] if at else 0.0)
        return Histogram(tuple(bounds), tuple(counts), self.sum)

    def bracket(self, threshold: float) -> Bracket:
        """Returns how many observations are certainly and possibly ≤ *threshold*.

        Both are equal when *threshold* is a bound; bounds are inclusive.
        """
        counts = _monotone(self.counts)
        below = bisect_right(self.bounds, threshold)
        at_or_above = bisect_left(self.bounds, threshold)
        lower = counts[below - 1] if below else 0.0
        return Bracket(lower, counts[min(at_or_above, len(counts) - 1)])

    def quantile(self, q: float) -> float | None:
        """Returns `histogram_quantile(q, …)`, None where PromQL says NaN.

        In the +Inf bucket that is the highest finite bound: a lower limit of the
        true quantile. `quantile_bracket` says so.
        """
        if math.isnan(q):
            return None
        if q < 0:
            return -math.inf
        if q > 1:
            return math.inf
        counts = _monotone(self.counts)
        if len(counts) < 2 or not counts[-1] > 0:
            return None
        rank = q * counts[-1]
        last = len(counts) - 1
        index = min(bisect_left(counts, rank, 0, last), last)
        if index == last:
            return self.bounds[-2]
        end = self.bounds[index]
        if index == 0:
            if end <= 0:
                return end
            start, before = 0.0, 0.0
        else:
            start, before = self.bounds[index - 1], counts[index - 1]
        inside = counts[index] - before
        if inside == 0:  # q = 0 over an empty first bucket: 0/0 in PromQL
            return None
        return start + (end - start) * ((rank - before) / inside)

    def quantile_bracket(self, q: float) -> tuple[float, float] | None:
        """Returns the bounds between which the true quantile lies, None if empty.

        The upper one is +Inf when the quantile is above the last finite bound.
        """
        counts = _monotone(self.counts)
        if not 0 <= q <= 1 or not counts[-1] > 0:
            return None
        rank = max(q * counts[-1], math.ulp(0.0))
        index = min(bisect_left(counts, rank), len(counts) - 1)
        lower = self.bounds[index - 1] if index else self.floor
        return lower, self.bounds[index]

    def fraction(self, upper: float) -> float | None:
        """Returns `histogram_fraction(-Inf, upper, …)`, None where PromQL says NaN.

        That is the share of observations ≤ *upper*: exact at a bound, an estimate
        inside a bucket. Dips in the counts are raised first, as for a quantile;
        PromQL leaves them in here.
        """
        counts = _monotone(self.counts)
        if not counts[-1] > 0 or math.isnan(upper):
            return None
        if upper == -math.inf:
            return 0.0
        index = bisect_left(self.bounds, upper)
        end = self.bounds[index]
        if end == upper:
            return counts[index] / counts[-1]
        start, before = 0.0, 0.0
        if index:
            start, before = self.bounds[index - 1], counts[index - 1]
        elif end <= 0:  # the bucket reaches down to -Inf: it counts whole
            return counts[0] / counts[-1]
        elif upper <= 0:
            return 0.0
        inside = counts[index] - before
        return (before + inside * (upper - start) / (end - start)) / counts[-1]

    def sum_limits(self) -> tuple[float, float]:
        """Returns the least and greatest sum these counts allow (infinite if open)."""
        low = high = 0.0
        previous_bound, previous = self.floor, 0.0
        for bound, count in zip(self.bounds, _monotone(self.counts), strict=True):
            inside = count - previous
            if inside:
                low += inside * previous_bound
                high += inside * bound
            previous_bound, previous = bound, count
        return low, high


def total(histograms: Iterable[Histogram]) -> Histogram | None:
    """Returns the sum of *histograms* on the bounds they share, None for none."""
    result: Histogram | None = None
    for histogram in histograms:
        result = histogram if result is None else result + histogram
    return result


def empty(bounds: Sequence[float]) -> Histogram:
    """Returns a histogram without observations; +Inf is added when missing."""
    ordered = tuple(bounds)
    if not ordered or ordered[-1] != math.inf:
        ordered += (math.inf,)
    return Histogram(ordered, (0.0,) * len(ordered))


def _monotone(counts: Sequence[float]) -> Sequence[float]:
    """Returns *counts* with dips raised, as PromQL does before a quantile."""
    highest = -math.inf
    for count in counts:
        if count < highest:
            break
        highest = count
    else:
        return counts
    fixed: list[float] = []
    for count in counts:
        fixed.append(max(count, fixed[-1]) if fixed else count)
    return fixed

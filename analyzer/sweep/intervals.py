"""Intervals from one measurement whose requests are not independent.

Requests of one queue episode are slow together, so what is drawn again is not single
requests but blocks of time, each as long as the memory of the latencies. Few blocks
make intervals too narrow: the levels are expanded (Hesterberg, 2015). A share near 0
or 1 has no spread to draw from: the interval also covers Wilson's, at the number of
independent requests that the blocks' variance amounts to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
MOST_BLOCKS = 32
ENOUGH_BLOCKS = 8
LEAST_FREEDOM = 4  # few blocks count as one request each, which is wide as it is
QUANTILE_BLOCKS = 16  # with fewer, intervals of quantiles hold too little
FAINT = 0.05  # an autocorrelation below it is taken for none
BEYOND = 10  # observations above a quantile that has an interval
DRAWS = 2000
_MOST_CELLS = 20_000_000  # of the table of weights in a bootstrap of quantiles
_SEED = 20_240_229  # the same files give the same intervals

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the limits that hold the truth with `LEVEL` probability."""

    estimate: float
    lower: float
    upper: float

    def minus(self, other: Interval) -> Interval:
        """Returns the interval of a difference of two independent estimates.

        Square-and-add (MOVER; Newcombe, 1998): the limits need not be symmetric.
        """
        estimate = self.estimate - other.estimate
        down = math.hypot(self.estimate - self.lower, other.upper - other.estimate)
        up = math.hypot(self.upper - self.estimate, other.estimate - other.lower)
        return Interval(estimate, estimate - down, estimate + up)

    def widened(self, factor: float) -> Interval:
        """Returns the interval with each limit farther away by *factor*."""
        return Interval(
            self.estimate,
            self.estimate - factor * (self.estimate - self.lower),
            self.estimate + factor * (self.upper - self.estimate),
        )


@dataclass(frozen=True, slots=True)
class Blocks:
    """Which block each request is in, for requests in the order they began."""

    of: Ints
    number: int

    @property
    def enough(self) -> bool:
        """Whether the measurement is long enough to tell its own spread."""
        return self.number >= ENOUGH_BLOCKS


def cut(scores: Sequence[Floats], in_flight: Sequence[float]) -> Blocks:
    """Returns the blocks of several runs, one after the other.

    *scores* has a run's badness a request, in the order they began (any scale, and
    infinite for failures); *in_flight* how many requests a run has at once: as many
    that follow each other are slow together.
    """
    parts, number = [], 0
    for run, at_once in zip(scores, in_flight, strict=True):
        length = max(1.0, at_once, 2 * _memory(run))
        count = max(1, min(MOST_BLOCKS, int(len(run) // length)))
        parts.append(number + (np.arange(len(run)) * count // max(1, len(run))))
        number += count if len(run) else 0
    return Blocks(np.concatenate(parts) if parts else np.zeros(0, int), number)


def _memory(scores: Floats) -> float:
    """Returns how many requests in a row tell as much as one independent one.

    The integrated autocorrelation of the ranks, summed until it is faint.
    """
    ranks = _ranks(scores)
    ranks -= ranks.mean() if len(ranks) else 0.0
    variance = float(ranks @ ranks)
    if variance <= 0:
        return 1.0
    # All lags at once by a Fourier transform; a log may have a million requests.
    size = 1 << (2 * len(ranks) - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(ranks, size)) ** 2
    correlations = np.fft.irfft(spectrum, size)[1 : len(ranks) // 4 + 1] / variance
    faint = np.flatnonzero(correlations <= FAINT)
    end = int(faint[0]) if len(faint) else len(correlations)
    return 1.0 + 2.0 * float(correlations[:end].sum())


def _ranks(values: Floats) -> Floats:
    """Returns the mean rank of each value; NaN is last, equal values are equal."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean = last - (counts - 1) / 2
    return np.asarray(mean[place], dtype=np.float64)


def share(good: Bools, scores: Floats, blocks: Blocks) -> Interval | None:
    """Returns the share of *good* requests with its interval, None without any."""
    if not len(good):
        return None
    sizes = np.bincount(blocks.of, minlength=blocks.number)
    sums = np.bincount(blocks.of, weights=good, minlength=blocks.number)
    effective = float(blocks.number)
    if blocks.enough:
        values = good.astype(np.float64)
        if values.min() == values.max():  # the scores still tell the memory
            values = _ranks(scores)
        told = np.bincount(blocks.of, weights=values, minlength=blocks.number)
        effective = _effective(told, sizes, float(values.var()))
    return _share(sums, sizes, effective)


def counted_share(good: Floats, judged: Floats) -> Interval | None:
    """Returns the share of counts by bin of time, with its interval; None without any.

    Bins that follow each other are put together, until a block is twice the memory of
    their shares. When all are good, a block counts as one observation.
    """
    good, judged = good[judged > 0], judged[judged > 0]
    if not len(judged):
        return None
    length = max(1.0, 2 * _memory(good / judged) - 1)  # 1 for bins without any
    number = max(1, min(MOST_BLOCKS, int(len(judged) // length)))
    block = np.arange(len(judged)) * number // len(judged)
    sizes = np.bincount(block, weights=judged)
    sums = np.bincount(block, weights=good)
    estimate = float(sums.sum() / sizes.sum())
    effective = float(number)
    if number >= ENOUGH_BLOCKS and 0 < estimate < 1:
        effective = _effective(sums, sizes, estimate * (1 - estimate))
    return _share(sums, sizes, effective)


def _effective(sums: Floats | Ints, sizes: Floats | Ints, variance: float) -> float:
    """Returns how many independent requests have the variance that blocks show.

    *sums* is what the requests of each block add up to, *variance* that of one.
    """
    number, total = len(sizes), float(sizes.sum())
    if variance <= 0:
        return float(number)
    deviations = sums - sizes * (float(sums.sum()) / total)
    spread = float(deviations @ deviations) * number / (number - 1)
    return total / max(1.0, spread / (total * variance))


def _share(sums: Floats | Ints, sizes: Floats | Ints, effective: float) -> Interval:
    number = len(sizes)
    estimate = float(sums.sum() / sizes.sum())
    freedom = max(LEAST_FREEDOM, number - 1)
    lower, upper = _wilson(estimate, effective, _student(freedom))
    if number >= ENOUGH_BLOCKS:
        drawn = _draw(number, DRAWS)
        low, high = np.quantile(drawn @ sums / (drawn @ sizes), _expanded(number))
        lower, upper = min(lower, float(low)), max(upper, float(high))
    return Interval(estimate, max(0.0, lower), min(1.0, upper))


def _draw(blocks: int, draws: int) -> Ints:
    """Returns how often each block is in each resample."""
    rng = np.random.default_rng(_SEED)
    return rng.multinomial(blocks, np.full(blocks, 1 / blocks), size=draws)


def quantiles(
    values: Floats, blocks: Blocks, levels: Sequence[float]
) -> list[Interval | None]:
    """Returns the quantiles of *values* with intervals; NaN is left out.

    None where the values beyond a level, or the blocks, are too few for an interval.
    """
    known = ~np.isnan(values)
    kept = values[known]
    if blocks.number < QUANTILE_BLOCKS or not len(kept):
        return [None] * len(levels)
    order = np.argsort(kept, kind="stable")
    ascending = kept[order]
    block = blocks.of[known][order]
    draws = max(200, min(DRAWS, _MOST_CELLS // len(kept)))
    drawn: list[list[float]] = [[] for _ in levels]
    for weights in _draw(blocks.number, draws):
        cumulated = np.cumsum(weights[block])
        total = cumulated[-1]
        if total:
            at = np.searchsorted(cumulated, np.asarray(levels) * total)
            for index, position in enumerate(at):
                drawn[index].append(ascending[min(position, len(ascending) - 1)])
    limits = _expanded(blocks.number)
    found: list[Interval | None] = []
    for level, values_drawn in zip(levels, drawn, strict=True):
        if (1 - level) * len(kept) < BEYOND:
            found.append(None)
            continue
        low, high = np.quantile(values_drawn, limits)
        estimate = float(np.quantile(kept, level))
        found.append(
            Interval(estimate, min(float(low), estimate), max(float(high), estimate))
        )
    return found


def _wilson(share_: float, number: float, quantile: float) -> tuple[float, float]:
    square = quantile**2
    middle = (share_ + square / (2 * number)) / (1 + square / number)
    inner = share_ * (1 - share_) / number + square / (4 * number**2)
    half = quantile * math.sqrt(inner) / (1 + square / number)
    return middle - half, middle + half


def _expanded(blocks: int) -> tuple[float, float]:
    """Returns the levels at which a percentile bootstrap of few blocks covers."""
    factor = math.sqrt(blocks / (blocks - 1)) if blocks > 1 else 1.0
    tail = NormalDist().cdf(-factor * _student(blocks - 1))
    return tail, 1 - tail


def _student(freedom: int) -> float:
    """Returns the quantile of Student's t of LEVEL, two-sided (A&S 26.7.5)."""
    z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
    if freedom < 3:
        return {1: 12.706, 2: 4.303}.get(freedom, 12.706)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return math.fsum(term / freedom**power for power, term in enumerate(terms))

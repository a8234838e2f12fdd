"""Where a curve of throughput over load bends, by two methods that may disagree.

Kneedle (Satopää et al., 2011) finds the point farthest above the chord of the
measured curve. The Universal Scalability Law (Gunther) explains a closed loop's
throughput at N at once: rate·N / (1 + serial·(N−1) + crosstalk·N(N−1)). What is
serial makes it saturate; crosstalk, what the parts cost each other, makes it fall.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

KNEEDLE_POINTS = 5
USL_POINTS = 6  # Gunther: fewer do not hold three parameters
SENSITIVITY = 1.0


@dataclass(frozen=True, slots=True)
class Knee:
    """The index of the knee, None for none; `reason` says why there is none."""

    index: int | None
    reason: str = ""


def kneedle(
    loads: Sequence[float],
    throughputs: Sequence[float],
    *,
    sensitivity: float = SENSITIVITY,
) -> Knee:
    """Returns the knee of a rising curve that flattens; loads are ascending.

    A maximum of the distance counts as a knee once the distance has fallen by
    *sensitivity* times the mean step of the normalised load: the measured curve then
    really flattens. Of several, the one farthest from the chord.
    """
    if len(loads) < KNEEDLE_POINTS:
        return Knee(None, f"{len(loads)} load points of the {KNEEDLE_POINTS} needed")
    low, high = min(throughputs), max(throughputs)
    if not high > low or throughputs[0] >= high:
        return Knee(None, "throughput does not rise with the load")
    width = loads[-1] - loads[0]
    distance = [
        (y - low) / (high - low) - (x - loads[0]) / width
        for x, y in zip(loads, throughputs, strict=True)
    ]
    fall = sensitivity / (len(loads) - 1)
    best = max(range(len(loads)), key=lambda at: distance[at])
    if best == 0 or distance[best] <= 0:
        return Knee(None, "throughput grows with the load to its end")
    if min(distance[best:]) > distance[best] - fall:
        return Knee(None, "the curve does not flatten clearly; measure higher loads")
    return Knee(best)


@dataclass(frozen=True, slots=True)
class Usl:
    """A fitted scalability law: requests a second at `load` at once.

    `residuals` are measured over fitted less one, a point; `peak_load` is where
    throughput is highest, infinite when it only saturates.
    """

    rate: float  # of one request alone, Gunther's lambda
    serial: float  # his sigma
    crosstalk: float  # his kappa
    residuals: tuple[float, ...]

    def at(self, load: float) -> float:
        """Returns the fitted throughput at a load."""
        slowed = 1 + self.serial * (load - 1) + self.crosstalk * load * (load - 1)
        return self.rate * load / slowed

    @property
    def peak_load(self) -> float:
        """The load with the highest throughput."""
        if self.crosstalk <= 0:
            return math.inf
        return math.sqrt(max(0.0, 1 - self.serial) / self.crosstalk)

    @property
    def worst_residual(self) -> float:
        """The largest residual, whatever its sign."""
        return max(map(abs, self.residuals), default=0.0)


def fit_usl(loads: Sequence[float], throughputs: Sequence[float]) -> Usl | None:
    """Returns the law with the least relative residuals, None for too few points.

    Load over throughput is linear in 1/rate, serial/rate and crosstalk/rate. None is
    negative: the best of the solutions with some of the latter two at 0.
    """
    if len(loads) < USL_POINTS or min(throughputs) <= 0:
        return None
    rows = [
        (x / n, (n - 1) * x / n, (n - 1) * x)
        for n, x in zip(loads, throughputs, strict=True)
    ]
    best: tuple[float, list[float]] | None = None
    for size in (3, 2, 1):
        for free in combinations(range(3), size):
            if 0 not in free:
                continue
            found = _least_squares(rows, free)
            if found is None or min(found) < 0 or found[0] <= 0:
                continue
            misfit = math.fsum((1 - _dot(row, found)) ** 2 for row in rows)
            if best is None or misfit < best[0]:
                best = misfit, found
    if best is None:
        return None
    one, serial, crosstalk = best[1]
    usl = Usl(1 / one, serial / one, crosstalk / one, ())
    residuals = tuple(
        x / usl.at(n) - 1 for n, x in zip(loads, throughputs, strict=True)
    )
    return Usl(usl.rate, usl.serial, usl.crosstalk, residuals)


def _least_squares(
    rows: Sequence[tuple[float, ...]], free: tuple[int, ...]
) -> list[float] | None:
    """Returns the coefficients that bring every row's sum near 1; others are 0."""
    size = len(free)
    left = [[math.fsum(r[a] * r[b] for r in rows) for b in free] for a in free]
    right = [math.fsum(r[a] for r in rows) for a in free]
    for at in range(size):
        pivot = max(range(at, size), key=lambda row: abs(left[row][at]))
        if abs(left[pivot][at]) < 1e-300:
            return None
        left[at], left[pivot] = left[pivot], left[at]
        right[at], right[pivot] = right[pivot], right[at]
        for below in range(at + 1, size):
            factor = left[below][at] / left[at][at]
            right[below] -= factor * right[at]
            for column in range(at, size):
                left[below][column] -= factor * left[at][column]
    result = [0.0, 0.0, 0.0]
    for at in reversed(range(size)):
        known = math.fsum(left[at][c] * result[free[c]] for c in range(at + 1, size))
        result[free[at]] = (right[at] - known) / left[at][at]
    return result


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))

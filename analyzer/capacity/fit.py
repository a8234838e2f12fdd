"""Step costs from a measured sweep: those with which the model shows the same figures.

Least squares on the logarithms of figures and costs, by Levenberg and Marquardt's
method: every evaluation simulates all points of the sweep, so there is no formula of
a batch that could be wrong. A median jumps when a request changes its step, so the
differences behind the slopes are wide, and a fit of real data ends near the best.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from statistics import median

from analyzer.capacity.arrivals import ClosedLoop
from analyzer.capacity.engine import Engine
from analyzer.capacity.fleet import Fleet
from analyzer.capacity.settings import EngineConfig
from analyzer.capacity.workload import Request

PARAMETERS = (
    *("base", "prefill_token", "decode_token", "kv_token", "prefill_pair"),
    "frontend_seconds",
)
# A sweep with one mix of lengths cannot tell a sequence's own cost from that of its
# context, nor a prompt token's from that of its attention. The others it can.
FREE = ("base", "prefill_token", "decode_token", "frontend_seconds")
DIFFERENCE = 0.05  # of a logarithm, to either side, for a slope
LONGEST_STEP = 1.0  # of a logarithm
LEAST_GAIN = 1e-3  # of the squares, for another round
MOST_ROUNDS = 25
# A mean over the whole point is trusted to half the error of a median.
WEIGHTS = (2.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Figures:
    """Requests a second, and the medians of TTFT and TPOT in seconds."""

    throughput: float
    ttft: float
    tpot: float

    def errors(self, measured: Figures) -> tuple[float, float, float]:
        """Returns how far these are from *measured*, as shares of it."""
        return (
            self.throughput / measured.throughput - 1.0,
            self.ttft / measured.ttft - 1.0,
            self.tpot / measured.tpot - 1.0,
        )


@dataclass(frozen=True, slots=True)
class Point:
    """One load of a sweep: the requests, at most so many at once, and what came out."""

    concurrency: int
    requests: Sequence[Request]
    measured: Figures


def simulate(config: EngineConfig, points: Iterable[Point]) -> list[Figures]:
    """Returns the figures of each of *points*, run one after another on one replica.

    The prefix cache stays warm from point to point, as on a server that is swept.
    """
    engine = Engine(config)
    numbers = count()
    now = 0.0
    results = []
    for point in points:
        requests = (replace(r, number=next(numbers)) for r in point.requests)
        clients = ClosedLoop(requests, concurrency=point.concurrency, start=now)
        outcomes = Fleet([engine], clients, start=now).advance(math.inf)
        begin, now = now, outcomes[-1].ended
        results.append(
            Figures(
                len(outcomes) / (now - begin),
                median(o.ttft for o in outcomes if o.ttft is not None),
                median(o.tpot for o in outcomes if o.tpot is not None),
            )
        )
    return results


def fit(
    config: EngineConfig, points: Sequence[Point], free: Sequence[str] = FREE
) -> EngineConfig:
    """Returns *config* with the *free* parameters fitted to the measured *points*.

    The values in *config* are where the search starts; each must be positive to move.
    Takes about a hundred simulations of the sweep. Raises ValueError for a name that
    is no parameter.
    """
    unknown = set(free) - set(PARAMETERS)
    if unknown:
        raise ValueError(f"unknown parameters: {sorted(unknown)}")
    best, residuals = config, _residuals(config, points)
    damping = 0.1
    for _ in range(MOST_ROUNDS):
        slopes = [_slope(best, name, points) for name in free]
        while damping < 1e3:
            candidate = best
            changes = _step(slopes, residuals, damping)
            for name, change in zip(free, changes, strict=True):
                held = max(-LONGEST_STEP, min(LONGEST_STEP, change))
                value = _value(candidate, name) * math.exp(held)
                candidate = _with(candidate, name, value)
            new = _residuals(candidate, points)
            if _dot(new, new) < _dot(residuals, residuals) * (1.0 - LEAST_GAIN):
                best, residuals = candidate, new
                damping /= 4
                break
            damping *= 4
        else:
            break
    return best


def _slope(config: EngineConfig, name: str, points: Sequence[Point]) -> list[float]:
    """Returns how the residuals change with the logarithm of one parameter."""
    value = _value(config, name)
    more, less = (
        _residuals(_with(config, name, value * math.exp(by)), points)
        for by in (DIFFERENCE, -DIFFERENCE)
    )
    return [(a - b) / (2 * DIFFERENCE) for a, b in zip(more, less, strict=True)]


def _step(
    slopes: list[list[float]], residuals: list[float], damping: float
) -> list[float]:
    """Returns the changes of the logarithms that a damped Newton step asks for."""
    rows = [[_dot(one, other) for other in slopes] for one in slopes]
    for at, row in enumerate(rows):
        # A parameter that changes nothing stays where it is.
        row[at] += damping * (row[at] + LEAST_GAIN)
    return _solve(rows, [-_dot(slope, residuals) for slope in slopes])


def _solve(rows: list[list[float]], right: list[float]) -> list[float]:
    """Returns the solution of a positive definite system, by elimination."""
    size = len(right)
    for at in range(size):
        for below in range(at + 1, size):
            factor = rows[below][at] / rows[at][at]
            for column in range(at, size):
                rows[below][column] -= factor * rows[at][column]
            right[below] -= factor * right[at]
    result = [0.0] * size
    for at in reversed(range(size)):
        known = sum(rows[at][after] * result[after] for after in range(at + 1, size))
        result[at] = (right[at] - known) / rows[at][at]
    return result


def _dot(one: Iterable[float], other: Iterable[float]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


def _value(config: EngineConfig, name: str) -> float:
    if name == "frontend_seconds":
        return config.frontend_seconds
    return float(getattr(config.costs, name))


def _with(config: EngineConfig, name: str, value: float) -> EngineConfig:
    if name == "frontend_seconds":
        return replace(config, frontend_seconds=value)
    return replace(config, costs=replace(config.costs, **{name: value}))


def _residuals(config: EngineConfig, points: Sequence[Point]) -> list[float]:
    """Returns the weighted logarithms of simulated over measured figures."""
    return [
        weight * math.log1p(error)
        for point, figures in zip(points, simulate(config, points), strict=True)
        for weight, error in zip(WEIGHTS, figures.errors(point.measured), strict=True)
    ]

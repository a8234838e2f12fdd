"""Step costs from a measured sweep: those with which the model shows the same figures.

Least squares on the logarithms, by coordinate search: each evaluation simulates all
points of the sweep, so there is no formula of a batch that could be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from statistics import median

from analyzer.capacity.arrivals import ClosedLoop, each
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
FIRST_STEP = 0.3  # of a parameter's logarithm
LAST_STEP = 0.02
# A mean over the whole point is trusted to half the error of a median.
WEIGHTS = (4.0, 1.0, 1.0)


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
        clients = ClosedLoop(each(requests), concurrency=point.concurrency, start=now)
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
    A few hundred simulations of the sweep; raises ValueError for unknown names.
    """
    unknown = set(free) - set(PARAMETERS)
    if unknown:
        raise ValueError(f"unknown parameters: {sorted(unknown)}")
    best, least = config, _deviation(config, points)
    step = FIRST_STEP
    while step >= LAST_STEP:
        improved = False
        for name in free:
            for factor in (math.exp(step), math.exp(-step)):
                candidate = _with(best, name, _value(best, name) * factor)
                deviation = _deviation(candidate, points)
                if deviation < least:
                    best, least, improved = candidate, deviation, True
                    break
        if not improved:
            step /= 2
    return best


def _value(config: EngineConfig, name: str) -> float:
    if name == "frontend_seconds":
        return config.frontend_seconds
    return float(getattr(config.costs, name))


def _with(config: EngineConfig, name: str, value: float) -> EngineConfig:
    if name == "frontend_seconds":
        return replace(config, frontend_seconds=value)
    return replace(config, costs=replace(config.costs, **{name: value}))


def _deviation(config: EngineConfig, points: Sequence[Point]) -> float:
    """Returns the weighted squares of the logarithms of simulated over measured."""
    return sum(
        weight * math.log1p(error) ** 2
        for point, figures in zip(points, simulate(config, points), strict=True)
        for weight, error in zip(WEIGHTS, figures.errors(point.measured), strict=True)
    )

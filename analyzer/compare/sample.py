"""What is compared: one class of requests on one side, however it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from analyzer.sweep.intervals import Blocks, Bools, Floats, Interval, quantiles, share

LATENCIES = ("ttft", "tpot", "e2e")
LEVELS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
LENGTHS = ("prompt_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class Figure:
    """A value, and its interval where the source allows one.

    Of engines only `bounds` are known, between which the value lies; the interval is
    then that of both bounds, and its estimate means nothing.
    """

    value: float | None
    interval: Interval | None = None
    bounds: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution: all its values, else its mean and some quantiles."""

    mean: float
    quantiles: Mapping[str, float]
    values: Floats | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One class of requests of one side.

    `attainment` is the share of good ones among those judged, None when nothing
    judged them; without an interval its source is too short or does not tell.
    `workload` maps a length to its distribution. `rate` is requests a second, an
    open loop's load; `concurrency` a closed loop's, which is set and not measured.
    """

    requests: int
    seconds: float
    attainment: Figure | None
    latencies: Mapping[tuple[str, str], Figure]
    workload: Mapping[str, Lengths] = field(default_factory=dict)
    rate: float | None = None
    concurrency: float | None = None
    throughput: float | None = None
    blocks: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: samples by name, and what could not be read."""

    name: str
    kind: str
    samples: Mapping[str, Sample]
    warnings: tuple[str, ...] = ()


class CompareError(ValueError):
    """A side that cannot be compared, with the reason in one sentence."""


def lengths(values: Floats) -> Lengths | None:
    """Returns the distribution of the values that are known, None without any."""
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    named = {name: float(np.quantile(known, at)) for name, at in LEVELS.items()}
    return Lengths(float(known.mean()), named, known)


def figures(
    latencies: Mapping[str, Floats], succeeded: Bools, blocks: Blocks
) -> dict[tuple[str, str], Figure]:
    """Returns the quantiles of answers that succeeded, with intervals where told."""
    found = {}
    for latency, values in latencies.items():
        kept = np.where(succeeded & np.isfinite(values), values, np.nan)
        known = kept[~np.isnan(kept)]
        if not len(known):
            continue
        spans = quantiles(kept, blocks, tuple(LEVELS.values()))
        for (level, at), span in zip(LEVELS.items(), spans, strict=True):
            found[latency, level] = Figure(float(np.quantile(known, at)), span)
    return found


def attainment(good: Bools, scores: Floats, blocks: Blocks) -> Figure | None:
    """Returns the share of good requests with its interval, None without any."""
    interval = share(good, scores, blocks)
    return None if interval is None else Figure(interval.estimate, interval)

"""Intervals hold the truth as often as they say, also where requests queue."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import count
from random import Random

import numpy as np
import pytest

from analyzer.capacity.arrivals import ClosedLoop, OpenLoop, Source, bursts, poisson
from analyzer.capacity.engine import Engine
from analyzer.capacity.fleet import Fleet
from analyzer.capacity.machines import cpu_demo
from analyzer.capacity.workload import Request
from analyzer.sweep.intervals import Floats, Interval, cut, quantiles, share

REPEATS = 60
LIMITS = {"ttft": 1.0, "tpot": 0.05, "e2e": 10.0}


def asked(rng: Random, number: int, times: Iterator[float]) -> Iterator[Request]:
    """Yields requests of mixed lengths."""
    for index in range(number):
        yield Request(index, next(times), rng.randint(128, 384), rng.randint(32, 96))


def closed(rng: Random, load: float, number: int) -> Source:
    """Returns clients that ask again when answered."""
    requests = asked(rng, number, iter(count(0.0, 0.0)))
    return ClosedLoop(requests, concurrency=int(load))


def steady(rng: Random, load: float, number: int) -> Source:
    """Returns Poisson arrivals."""
    return OpenLoop(asked(rng, number, poisson(rng, load)))


def bursty(rng: Random, load: float, number: int) -> Source:
    """Returns arrivals that come three times as fast for two seconds in twelve."""
    times = bursts(
        rng, calm=0.7 * load, burst=3 * load, calm_seconds=10, burst_seconds=2
    )
    return OpenLoop(asked(rng, number, times))


def benchmark(source: Source) -> tuple[Floats, float]:
    """Returns each request's score (good is up to 1), and how many run at once."""
    outcomes = Fleet([Engine(cpu_demo())], source).advance(math.inf)
    outcomes.sort(key=lambda outcome: outcome.request.arrival)
    scores = [
        max(
            (outcome.ttft or 0.0) / LIMITS["ttft"],
            (outcome.tpot or 0.0) / LIMITS["tpot"],
            outcome.e2e / LIMITS["e2e"],
        )
        for outcome in outcomes
    ]
    begin = min(outcome.request.arrival for outcome in outcomes)
    seconds = max(outcome.ended for outcome in outcomes) - begin
    return np.array(scores), sum(outcome.e2e for outcome in outcomes) / seconds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "load", "number"),
    [
        (closed, 16, 200),
        (closed, 18, 400),
        (steady, 6, 300),
        (steady, 7, 300),
        (bursty, 5, 300),
    ],
)
def test_a_95_percent_interval_holds_the_truth_nine_times_of_ten(
    source: Callable[[Random, float, int], Source], load: float, number: int
) -> None:
    """Over simulated repeats of a benchmark at, below and above its capacity.

    The truth is the mean share over all repeats. Intervals that took requests for
    independent would hold it far less often.
    """
    runs = [benchmark(source(Random(seed), load, number)) for seed in range(REPEATS)]
    truth = float(np.mean([(scores <= 1).mean() for scores, _ in runs]))
    found = []
    for scores, at_once in runs:
        interval = share(scores <= 1, scores, cut([scores], [at_once]))
        assert interval is not None
        found.append(interval)
    held = sum(interval.lower <= truth <= interval.upper for interval in found)
    assert held >= 0.9 * REPEATS


def test_intervals_of_dependent_requests_are_wider() -> None:
    """The same share of good ones, scattered or in episodes."""
    scattered = np.where(np.arange(960) % 4 == 0, 2.0, 0.5)
    rng = np.random.default_rng(1)
    rng.shuffle(scattered)
    episodes = np.where(np.arange(960) // 20 % 4 == 0, 2.0, 0.5)
    widths = []
    for scores in (scattered, episodes):
        interval = share(scores <= 1, scores, cut([scores], [1.0]))
        assert interval is not None
        assert interval.estimate == 0.75
        widths.append(interval.upper - interval.lower)
    independent = 2 * 1.96 * math.sqrt(0.75 * 0.25 / 960)
    assert widths[0] == pytest.approx(independent, rel=0.35)
    assert widths[1] > 1.5 * widths[0]


def test_a_share_of_one_is_not_certain() -> None:
    """No miss among n requests still leaves about 3/n, and more if they depend."""
    scores = np.random.default_rng(2).random(300) * 0.9
    interval = share(scores <= 1, scores, cut([scores], [1.0]))
    assert interval is not None
    assert interval.upper == 1.0
    assert 1 - 8 / 300 < interval.lower < 1 - 2 / 300


def test_a_short_run_has_a_wide_interval() -> None:
    """Two turns of 16 at once are two observations, however many requests."""
    scores = np.full(32, 0.5)
    blocks = cut([scores], [16.0])
    interval = share(scores <= 1, scores, blocks)
    assert interval is not None
    assert (blocks.number, blocks.enough) == (2, False)
    assert interval.lower < 0.35


def test_no_requests_have_no_interval() -> None:
    """Nothing is known, which is not 0."""
    empty = np.zeros(0)
    assert share(empty.astype(bool), empty, cut([], [])) is None


def test_quantiles_have_intervals_where_enough_lies_beyond_them() -> None:
    """A p99 of 300 requests has three beyond: no interval. Its truth lies inside."""
    held = 0
    for seed in range(60):
        values = np.random.default_rng(seed).exponential(size=640)
        blocks = cut([values], [1.0])
        p50, p95, p99 = quantiles(values, blocks, (0.5, 0.95, 0.99))
        assert p99 is None
        assert p50 is not None
        assert p95 is not None
        held += p95.lower <= -math.log(0.05) <= p95.upper
        assert p50.lower <= p50.estimate <= p50.upper
    assert held >= 54


def test_runs_keep_their_own_blocks() -> None:
    """Repeats are put one after the other; no block is of two of them."""
    scores = [np.random.default_rng(s).random(64) for s in range(2)]
    blocks = cut(scores, [4.0, 4.0])
    first, second = set(blocks.of[:64].tolist()), set(blocks.of[64:].tolist())
    assert first & second == set()
    assert blocks.number == len(first) + len(second)


def test_a_difference_has_the_spread_of_both() -> None:
    """Square-and-add: of two equal widths, the difference is wider by √2."""
    one, other = Interval(0.9, 0.8, 0.95), Interval(0.7, 0.6, 0.75)
    difference = one.minus(other)
    assert difference.estimate == pytest.approx(0.2)
    assert difference.lower == pytest.approx(0.2 - math.hypot(0.1, 0.05))
    assert difference.upper == pytest.approx(0.2 + math.hypot(0.05, 0.1))

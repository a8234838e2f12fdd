"""The model against sweeps of a real vLLM, and what its errors are.

The two sweeps differ in `--max-num-seqs`, which binds only above 16 at once. Below,
they are two runs of the same thing, and the machine itself differed: the median time
between tokens by +37, +23, +9, +49 and +13 % at 1, 2, 4, 8 and 16 at once, and the
throughput by up to 30 %. No model can be closer to both than they are to each other.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import count

import pytest
from capacity_models import settings
from sweeps import HITS, points, server

from analyzer.capacity.arrivals import ClosedLoop
from analyzer.capacity.costs import StepCosts
from analyzer.capacity.engine import Engine
from analyzer.capacity.fit import FREE, Figures, Point, fit, simulate
from analyzer.capacity.fleet import Fleet
from analyzer.capacity.settings import EngineConfig
from analyzer.capacity.workload import Request

Errors = dict[int, tuple[float, float, float]]


def errors(config: EngineConfig, swept: list[Point], title: str) -> Errors:
    """Returns the errors of the simulated figures a point, and prints a table."""
    found: Errors = {}
    print(f"\n{title}\n  at once  throughput  TTFT p50  TPOT p50")  # noqa: T201
    for point, figures in zip(swept, simulate(config, swept), strict=True):
        found[point.concurrency] = figures.errors(point.measured)
        row = "".join(f"{error:+10.0%}" for error in found[point.concurrency])
        print(f"  {point.concurrency:7}{row}")  # noqa: T201
    return found


def worst(found: Errors) -> tuple[float, ...]:
    """Returns the largest error of each figure, whatever its sign."""
    return tuple(max(map(abs, column)) for column in zip(*found.values(), strict=True))


def test_the_fitted_model_reproduces_the_sweep_it_was_fitted_to() -> None:
    """The costs of `cpu-demo`, on all seven points."""
    found = errors(server(16), points("seqs16"), "seqs16 with the costs of cpu-demo")
    throughput, ttft, tpot = worst(found)
    assert throughput <= 0.12
    assert ttft <= 0.16
    assert tpot <= 0.16


def test_it_predicts_what_another_batch_limit_does() -> None:
    """Fitted at 16 places only, it tells the loads where 32 places matter.

    Doubling the places gains little throughput and doubles the time between tokens.
    """
    swept = [p for p in points("seqs32") if p.concurrency > 16]
    found = errors(server(32), swept, "seqs32 with costs fitted to seqs16")
    throughput, ttft, tpot = worst(found)
    assert throughput <= 0.10
    assert ttft <= 0.15
    assert tpot <= 0.10
    before = simulate(server(16), points("seqs16"))[-1]
    after = simulate(server(32), points("seqs32"))[-1]
    assert 1.0 < after.throughput / before.throughput < 1.2
    assert after.tpot / before.tpot > 1.6


@pytest.mark.slow
def test_a_fit_to_the_second_sweep_has_the_error_of_its_machine() -> None:
    """At 8 at once it was slower by a third than at all other loads.

    The TTFT that is furthest off is the median of the 12 requests at 2 at once.
    """
    swept = points("seqs32")
    fitted = fit(server(32), swept)
    found = errors(fitted, swept, f"seqs32 fitted: {fitted.costs}")
    outlier = found.pop(8)
    throughput, ttft, tpot = worst(found)
    assert throughput <= 0.10
    assert ttft <= 0.25
    assert tpot <= 0.12
    assert 0.2 < outlier[0] < 0.4


@pytest.mark.parametrize("sweep", ["seqs16", "seqs32"])
def test_the_prefix_cache_finds_what_the_real_one_found(sweep: str) -> None:
    """Tokens found at each point, within a block."""
    engine = Engine(server(int(sweep.removeprefix("seqs"))))
    numbers = count()
    now = 0.0
    for point in points(sweep):
        before = engine.metrics.prefix_cache_hits
        requests = (replace(r, number=next(numbers)) for r in point.requests)
        clients = ClosedLoop(requests, concurrency=point.concurrency, start=now)
        now = Fleet([engine], clients, start=now).advance(math.inf)[-1].ended
        found = engine.metrics.prefix_cache_hits - before
        assert abs(found - HITS[point.concurrency]) <= 128


@pytest.mark.slow
def test_a_fit_finds_the_costs_that_made_a_sweep() -> None:
    """From a start that is off by half, with figures that the model itself made."""
    true = StepCosts(0.008, 0.0003, 0.0006, 1e-6)
    config = replace(settings(true, max_num_seqs=16), frontend_seconds=0.004)
    requests = [Request(n, 0.0, 60 + 31 * n % 300, 8 + 7 * n % 60) for n in range(48)]
    blank = [
        Point(concurrency, requests[: 6 * concurrency], Figures(1.0, 1.0, 1.0))
        for concurrency in (1, 2, 8, 24)
    ]
    swept = [
        replace(point, measured=figures)
        for point, figures in zip(blank, simulate(config, blank), strict=True)
    ]
    start = replace(
        config, costs=StepCosts(0.004, 0.00045, 0.0009, 1e-6), frontend_seconds=0.006
    )
    fitted = fit(start, swept)
    throughput, ttft, tpot = worst(errors(fitted, swept, "a made-up sweep"))
    assert max(throughput, ttft, tpot) < 0.001
    for name in FREE:
        if name != "frontend_seconds":
            found, sought = (getattr(c, name) for c in (fitted.costs, true))
            assert found == pytest.approx(sought, rel=0.01)
    assert fitted.frontend_seconds == pytest.approx(0.004, rel=0.01)
    assert fitted.costs.kv_token == true.kv_token


def test_only_known_parameters_can_be_fitted() -> None:
    """A slip in a name is not silently left out."""
    assert "kv_token" not in FREE
    with pytest.raises(ValueError, match="bandwidth"):
        fit(server(16), points("seqs16")[:1], ["bandwidth"])

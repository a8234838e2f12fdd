"""Known results of queueing theory, where the model reduces to their systems."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice
from random import Random
from statistics import fmean

import pytest
from capacity_models import settings

from analyzer.capacity.arrivals import ClosedLoop, OpenLoop, poisson
from analyzer.capacity.costs import StepCosts
from analyzer.capacity.engine import Engine
from analyzer.capacity.fleet import Fleet
from analyzer.capacity.machines import cpu_demo
from analyzer.capacity.outcome import Outcome
from analyzer.capacity.workload import Fixed, Lengths, Mix, Request, Uniform

FLAT = StepCosts(base=0.05, prefill_token=0.0, decode_token=0.0, kv_token=0.0)
REAL = StepCosts(base=0.01, prefill_token=1e-4, decode_token=1e-3, kv_token=1e-6)


def served(
    engine: Engine, mix: Mix, rate: float, requests: int, seed: int = 1
) -> list[Outcome]:
    """Returns how Poisson arrivals of *mix* ended."""
    rng = Random(seed)
    arrivals = islice(poisson(rng, rate), requests)
    return Fleet([engine], OpenLoop(mix.requests(rng, arrivals))).advance(math.inf)


def waits(outcomes: list[Outcome]) -> list[float]:
    """Returns the seconds between arrival and admission."""
    return [
        o.scheduled - o.request.arrival for o in outcomes if o.scheduled is not None
    ]


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
@pytest.mark.parametrize("tokens", [1, 4])
def test_one_place_and_equal_answers_are_an_m_d_1_queue(
    load: float, tokens: int
) -> None:
    """With load r the mean wait is rD/2(1 − r), D the steps of one answer."""
    service = tokens * FLAT.base
    outcomes = served(
        Engine(settings(FLAT, max_num_seqs=1)),
        Mix(Fixed(10), Fixed(tokens)),
        load / service,
        30_000,
    )
    expected = load * service / (2 * (1 - load))
    assert fmean(waits(outcomes)) == pytest.approx(expected, rel=0.06)
    for outcome in outcomes[:100]:
        assert outcome.scheduled is not None
        assert outcome.ended - outcome.scheduled == pytest.approx(service)


@pytest.mark.slow
def test_one_place_and_unequal_answers_are_an_m_g_1_queue() -> None:
    """Pollaczek and Khinchine: the mean wait is λE[S²]/2(1 − load)."""
    outcomes = served(
        Engine(settings(FLAT, max_num_seqs=1)),
        Mix(Fixed(10), Uniform(1, 20)),
        1.2,
        30_000,
    )
    steps = range(1, 21)
    mean = fmean(FLAT.base * n for n in steps)
    square = fmean((FLAT.base * n) ** 2 for n in steps)
    expected = 1.2 * square / (2 * (1 - 1.2 * mean))
    assert fmean(waits(outcomes)) == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_littles_law_holds(asynchronous: bool) -> None:  # noqa: FBT001
    """As many are in the system as arrive in the time that one stays."""
    config = settings(REAL, asynchronous=asynchronous, num_blocks=40, max_model_len=400)
    engine = Engine(config)
    rng = Random(2)
    rate = 3.0
    mix = Mix(Uniform(20, 300), Uniform(1, 80))
    fleet = Fleet([engine], OpenLoop(mix.requests(rng, poisson(rng, rate))))
    seconds, tick = 600.0, 0.05
    outcomes = []
    inside = []
    for at in range(int(seconds / tick)):
        outcomes += fleet.advance(at * tick)
        inside.append(len(engine.frontend.unfinished))
    assert engine.scheduler.preemptions > 0
    throughput = len(outcomes) / seconds
    assert fmean(inside) == pytest.approx(
        throughput * fmean(o.e2e for o in outcomes), rel=0.02
    )


def test_a_full_closed_loop_turns_over_at_the_rate_of_its_steps() -> None:
    """N equal clients and N places: N answers every time that one answer takes."""
    engine = Engine(settings(REAL, max_num_seqs=8, prefix_caching=False))
    requests = (Request(n, 0.0, 64, 50) for n in range(400))
    fleet = Fleet(
        [engine],
        ClosedLoop(requests, concurrency=8),
    )
    outcomes = fleet.advance(math.inf)
    context = sum(64 + n for n in range(1, 50))
    decode = 49 * (REAL.base + 8 * REAL.decode_token) + 8 * context * REAL.kv_token
    prefill = REAL.base + 8 * 64 * (REAL.prefill_token + REAL.kv_token)
    # All eight come and go together; each round loses at most a step between answer
    # and question.
    rounds = len(outcomes) / 8
    assert outcomes[-1].ended / rounds == pytest.approx(decode + prefill, rel=0.03)


LENGTHS: list[tuple[Lengths, Lengths]] = [
    (Uniform(10, 200), Uniform(1, 100)),
    (Fixed(100), Fixed(1)),
]


@pytest.mark.parametrize(("prompt", "output"), LENGTHS)
def test_the_same_seed_gives_the_same_run(prompt: Lengths, output: Lengths) -> None:
    """Another seed gives another."""

    def outcomes(seed: int) -> list[Outcome]:
        config = replace(cpu_demo(), jitter=0.2)
        mix = Mix(prompt, output, prefixes=2, prefix_tokens=50, patience=5.0)
        return served(Engine(config, seed=seed), mix, 6.0, 300, seed)

    assert outcomes(1) == outcomes(1)
    assert outcomes(1) != outcomes(2)


def test_jitter_leaves_the_mean_step_and_spreads_it() -> None:
    """The logarithm of a step's time has the given deviation."""
    base = 0.06
    costs = StepCosts(base, prefill_token=0.0, decode_token=0.0, kv_token=0.0)
    means, buckets = {}, {}
    for jitter in (0.0, 0.3):
        engine = Engine(replace(settings(costs), jitter=jitter), seed=3)
        served(engine, Mix(Fixed(10), Fixed(200)), 1.0, 50)
        means[jitter] = engine.work.busy / engine.work.steps
        counts = engine.metrics.inter_token_latency.counts
        buckets[jitter] = sum(1 for n in counts if n)
    assert means[0.0] == pytest.approx(base)
    assert means[0.3] == pytest.approx(base * math.exp(0.3**2 / 2), rel=0.03)
    assert buckets[0.0] == 1 < buckets[0.3]


def test_load_beyond_capacity_grows_the_queue_and_not_the_batch() -> None:
    """Throughput stays at its limit while the wait grows without end."""
    engine = Engine(settings(REAL, max_num_seqs=4))
    rng = Random(4)
    mix = Mix(Fixed(50), Fixed(50))
    fleet = Fleet([engine], OpenLoop(mix.requests(rng, poisson(rng, 20.0))))
    first, second = fleet.advance(60.0), fleet.advance(120.0)
    assert len(second) == pytest.approx(len(first), rel=0.03)
    assert len(engine.scheduler.running) == 4
    assert fmean(waits(second)) > 2 * fmean(waits(first))


def test_work_accounts_for_all_the_time_in_steps() -> None:
    """Busy seconds are what the costs say of the work that was counted."""
    engine = Engine(cpu_demo())
    served(engine, Mix(Uniform(10, 900), Uniform(1, 100)), 4.0, 400)
    costs, work = engine.config.costs, engine.work
    expected = costs.seconds(
        prefill_tokens=work.prefill_tokens,
        decode_tokens=work.decode_tokens,
        kv_tokens=work.kv_tokens,
        prefill_pairs=work.prefill_pairs,
    )
    assert work.busy == pytest.approx(expected + (work.steps - 1) * costs.base)

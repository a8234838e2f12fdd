from __future__ import annotations

import math
from collections import Counter
from itertools import islice
from random import Random
from statistics import fmean

import pytest
from capacity_models import SMALL, ask, settings

from analyzer.capacity.arrivals import OpenLoop, gamma, poisson
from analyzer.capacity.costs import StepCosts
from analyzer.capacity.engine import Engine
from analyzer.capacity.fleet import Balancer, Fleet
from analyzer.capacity.outcome import Outcome, Status
from analyzer.capacity.settings import EngineConfig
from analyzer.capacity.workload import LogNormal, Mix

COSTS = StepCosts(base=0.02, prefill_token=1e-4, decode_token=1e-3, kv_token=1e-6)


def replicas(number: int, config: EngineConfig | None = None) -> list[Engine]:
    """Returns that many equal replicas."""
    used = config or settings(COSTS)
    return [Engine(used, replica=n, seed=n) for n in range(number)]


def traffic(rate: float, requests: int, seed: int = 1) -> OpenLoop:
    """Returns mixed traffic that comes in bursts; some clients leave."""
    rng = Random(seed)
    mix = Mix(LogNormal(100, 0.7, 1, 1000), LogNormal(50, 0.9, 1, 500), patience=20.0)
    return OpenLoop(mix.requests(rng, islice(gamma(rng, rate, cv=2.0), requests)))


@pytest.mark.parametrize("balancer", list(Balancer))
def test_every_request_ends_once_whoever_serves_it(balancer: Balancer) -> None:
    """Also when a replica dies under the load and another one comes."""
    fleet = Fleet(
        replicas(4),
        traffic(20.0, 1500),
        balancer=balancer,
        gateway_seconds=0.002,
        seed=3,
    )
    outcomes = fleet.advance(20.0)
    dead = fleet.remove(1)
    outcomes += fleet.advance(40.0)
    fleet.add(Engine(dead.config, replica=1, start=40.0))
    outcomes += fleet.advance(math.inf)
    assert sorted(o.request.number for o in outcomes) == list(range(1500))
    assert {o.status for o in outcomes} == {
        *(Status.COMPLETE, Status.LEFT, Status.BROKEN)
    }
    served = Counter(o.replica for o in outcomes)
    assert served.keys() == {0, 1, 2, 3}
    assert served[1] < min(served[n] for n in (0, 2, 3))
    assert set(fleet.in_flight.values()) == {0}
    broken = [o for o in outcomes if o.status is Status.BROKEN]
    assert {(o.replica, o.ended) for o in broken} == {(1, 20.0)}


def test_a_run_does_not_depend_on_how_it_is_cut() -> None:
    """Whoever drives it by a wall clock sees what a single leap sees."""

    def outcomes(tick: float) -> list[Outcome]:
        fleet = Fleet(
            replicas(3), traffic(15.0, 600), balancer=Balancer.TWO_CHOICES, seed=9
        )
        found = []
        now = 0.0
        while now < 60.0:
            now += tick
            found += fleet.advance(now)
        return found + fleet.advance(math.inf)

    whole = outcomes(1e9)
    key = {o.request.number: o for o in whole}
    assert {o.request.number: o for o in outcomes(0.37)} == key
    assert len(key) == 600


def test_round_robin_takes_turns() -> None:
    """Whatever the replicas are doing."""
    requests = [ask(n, n * 0.01, 10, 5 + 50 * (n % 2)) for n in range(10)]
    outcomes = Fleet(replicas(2), OpenLoop(requests)).advance(math.inf)
    assert {o.request.number: o.replica for o in outcomes} == {
        n: n % 2 for n in range(10)
    }


def test_least_requests_avoids_the_busy_one() -> None:
    """A replica that hangs on to its requests gets no more than it gives back."""
    slow = settings(COSTS.scaled(20.0))
    served = {}
    for balancer in Balancer:
        engines = [Engine(slow, replica=0), *replicas(3)[1:]]
        fleet = Fleet(engines, traffic(6.0, 400), balancer=balancer, seed=5)
        outcomes = fleet.advance(math.inf)
        served[balancer] = Counter(o.replica for o in outcomes)[0] / len(outcomes)
    assert served[Balancer.ROUND_ROBIN] == pytest.approx(1 / 3, abs=0.01)
    assert served[Balancer.LEAST_REQUESTS] < 0.2
    assert served[Balancer.TWO_CHOICES] < 0.25


def test_two_choices_wait_less_than_turns_and_longer_than_knowing_all() -> None:
    """With one place a replica, a bad choice is a wait behind somebody."""
    waits = {}
    for balancer in Balancer:
        fleet = Fleet(
            replicas(8, settings(COSTS, max_num_seqs=1)),
            traffic(4.0, 1200, seed=2),
            balancer=balancer,
            seed=1,
        )
        outcomes = fleet.advance(math.inf)
        waits[balancer] = fmean(
            o.scheduled - o.request.arrival for o in outcomes if o.scheduled is not None
        )
    turns, all_known, two = (waits[balancer] for balancer in Balancer)
    assert all_known < two < turns


def test_the_gateway_adds_to_what_the_client_sees_only() -> None:
    """The engine's TTFT begins when it gets the request."""
    fleet = Fleet(replicas(1), OpenLoop([ask(0, 1.0, 10, 4)]), gateway_seconds=0.25)
    outcome = fleet.advance(math.inf)[0]
    assert outcome.forwarded == 1.25
    assert outcome.ttft is not None
    assert outcome.engine_ttft is not None
    assert outcome.ttft - outcome.engine_ttft == pytest.approx(0.25)
    assert outcome.e2e == outcome.ended - 1.0


def test_without_a_replica_nothing_is_served() -> None:
    """The gateway answers by itself."""
    fleet = Fleet([], OpenLoop([ask(0, 1.0, 10, 4)]))
    outcome = fleet.advance(5.0)[0]
    assert outcome.status is Status.UNREACHABLE
    assert (outcome.replica, outcome.ttft, outcome.tpot) == (None, None, None)
    assert outcome.ended == 1.0
    assert fleet.now == 5.0


def test_outcomes_tell_ttft_tpot_and_the_longest_gap() -> None:
    """From the client's first byte, between tokens, and none where there is none."""
    config = settings(StepCosts(1.0, 0.0, 0.0, 0.0), max_num_seqs=1)
    requests = [ask(0, 0.0, 10, 5), ask(1, 0.5, 10, 1)]
    outcomes = Fleet([Engine(config)], OpenLoop(requests)).advance(math.inf)
    first, second = outcomes
    assert (first.ttft, first.tpot, first.e2e, first.max_gap) == (1.0, 1.0, 5.0, 1.0)
    assert (second.ttft, second.tpot, second.e2e) == (5.5, None, 5.5)
    assert second.output_tokens == 1


def test_a_replica_that_comes_back_begins_at_zero() -> None:
    """Its metrics are those of a new process."""
    fleet = Fleet(replicas(1), traffic(10.0, 300))
    fleet.advance(10.0)
    old = fleet.remove(0)
    assert old.metrics.generation_tokens > 0
    new = Engine(old.config, replica=0, start=fleet.now)
    fleet.add(new)
    assert (new.metrics.generation_tokens, new.started) == (0, 10.0)
    fleet.advance(20.0)
    assert new.metrics.generation_tokens > 0
    with pytest.raises(ValueError, match="replica 0"):
        fleet.add(Engine(old.config, replica=0))


def test_two_hundred_replicas_run_in_one_fleet() -> None:
    """Every one of them serves, and time goes by for all alike."""
    fleet = Fleet(
        replicas(200), traffic(200.0, 2000), balancer=Balancer.TWO_CHOICES, seed=1
    )
    outcomes = fleet.advance(math.inf)
    assert len(outcomes) == 2000
    assert len({o.replica for o in outcomes}) == 200
    assert [o.ended for o in outcomes] == sorted(o.ended for o in outcomes)


def test_numbers_may_come_again_after_their_end() -> None:
    """The patience of the first client is not that of the second."""
    engine = Engine(EngineConfig(SMALL, COSTS))
    for at in (0.0, 50.0):
        requests = (
            ask(n, at + when, 10, 100, patience=51.0)
            for n, when in enumerate(islice(poisson(Random(1), 2.0), 20))
        )
        outcomes = Fleet([engine], OpenLoop(requests), start=at).advance(math.inf)
        assert [o.status for o in outcomes] == [Status.COMPLETE] * 20

"""What the product makes of a simulated site's pages and log is what was the case."""

from __future__ import annotations

import pytest
from simulated_site import MACHINE, MODEL, Played, config, played

from analyzer.capacity.machines import machines
from analyzer.capacity.outcome import Status
from analyzer.document import document
from analyzer.replay import replay, replay_log
from analyzer.simulation.scenarios import SCENARIOS
from analyzer.simulation.site import Site

SEEDS = (1, 2, 3)
SECONDS = {"tour": 500}


def play(scenario: str, seed: int) -> Played:
    """Returns a scenario as long as it takes to show itself."""
    return played(scenario, seed=seed, seconds=SECONDS.get(scenario, 100))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_log_gives_the_truth_exactly(scenario: str, seed: int) -> None:
    """Every verdict, miss, exclusion and token that the simulation counted."""
    found = play(scenario, seed)
    truth = found.truth
    flow = replay_log(found.lines, config(), aliases={})
    counts = flow.counts()[MODEL, "interactive"]
    assert truth.requests > 50
    assert (counts.requests, counts.good, counts.bad) == (
        truth.requests,
        truth.good,
        truth.bad,
    )
    assert {k: v for k, v in counts.misses.items() if v} == dict(truth.missed)
    excluded = {k: v for k, v in flow.totals.excluded.items() if v}
    assert excluded == dict(truth.excluded)
    assert sum(flow.totals.failures.values()) == 0


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_engines_bounds_contain_the_truth(scenario: str, seed: int) -> None:
    """The answers that were good at the engine's clock, between the two bounds.

    What an engine counted between its last page and its crash nobody ever saw.
    """
    found = play(scenario, seed)
    result = replay(found.scrapes, config())
    assert result is not None
    flow, at = result
    (row,) = document([flow], at)["slo"]
    good = found.truth.at_engine["good"]
    finished = found.truth.at_engine["finished"]
    lost = finished - row["total"]
    most = 0.1 * finished if scenario in {"restart", "tour"} else 0.0
    assert 0 <= lost <= most
    low, high = row["bounds"]
    assert low * row["total"] <= good <= high * row["total"] + lost


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rollout_replaces_every_pod_and_loses_no_request(seed: int) -> None:
    """A pod that is asked to end answers what it has; the others take the rest."""
    machine = machines()[MACHINE]
    site = Site(SCENARIOS["rollout"], machine, replicas=3, seed=seed)
    statuses = {outcome.status for outcome in site.advance(98.0)}
    assert Status.BROKEN not in statuses
    assert Status.UNREACHABLE not in statuses
    assert [replica.pod for replica in site.replicas] == [
        *("vllm-0-1", "vllm-1-1", "vllm-2-1"),
    ]
    assert not any(replica.leaving for replica in site.replicas)

from __future__ import annotations

import math
from itertools import islice, pairwise, takewhile
from random import Random
from statistics import fmean, median, pstdev

import pytest
from capacity_models import ask
from hypothesis import given
from hypothesis import strategies as st

from analyzer.capacity.arrivals import (
    ClosedLoop,
    OpenLoop,
    bursts,
    gamma,
    modulated,
    poisson,
    ramp,
)
from analyzer.capacity.workload import Fixed, LogNormal, Mix, Request, Uniform


def gaps(arrivals: list[float]) -> list[float]:
    """Returns the times between arrivals."""
    return [later - earlier for earlier, later in pairwise(arrivals)]


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_gamma_arrivals_have_their_rate_and_variation(cv: float) -> None:
    """The mean gap is 1/rate, and its deviation cv times that."""
    between = gaps(list(islice(gamma(Random(1), 5.0, cv=cv), 60_000)))
    assert fmean(between) == pytest.approx(0.2, rel=0.04)
    assert pstdev(between) / fmean(between) == pytest.approx(cv, rel=0.05)


def test_no_variation_is_a_metronome_and_no_rate_is_silence() -> None:
    """The two ends of the scale."""
    assert list(islice(gamma(Random(1), 4.0, cv=0.0), 3)) == [0.25, 0.5, 0.75]
    assert list(poisson(Random(1), 0.0)) == []


def test_poisson_counts_vary_as_much_as_their_mean() -> None:
    """The index of dispersion is 1, and far above it for bursts."""

    def dispersion(arrivals: list[float]) -> float:
        counts = [0] * int(arrivals[-1] / 5.0)
        for at in arrivals:
            if at / 5.0 < len(counts):
                counts[int(at / 5.0)] += 1
        return pstdev(counts) ** 2 / fmean(counts)

    steady = list(islice(poisson(Random(2), 4.0), 20_000))
    assert dispersion(steady) == pytest.approx(1.0, abs=0.1)
    uneven = bursts(
        Random(2), calm=1.0, burst=20.0, calm_seconds=30.0, burst_seconds=5.0
    )
    assert dispersion(list(islice(uneven, 20_000))) > 5.0


def test_bursts_have_the_mean_of_their_two_rates() -> None:
    """Weighted with the time spent in each."""
    arrivals = bursts(
        Random(3), calm=1.0, burst=20.0, calm_seconds=9.0, burst_seconds=1.0
    )
    number = sum(1 for _ in takewhile(lambda at: at < 20_000.0, arrivals))
    assert number / 20_000.0 == pytest.approx(0.9 * 1.0 + 0.1 * 20.0, rel=0.05)


def test_phases_follow_each_other() -> None:
    """Each has its rate, and after the last one nothing comes."""
    arrivals = list(modulated(Random(4), [(100.0, 2.0), (50.0, 0.0), (100.0, 6.0)]))
    assert arrivals == sorted(arrivals)
    assert sum(at < 100.0 for at in arrivals) == pytest.approx(200, rel=0.2)
    assert not [at for at in arrivals if 100.0 <= at < 150.0]
    assert sum(at >= 150.0 for at in arrivals) == pytest.approx(600, rel=0.15)
    assert max(arrivals) < 250.0


def test_a_ramp_climbs_and_then_stays() -> None:
    """A quarter of the ramp's arrivals come in its first half."""
    arrivals = list(
        takewhile(
            lambda at: at < 2000.0, ramp(Random(5), begin=0, end=10, seconds=1000)
        )
    )
    first = sum(at < 500.0 for at in arrivals)
    climbing = sum(at < 1000.0 for at in arrivals)
    assert climbing == pytest.approx(5000, rel=0.05)
    assert first / climbing == pytest.approx(0.25, abs=0.02)
    assert len(arrivals) - climbing == pytest.approx(10_000, rel=0.05)


def test_lengths_have_their_distributions() -> None:
    """Median and limits of the log-normal, ends of the uniform, the fixed one."""
    rng = Random(6)
    drawn = [LogNormal(300, 0.8, 10, 4000).draw(rng) for _ in range(20_000)]
    assert median(drawn) == pytest.approx(300, rel=0.03)
    assert fmean(map(math.log, drawn)) == pytest.approx(math.log(300), rel=0.01)
    assert min(drawn) >= 10
    assert max(drawn) <= 4000
    assert {Uniform(3, 6).draw(rng) for _ in range(200)} == {3, 4, 5, 6}
    assert Fixed(7).draw(rng) == 7


def test_a_mix_shares_heads_and_loses_some_clients() -> None:
    """The head comes on top of the prompt; patience and leavers as asked for."""
    mix = Mix(
        Fixed(100),
        Fixed(20),
        tenant="free",
        prefixes=4,
        prefix_tokens=50,
        patience=30.0,
        leavers=0.25,
        leaves_after=3,
    )
    requests = list(mix.requests(Random(7), [float(n) for n in range(4000)], first=10))
    assert [r.number for r in requests[:3]] == [10, 11, 12]
    assert {(r.prompt_tokens, r.prefix_tokens) for r in requests} == {(150, 50)}
    heads = {r.prefix: 0 for r in requests}
    for request in requests:
        heads[request.prefix] += 1
    assert len(heads) == 4
    assert min(heads.values()) > 900
    assert fmean(r.patience for r in requests) == pytest.approx(30.0, rel=0.05)
    left = sum(r.leaves_after == 3 for r in requests)
    assert left / 4000 == pytest.approx(0.25, abs=0.03)


def test_tenants_are_merged_by_their_arrivals() -> None:
    """Numbers are given anew, so that they stay unique."""
    streams = (
        Mix(Fixed(10), Fixed(5), tenant=tenant).requests(
            Random(seed), islice(poisson(Random(seed), rate), 50)
        )
        for seed, (tenant, rate) in enumerate([("free", 1.0), ("pro", 3.0)])
    )
    source = OpenLoop(*streams)
    taken = []
    while math.isfinite(source.next_arrival):
        due = source.next_arrival
        taken.append(source.take())
        assert taken[-1].arrival == due
    assert [r.number for r in taken] == list(range(100))
    assert [r.arrival for r in taken] == sorted(r.arrival for r in taken)
    assert {r.tenant for r in taken[:20]} == {"free", "pro"}
    with pytest.raises(LookupError):
        source.take()


def test_a_client_of_a_closed_loop_asks_when_it_was_answered() -> None:
    """All begin at once; then one question an answer, after a time to think."""
    source = ClosedLoop(
        [ask(n, 0.0, 10, 5) for n in range(4)], concurrency=2, think=0.5
    )
    assert [source.take().number, source.take().number] == [0, 1]
    assert source.next_arrival == math.inf
    with pytest.raises(LookupError):
        source.take()
    source.ended(ask(0, 0.0, 10, 5), 3.0)
    assert source.next_arrival == 3.5
    assert source.take().arrival == 3.5
    source.ended(ask(0, 0.0, 10, 5), 4.0)
    source.ended(ask(0, 0.0, 10, 5), 5.0)
    assert source.take().number == 3
    assert source.next_arrival == math.inf


@given(
    st.integers(-2, 3),
    st.integers(-2, 3),
    st.integers(-1, 3),
    st.sampled_from([0, None]),
)
def test_impossible_requests_are_refused(
    prompt: int, output: int, prefix: int, asked: int | None
) -> None:
    """At least a token each way, and a head no longer than the prompt."""
    possible = min(prompt, output) >= 1 and 0 <= prefix <= prompt and asked is None
    try:
        Request(0, 0.0, prompt, output, max_tokens=asked, prefix_tokens=prefix)
    except ValueError:
        assert not possible
    else:
        assert possible

"""The demonstration's scenarios are named for what they are, on every machine."""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import accumulate, islice

import pytest
from simulated_site import BEGIN, config, played

from analyzer.document import windows
from analyzer.replay import replay
from analyzer.simulation.scenarios import TOUR

RIGHT = 0.95
SECONDS = 70
SETTLED_SECONDS = 12.0
TWO_BURSTS_SECONDS = 30.0  # one alone is none
MACHINES = ("a100-llama-8b", "h100-llama-8b", "h100x4-llama-70b")
EXPECTED = {
    "healthy": {"none": ""},
    "overload": {"queueing": "sequence_cap"},
    "kv-pressure": {"memory": "kv_capacity"},
    "long-prompts": {"compute": "prefill"},
    "wide-decode": {"compute": "decode"},
    "burst": {"traffic": "burst"},
    "restart": {"none": "", "fault": "down"},
}
STAGES = {
    "overload": ("queueing", "sequence_cap"),
    "kv_pressure": ("memory", "kv_capacity"),
    "long_prompts": ("compute", "prefill"),
    "burst": ("traffic", "burst"),
    "wide_decode": ("compute", "decode"),
}


@pytest.mark.parametrize(
    "seed",
    [
        1,
        pytest.param(2, marks=pytest.mark.slow),
        pytest.param(3, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("scenario", EXPECTED)
def test_a_scenario_is_named_for_what_it_is(
    scenario: str, machine: str, seed: int
) -> None:
    """Nearly all of the time, with the cause; nothing was learnt before."""
    site = played(scenario, seed=seed, seconds=SECONDS, machine=machine)
    found = replay(site.scrapes, config())
    assert found is not None
    begin = BEGIN + (TWO_BURSTS_SECONDS if scenario == "burst" else SETTLED_SECONDS)
    held: defaultdict[tuple[str, str], float] = defaultdict(float)
    for window in windows([found[0]], latest=False):
        seconds = window["end"] - max(begin, window["start"])
        if seconds > 0:
            held[window["family"], window["cause"] or ""] += seconds
    right = sum(
        seconds
        for (family, cause), seconds in held.items()
        if EXPECTED[scenario].get(family) in ("", cause)
    )
    share = right / sum(held.values())
    sys.stdout.write(f"\n{machine} {scenario} seed {seed}: {share:.1%}")
    assert share >= RIGHT, dict(held)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_tour_shows_every_limit(seed: int) -> None:
    """Each stage ends under its own cause, whatever came before it."""
    site = played("tour", seed=seed, seconds=int(sum(s for _, s in TOUR)))
    found = replay(site.scrapes, config())
    assert found is not None
    rows = windows([found[0]], latest=False)
    ends = accumulate((seconds for _, seconds in TOUR), initial=BEGIN)
    last = {
        name: next((w["family"], w["cause"]) for w in rows if w["end"] >= end - 1.0)
        for (name, _), end in zip(TOUR, islice(ends, 1, None), strict=True)
        if name in STAGES
    }
    assert last == STAGES

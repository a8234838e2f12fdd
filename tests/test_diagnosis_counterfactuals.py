"""A knob is named exactly when turning it raises the throughput.

Every engine here is overloaded. Each knob is doubled in turn, in a simulation of vLLM's
scheduler; the diagnosis sees the engine's metrics only.
"""

from __future__ import annotations

import heapq
import math
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from analyzer.capacity.engine import Engine
from analyzer.capacity.fleet import Fleet
from analyzer.capacity.machines import machines
from analyzer.capacity.settings import EngineConfig, SchedulerConfig
from analyzer.capacity.workload import Mix, Request, Uniform
from analyzer.config import Config
from analyzer.config_sources import EngineSource
from analyzer.flow import EngineFlow
from analyzer.simulation.clock import Clock
from analyzer.simulation.site import Replica
from analyzer.simulation.vllm_page import page

BEGIN = 1_700_000_000.0
LIGHT_SECONDS, LOAD_SECONDS, SETTLED_SECONDS = 15, 50, 20
WARM_SECONDS = 15
RAMP_SECONDS = 10.0  # in which the clients come, or all would finish together
HELPS = 0.08  # of the throughput: less may be chance, and is not worth a knob
RIGHT = 0.95
KNOBS = {
    "queueing/sequence_cap": "max_num_seqs",
    "memory/kv_capacity": "num_blocks",
    "queueing/token_budget": "max_num_batched_tokens",
}


@dataclass
class Clients:
    """Clients that each ask again once they were answered; the last until `end`."""

    mix: Mix
    concurrency: int
    begin: float
    end: float
    seed: int
    due: list[float] = field(init=False)

    def __post_init__(self) -> None:
        step = RAMP_SECONDS / self.concurrency
        self.due = [self.begin + step * n for n in range(self.concurrency)]
        self._rng = Random(self.seed)
        self._number = int(self.begin) * 1_000_000

    @property
    def next_arrival(self) -> float:
        """The time of the next request, infinite while all wait."""
        return self.due[0] if self.due and self.due[0] < self.end else math.inf

    def take(self) -> Request:
        """Returns that request."""
        self._number += 1
        return self.mix.request(self._rng, self._number, heapq.heappop(self.due))

    def ended(self, request: Request, at: float) -> None:
        """Lets a client ask again."""
        del request
        heapq.heappush(self.due, at)


def changed(config: SchedulerConfig, settings: Mapping[str, int]) -> SchedulerConfig:
    """Returns *config* with whole-numbered settings changed."""
    return replace(config, **settings)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Regime:
    """An overloaded engine: changes to its settings, lengths, and clients."""

    name: str
    prompt: int
    output: int
    clients: int
    settings: Mapping[str, int]

    def config(self, machine: str) -> EngineConfig:
        """Returns the engine on *machine*."""
        config = machines()[machine]
        scheduler = replace(config.scheduler, prefix_caching=False)
        return replace(config, scheduler=changed(scheduler, self.settings))

    @property
    def mix(self) -> Mix:
        """The requests: a quarter longer or shorter than said."""

        def around(mean: int) -> Uniform:
            return Uniform(int(0.75 * mean), int(1.25 * mean))

        return Mix(around(self.prompt), around(self.output))


REGIMES = (
    Regime("few sequences", 200, 200, 64, {"max_num_seqs": 16}),
    Regime("few sequences, longer", 800, 200, 48, {"max_num_seqs": 16}),
    Regime("long prompts at a cap", 6000, 16, 32, {"max_num_seqs": 8}),
    Regime("long prompts", 6000, 16, 32, {}),
    Regime("long prompts and answers", 4000, 150, 120, {"max_num_seqs": 64}),
    Regime("few blocks", 300, 600, 100, {"num_blocks": 2100}),
    Regime(
        "small steps", 1500, 40, 96, {"max_num_seqs": 64, "max_num_batched_tokens": 96}
    ),
)


def throughput(config: EngineConfig, regime: Regime) -> float:
    """Returns the requests' worth of tokens computed a second under load."""
    engine = Engine(config, seed=5)
    end = float(LOAD_SECONDS)
    source = Clients(regime.mix, regime.clients, 0.0, end, seed=5)
    fleet = Fleet([engine], source)
    fleet.advance(float(WARM_SECONDS))
    before = engine.metrics.prompt_tokens, engine.metrics.generation_tokens
    fleet.advance(end)
    prompts = (engine.metrics.prompt_tokens - before[0]) / regime.prompt
    outputs = (engine.metrics.generation_tokens - before[1]) / regime.output
    return (prompts + outputs) / 2 / (LOAD_SECONDS - WARM_SECONDS)


def gains(machine: str, regime: Regime) -> dict[str, float]:
    """Returns what doubling each knob adds to the throughput, as a share."""
    config = regime.config(machine)
    usual = throughput(config, regime)
    found = {}
    for verdict, knob in KNOBS.items():
        changes = {knob: 2 * getattr(config.scheduler, knob)}
        if knob == "max_num_seqs":  # vLLM wants a token for each of them
            tokens = max(changes[knob], config.scheduler.max_num_batched_tokens)
            changes["max_num_batched_tokens"] = tokens
        scheduler = changed(config.scheduler, changes)
        after = throughput(replace(config, scheduler=scheduler), regime)
        found[verdict] = after / usual - 1.0
    return found


def named(machine: str, regime: Regime, *, seed: int) -> Counter[str]:
    """Returns the verdicts under load, second by second, after a light load."""
    replica = Replica(0, engine=Engine(regime.config(machine), seed=seed))
    assert replica.engine is not None
    clock = Clock(BEGIN)
    flow = EngineFlow(EngineSource("e", ""), Config(), since=BEGIN)
    found: Counter[str] = Counter()
    now = 0.0
    for clients, seconds in ((2, LIGHT_SECONDS), (regime.clients, LOAD_SECONDS)):
        begin, end = now, now + seconds
        source = Clients(regime.mix, clients, begin, end, seed=seed)
        fleet = Fleet([replica.engine], source, start=begin)
        while now < end:
            now += 1.0
            fleet.advance(now)
            text = page(replica, model="m", clock=clock)
            flow.observe(flow.read(text, clock.wall(now)))
            if clients > 2 and now > begin + SETTLED_SECONDS:
                latest = flow.timelines["m", "0"].latest
                assert latest is not None
                found[f"{latest.verdict.family}/{latest.verdict.cause}"] += 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["a100-llama-8b", "h100x4-llama-70b"])
@pytest.mark.parametrize("regime", REGIMES, ids=lambda regime: regime.name)
def test_the_knob_that_helps_is_the_one_that_is_named(
    machine: str, regime: Regime
) -> None:
    """The one with the largest gain; the step's content when none gains."""
    gained = gains(machine, regime)
    best = max(gained, key=gained.__getitem__)
    expected = best if gained[best] >= HELPS else "compute/prefill"
    for seed in (1, 2, 3):
        found = named(machine, regime, seed=seed)
        share = found[expected] / sum(found.values())
        said = {knob: round(gain, 3) for knob, gain in gained.items()}
        sys.stdout.write(f"\n{machine} {regime.name}: {said} → {dict(found)}")
        family = expected.partition("/")[0]
        of_family = sum(n for verdict, n in found.items() if verdict.startswith(family))
        assert of_family / sum(found.values()) >= RIGHT, (said, dict(found))
        assert share >= 0.75, (said, dict(found))

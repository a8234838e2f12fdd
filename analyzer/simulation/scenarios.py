"""What happens at a simulated site: which requests come, and what is done to replicas.

Every scenario goes on for ever and means the same on every accelerator: its loads are
found from the machine's costs. What each brings about is in `SCENARIOS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, count, cycle
from random import Random
from types import MappingProxyType

from analyzer.capacity.arrivals import ClosedLoop, OpenLoop, Source, modulated
from analyzer.capacity.machines import BLOCK_SIZE
from analyzer.capacity.settings import EngineConfig
from analyzer.capacity.timetable import Timetable, Window
from analyzer.capacity.workload import Fixed, LogNormal, Mix
from analyzer.simulation.loads import Shape, closed_loop, cycles, open_loop, rate_of

FEW_SEQUENCES = 32  # a cap that memory and compute would both let rise
MANY_SEQUENCES = 1024
CHAT = Shape(400, 150)
FAULTY_PER_SECOND = 0.02  # prompts that the model has no room for


@dataclass(frozen=True, slots=True)
class Event:
    """Something done to a replica at a time (seconds).

    It stops with `config` None, and starts with one; `moved` gives it a new address
    and name, as a pod that was scheduled anew has. With `drains` it only takes no new
    requests: the pod is asked to end, and when it stops it is gone from every list.
    """

    at: float
    replica: int
    config: EngineConfig | None
    moved: bool = False
    drains: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A scenario on a machine: how replicas begin, who asks, and what is done."""

    config: EngineConfig
    source: Source
    events: Iterable[Event] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """A name's meaning: a sentence for users, and the plan on a machine.

    `plan` takes the machine, the number of replicas and the source of all chance.
    """

    text: str
    plan: Callable[[EngineConfig, int, Random], Plan]


def _settings(
    config: EngineConfig, *, seqs: int, blocks: int | None = None
) -> EngineConfig:
    """Returns *config* with other limits on sequences and, if given, on blocks."""
    scheduler = config.scheduler
    return replace(
        config,
        jitter=0.02,
        scheduler=replace(
            scheduler,
            max_num_seqs=seqs,
            num_blocks=blocks or scheduler.num_blocks,
        ),
    )


def _lengths(shape: Shape, *, sigma: float, patience: float = math.inf) -> Mix:
    """Returns a mix with the mean lengths of *shape*."""

    def around(mean: float) -> LogNormal:
        return LogNormal(mean * math.exp(-(sigma**2) / 2), sigma, 2, round(6 * mean))

    return Mix(
        around(shape.prompt), around(shape.output), tenant="chat", patience=patience
    )


class _Loads:
    """The loads of one machine, each a function of the moment it begins."""

    def __init__(self, config: EngineConfig, replicas: int, rng: Random) -> None:
        self._config = config
        self._replicas = replicas
        self._rng = rng

    def light(self, begin: float) -> Source:
        """Returns chat traffic that keeps some two requests in each replica."""
        return self.healthy(begin, running=2)

    def healthy(self, begin: float, *, running: float = 8) -> Source:
        """Returns chat traffic that keeps some eight requests in each replica."""
        mix = replace(
            _lengths(CHAT, sigma=0.6),
            prefixes=4,
            prefix_tokens=160,
            leavers=0.03,
            leaves_after=20,
        )
        rate = rate_of(self._config, CHAT, running=running) * self._replicas
        return open_loop(self._rng, mix, rate=rate, begin=begin)

    def overload(self, begin: float) -> Source:
        """Returns three times as many clients as `FEW_SEQUENCES` takes."""
        mix = _lengths(Shape(200, 150), sigma=0.4, patience=60.0)
        clients = 3 * FEW_SEQUENCES * self._replicas
        return closed_loop(self._rng, mix, clients=clients, begin=begin)

    def kv_pressure(self, begin: float) -> Source:
        """Returns clients whose requests would fill 1.7 times the cache's blocks.

        No more of them than sequences are allowed: then it is memory that binds.
        """
        scheduler = self._config.scheduler
        wanted = 1.7 * scheduler.num_blocks * BLOCK_SIZE
        clients = min(scheduler.max_num_seqs, math.ceil(wanted / 750))
        resident = wanted / clients
        mix = _lengths(Shape(0.6 * resident, 0.8 * resident), sigma=0.3)
        return closed_loop(
            self._rng, mix, clients=clients * self._replicas, begin=begin
        )

    def long_prompts(self, begin: float) -> Source:
        """Returns clients with prompts that take most of the steps' time.

        A dozen a replica: enough that a prompt is always being computed, too few to
        reach a limit of sequences or memory.
        """
        config = self._config
        costs = config.costs
        tokens = config.scheduler.num_blocks * BLOCK_SIZE
        prompt = min(config.scheduler.max_model_len / 4, tokens / 30)
        # A tenth of the prefill's time is left to decoding.
        compute = prompt * costs.prefill_token + prompt**2 / 2 * costs.prefill_pair
        output = max(4.0, min(60.0, compute / costs.base))
        mix = _lengths(Shape(prompt, output), sigma=0.2)
        return closed_loop(self._rng, mix, clients=12 * self._replicas, begin=begin)

    def wide_decode(self, begin: float) -> Source:
        """Returns so many short requests that their tokens make the steps too long.

        Some 65 ms a step, of which most machines need 15 for the weights.
        """
        costs = self._config.costs
        shape = Shape(80, 300)
        token = costs.decode_token + (80 + 150) * costs.kv_token
        token += shape.prompt / shape.output * costs.prefill_token
        clients = min(math.ceil((0.065 - costs.base) / token), MANY_SEQUENCES - 100)
        mix = _lengths(shape, sigma=0.3)
        return closed_loop(
            self._rng, mix, clients=clients * self._replicas, begin=begin
        )

    def burst(self, begin: float) -> Source:
        """Returns traffic that fits on average, in bursts that do not."""
        rate = rate_of(self._config, CHAT, running=8) * self._replicas
        phases = cycle([(12.0, 0.3 * rate), (2.5, 8.0 * rate)])
        times = modulated(self._rng, phases, start=begin)
        return OpenLoop(_lengths(CHAT, sigma=0.6).requests(self._rng, times))

    def faulty(self, begin: float) -> Source:
        """Returns a caller whose prompts are longer than the model's context."""
        longest = self._config.scheduler.max_model_len
        mix = Mix(Fixed(longest), Fixed(10), tenant="faulty")
        return open_loop(self._rng, mix, rate=FAULTY_PER_SECOND, begin=begin)

    def idle(self, begin: float) -> Source:
        """Returns nobody."""
        return ClosedLoop((), concurrency=1, start=begin)

    def always(self, make: Callable[[float], Source]) -> Timetable:
        """Returns one load for ever, and the faulty caller beside it."""
        return Timetable(
            [Window(0.0, math.inf, make), Window(0.0, math.inf, self.faulty)]
        )


def _steady(name: str, *, seqs: int) -> Callable[[EngineConfig, int, Random], Plan]:
    """Returns the plan of one load for ever, under a limit on sequences."""

    def plan(machine: EngineConfig, replicas: int, rng: Random) -> Plan:
        config = _settings(machine, seqs=seqs)
        loads = _Loads(config, replicas, rng)
        return Plan(config, loads.always(getattr(loads, name)))

    return plan


def _few_blocks(machine: EngineConfig) -> int:
    """Returns the blocks of a replica whose memory something else has taken."""
    least = machine.scheduler.max_model_len // BLOCK_SIZE + 1
    return max(least, min(machine.scheduler.num_blocks, 2560))


def _kv_pressure(machine: EngineConfig, replicas: int, rng: Random) -> Plan:
    config = _settings(machine, seqs=256, blocks=_few_blocks(machine))
    loads = _Loads(config, replicas, rng)
    return Plan(config, loads.always(loads.kv_pressure))


def _restart(machine: EngineConfig, replicas: int, rng: Random) -> Plan:
    config = _settings(machine, seqs=FEW_SEQUENCES)
    loads = _Loads(config, replicas, rng)
    return Plan(config, loads.always(loads.light), _restarts(config, replicas))


def _restarts(config: EngineConfig, replicas: int) -> Iterator[Event]:
    """Yields crashes; every other replica comes back as another pod.

    One every 40 s, and in large fleets more, so that each has its turn.
    """
    every = 40.0 * min(1.0, 20.0 / replicas)
    for turn in count():
        replica = turn % replicas
        at = 20.0 + every * turn
        yield Event(at, replica, None)
        yield Event(at + 8.0, replica, config, moved=turn % 2 == 1)


def _rollout(machine: EngineConfig, replicas: int, rng: Random) -> Plan:
    config = _settings(machine, seqs=FEW_SEQUENCES)
    loads = _Loads(config, replicas, rng)
    return Plan(config, loads.always(loads.light), _replacements(config, replicas))


def _replacements(config: EngineConfig, replicas: int) -> Iterator[Event]:
    """Yields replicas that end their requests, go, and come back as another pod."""
    for turn in count():
        replica, at = turn % replicas, 10.0 + 30.0 * turn
        yield Event(at, replica, None, drains=True)
        yield Event(at + GRACE_SECONDS, replica, None)
        back = at + GRACE_SECONDS + START_SECONDS
        yield Event(back, replica, config, moved=True)


TOUR = (
    ("healthy", 40.0),
    ("overload", 60.0),
    ("idle", 10.0),
    ("kv_pressure", 80.0),
    ("idle", 30.0),
    ("long_prompts", 60.0),
    ("idle", 10.0),
    ("burst", 60.0),
    ("healthy", 40.0),  # with a rollout of replicas that take more sequences
    ("wide_decode", 60.0),
    ("idle", 10.0),
    ("healthy", 40.0),  # and back
)
ROLLOUT_SECONDS = 30.0
START_SECONDS = 6.0  # of a replica
GRACE_SECONDS = 20.0  # in which a replica that is asked to end answers its requests


def _tour(machine: EngineConfig, replicas: int, rng: Random) -> Plan:
    wide = _settings(machine, seqs=MANY_SEQUENCES)
    # So few blocks hold no longer request; but then the cache can run out of them
    # before FEW_SEQUENCES are running.
    short = replace(machine, scheduler=replace(machine.scheduler, max_model_len=8192))
    narrow = _settings(short, seqs=FEW_SEQUENCES, blocks=1536)
    loads = _Loads(narrow, replicas, rng)
    stages = (
        Window(begin, end, getattr(loads, TOUR[index][0]))
        for index, begin, end in cycles(0.0, *(seconds for _, seconds in TOUR))
    )
    windows = chain([Window(0.0, math.inf, loads.faulty)], stages)
    return Plan(narrow, Timetable(windows), _rollouts(wide, narrow, replicas))


def _rollouts(
    wide: EngineConfig, narrow: EngineConfig, replicas: int
) -> Iterator[Event]:
    """Yields the restarts of every replica around the stage of wide decoding."""
    configs = {8: wide, 11: narrow}
    for index, begin, _ in cycles(0.0, *(seconds for _, seconds in TOUR)):
        config = configs.get(index)
        if config is None:
            continue
        for replica in range(replicas):
            at = begin + ROLLOUT_SECONDS * replica / replicas
            yield Event(at, replica, None)
            yield Event(at + START_SECONDS, replica, config)


SCENARIOS: Mapping[str, Scenario] = MappingProxyType(
    {
        "tour": Scenario("each of the others for a minute, again and again", _tour),
        "healthy": Scenario(
            "chat traffic that the replicas serve with ease",
            _steady("healthy", seqs=256),
        ),
        "overload": Scenario(
            "three times as many clients as max_num_seqs admits",
            _steady("overload", seqs=FEW_SEQUENCES),
        ),
        "kv-pressure": Scenario(
            "answers that outgrow the KV cache, and preemptions", _kv_pressure
        ),
        "long-prompts": Scenario(
            "prompts whose prefill takes the steps' time",
            _steady("long_prompts", seqs=256),
        ),
        "wide-decode": Scenario(
            "so many sequences a step that tokens cost more than weights",
            _steady("wide_decode", seqs=MANY_SEQUENCES),
        ),
        "burst": Scenario(
            "traffic that fits on average, in bursts that do not",
            _steady("burst", seqs=FEW_SEQUENCES),
        ),
        "restart": Scenario(
            "replicas that crash and come back, some as another pod", _restart
        ),
        "rollout": Scenario(
            "replicas replaced one by one, which first end their requests", _rollout
        ),
    }
)

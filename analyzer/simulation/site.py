"""A simulated site: replicas that a scenario drives, and what became of requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from analyzer.capacity.engine import Engine
from analyzer.capacity.fleet import Balancer, Fleet
from analyzer.capacity.outcome import Outcome, Status
from analyzer.capacity.settings import EngineConfig
from analyzer.simulation.http_counts import HttpCounts
from analyzer.simulation.scenarios import Event, Scenario

GATEWAY_SECONDS = 0.002


@dataclass(slots=True)
class Replica:
    """A place in the fleet: its pod's name, its engine or None while it is down.

    `generation` counts the pods that were here. `leaving` is a pod that was asked to
    end, also when it is gone.
    """

    number: int
    generation: int = 0
    engine: Engine | None = None
    http: HttpCounts = field(default_factory=HttpCounts)
    leaving: bool = False

    @property
    def pod(self) -> str:
        """The pod's name."""
        return f"vllm-{self.number}-{self.generation}"


class Site:
    """Runs *scenario* on replicas of *machine*; `advance` gives what ended.

    The same arguments give the same run, however it is cut into `advance`s. Times are
    seconds since the site's begin; the gateway holds each request for
    *gateway_seconds*.
    """

    def __init__(
        self,
        scenario: Scenario,
        machine: EngineConfig,
        *,
        replicas: int,
        seed: int,
        gateway_seconds: float = GATEWAY_SECONDS,
    ) -> None:
        rng = Random(seed)  # noqa: S311 - simulated chance, no secret
        plan = scenario.plan(machine, replicas, rng)
        self.replicas = [Replica(number) for number in range(replicas)]
        self.changed = 0  # counts starts and stops
        self._seed = seed
        self._fleet = Fleet(
            (),
            plan.source,
            balancer=Balancer.TWO_CHOICES,
            gateway_seconds=gateway_seconds,
            seed=seed,
        )
        for replica in self.replicas:
            self._start(replica, plan.config)
        self._events: Iterator[Event] = iter(plan.events)
        self._event = next(self._events, None)

    @property
    def now(self) -> float:
        """How far the simulation has come."""
        return self._fleet.now

    def advance(self, until: float) -> list[Outcome]:
        """Runs to *until*, and returns what ended by then, oldest first."""
        outcomes: list[Outcome] = []
        while self._event is not None and self._event.at <= until:
            event = self._event
            outcomes += self._run(event.at)
            self._change(event)
            self._event = next(self._events, None)
        outcomes += self._run(until)
        return outcomes

    def _run(self, until: float) -> list[Outcome]:
        outcomes = self._fleet.advance(until)
        for outcome in outcomes:
            if outcome.replica is not None and outcome.status is not Status.BROKEN:
                self.replicas[outcome.replica].http.count(outcome)
        return outcomes

    def _change(self, event: Event) -> None:
        replica = self.replicas[event.replica]
        if event.drains:
            self._fleet.drain(replica.number)
            replica.leaving = True
        elif event.config is None:
            self._fleet.remove(replica.number)
            replica.engine = None
        else:
            replica.generation += event.moved
            self._start(replica, event.config)
        self.changed += 1

    def _start(self, replica: Replica, config: EngineConfig) -> None:
        engine = Engine(
            config,
            replica=replica.number,
            seed=self._seed * 1009 + replica.number,
            start=self._fleet.now,
        )
        self._fleet.add(engine)
        replica.engine = engine
        replica.http = HttpCounts()
        replica.leaving = False

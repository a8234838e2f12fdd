"""Replicas behind a gateway, fed from a source of requests.

The gateway's balancer knows only what it has itself sent and not got back, as Envoy's
`LEAST_REQUEST` does.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from enum import StrEnum
from random import Random

from analyzer.capacity.arrivals import Source
from analyzer.capacity.engine import Engine
from analyzer.capacity.outcome import Outcome, Status
from analyzer.capacity.workload import Request


class Balancer(StrEnum):
    """How the gateway chooses a replica."""

    ROUND_ROBIN = "round_robin"
    LEAST_REQUESTS = "least_requests"
    TWO_CHOICES = "two_choices"  # the less busy of two random ones


class Fleet:
    """A simulation of replicas, a gateway and its clients, one event after another.

    `gateway_seconds` pass between a request's arrival and its forwarding. The same
    seed, source and engines give the same run, however it is cut into `advance`s.
    """

    def __init__(
        self,
        engines: Iterable[Engine],
        source: Source,
        *,
        balancer: Balancer = Balancer.ROUND_ROBIN,
        gateway_seconds: float = 0.0,
        seed: int = 0,
        start: float = 0.0,
    ) -> None:
        self.engines: dict[int, Engine] = {}
        self.in_flight: dict[int, int] = {}
        self.draining: set[int] = set()
        self.now = start
        self._source = source
        self._balancer = balancer
        self._gateway_seconds = gateway_seconds
        self._rng = Random(seed)  # noqa: S311 - simulated chance, no secret
        self._turn = 0
        self._due: list[tuple[float, int]] = []
        self._forwarding: list[tuple[float, int, Request]] = []
        self._forwarded = 0
        self._outcomes: list[Outcome] = []
        for engine in engines:
            self.add(engine)

    def add(self, engine: Engine) -> None:
        """Lets *engine* take requests. Raises ValueError if its number is taken."""
        if engine.replica in self.engines:
            raise ValueError(f"replica {engine.replica} is there already")
        self.engines[engine.replica] = engine
        self.in_flight[engine.replica] = 0
        self._watch(engine)

    def drain(self, replica: int) -> None:
        """Sends a replica no more requests. Raises KeyError when there is none."""
        if replica not in self.engines:
            raise KeyError(replica)
        self.draining.add(replica)

    def remove(self, replica: int) -> Engine:
        """Stops a replica at once and returns it; its requests are broken off.

        Raises KeyError when there is none.
        """
        engine = self.engines.pop(replica)
        for outcome in engine.stop(self.now):
            self._end(outcome)
        del self.in_flight[replica]
        self.draining.discard(replica)
        return engine

    def advance(self, until: float) -> list[Outcome]:
        """Runs the simulation to *until*, and returns what ended, oldest first.

        Infinity means until nothing happens any more. A client that leaves in the
        middle of a step shows up with its end, so an outcome can be a step old.
        """
        while True:
            engine_due = self._next_step()
            forward = self._forwarding[0][0] if self._forwarding else math.inf
            arrival = self._source.next_arrival
            at = min(engine_due, forward, arrival)
            if at > until or math.isinf(at):
                break
            self.now = max(self.now, at)
            # What comes at the moment a step begins is part of it.
            if at == arrival:
                self._accept(self._source.take())
            elif at == forward:
                self._forward(heapq.heappop(self._forwarding)[2])
            else:
                self._step()
        if math.isfinite(until):
            self.now = max(self.now, until)
        outcomes, self._outcomes = self._outcomes, []
        outcomes.sort(key=lambda outcome: (outcome.ended, outcome.request.number))
        return outcomes

    def _watch(self, engine: Engine) -> None:
        if math.isfinite(engine.due):
            heapq.heappush(self._due, (engine.due, engine.replica))

    def _next_step(self) -> float:
        """Returns when the next engine has something to do; stale entries go."""
        while self._due:
            at, replica = self._due[0]
            engine = self.engines.get(replica)
            if engine is not None and engine.due == at:
                return at
            heapq.heappop(self._due)
        return math.inf

    def _step(self) -> None:
        engine = self.engines[heapq.heappop(self._due)[1]]
        for outcome in engine.step():
            self._end(outcome)
        self._watch(engine)

    def _accept(self, request: Request) -> None:
        if self._gateway_seconds:
            at = self.now + self._gateway_seconds
            entry = (at, self._forwarded, request)
            heapq.heappush(self._forwarding, entry)
            self._forwarded += 1
        else:
            self._forward(request)

    def _forward(self, request: Request) -> None:
        engine = self._choose()
        if engine is None:
            self._source.ended(request, self.now)
            reason = "no healthy upstream"
            gone = Outcome(request, Status.UNREACHABLE, self.now, reason=reason)
            self._outcomes.append(gone)
            return
        self.in_flight[engine.replica] += 1
        due = engine.due
        turned_away = engine.submit(request, self.now)
        if turned_away is not None:
            self._end(turned_away)
        if engine.due != due:
            self._watch(engine)

    def _choose(self) -> Engine | None:
        replicas = [r for r in self.engines if r not in self.draining]
        if not replicas:
            return None
        if self._balancer is Balancer.ROUND_ROBIN:
            self._turn += 1
            return self.engines[replicas[(self._turn - 1) % len(replicas)]]
        if self._balancer is Balancer.TWO_CHOICES and len(replicas) > 2:
            replicas = self._rng.sample(replicas, 2)
        least = min(self.in_flight[replica] for replica in replicas)
        candidates = [r for r in replicas if self.in_flight[r] == least]
        return self.engines[self._rng.choice(candidates)]

    def _end(self, outcome: Outcome) -> None:
        if outcome.replica is not None:
            self.in_flight[outcome.replica] -= 1
        self._outcomes.append(outcome)
        self._source.ended(outcome.request, outcome.ended)

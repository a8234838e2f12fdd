"""When requests come: processes of arrival times, and what feeds them to a fleet."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Protocol

from analyzer.capacity.workload import Request


def poisson(rng: Random, rate: float, *, start: float = 0.0) -> Iterator[float]:
    """Yields arrivals of many independent clients, *rate* a second on average."""
    return gamma(rng, rate, cv=1.0, start=start)


def gamma(
    rng: Random, rate: float, *, cv: float, start: float = 0.0
) -> Iterator[float]:
    """Yields arrivals whose gaps have the coefficient of variation *cv*.

    1 is Poisson, above comes in bursts, below is steadier than chance; 0 is a
    metronome. `vllm bench serve` calls 1/cv² its burstiness.
    """
    if rate <= 0:
        return
    shape = 1.0 / cv**2 if cv else math.inf
    now = start
    while True:
        gap = rng.gammavariate(shape, 1.0 / shape) if cv else 1.0
        now += gap / rate
        yield now


def modulated(
    rng: Random, phases: Iterable[tuple[float, float]], *, start: float = 0.0
) -> Iterator[float]:
    """Yields Poisson arrivals whose rate changes from one phase to the next.

    *phases* are (seconds, rate) pairs and may go on for ever; with random lengths
    this is a Markov-modulated process (`bursts`).
    """
    begin = start
    for seconds, rate in phases:
        end = begin + seconds
        for now in poisson(rng, rate, start=begin):
            if now >= end:
                break
            yield now
        begin = end


def bursts(
    rng: Random,
    *,
    calm: float,
    burst: float,
    calm_seconds: float,
    burst_seconds: float,
    start: float = 0.0,
) -> Iterator[float]:
    """Yields arrivals at the rate *calm* that now and then jumps to *burst*.

    The stretches have exponential lengths with the given means.
    """

    def phases() -> Iterator[tuple[float, float]]:
        while True:
            yield rng.expovariate(1.0 / calm_seconds), calm
            yield rng.expovariate(1.0 / burst_seconds), burst

    return modulated(rng, phases(), start=start)


def ramp(
    rng: Random, *, begin: float, end: float, seconds: float, start: float = 0.0
) -> Iterator[float]:
    """Yields arrivals whose rate goes from *begin* to *end* in *seconds*, then stays.

    By thinning: candidates come at the higher rate, and each counts with the share
    that the rate of its moment has.
    """
    highest = max(begin, end)
    for now in poisson(rng, highest, start=start):
        share = min(1.0, (now - start) / seconds)
        if rng.random() * highest < begin + (end - begin) * share:
            yield now


class Source(Protocol):
    """What a fleet takes its requests from."""

    @property
    def next_arrival(self) -> float:
        """The time of the next request, infinite when none is due."""
        ...

    def take(self) -> Request:
        """Returns that request and goes on to the next."""
        ...

    def ended(self, request: Request, at: float) -> None:
        """Learns that *request*, taken here, ended at *at*, however it did."""
        ...


class OpenLoop:
    """Requests that come when they come, whatever the fleet does.

    Several streams (one a tenant) are merged by their arrival and numbered anew.
    """

    def __init__(self, *streams: Iterable[Request]) -> None:
        self._requests = heapq.merge(*streams, key=lambda request: request.arrival)
        self._renumber = len(streams) > 1
        self._taken = 0
        self._next = next(self._requests, None)

    @property
    def next_arrival(self) -> float:
        """The time of the next request, infinite after the last."""
        return math.inf if self._next is None else self._next.arrival

    def take(self) -> Request:
        """Returns the next request. Raises LookupError after the last."""
        request = self._next
        if request is None:
            raise LookupError("there are no more requests")
        self._next = next(self._requests, None)
        if self._renumber:
            request = replace(request, number=self._taken)
        self._taken += 1
        return request

    def ended(self, request: Request, at: float) -> None:
        """Does nothing: nobody waits for an answer before asking again."""


class ClosedLoop:
    """A number of clients that each ask again once they were answered.

    This is `vllm bench serve --request-rate inf --max-concurrency N`: all clients
    begin at once, or one after the other within *ramp* seconds. They ask the
    *requests* in their order, at times of their own; `think` seconds lie between an
    answer and the next question.
    """

    def __init__(
        self,
        requests: Iterable[Request],
        *,
        concurrency: int,
        start: float = 0.0,
        think: float = 0.0,
        ramp: float = 0.0,
    ) -> None:
        self._requests = iter(requests)
        self._think = think
        self._due = [start + ramp * n / concurrency for n in range(concurrency)]
        self._next = next(self._requests, None)

    @property
    def next_arrival(self) -> float:
        """The time of the next request, infinite while all clients wait."""
        if self._next is None or not self._due:
            return math.inf
        return self._due[0]

    def take(self) -> Request:
        """Returns the next request. Raises LookupError when none is due."""
        request = self._next
        if request is None or not self._due:
            raise LookupError("every client waits for its answer")
        self._next = next(self._requests, None)
        return replace(request, arrival=heapq.heappop(self._due))

    def ended(self, request: Request, at: float) -> None:
        """Lets the client that was answered at *at* ask again."""
        del request  # clients are all alike
        heapq.heappush(self._due, at + self._think)

"""Several sources of requests, each with its time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from analyzer.capacity.arrivals import Source
from analyzer.capacity.workload import Request


@dataclass(frozen=True, slots=True)
class Window:
    """A source that sends requests from `begin` until just before `end` (seconds).

    `make` builds it when its time comes, from its begin.
    """

    begin: float
    end: float
    make: Callable[[float], Source]


class Timetable:
    """Merges windows, which come in the order of their begin and may overlap.

    There may be no end of them: one is opened when nothing is due before its begin.
    Requests are numbered anew. A closed loop's clients stop with their window.
    """

    def __init__(self, windows: Iterable[Window]) -> None:
        self._windows = iter(windows)
        self._pending = next(self._windows, None)
        self._open: list[tuple[float, Source]] = []
        self._taken = 0
        self._owners: dict[int, Source] = {}
        self._next = math.inf
        self._turn: Source | None = None
        self._settle()

    @property
    def next_arrival(self) -> float:
        """The time of the next request, infinite when none is due."""
        return self._next

    def take(self) -> Request:
        """Returns that request. Raises LookupError when none is due."""
        source = self._turn
        if source is None:
            raise LookupError("no request is due")
        request = replace(source.take(), number=self._taken)
        self._taken += 1
        self._owners[request.number] = source
        self._open = [(end, s) for end, s in self._open if end > request.arrival]
        self._settle()
        return request

    def ended(self, request: Request, at: float) -> None:
        """Tells the source of *request* that it ended at *at*."""
        self._owners.pop(request.number).ended(request, at)
        self._settle()

    def _settle(self) -> None:
        """Finds whose turn it is, and opens the windows that begin before that."""
        self._next, self._turn = math.inf, None
        for end, source in self._open:
            self._consider(end, source)
        while self._pending is not None and self._pending.begin <= self._next:
            window = self._pending
            self._pending = next(self._windows, None)
            source = window.make(window.begin)
            self._open.append((window.end, source))
            self._consider(window.end, source)

    def _consider(self, end: float, source: Source) -> None:
        at = source.next_arrival
        if at < end and at < self._next:
            self._next, self._turn = at, source

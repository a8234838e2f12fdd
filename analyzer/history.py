"""The last hour of one target in memory: for windows, and for small pictures."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field

from analyzer.goodput import Marginal


@dataclass(frozen=True, slots=True)
class Totals:
    """Cumulative figures of one model at one time; *in_flight* is of that moment."""

    at: float
    finished: float
    tokens: float
    in_flight: float
    marginals: dict[str, Marginal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stretch:
    """What happened between two totals: seconds covered, requests, tokens, events."""

    seconds: float
    finished: float
    tokens: float
    in_flight_at_begin: float
    marginals: dict[str, Marginal]


class History:
    """Cumulative totals at a spacing, oldest dropped: windows are differences.

    *keep* and *spacing* are seconds; at most keep/spacing + 2 totals are held.
    """

    def __init__(self, *, keep: float = 3600.0, spacing: float = 10.0) -> None:
        self._keep = keep
        self._spacing = spacing
        self._points: deque[Totals] = deque()
        self._latest: Totals | None = None

    def append(self, totals: Totals) -> None:
        """Adds the totals of a sample; only those at the spacing are kept for long.

        What lies in the future, after a clock was set back, is forgotten.
        """
        self._latest = totals
        while self._points and self._points[-1].at > totals.at:
            self._points.pop()
        if self._points and totals.at - self._points[-1].at < self._spacing:
            return
        self._points.append(totals)
        while len(self._points) > 2 and totals.at - self._points[1].at >= self._keep:
            self._points.popleft()

    def over(self, seconds: float) -> Stretch | None:
        """Returns the last *seconds*, or what of them is known; None before two."""
        if self._latest is None or not self._points:
            return None
        latest = self._latest
        times = [point.at for point in self._points]
        index = max(0, bisect_right(times, latest.at - seconds) - 1)
        begin = self._points[index]
        if begin.at >= latest.at:
            return None
        zero = Marginal(0.0, 0.0, 0.0)
        grown = {}
        for criterion, marginal in latest.marginals.items():
            past = begin.marginals.get(criterion, zero)
            grown[criterion] = Marginal(
                marginal.events - past.events,
                marginal.lower - past.lower,
                marginal.upper - past.upper,
                marginal.reason,
            )
        return Stretch(
            latest.at - begin.at,
            latest.finished - begin.finished,
            latest.tokens - begin.tokens,
            begin.in_flight,
            grown,
        )


class Trail:
    """One gauge's recent values at a spacing, for a sparkline: the highest of each."""

    def __init__(self, *, points: int = 120, spacing: float = 5.0) -> None:
        self._spacing = spacing
        self._values: deque[tuple[float, float]] = deque(maxlen=points)

    def append(self, at: float, value: float) -> None:
        """Adds a value; within the spacing the higher one stays."""
        if self._values and at - self._values[-1][0] < self._spacing:
            begin, highest = self._values[-1]
            self._values[-1] = (begin, max(highest, value))
        else:
            self._values.append((at, value))

    def values(self) -> list[tuple[float, float]]:
        """Returns (Unix seconds, value) pairs, oldest first."""
        return list(self._values)

    def highest(self, since: float) -> float | None:
        """Returns the highest value in stretches that reach past *since*."""
        found = [v for at, v in self._values if at + self._spacing > since]
        return max(found, default=None)


class Peak:
    """The exact maximum of a gauge over a trailing window, in seconds."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._falling: deque[tuple[float, float]] = deque()

    def append(self, at: float, value: float) -> None:
        """Adds a value; values that can never be the maximum again are dropped."""
        while self._falling and self._falling[-1][1] <= value:
            self._falling.pop()
        self._falling.append((at, value))
        self._expire(at)

    def _expire(self, at: float) -> None:
        while self._falling and self._falling[0][0] <= at - self._window:
            self._falling.popleft()

    def value(self, at: float) -> float | None:
        """Returns the maximum over (at − window, at], None when nothing is in it."""
        self._expire(at)
        return self._falling[0][1] if self._falling else None

"""A histogram that is observed one value at a time."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from analyzer.histogram import Histogram


@dataclass(slots=True)
class Tally:
    """Counts per bucket over ascending finite *bounds*; the last count is above all.

    Bounds are inclusive, as everywhere. Quick to observe, unlike `Histogram`, whose
    counts are cumulative and immutable.
    """

    bounds: tuple[float, ...]
    counts: list[float] = field(default_factory=list)
    sum: float = 0.0

    def __post_init__(self) -> None:
        if not self.counts:
            self.counts = [0.0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Counts one value, which must be finite."""
        self.counts[bisect_left(self.bounds, value)] += 1.0
        self.sum += value

    def histogram(self) -> Histogram:
        """Returns the cumulative histogram."""
        cumulative, running = [], 0.0
        for count in self.counts:
            running += count
            cumulative.append(running)
        return Histogram((*self.bounds, float("inf")), tuple(cumulative), self.sum)

    def rebased(self, bounds: tuple[float, ...]) -> Tally:
        """Returns this tally on other bounds; no cumulative count steps back."""
        if bounds == self.bounds:
            return self
        moved = self.histogram().rebased((*bounds, float("inf")))
        steps = zip(moved.counts, (0.0, *moved.counts), strict=False)
        return Tally(bounds, [count - before for count, before in steps], self.sum)

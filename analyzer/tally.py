"""A histogram that is observed many values at a time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from analyzer.histogram import Histogram

# So many values are put in order sooner than each is looked up.
WORTH_SORTING = 24


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

    def observe(self, values: list[float]) -> None:
        """Counts *values*, which must be finite, and may put them in order."""
        total = self.sum  # one by one: how they come in batches must not matter
        for value in values:
            total += value
        self.sum = total
        counts, bounds = self.counts, self.bounds
        if len(values) < WORTH_SORTING:
            for value in values:
                counts[bisect_left(bounds, value)] += 1.0
            return
        values.sort()
        seen, every = 0, len(values)
        for place, bound in enumerate(bounds):
            within = bisect_right(values, bound, seen)
            if within > seen:
                counts[place] += within - seen
                seen = within
                if seen == every:
                    return
        counts[-1] += every - seen

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

"""Running totals by metric and label values: they only grow, over any restart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from analyzer.histogram import Histogram, empty

Labels = tuple[str, ...]


@dataclass(slots=True)
class Ledger:
    """Counters and histograms of one target, by metric name and label values.

    Label values stand in the order of the catalogue, without the target itself.
    """

    counters: dict[str, dict[Labels, float]] = field(default_factory=dict)
    histograms: dict[str, dict[Labels, Histogram]] = field(default_factory=dict)

    def add(self, name: str, labels: Labels, amount: float) -> None:
        """Adds *amount* to a counter, which exists at 0 from the first call on.

        Raises ValueError for a negative or non-finite amount: totals never fall.
        """
        if not 0 <= amount < math.inf:
            raise ValueError(f"{name}{labels}: cannot grow by {amount}")
        row = self.counters.setdefault(name, {})
        row[labels] = row.get(labels, 0.0) + amount

    def add_histogram(self, name: str, labels: Labels, grown: Histogram) -> None:
        """Adds an increase; on other bounds the total moves to the newer ones.

        When the increase merely lacks some of the total's bounds (ranks that differ,
        a page with lost lines), the total keeps its own: a bucket that went and came
        back would step back. Raises ValueError for negative or non-finite counts. A
        sum never falls either: less than nothing counts as nothing.
        """
        if not all(0 <= count < math.inf for count in grown.counts):
            raise ValueError(f"{name}{labels}: cannot grow by {grown.counts}")
        if not 0 <= grown.sum < math.inf:
            grown = Histogram(grown.bounds, grown.counts)
        rows = self.histograms.setdefault(name, {})
        known = rows.get(labels)
        if known is None:
            rows[labels] = grown
        elif known.bounds == grown.bounds:
            rows[labels] = known + grown
        elif set(grown.bounds) <= set(known.bounds):
            rows[labels] = known + grown.rebased(known.bounds)
        else:
            rows[labels] = known.rebased(grown.bounds) + grown

    def observe(
        self, name: str, labels: Labels, value: float, bounds: tuple[float, ...]
    ) -> None:
        """Adds one observation to a histogram over *bounds*.

        Raises ValueError for a negative or non-finite value.
        """
        if not 0 <= value < math.inf:
            raise ValueError(f"{name}{labels}: cannot observe {value}")
        complete = empty(bounds).bounds
        counts = tuple(float(value <= bound) for bound in complete)
        self.add_histogram(name, labels, Histogram(complete, counts, value))

    def counter(self, name: str, labels: Labels) -> float | None:
        """Returns a counter's total, None when it never existed."""
        return self.counters.get(name, {}).get(labels)

    def rows(self, name: str) -> Iterator[tuple[Labels, float]]:
        """Yields the label values and total of each row of a counter."""
        yield from self.counters.get(name, {}).items()

    def copy(self) -> Ledger:
        """Returns an independent copy; its values are immutable."""
        return Ledger(
            {name: dict(rows) for name, rows in self.counters.items()},
            {name: dict(rows) for name, rows in self.histograms.items()},
        )

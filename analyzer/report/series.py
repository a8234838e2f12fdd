"""Figures over time in bins that widen when there are too many of them.

The width of a bin is one of a ladder in which each step divides the next, and the
narrowest that keeps within the limit: series of parts of a log, whatever the parts
are, add up to that of the whole.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LADDER = (1, 5, 15, 60, 300, 900, 3600, 10800, 21600, 43200, 86400, 604800, 1 << 40)
_MOST_WAITING = 1 << 14
_DENSE = 8  # bins that a row may have room for

Bins = NDArray[np.int64]
Figures = NDArray[np.float64]


class Series:
    """Rows of figures by bin; bins count from the epoch, and are no more than *limit*.

    With *presence* the first two figures are how many began less ended in a bin, and
    the seconds that those who began or ended in it were there, counting those who
    stay as there to its end: who is there later is the sum of what began before.
    """

    __slots__ = ("_bins", "_limit", "_presence", "_values", "_waiting", "step")

    def __init__(self, figures: int, limit: int, *, presence: bool = False) -> None:
        self.step = 0
        self._limit = limit
        self._presence = presence
        self._bins: Bins = np.zeros(0, dtype=np.int64)
        self._values: Figures = np.zeros((0, figures))
        self._waiting: list[tuple[Bins, Figures]] = []

    @property
    def seconds(self) -> int:
        """The width of a bin."""
        return LADDER[self.step]

    @property
    def rows(self) -> tuple[Bins, Figures]:
        """The bins that have figures, ascending, and those."""
        self._settle()
        return self._bins, self._values

    def add(self, bins: Bins, figures: Figures) -> None:
        """Adds a row of *figures* to each of *bins*, which have the present width."""
        if not len(bins):
            return
        self._waiting.append(_summed(bins, figures))
        if sum(len(b) for b, _ in self._waiting) > _MOST_WAITING:
            self._settle()

    def bins_of(self, times: NDArray[np.float64]) -> Bins:
        """Returns the bin of each of *times* (Unix seconds) at the present width."""
        found: Bins = np.floor_divide(times, self.seconds).astype(np.int64)
        return found

    def merge(self, other: Series) -> None:
        """Adds what another series counted."""
        self._settle()
        theirs = other.at_least(self.seconds)
        while self.seconds < theirs.seconds:
            self._widen()
        self.add(*theirs.rows)
        self._settle()

    def at_least(self, seconds: float) -> Series:
        """Returns a copy in bins of at least that many seconds."""
        self._settle()
        figures = self._values.shape[1]
        found = Series(figures, self._limit, presence=self._presence)
        found.step, found._bins, found._values = self.step, self._bins, self._values
        while found.seconds < seconds and found.step < len(LADDER) - 1:
            found._widen()
        return found

    def _settle(self) -> None:
        if self._waiting:
            parts = [(self._bins, self._values), *self._waiting]
            self._waiting = []
            self._bins, self._values = _summed(
                np.concatenate([bins for bins, _ in parts]),
                np.concatenate([figures for _, figures in parts]),
            )
        while len(self._bins) > self._limit and self.step < len(LADDER) - 1:
            self._widen()

    def _widen(self) -> None:
        """Takes the next wider bins."""
        narrow = self.seconds
        self.step += 1
        wide = self.seconds
        bins = self._bins // (wide // narrow)
        values = self._values
        if self._presence:
            values = values.copy()
            values[:, 1] += values[:, 0] * (
                (bins + 1) * wide - (self._bins + 1) * narrow
            )
        self._bins, self._values = _summed(bins, values)


def _summed(bins: Bins, figures: Figures) -> tuple[Bins, Figures]:
    """Returns the distinct *bins* in order, each with the sum of its rows."""
    if not len(bins):
        return bins, figures
    least, greatest = int(bins.min()), int(bins.max())
    if greatest - least <= _DENSE * len(bins):  # no sorting then
        place = bins - least
        found = np.flatnonzero(np.bincount(place))
        sums = np.empty((len(found), figures.shape[1]))
        for i in range(figures.shape[1]):
            sums[:, i] = np.bincount(place, weights=figures[:, i])[found]
        return found + least, sums
    found, inverse = np.unique(bins, return_inverse=True)
    sums = np.empty((len(found), figures.shape[1]))
    for i in range(figures.shape[1]):
        sums[:, i] = np.bincount(inverse, weights=figures[:, i], minlength=len(found))
    return found, sums

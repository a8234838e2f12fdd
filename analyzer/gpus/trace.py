"""Tells how old a GPU's figures are, and whether its exporter still refreshes them.

Exporters serve a cache, every 30 seconds a new one by default, and print no time. So
the age counts from the moment at which the figures were seen to change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from analyzer.gpus.fields import Field

DEFAULT_REFRESH_SECONDS = 30.0
_GAPS_KEPT = 5
# Figures with fractions that a working GPU hardly repeats to the last digit.
_LIVELY = (Field.POWER, Field.ENGINE, Field.DRAM, Field.SM, Field.TENSOR, Field.PCIE_TX)


class Span(NamedTuple):
    """The time between two states of the figures, in seconds: at least, at most."""

    least: float
    most: float


class Trace:
    """Follows the figures of one board, which `follow` takes page by page."""

    def __init__(self, figures: Mapping[str, float], at: float) -> None:
        self._gaps: deque[float] = deque(maxlen=_GAPS_KEPT)
        self._changed_at: float | None = None
        self._begin(figures, at)

    def _begin(self, figures: Mapping[str, float], at: float) -> None:
        self._figures = figures
        self._first_at = self._seen_at = self._energy_at = at
        self._changed_at = None

    def follow(self, figures: Mapping[str, float], at: float) -> Span | None:
        """Takes over a page's figures; returns the time since those that they replace.

        None when they are the same. How old the very first ones were is unknown.
        """
        if at < self._seen_at:  # a clock was set back: nothing known of time holds
            self._begin(figures, at)
            return None
        before, self._figures, self._seen_at = self._figures, figures, at
        if figures == before:
            return None
        if figures.get(Field.ENERGY) != before.get(Field.ENERGY):
            self._energy_at = at
        last, self._changed_at = self._changed_at, at
        if last is None:
            known = at - self._first_at
            return Span(known, known + DEFAULT_REFRESH_SECONDS)
        self._gaps.append(at - last)
        return Span(at - last, at - last)

    def age(self, at: float) -> float | None:
        """Returns the seconds since the last change seen, None before the first."""
        return None if self._changed_at is None else max(0.0, at - self._changed_at)

    def frozen(self, at: float, interval: float) -> str:
        """Returns why the figures are no longer those of now, "" when they may be.

        The energy counter moves as long as there is power. Without it, figures with
        fractions are given twice the time. *interval* is the time between two pages.
        """
        figures = self._figures
        refresh = max(DEFAULT_REFRESH_SECONDS, median(self._gaps or (0.0,)))
        limit = 2 * refresh + interval
        if Field.ENERGY in figures:
            still = at - self._energy_at
            if still > limit and figures.get(Field.POWER, 1.0) > 0:
                return (
                    f"the energy counter has not moved for {still:.0f} s: the exporter "
                    "prints figures that nobody refreshes"
                )
            return ""
        last = self._first_at if self._changed_at is None else self._changed_at
        still = at - last
        if still > 2 * limit and any(figures.get(field) for field in _LIVELY):
            return f"no figure has changed for {still:.0f} s"
        return ""

"""A range of time of one side, such as `2026-11-01T10:00/2026-11-01T12:00`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from analyzer.sweep.intervals import Bools, Floats


@dataclass(frozen=True, slots=True)
class Span:
    """From `begin` up to `end`, in Unix seconds; infinite is no limit."""

    begin: float = -math.inf
    end: float = math.inf

    @property
    def limited(self) -> bool:
        """Whether it leaves anything out."""
        return math.isfinite(self.begin) or math.isfinite(self.end)

    def holds(self, times: Floats) -> Bools:
        """Returns which of *times* are in it; an unknown time is in no limited one."""
        if not self.limited:
            return np.ones(len(times), dtype=bool)
        return (times >= self.begin) & (times < self.end)

    def seconds(self, starts: Floats, ends: Floats) -> float:
        """Returns how long it lasts; without limits, from the first to the last."""
        if not len(starts):
            return 0.0
        begin = self.begin if math.isfinite(self.begin) else float(starts.min())
        end = self.end if math.isfinite(self.end) else float(ends.max())
        return max(0.0, end - begin)


def parse(text: str) -> Span:
    """Returns the range that `FROM/TO` means; either may be left out.

    Unix seconds, or ISO 8601, which is UTC without an offset. Raises ValueError.
    """
    begin, slash, end = text.partition("/")
    if not slash:
        raise ValueError(f"{text!r} is no range FROM/TO")
    span = Span(
        _moment(begin) if begin else -math.inf, _moment(end) if end else math.inf
    )
    if span.begin >= span.end:
        raise ValueError(f"{text!r} ends before it begins")
    return span


def _moment(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp()

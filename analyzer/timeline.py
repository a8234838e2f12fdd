"""The verdicts on one engine rank over time, as segments without gaps or overlap."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from analyzer.verdict import Verdict

MAX_SEGMENTS = 1000


@dataclass(slots=True)
class Segment:
    """A stretch under one verdict, with what was finished and generated in it.

    `verdict` is the latest, `surest` the first of those with the most confidence:
    at the end of a stretch there is least evidence.
    """

    start: float
    end: float
    verdict: Verdict
    requests: float = 0.0
    tokens: float = 0.0
    measured: bool = False
    surest: Verdict = field(init=False)

    def __post_init__(self) -> None:
        self.surest = self.verdict

    def per_second(self, amount: float) -> float | None:
        """Returns *amount* per second, None without a page or without length."""
        seconds = self.end - self.start
        return amount / seconds if seconds > 0 and self.measured else None


class Timeline:
    """Grows by intervals; neighbours under the same verdict are one segment."""

    def __init__(self) -> None:
        self._segments: deque[Segment] = deque(maxlen=MAX_SEGMENTS)
        self._at: float | None = None

    def extend(
        self,
        at: float,
        verdict: Verdict,
        *,
        requests: float = 0.0,
        tokens: float = 0.0,
        measured: bool = True,
    ) -> float:
        """Adds the interval from the last call until *at* under *verdict*.

        Not *measured* is an interval at whose end no page could be read. Returns its
        length in seconds.
        """
        begin = at if self._at is None else self._at
        self._at = max(at, begin)
        last = self._segments[-1] if self._segments else None
        if last is not None and last.verdict.name == verdict.name:
            last.end = self._at
            last.verdict = verdict
            if verdict.confidence > last.surest.confidence:
                last.surest = verdict
            last.requests += requests
            last.tokens += tokens
            last.measured = last.measured or measured
        else:
            self._segments.append(
                Segment(begin, self._at, verdict, requests, tokens, measured)
            )
        return self._at - begin

    @property
    def latest(self) -> Segment | None:
        """The segment in force, None before the first."""
        return self._segments[-1] if self._segments else None

    def segments(self) -> tuple[Segment, ...]:
        """Returns the segments, oldest first; those without length only if alone."""
        kept = tuple(s for s in self._segments if s.end > s.start)
        return kept or tuple(self._segments)

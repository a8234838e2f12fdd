"""Tells a working engine from a stalled one, and both from frozen gauges.

An engine's gauges change on its steps only. With work on the gauges and no counter
moving it has either stopped (the gauges are true), or, in versions before 0.12,
everything was aborted at once and the gauges kept their last value.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

FROZEN_AFTER_SECONDS = 10.0
PREFILL_FACTOR = 2.0


class Pulse(StrEnum):
    """What the engine's counters and gauges say together."""

    IDLE = "idle"  # no work on the gauges
    MOVING = "moving"  # work, and a counter moved lately
    STALLED = "stalled"  # work, and no counter moved for the grace
    FROZEN = "frozen"  # the gauges show work that has gone


@dataclass(slots=True)
class Heartbeat:
    """Follows one engine from scrape to scrape.

    *grace* is how long, in seconds, work may show no progress. `progressed_at` is
    when a counter last moved, or when work was first seen after none. `gone` counts
    answers that ended since then without the engine finishing them: requests that
    were given up. `refilled` says that more were given up after all shown had gone:
    new ones arrive and get nothing.
    """

    grace: float = 30.0
    progressed_at: float | None = None
    gone: float = 0.0
    refilled: bool = False
    _idle: bool = False

    def beat(
        self,
        at: float,
        *,
        moved: bool,
        work: float,
        ended: float | None,
        finished: float,
        prefill_p99: float | None,
    ) -> Pulse:
        """Returns the pulse at *at*, given what changed since the last call.

        *work* is running plus waiting requests; *ended* the answers that ended on
        generation routes, None when unknown; *finished* the requests finished by the
        engine. A lone long prompt moves no counter while it is prefilled, so the
        grace is at least twice *prefill_p99* (seconds).
        """
        if moved or self._idle or self.progressed_at is None:
            self.progressed_at = at
            self.gone = max(0.0, (ended or 0.0) - finished)
            self.refilled = False
        elif ended:
            self.refilled = self.refilled or self.gone >= work
            self.gone += ended
        self._idle = work <= 0
        if self._idle:
            self.gone = 0.0
            return Pulse.IDLE
        still = at - self.progressed_at
        gone = self.gone >= work and not self.refilled
        if gone and still >= FROZEN_AFTER_SECONDS:
            return Pulse.FROZEN
        if still > self.patience(prefill_p99):
            return Pulse.STALLED
        return Pulse.MOVING

    def patience(self, prefill_p99: float | None) -> float:
        """Returns the seconds without progress that are still believed."""
        if prefill_p99 is None or prefill_p99 == float("inf"):
            return self.grace
        return max(self.grace, PREFILL_FACTOR * prefill_p99)

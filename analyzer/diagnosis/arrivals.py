"""How evenly requests come: the index of dispersion of their counts, and bursts."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from analyzer.diagnosis.thresholds import (
    CALM_SHARE,
    DISPERSION,
    DISPERSION_SECONDS,
)

BIN_SECONDS = 2.0
CALM = 3.0  # times the batch of a calm is at most the largest one
LOW = 2.0  # likewise, of what a burst may come out of
KEPT_SECONDS = 76.0  # somewhat more than the index wants
MOST_BINS = 120
SIGMAS = 5.0  # above what chance allows, for a verdict on half the time


@dataclass(slots=True)
class Bin:
    """Requests that came in `seconds`, the largest batch, and how they fared.

    `queued` says that some waited, `pressed` that some waited or were late.
    """

    end: float
    seconds: float
    arrived: float
    running: float
    queued: bool
    pressed: bool


@dataclass(frozen=True, slots=True)
class Burstiness:
    """The index over `seconds`, and the bursts: well above the mean, out of a calm.

    `calm` is the share of the time with nobody waiting and a third of the largest
    batch at most, `calm_at` when that last was so, `pressed_at` when a burst last
    made requests wait or miss a criterion.
    """

    seconds: float
    index: float
    significant: bool
    bursts: int
    calm: float
    pressed_at: float | None
    calm_at: float | None

    @property
    def known(self) -> bool:
        """Whether enough time was seen to publish the index."""
        return self.seconds >= DISPERSION_SECONDS.value

    @property
    def binding(self) -> bool:
        """Whether bursts press an engine that has room for its mean load."""
        return (
            self.significant
            and self.index >= DISPERSION.value
            and self.bursts >= 2
            and self.calm >= CALM_SHARE.value
            and self.pressed_at is not None
        )


class Arrivals:
    """Counts one rank's arrivals in bins of two seconds, or of a scrape's length."""

    def __init__(self) -> None:
        self._bins: deque[Bin] = deque(maxlen=MOST_BINS)

    def add(self, new: Bin) -> None:
        """Adds what came until `new.end`, to the last bin while it has room."""
        bins = self._bins
        if bins and bins[-1].seconds + new.seconds <= BIN_SECONDS + 1e-6:
            last = bins[-1]
            last.end = new.end
            last.seconds += new.seconds
            last.arrived += new.arrived
            last.running = max(last.running, new.running)
            last.queued = last.queued or new.queued
            last.pressed = last.pressed or new.pressed
        else:
            bins.append(new)
        end = new.end
        while bins[0].end <= end - KEPT_SECONDS:
            bins.popleft()

    def burstiness(self) -> Burstiness | None:
        """Returns the index over what is kept, None with too little to say."""
        bins = self._bins
        number = len(bins)
        if number < 8:
            return None
        seconds = sum(b.seconds for b in bins)
        total = sum(b.arrived for b in bins)
        if not total:
            return None
        mean = total / number
        variance = sum((b.arrived - mean) ** 2 for b in bins) / (number - 1)
        index = variance / mean
        # Under chance (number − 1) × index is χ² with number − 1 degrees of freedom.
        freedom = number - 1
        chance = 1.0 + SIGMAS * math.sqrt(2.0 / freedom)
        most = max(b.running for b in bins)
        calm, calm_at, bursts = 0.0, None, 0
        since_low, high = 0, False
        for each in bins:
            now = each.arrived > 2.0 * mean
            # Out of a calm, not upon another; a bin may hold the begin of a burst.
            bursts += now and not high and since_low <= 1
            low = not each.queued and LOW * each.running <= most
            since_low = 0 if low else since_low + 1
            high = now
            if low and CALM * each.running <= most:
                calm += each.seconds
                calm_at = each.end
        return Burstiness(
            seconds,
            index,
            index > chance,
            bursts,
            calm / seconds if seconds else 0.0,
            max((b.end for b in bins if b.pressed), default=None),
            calm_at,
        )

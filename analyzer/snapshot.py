"""What an engine's cumulative series say at one moment, and how much they grew.

The rules for counter resets live here and nowhere else. In Prometheus every series
is on its own; here the process behind them is known, so a restart is one event:
`process_start_time_seconds` proves it, `_created` proves it for one series, falling
values suggest it, and a falling `_sum` alone (negative or host-uptime-sized samples,
vLLM issues 49135 and 56238) is no restart at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from analyzer.histogram import Histogram

ABSENT_SERIES_KEPT_SECONDS = 300.0
# A single observation in the +Inf bucket is believed up to the largest bound any
# engine uses; above it, the sample is a missing time stamp read as host uptime.
LONGEST_BELIEVED_SECONDS = 7680.0


class Group(NamedTuple):
    """Whose number it is: canonical signal, model, data-parallel rank, one label.

    `extra` is the signal's own label (finish reason, token source), else empty.
    """

    signal: str
    model: str
    rank: str
    extra: str = ""


class Key(NamedTuple):
    """One cumulative series of the engine: its group, and where it came from.

    `origin` holds the remaining labels (a Ray replica, a worker), so that series
    which add up to one group keep their own history.
    """

    group: Group
    origin: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cumulative series of one target at `at` (Unix seconds).

    `started` is the engine's process start, None when it does not say. `created`
    holds the `_created` stamp of the series that have one. `absent_since` marks
    series carried over from earlier scrapes. `damaged` says that lines were lost.
    """

    at: float
    started: float | None = None
    counters: Mapping[Key, float] = field(default_factory=dict)
    histograms: Mapping[Key, Histogram] = field(default_factory=dict)
    created: Mapping[Key, float] = field(default_factory=dict)
    absent_since: Mapping[Key, float] = field(default_factory=dict)
    damaged: bool = False


class Reset(StrEnum):
    """What happened to the engine's counters between two scrapes."""

    NONE = "none"
    RESTART = "restart"  # another, later process: everything counts from zero
    SERIES = "series"  # some series began anew within the same process
    OTHER_PROCESS = "other_process"  # an older process answered: nothing is counted


@dataclass(frozen=True, slots=True)
class Increase:
    """How much each group grew in (begin, end]; never negative.

    `sum_anomalies` counts histograms whose `_sum` moved in a way that their buckets
    do not allow; their sums are held to what the buckets do allow.
    """

    begin: float
    end: float
    reset: Reset = Reset.NONE
    counters: Mapping[Group, float] = field(default_factory=dict)
    histograms: Mapping[Group, Histogram] = field(default_factory=dict)
    sum_anomalies: int = 0

    @property
    def seconds(self) -> float:
        """The length of the interval."""
        return self.end - self.begin

    def counter(self, signal: str, *, model: str | None = None) -> float | None:
        """Returns the growth of *signal* over all groups, None when there is none."""
        found = [
            value
            for group, value in self.counters.items()
            if group.signal == signal and model in (None, group.model)
        ]
        return math.fsum(found) if found else None


def increase(
    earlier: Snapshot | None, later: Snapshot, *, watched_since: float = math.inf
) -> Increase:
    """Returns the growth from *earlier* to *later*.

    Without an earlier snapshot *later* is the baseline and nothing has grown,
    unless its process began after *watched_since*: then all of it is new.
    """
    if earlier is None:
        new = later.started is not None and later.started >= watched_since
        reset = Reset.RESTART if new else Reset.NONE
        return _collect(None, later, reset, later.at, frozenset(), baseline=not new)
    reset, fallen = _compare(earlier, later)
    return _collect(
        earlier,
        later,
        reset,
        earlier.at,
        fallen,
        baseline=reset is Reset.OTHER_PROCESS,
    )


def merge(earlier: Snapshot | None, later: Snapshot, reset: Reset) -> Snapshot:
    """Returns *later* with the series it lacks carried over from *earlier*.

    A damaged line must not make its series look new at the next scrape. Carried
    series go after five minutes, and at once when the process is another one.
    """
    if earlier is None or reset in (Reset.RESTART, Reset.OTHER_PROCESS):
        return later
    lost = [
        key
        for known, now in (
            (earlier.counters, later.counters),
            (earlier.histograms, later.histograms),
        )
        if known.keys() - now.keys()
        for key in known
        if key not in now
    ]
    torn = _torn_histograms(earlier, later) if later.damaged else []
    if not lost and not torn:
        return later
    absent: dict[Key, float] = {}
    counters, histograms = dict(later.counters), dict(later.histograms)
    created = dict(later.created)
    for key in (*lost, *torn):
        since = earlier.absent_since.get(key, later.at)
        if later.at - since > ABSENT_SERIES_KEPT_SECONDS:
            continue
        absent[key] = since
        if key in earlier.counters:
            counters[key] = earlier.counters[key]
        else:
            histograms[key] = earlier.histograms[key]
        if key in earlier.created:
            created.setdefault(key, earlier.created[key])
    return Snapshot(
        later.at, later.started, counters, histograms, created, absent, later.damaged
    )


def _torn_histograms(earlier: Snapshot, later: Snapshot) -> list[Key]:
    """Returns histograms that lost buckets to damaged lines in *later*."""
    return [
        key
        for key, histogram in later.histograms.items()
        if (known := earlier.histograms.get(key)) and known.bounds != histogram.bounds
    ]


def _compare(earlier: Snapshot, later: Snapshot) -> tuple[Reset, frozenset[Key]]:
    """Returns the kind of reset, and the series that count from zero by it."""
    before, now = earlier.started, later.started
    if before is not None and now is not None and before != now:
        if now < before:
            return Reset.OTHER_PROCESS, frozenset()
        return Reset.RESTART, frozenset()
    fallen = {
        key
        for key, value in later.counters.items()
        if value < earlier.counters.get(key, 0.0)
    }
    for key, histogram in later.histograms.items():
        known = earlier.histograms.get(key)
        if known is not None and _fell(known, histogram):
            fallen.add(key)
    if fallen:
        moved = sum(value > 0 for value in earlier.counters.values())
        moved += sum(h.count > 0 for h in earlier.histograms.values())
        if 2 * len(fallen) >= moved:
            return Reset.RESTART, frozenset()
    for key, stamp in later.created.items():
        if stamp > earlier.created.get(key, stamp):
            fallen.add(key)
    return (Reset.SERIES if fallen else Reset.NONE), frozenset(fallen)


def _fell(earlier: Histogram, later: Histogram) -> bool:
    """Whether a histogram was reset as a whole; its sum does not count."""
    if earlier.bounds == later.bounds:
        return any(map(float.__lt__, later.counts, earlier.counts))
    return later.count < earlier.count


def _collect(
    earlier: Snapshot | None,
    later: Snapshot,
    reset: Reset,
    begin: float,
    fallen: frozenset[Key],
    *,
    baseline: bool,
) -> Increase:
    counters: dict[Group, float] = {}
    histograms: dict[Group, Histogram] = {}
    anomalies = 0
    from_zero = earlier is None or reset is Reset.RESTART
    unknown_is_old = baseline or (earlier is not None and earlier.damaged)
    for key, value in later.counters.items():
        known = None if from_zero else earlier.counters.get(key)  # type: ignore[union-attr]
        if baseline or (known is None and not from_zero and unknown_is_old):
            grown = 0.0
        elif known is None or key in fallen:
            grown = value
        else:
            grown = value - known
        group = key.group
        counters[group] = counters.get(group, 0.0) + grown
    for key, histogram in later.histograms.items():
        past = None if from_zero else earlier.histograms.get(key)  # type: ignore[union-attr]
        if past is not None and past.bounds != histogram.bounds and later.damaged:
            grown_by = _zero(past)
        elif baseline or (past is None and not from_zero and unknown_is_old):
            grown_by = _zero(histogram)
        elif past is None or key in fallen:
            grown_by = histogram
        else:
            grown_by = histogram - past.rebased(histogram.bounds)
        believed = believable(grown_by)
        anomalies += believed is not grown_by
        group = key.group
        known_sum = histograms.get(group)
        histograms[group] = believed if known_sum is None else known_sum + believed
    return Increase(begin, later.at, reset, counters, histograms, anomalies)


def _zero(histogram: Histogram) -> Histogram:
    return Histogram(histogram.bounds, (0.0,) * len(histogram.bounds), 0.0)


def believable(histogram: Histogram) -> Histogram:
    """Returns *histogram* with its sum held to what its buckets allow.

    The same object comes back when the sum is already possible.
    """
    low, high = histogram.sum_limits()
    if math.isinf(high):
        overflow = histogram.count - max(histogram.counts[:-1], default=0.0)
        finite = Histogram(
            (*histogram.bounds[:-1], math.inf),
            (*histogram.counts[:-1], histogram.count - overflow),
        )
        high = finite.sum_limits()[1] + overflow * LONGEST_BELIEVED_SECONDS
    slack = 1e-6 * max(1.0, high)
    if low - slack <= histogram.sum <= high + slack:
        return histogram
    return Histogram(histogram.bounds, histogram.counts, low)

"""What an engine's cumulative series say at one moment, and how much they grew.

The rules for counter resets live here and nowhere else. In Prometheus every series
is on its own; here the process behind them is known, so a restart is one event:
`process_start_time_seconds` proves it, `_created` proves it for one series, falling
values suggest it, and a falling `_sum` alone (negative or host-uptime-sized samples,
vLLM issues 49135 and 56238) is no restart at all.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from analyzer.histogram import Histogram, empty

ABSENT_SERIES_KEPT_SECONDS = 300.0
ABSENT_SERIES_KEPT = 20_000  # of a page that names other series at every scrape
# How far the engine's clock may lie behind ours before its restart looks like
# another process that was already running at the last scrape.
CLOCK_SLACK_SECONDS = 5.0
# A single observation in the +Inf bucket is believed up to the largest bound any
# engine uses; above it, the sample is a missing time stamp read as host uptime.
LONGEST_BELIEVED_SECONDS = 7680.0
OVERFLOW_FACTOR = 2.5  # and up to the next bound of a 1-2-5 series
# Histograms of tokens; their overflow has no limit that could be told from here.
TOKEN_SIGNALS = frozenset({"iteration_tokens", "prompt_length", "generation_length"})


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
    RESTART = "restart"  # another process, begun since: it counts from zero
    SERIES = "series"  # some series began anew, others went on
    OTHER_PROCESS = "other_process"  # one that ran before answers: nothing is counted


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
        return _collect(None, later, Reset.NONE, None, baseline=not new)
    reset, from_zero = _compare(earlier, later)
    baseline = reset is Reset.OTHER_PROCESS
    return _collect(earlier, later, reset, from_zero, baseline=baseline)


def merge(earlier: Snapshot | None, later: Snapshot, reset: Reset) -> Snapshot:
    """Returns *later* with the series it lacks carried over from *earlier*.

    A damaged line must not make its series look new at the next scrape. Carried
    series go after five minutes; at most `ABSENT_SERIES_KEPT` are.
    Of an earlier process nothing is carried; but what its page had and a damaged
    first page of the next lacks, begins there at zero.
    """
    if earlier is None or reset is Reset.OTHER_PROCESS:
        return later
    renewed = reset is Reset.RESTART
    if renewed and not later.damaged:
        return later
    started = later.started
    if started is None and later.damaged and not renewed:
        started = earlier.started
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
        return later if started == later.started else replace(later, started=started)
    absent: dict[Key, float] = {}
    counters, histograms = dict(later.counters), dict(later.histograms)
    created = dict(later.created)
    for key in (*torn, *lost)[:ABSENT_SERIES_KEPT]:
        since = later.at if renewed else earlier.absent_since.get(key, later.at)
        if later.at - since > ABSENT_SERIES_KEPT_SECONDS:
            continue
        absent[key] = since
        if key in earlier.counters:
            counters[key] = 0.0 if renewed else earlier.counters[key]
        else:
            known = earlier.histograms[key]
            histograms[key] = empty(known.bounds) if renewed else known
        if key in earlier.created and not renewed:
            created.setdefault(key, earlier.created[key])
    return Snapshot(
        later.at, started, counters, histograms, created, absent, later.damaged
    )


def _torn_histograms(earlier: Snapshot, later: Snapshot) -> list[Key]:
    """Returns histograms that lost buckets to damaged lines in *later*."""
    return [
        key
        for key, histogram in later.histograms.items()
        if (known := earlier.histograms.get(key)) and known.bounds != histogram.bounds
    ]


def _compare(
    earlier: Snapshot, later: Snapshot
) -> tuple[Reset, Collection[Key] | None]:
    """Returns the kind of reset, and the series that count from zero (None: all)."""
    before, now = earlier.started, later.started
    if before is not None and now is not None and before != now:
        # A process that was up when the last page was read is no successor.
        if now < max(before, earlier.at - CLOCK_SLACK_SECONDS):
            return Reset.OTHER_PROCESS, ()
        return Reset.RESTART, None
    same_process = before is not None and before == now
    fallen = _fallen(earlier, later, same_process=same_process)
    for key, stamp in later.created.items():
        if stamp > earlier.created.get(key, stamp):
            fallen.add(key)
    if not fallen:
        return Reset.NONE, ()
    if same_process:
        return Reset.SERIES, fallen
    return _restarted(earlier, later, fallen)


def _fallen(earlier: Snapshot, later: Snapshot, *, same_process: bool) -> set[Key]:
    """Returns the series whose values lie below those of *earlier*."""
    fallen = {
        key
        for key, value in later.counters.items()
        if value < earlier.counters.get(key, 0.0)
    }
    torn = same_process or earlier.damaged or later.damaged
    for key, histogram in later.histograms.items():
        known = earlier.histograms.get(key)
        if known is not None and _fell(known, histogram, torn=torn):
            fallen.add(key)
    return fallen


def _fell(earlier: Histogram, later: Histogram, *, torn: bool) -> bool:
    """Whether a histogram was reset as a whole; its sum does not count."""
    if earlier.bounds != later.bounds:
        if not torn:  # bounds are set at start-up: another process
            return True
        earlier, later = _on_shared_bounds(earlier, later)
    return any(map(operator.lt, later.counts, earlier.counts))


def _on_shared_bounds(a: Histogram, b: Histogram) -> tuple[Histogram, Histogram]:
    shared = sorted(set(a.bounds) & set(b.bounds))
    return a.rebased(shared), b.rebased(shared)


def _restarted(
    earlier: Snapshot, later: Snapshot, fallen: set[Key]
) -> tuple[Reset, Collection[Key]]:
    """Infers from fallen values which sources began anew, without start times.

    A source (one model's rank, one replica of a page with several) is reset as a
    whole when at least half of its series that had moved have fallen: the others
    have overtaken their old values since. Series that the last page lacked have no
    say, since they may have fallen before it.
    """
    moved = {key for key, value in earlier.counters.items() if value > 0}
    moved |= {key for key, h in earlier.histograms.items() if h.count > 0}
    present = later.counters.keys() | later.histograms.keys()
    carried = earlier.absent_since.keys()
    known = Counter(map(_source, (moved & present) - carried))
    down = Counter(map(_source, fallen - carried))
    reset = {source for source in down if 2 * down[source] >= known[source]}
    from_zero = {key for key in present if key in fallen or _source(key) in reset}
    engines = {source for source in known if source[0]}
    restart = bool(engines) and engines <= reset
    return (Reset.RESTART if restart else Reset.SERIES), from_zero


def _source(key: Key) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    return key.group.model, key.group.rank, key.origin


def _collect(
    earlier: Snapshot | None,
    later: Snapshot,
    reset: Reset,
    from_zero: Collection[Key] | None,
    *,
    baseline: bool,
) -> Increase:
    counters: dict[Group, float] = {}
    histograms: dict[Group, Histogram] = {}
    anomalies = 0
    past = earlier or Snapshot(later.at)
    all_new = from_zero is None
    # What a damaged page lacks is not new when it comes back.
    unseen_is_old = baseline or (past.damaged and not all_new)
    for key, value in later.counters.items():
        known = past.counters.get(key)
        if baseline or (known is None and unseen_is_old):
            grown = 0.0
        elif known is None or from_zero is None or key in from_zero:
            grown = value
        else:
            grown = value - known
        group = key.group
        counters[group] = counters.get(group, 0.0) + grown
    for key, histogram in later.histograms.items():
        before = past.histograms.get(key)
        if baseline or (before is None and unseen_is_old):
            grown_by = empty(histogram.bounds)
        elif before is not None and later.damaged and before.bounds != histogram.bounds:
            grown_by = empty(before.bounds)  # some buckets are lost: next time
        elif before is None or from_zero is None or key in from_zero:
            grown_by = histogram
        elif before.bounds == histogram.bounds:
            grown_by = histogram - before
        else:
            before, now = _on_shared_bounds(before, histogram)
            grown_by = now - before
        believed = believable(grown_by, tokens=key.group.signal in TOKEN_SIGNALS)
        anomalies += believed is not grown_by
        group = key.group
        others = histograms.get(group)
        histograms[group] = believed if others is None else others + believed
    return Increase(past.at, later.at, reset, counters, histograms, anomalies)


def believable(histogram: Histogram, *, tokens: bool = False) -> Histogram:
    """Returns *histogram* with its sum held to what its buckets allow.

    The same object comes back when the sum is already possible. *tokens* says that
    it does not measure seconds: then the +Inf bucket allows any sum.
    """
    low, high = histogram.sum_limits()
    if math.isinf(high) and not tokens:
        finite = max((0.0, *histogram.counts[:-1]))
        inner = Histogram(histogram.bounds, (*histogram.counts[:-1], finite))
        last = max((0.0, *histogram.bounds[:-1]))
        longest = max(LONGEST_BELIEVED_SECONDS, OVERFLOW_FACTOR * last)
        high = inner.sum_limits()[1] + max(0.0, histogram.count - finite) * longest
    slack = 1e-6 * max(1.0, min(high, abs(histogram.sum)))
    possible = low - slack <= histogram.sum <= high + slack
    if possible and math.isfinite(histogram.sum):
        return histogram
    return Histogram(histogram.bounds, histogram.counts, low)

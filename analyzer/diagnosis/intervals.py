"""What one rank of an engine did between two scrapes, and over several of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from analyzer.histogram import Histogram

KEPT_SECONDS = 120.0
MOST_INTERVALS = 600


@dataclass(frozen=True, slots=True)
class Count:
    """Observations of a latency: their number and their sum in seconds."""

    number: float = 0.0
    seconds: float = 0.0

    @property
    def mean(self) -> float | None:
        """The mean in seconds, None without observations."""
        return self.seconds / self.number if self.number else None


@dataclass(frozen=True, slots=True)
class Interval:
    """One rank between two scrapes; None is what the engine does not tell.

    Gauges (`running`, `waiting`, `deferred`, `kv`) are those at `end`. `prefill` are
    the prompt tokens computed, `decode` the tokens generated. `missed` has, by
    criterion, the requests judged and how many surely missed it.
    """

    begin: float
    end: float
    running: float | None = None
    waiting: float | None = None
    deferred: float | None = None
    kv: float | None = None
    prefill: float | None = None
    decode: float | None = None
    external: float = 0.0
    steps: float | None = None
    itl: Histogram | None = None
    ttft: Count | None = None
    queue: Count | None = None
    prefill_time: Count | None = None
    preemptions: float | None = None
    finished: float | None = None
    flops: float = 0.0
    read_bytes: float = 0.0
    missed: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The length of the interval."""
        return self.end - self.begin

    @property
    def idle(self) -> bool:
        """Whether nothing ran, nothing waited and nothing was generated."""
        return not (self.running or self.waiting or self.decode or self.prefill)


class Window:
    """The last two minutes of one rank, bounded in number too."""

    def __init__(self) -> None:
        self._intervals: deque[Interval] = deque(maxlen=MOST_INTERVALS)

    def append(self, interval: Interval) -> None:
        """Adds the newest interval; what ends later, after a clock step, goes."""
        kept = self._intervals
        while kept and kept[-1].end > interval.begin + 1e-6:
            kept.pop()
        kept.append(interval)
        while kept[0].end <= interval.end - KEPT_SECONDS and len(kept) > 2:
            kept.popleft()

    @property
    def latest(self) -> Interval | None:
        """The newest interval, None before the first."""
        return self._intervals[-1] if self._intervals else None

    def __iter__(self) -> Iterator[Interval]:
        """Yields the intervals, oldest first."""
        return iter(self._intervals)

    def last(self, seconds: float, *, least: int = 2) -> tuple[Interval, ...]:
        """Returns the intervals that end in the last *seconds*, *least* at least."""
        found: list[Interval] = []
        for interval in reversed(self._intervals):
            until = self._intervals[-1].end - seconds
            if interval.end <= until + 1e-6 and len(found) >= least:
                break
            found.append(interval)
        return tuple(reversed(found))


@dataclass(frozen=True, slots=True)
class Stretch:
    """The sums and means of several intervals in a row.

    Means of gauges are weighted by time. `queued` and `busy` are the shares of the
    time with requests waiting and with work.
    """

    seconds: float
    running: float | None
    running_most: float | None
    waiting: float | None
    waiting_first: float | None
    waiting_last: float | None
    deferred: float | None
    kv: float | None
    kv_most: float | None
    queued: float
    busy: float
    prefill: float | None
    decode: float | None
    external: float
    steps: float | None
    itl: Count
    ttft: Count
    queue: Count
    prefill_time: Count
    preemptions: float | None
    finished: float | None
    flops: float
    read_bytes: float
    missed: Mapping[str, tuple[float, float]]

    def missed_share(self, criterion: str, events: float) -> float | None:
        """Returns the share that surely missed, None for fewer than *events*."""
        judged, bad = self.missed.get(criterion, (0.0, 0.0))
        return bad / judged if judged >= events else None


def stretch(intervals: Sequence[Interval]) -> Stretch:
    """Returns what *intervals* add up to."""
    running, waiting, deferred, kv = (Mean() for _ in range(4))
    prefill, decode, steps, preemptions, finished = (Sum() for _ in range(5))
    external = flops = read_bytes = seconds = queued = busy = 0.0
    itl = ttft = queue = prefill_time = (0.0, 0.0)
    missed: dict[str, tuple[float, float]] = {}
    for i in intervals:
        length = i.seconds
        seconds += length
        running.add(i.running, length)
        waiting.add(i.waiting, length)
        deferred.add(i.deferred, length)
        kv.add(i.kv, length)
        prefill.add(i.prefill)
        decode.add(i.decode)
        steps.add(i.steps)
        preemptions.add(i.preemptions)
        finished.add(i.finished)
        external += i.external
        flops += i.flops
        read_bytes += i.read_bytes
        queued += length if i.waiting else 0.0
        busy += length if i.running or i.waiting else 0.0
        if i.itl is not None:
            itl = (itl[0] + i.itl.count, itl[1] + i.itl.sum)
        ttft, queue = _plus(ttft, i.ttft), _plus(queue, i.queue)
        prefill_time = _plus(prefill_time, i.prefill_time)
        for criterion, (judged, bad) in i.missed.items():
            known = missed.get(criterion, (0.0, 0.0))
            missed[criterion] = (known[0] + judged, known[1] + bad)
    span = seconds or 1.0
    return Stretch(
        seconds,
        running.value,
        running.most,
        waiting.value,
        waiting.first,
        waiting.last,
        deferred.value,
        kv.value,
        kv.most,
        queued / span,
        busy / span,
        prefill.value,
        decode.value,
        external,
        steps.value,
        Count(*itl),
        Count(*ttft),
        Count(*queue),
        Count(*prefill_time),
        preemptions.value,
        finished.value,
        flops,
        read_bytes,
        missed,
    )


def _plus(total: tuple[float, float], count: Count | None) -> tuple[float, float]:
    if count is None:
        return total
    return total[0] + count.number, total[1] + count.seconds


class Mean:
    """A time-weighted mean of a gauge that may be absent, with its extremes."""

    __slots__ = ("_sum", "_weight", "first", "last", "most")

    def __init__(self) -> None:
        self._sum = self._weight = 0.0
        self.first: float | None = None
        self.last: float | None = None
        self.most: float | None = None

    def add(self, value: float | None, weight: float) -> None:
        """Adds a value that held for *weight* seconds."""
        if value is None:
            return
        self._sum += value * weight
        self._weight += weight
        if self.first is None or self.most is None:
            self.first = self.most = value
        elif value > self.most:
            self.most = value
        self.last = value

    @property
    def value(self) -> float | None:
        """The mean, None without values."""
        return self._sum / self._weight if self._weight else self.last


class Sum:
    """A sum that is None until a value came."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float | None = None

    def add(self, value: float | None) -> None:
        """Adds a value if there is one."""
        if value is not None:
            self.value = value + (self.value or 0.0)

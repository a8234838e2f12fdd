"""One rank under diagnosis: what was seen of it, and the verdict in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from analyzer.diagnosis.advice import advice
from analyzer.diagnosis.arrivals import Arrivals, Bin, Burstiness
from analyzer.diagnosis.forecast import SPAN_SECONDS, Exhaustion, exhaustion
from analyzer.diagnosis.hops import Hops
from analyzer.diagnosis.intervals import Interval, Stretch, Window, stretch
from analyzer.diagnosis.rules import judge
from analyzer.diagnosis.situation import GpuActivity, Knobs, Situation, bound_by_step
from analyzer.diagnosis.step_time import FixedShare, StepTimes
from analyzer.diagnosis.thresholds import (
    HOLD,
    KV_HIGH,
    LONGER,
    PINNED,
    QUEUE_SHARE,
    RECENT,
    SLOWDOWN,
)
from analyzer.verdict import Family, Verdict

PLATEAU_SAMPLES = 5
LEAST_INTERVALS = 2
SMALL_PLATEAU = 4.0  # up to this batch one request less is another batch
CALM_FAMILIES = (Family.NONE, Family.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Context:
    """What is known beside the scrapes: settings, SLO, page, GPUs and gateways."""

    knobs: Knobs = field(default_factory=Knobs)
    limits: Mapping[str, float] = field(default_factory=dict)
    signals: frozenset[str] = frozenset()
    gpu: GpuActivity | None = None
    hops: Hops | None = None


class RankDiagnosis:
    """Takes in a rank's intervals, and says what limits it."""

    def __init__(self) -> None:
        self.window = Window()
        self.steps = StepTimes()
        self.arrivals = Arrivals()
        self.forecast: Exhaustion | None = None
        self.burst: Burstiness | None = None
        self.verdict: Verdict | None = None
        self.plateau: float | None = None
        self._plateau_seen = 0
        self._queued_since: float | None = None
        self._alone_ttft: float | None = None
        self._pending: tuple[Verdict, float] | None = None

    def observe(self, interval: Interval, context: Context) -> Verdict:
        """Takes in *interval* and returns the verdict in force at its end."""
        before = self.window.latest
        self.steps.learn(interval, before)
        self.window.append(interval)
        recent = self.window.last(RECENT.value)
        self._follow_queue(interval, recent)
        self._learn_plateau(interval)
        self._count_arrivals(interval, before, context)
        now = stretch(recent)
        lately = self.window.last(LONGER.value)
        longer = stretch(lately)
        self.burst = self.arrivals.burstiness()
        self.forecast = exhaustion(self.window.last(SPAN_SECONDS))
        current = self.verdict
        step_binds = bound_by_step(current)
        situation = Situation(
            interval.end,
            now,
            longer,
            recent,
            lately,
            queued_seconds=self.queued_seconds(interval.end),
            fixed=self._fixed_share(now, recent),
            fixed_longer=self.steps.fixed_share(longer, lately) if step_binds else None,
            burst=self.burst,
            forecast=self.forecast,
            knobs=context.knobs,
            pinned=self._pinned(),
            limits=context.limits,
            signals=context.signals,
            gpu=context.gpu,
            hops=context.hops,
            in_force=current,
        )
        verdict = self._settle(judge(situation), interval)
        self.verdict = replace(verdict, advice=advice(verdict, situation))
        return self.verdict

    def _fixed_share(
        self, now: Stretch, recent: tuple[Interval, ...]
    ) -> FixedShare | None:
        """Returns the fixed share of the steps since the queue began, if that is new.

        The batch filled up before: those steps held all its prompts at once.
        """
        since = self._queued_since
        if since is not None:
            young = tuple(i for i in recent if i.begin >= since - 1e-6)
            if LEAST_INTERVALS <= len(young) < len(recent):
                return self.steps.fixed_share(stretch(young), young)
        return self.steps.fixed_share(now, recent)

    def queued_seconds(self, at: float) -> float:
        """Returns how long the present queue has been there, 0 without one."""
        return 0.0 if self._queued_since is None else at - self._queued_since

    def _follow_queue(self, interval: Interval, recent: tuple[Interval, ...]) -> None:
        if interval.waiting:
            if self._queued_since is None:
                self._queued_since = interval.end
            return
        if self._queued_since is None:
            return
        seconds = sum(i.seconds for i in recent) or 1.0
        queued = sum(i.seconds for i in recent if i.waiting)
        if queued / seconds < QUEUE_SHARE.value:
            self._queued_since = None

    def _learn_plateau(self, interval: Interval) -> None:
        """Learns the largest batch seen with requests waiting and room in the cache."""
        running = interval.running
        if not running or not interval.waiting or (interval.kv or 0.0) >= KV_HIGH.value:
            return
        if self.plateau is None or running > self.plateau:
            self.plateau, self._plateau_seen = running, 1
        elif running >= self.plateau - (self.plateau > SMALL_PLATEAU):
            self._plateau_seen += 1

    def _pinned(self) -> bool | None:
        """Whether the batch stays at its plateau; None before one was seen."""
        plateau = self.plateau
        if plateau is None or self._plateau_seen < PLATEAU_SAMPLES:
            return None
        least = plateau if plateau <= SMALL_PLATEAU else plateau - 1
        values = [i.running for i in self.window.last(LONGER.value) if i.running]
        there = sum(1 for value in values if value >= least)
        return bool(values) and there >= PINNED.value * len(values)

    def _count_arrivals(
        self, interval: Interval, before: Interval | None, context: Context
    ) -> None:
        if interval.running is None or interval.waiting is None:
            return  # nothing tells a burst from a load
        late = any(bad for _, bad in interval.missed.values())
        ttft = interval.ttft.mean if interval.ttft else None
        if ttft is not None:
            if self._alone_ttft is None or ttft < self._alone_ttft:
                self._alone_ttft = ttft
            elif not context.limits:
                late = ttft > SLOWDOWN.value * self._alone_ttft
        self.arrivals.add(
            Bin(
                interval.end,
                interval.seconds,
                _arrived(interval, before),
                running=interval.running,
                queued=bool(interval.waiting),
                pressed=bool(interval.waiting) or late,
            )
        )

    def _settle(self, found: Verdict, interval: Interval) -> Verdict:
        """Returns the verdict in force: *found*, once it has held long enough."""
        current = self.verdict
        if current is None or current.name == found.name:
            return self._enforce(found)
        if interval.idle and found.family in CALM_FAMILIES:
            return self._enforce(found)
        both_calm = current.family is Family.NONE is found.family
        if current.family in CALM_FAMILIES and not both_calm:
            return self._enforce(found)  # the rules ask for sustained evidence
        pending = self._pending
        if pending is None or pending[0].name != found.name:
            self._pending = (found, interval.end)
            return current
        if interval.end - pending[1] >= (RECENT if both_calm else HOLD).value:
            return self._enforce(found)
        return current

    def _enforce(self, verdict: Verdict) -> Verdict:
        self.verdict, self._pending = verdict, None
        return verdict


def _arrived(interval: Interval, before: Interval | None) -> float:
    """Returns how many requests came: those that got a first token or went to wait.

    Without a histogram of first tokens, those that are there or have finished.
    """
    waits = interval.waiting or 0.0
    waited = (before.waiting or 0.0) if before else waits
    if interval.ttft is not None:
        return max(0.0, interval.ttft.number + waits - waited)
    if before is None:
        return 0.0
    running = (interval.running or 0.0) - (before.running or 0.0)
    return max(0.0, running + waits - waited + (interval.finished or 0.0))

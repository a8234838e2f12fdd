"""Whether an engine answers and works: from its last scrapes to one state."""

from __future__ import annotations

from dataclasses import dataclass

from analyzer import accrual
from analyzer.engines.reading import EngineReading
from analyzer.heartbeat import Heartbeat, Pulse
from analyzer.snapshot import Group, Increase, Reset

DOWN_AFTER_SECONDS = 10.0
DRAINED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last scrape: when it began, how long it took, why it failed (or "")."""

    at: float
    seconds: float
    reason: str = ""
    detail: str = ""


class Liveness:
    """Follows one engine's answers; `state` says what they add up to.

    *since* is when the watch began, *startup_grace* and *stall_grace* are seconds.
    """

    def __init__(self, *, startup_grace: float, stall_grace: float) -> None:
        self.startup_grace = startup_grace
        self.heartbeat = Heartbeat(grace=stall_grace)
        self.attempt: Attempt | None = None
        self.pulse = Pulse.IDLE
        self.gaps = 0
        self._failing_since: float | None = None
        self._reading: EngineReading | None = None
        self._sleeps = False
        self._refused_at: float | None = None

    def fail(self, attempt: Attempt) -> None:
        """Records a scrape that gave no page."""
        self.attempt = attempt
        if self._failing_since is None:
            self._failing_since = attempt.at
            self.gaps += 1

    def beat(self, attempt: Attempt, reading: EngineReading, grown: Increase) -> None:
        """Records a page and what grew since the one before."""
        self.attempt = attempt
        self._failing_since = None
        self._reading = reading
        self._sleeps = _asleep(reading)
        work = sum(
            value
            for group, value in reading.gauges.items()
            if group.signal in ("running", "waiting", "swapped")
        )
        models = accrual.by_model(grown).values()
        self._follow_drain(grown, work)
        self.pulse = self.heartbeat.beat(
            grown.end,
            moved=accrual.moved(grown) or grown.reset is not Reset.NONE,
            work=work,
            ended=accrual.completions(grown),
            finished=sum(model.finished or 0.0 for model in models),
            prefill_p99=_prefill_p99(reading),
        )

    def _follow_drain(self, grown: Increase, work: float) -> None:
        """Notes a drain: new prompts are refused while those in work go on.

        vLLM has no metric for it; while it drains (--shutdown-timeout) it answers
        new prompts with 500, and no first token appears any more.
        """
        first_tokens = sum(
            h.count for g, h in grown.histograms.items() if g.signal == "ttft"
        )
        refused = accrual.completions(grown, status="5")
        if first_tokens > 0 or grown.reset is not Reset.NONE:
            self._refused_at = None
        elif refused and not grown.counter("rejections") and work > 0:
            self._refused_at = grown.end

    def state(
        self, at: float, *, since: float, last_success: float | None
    ) -> tuple[str, str]:
        """Returns the engine's state at *at* and a sentence that says why."""
        attempt = self.attempt
        if attempt is None or attempt.reason:
            reason = "not scraped yet" if attempt is None else attempt.reason
            if last_success is None:
                waited = at - since
                if waited <= self.startup_grace:
                    return "starting", f"no answer yet: {reason}"
                return "down", f"no answer for {waited:.0f} s: {reason}"
            failing = at - (at if self._failing_since is None else self._failing_since)
            if self._draining(at):
                return "draining", f"refused new requests, then went: {reason}"
            if reason == "refused" or failing >= DOWN_AFTER_SECONDS:
                return "down", f"failing for {failing:.0f} s: {reason}"
        return self._page_state(at)

    def _page_state(self, at: float) -> tuple[str, str]:
        reading = self._reading
        if reading is None:
            return "starting", "not scraped yet"
        if reading.prefix is None:
            if reading.frontend:
                return "stats_disabled", "no engine series: --disable-log-stats"
            return "serving", "no series yet"
        if self._sleeps:
            return "sleeping", "engine_sleep_state is not awake"
        if self.pulse is Pulse.STALLED:
            still = at - (self.heartbeat.progressed_at or at)
            return "stalled", f"requests present, no counter moved for {still:.0f} s"
        if self._draining(at):
            return "draining", "new requests are refused, those in work go on"
        return "serving", ""

    def _draining(self, at: float) -> bool:
        refused = self._refused_at
        return refused is not None and at - refused <= DRAINED_SECONDS


def _asleep(reading: EngineReading) -> bool:
    """Whether every rank that tells is asleep."""
    awake = [
        value
        for group, value in reading.gauges.items()
        if group.signal == "sleep_state" and group.extra == "awake"
    ]
    return bool(awake) and not any(awake)


def _prefill_p99(reading: EngineReading) -> float | None:
    """Returns an upper limit of the 99th percentile of prefill times, in seconds."""
    worst: float | None = None
    for key, histogram in reading.snapshot.histograms.items():
        if key.group.signal == "prefill":
            bracket = histogram.quantile_bracket(0.99)
            if bracket is not None:
                worst = max(worst or 0.0, bracket[1])
    return worst


def rank_growth(grown: Increase | None, model: str, rank: str) -> tuple[float, float]:
    """Returns the requests finished and tokens generated by one rank."""
    if grown is None:
        return 0.0, 0.0
    e2e = grown.histograms.get(Group("e2e", model, rank))
    tokens = grown.counters.get(Group("generation_tokens", model, rank), 0.0)
    return (0.0 if e2e is None else e2e.count), tokens

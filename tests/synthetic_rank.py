"""One rank whose batch, queue and steps a test sets, second by second."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from analyzer.diagnosis.intervals import Count, Interval
from analyzer.diagnosis.rank import Context, RankDiagnosis
from analyzer.diagnosis.situation import GpuActivity, Knobs
from analyzer.histogram import Histogram
from analyzer.verdict import Verdict

# As fine as no engine's, so that a test's step time is what it says.
BOUNDS = (*(0.002 * 1.1**n for n in range(90)), math.inf)
SIGNALS = frozenset(
    {
        *("running", "waiting", "waiting_by_reason", "kv_cache_usage", "preemptions"),
        *("prompt_tokens", "generation_tokens", "itl", "iteration_tokens", "ttft"),
    }
)


@dataclass(frozen=True)
class Load:
    """What a rank does in a second: sequences, steps (seconds) and prompt tokens."""

    running: float
    step: float
    waiting: float = 0.0
    deferred: float = 0.0
    kv: float = 0.2
    prefill: float = 100.0
    external: float = 0.0
    preemptions: float = 0.0
    arrivals: float = 2.0
    ttft: float = 0.1
    queue: float = 0.0
    prefill_time: float = 0.1
    finished: float = 2.0
    missed: dict[str, tuple[float, float]] = field(default_factory=dict)


IDLE = Load(0.0, 0.01, kv=0.0, prefill=0.0, arrivals=0.0, finished=0.0)


class Watched:
    """A rank under diagnosis; `play` lets seconds pass and returns the last verdict."""

    def __init__(
        self,
        *,
        knobs: Knobs | None = None,
        limits: dict[str, float] | None = None,
        signals: frozenset[str] = SIGNALS,
        gpu: GpuActivity | None = None,
    ) -> None:
        self.diagnosis = RankDiagnosis()
        self.context = Context(knobs or Knobs(), limits or {}, signals, gpu)
        self.at = 1000.0

    def play(self, load: Load, seconds: int) -> Verdict:
        """Plays *load* for some seconds, one scrape each."""
        for _ in range(seconds):
            interval = second(load, self.at)
            self.at = interval.end
            self.diagnosis.observe(interval, self.context)
        verdict = self.diagnosis.verdict
        assert verdict is not None
        return verdict

    def ramp(self, loads: list[Load]) -> Verdict:
        """Plays each load for one second."""
        for load in loads:
            self.play(load, 1)
        verdict = self.diagnosis.verdict
        assert verdict is not None
        return verdict

    def see(self, gpu: GpuActivity | None) -> None:
        """Lets the GPUs do something else from now on."""
        self.context = replace(self.context, gpu=gpu)


def second(load: Load, at: float) -> Interval:
    """Returns one second of *load*."""
    steps = 1.0 / load.step if load.running else 0.0
    gaps = steps * load.running
    counts = tuple(gaps if bound >= load.step else 0.0 for bound in BOUNDS)
    return Interval(
        at,
        at + 1.0,
        running=load.running,
        waiting=load.waiting,
        deferred=load.deferred,
        kv=load.kv,
        prefill=load.prefill,
        decode=gaps,
        external=load.external,
        steps=steps,
        itl=Histogram(BOUNDS, counts, gaps * load.step),
        ttft=Count(load.arrivals, load.arrivals * load.ttft),
        queue=Count(load.finished, load.finished * load.queue),
        prefill_time=Count(load.finished, load.finished * load.prefill_time),
        preemptions=load.preemptions,
        finished=load.finished,
        missed=load.missed,
    )

"""How a step's time grows with the batch: what more requests at once would gain.

A step takes a fixed time (reading the weights, launching kernels) and more for each
sequence and prompt token in it. The fixed part is shared by all that is in the batch,
so its share of the step says what a larger batch would gain: tokens/s grow by that
share of the growth of the batch. It is learnt from the smallest batches seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analyzer.diagnosis.intervals import Interval, Stretch
from analyzer.diagnosis.thresholds import BUSY, GROWN, RIDGE_TOKENS
from analyzer.histogram import Histogram, total

LEAST_OUTPUTS = 8.0  # outputs of an interval whose mean step is believed
MEMORY_SECONDS = 15.0  # of a size of batch: how fast its step time is relearnt
STEADY = 0.25  # of the larger batch: the most it may change within an interval
LOWEST_SHARE = 0.05  # of outputs that prove steps as short as their bucket


@dataclass(slots=True)
class Size:
    """The mean batch and step (seconds) of batches of one power of two."""

    running: float
    step: float


@dataclass(frozen=True, slots=True)
class FixedShare:
    """The fixed share of the present steps: at most `upper`, likely `estimate`.

    `estimate` is None when no batch much smaller was seen. `step` is the present
    step's time, `small` that of the reference batch of `small_running` (seconds).
    """

    step: float
    upper: float
    estimate: float | None
    small: float | None = None
    small_running: float | None = None

    @property
    def likely(self) -> float:
        """The estimate, or else the most it can be."""
        return self.upper if self.estimate is None else self.estimate


class StepTimes:
    """Learns one rank's step time by size of batch."""

    def __init__(self) -> None:
        self._sizes: dict[int, Size] = {}

    def learn(self, interval: Interval, before: Interval | None) -> None:
        """Takes in an interval that had enough outputs and no preemption."""
        if interval.preemptions or not _steady(before, interval):
            return
        running = _mean(before.running if before else None, interval.running)
        step = interval.itl
        if step is not None:
            if step.count < LEAST_OUTPUTS:
                return
            seconds = _without_prompts(step)
        elif running and interval.decode and before and before.running:
            if interval.decode < LEAST_OUTPUTS or not interval.running:
                return
            seconds = running * interval.seconds / interval.decode
        else:
            return
        if running is None:
            running = (interval.decode or 0.0) * seconds / (interval.seconds or 1.0)
        # At a mean below one the engine was idle for a part: one ran at a time.
        running = max(1.0, running)
        size = self._sizes.get(int(math.log2(running)))
        if size is None:
            self._sizes[int(math.log2(running))] = Size(running, seconds)
            return
        weight = 1.0 - math.exp(-interval.seconds / MEMORY_SECONDS)
        size.running += weight * (running - size.running)
        size.step += weight * (seconds - size.step)

    def fixed_share(
        self, now: Stretch, recent: Sequence[Interval]
    ) -> FixedShare | None:
        """Returns the fixed share of the steps in *recent*, summed up as *now*.

        None without a step time.
        """
        step = step_time(now)
        if step is None:
            return None
        running = now.running
        if running is None:  # then those that decode, by Little's law
            running = (now.decode or 0.0) * step / (now.seconds or 1.0)
        gaps = _gaps(recent)
        upper = min(1.0, _shortest(gaps) / step, _ridge(now))
        reference = min(self._sizes.values(), key=lambda s: s.step, default=None)
        if reference is None:
            return FixedShare(step, upper, None)
        upper = min(upper, reference.step / step)
        estimate = None
        if running >= GROWN.value * reference.running:
            # Prompts come with the sequences; their part is no cost of the batch.
            bare = step if gaps is None else min(step, _without_prompts(gaps))
            slope = (bare - reference.step) / (running - reference.running)
            fixed = reference.step - max(0.0, slope) * reference.running
            estimate = min(upper, max(0.0, fixed) / step)
        return FixedShare(step, upper, estimate, reference.step, reference.running)


def step_time(now: Stretch) -> float | None:
    """Returns the mean time of a step in seconds, None when nothing tells it.

    That is the mean gap between two outputs of a request, or the time by the number of
    steps where that is longer: gaps count a step once for each request in it, and
    several API servers count one step several times. Gaps that hold a wait after
    preemption are no steps; then, and where the engine has no histogram of gaps, the
    time in which the running requests got one token each stands in.
    """
    gaps = now.itl.mean
    if gaps is not None and not now.preemptions:
        if now.steps and now.busy >= BUSY.value:
            return max(gaps, now.seconds / now.steps)
        return gaps
    if not now.decode or not now.running:
        return gaps
    each = now.running * now.seconds * now.busy / now.decode
    return each if gaps is None else min(gaps, each)


def _without_prompts(gaps: Histogram) -> float:
    """Returns about how long steps without a prompt took, at most the mean step.

    A prompt makes its step longer, and the mean with it: where a quarter of the gaps
    lie in buckets below the mean, those are steps without one.
    """
    mean = gaps.sum / gaps.count
    bracket = gaps.quantile_bracket(0.25)
    return mean if bracket is None else min(mean, bracket[1])


def _gaps(recent: Sequence[Interval]) -> Histogram | None:
    """Returns the gaps of all of *recent*, None when there are none."""
    return total(i.itl for i in recent if i.itl is not None and i.itl.count)


def _shortest(gaps: Histogram | None) -> float:
    """Returns a time that some of the present steps certainly stayed under."""
    bracket = gaps.quantile_bracket(LOWEST_SHARE) if gaps is not None else None
    return math.inf if bracket is None else bracket[1]


def _ridge(now: Stretch) -> float:
    """Returns the most that the fixed share can be by the tokens in a step."""
    if not now.steps or now.prefill is None or now.itl.number < now.steps / 2:
        return 1.0  # steps without outputs are not counted
    tokens = (now.prefill + (now.decode or 0.0)) / now.steps
    return RIDGE_TOKENS.value / tokens if tokens > RIDGE_TOKENS.value else 1.0


def _mean(a: float | None, b: float | None) -> float | None:
    if a is None or b is None:
        return b if a is None else a
    return (a + b) / 2


def _steady(before: Interval | None, interval: Interval) -> bool:
    """Whether the batch was about the same at both ends, so that its mean counts."""
    if before is None or before.running is None or interval.running is None:
        return before is not None
    change = abs(interval.running - before.running)
    return change <= max(1.0, STEADY * max(interval.running, before.running))

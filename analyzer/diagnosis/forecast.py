"""When the KV cache will be full, if it goes on as it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyzer.diagnosis.intervals import Interval
from analyzer.diagnosis.thresholds import FORECAST_SECONDS

SPAN_SECONDS = 30.0
LEAST_SECONDS = 6.0
LEAST_GROWTH = 0.02  # of the blocks over the span: below it, it is not filling


@dataclass(frozen=True, slots=True)
class Exhaustion:
    """The seconds left, the growth in blocks' share a second, and what fills it."""

    seconds: float
    per_second: float
    filled_by: str


def exhaustion(intervals: Sequence[Interval]) -> Exhaustion | None:
    """Returns the forecast from *intervals* (the last half minute), None if none.

    A straight line through the usage, by least squares. Absent when usage does not
    grow, when the line says longer than ten minutes, and when what there is of
    growth lies within one step of it: a batch that fills and stays.
    """
    points = [(i.end, i.kv) for i in intervals if i.kv is not None]
    if len(points) < 3:
        return None
    span = points[-1][0] - points[0][0]
    if span < LEAST_SECONDS:
        return None
    at = sum(t for t, _ in points) / len(points)
    level = sum(v for _, v in points) / len(points)
    spread = sum((t - at) ** 2 for t, _ in points)
    slope = sum((t - at) * (v - level) for t, v in points) / spread
    last = points[-1][1]
    # The second half must go on growing, or it has levelled off.
    half = points[len(points) // 2][1]
    if slope * span < LEAST_GROWTH or last <= half:
        return None
    seconds = max(0.0, 1.0 - last) / slope
    if seconds > FORECAST_SECONDS.value:
        return None
    return Exhaustion(seconds, slope, _filled_by(intervals))


def _filled_by(intervals: Sequence[Interval]) -> str:
    """Returns in words what takes the blocks: more requests, or longer ones."""
    running = [i.running for i in intervals if i.running is not None]
    decode = sum(i.decode or 0.0 for i in intervals)
    prefill = sum(i.prefill or 0.0 for i in intervals)
    if running and running[-1] > running[0] + 1:
        more = f"running requests {running[0]:.0f} → {running[-1]:.0f}"
        return f"{more}, {prefill:.0f} prompt and {decode:.0f} output tokens"
    return f"growing answers: {decode:.0f} output and {prefill:.0f} prompt tokens"

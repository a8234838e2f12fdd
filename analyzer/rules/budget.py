"""Recordings of what is left of the error budget, with the time really covered."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.rules.requests import (
    GOOD,
    allowed_share,
    half_hourly,
    judged,
    mean,
)
from analyzer.rules.rule import SLOW_INTERVAL, Options, Record, duration, regex
from analyzer.slo import SloClass

RETENTION = 15 * 86400.0  # of Prometheus, unless it is told otherwise


def left_name(seconds: float) -> str:
    """Returns the name of the share of the budget that is left of a window."""
    return f"slo_class:goodput_budget_left:ratio{duration(seconds)}"


def covered_name(seconds: float) -> str:
    """Returns the name of the seconds of a window that were recorded."""
    return f"slo_class:goodput_budget_covered_seconds:count{duration(seconds)}"


def recordings(classes: Sequence[SloClass], options: Options) -> list[Record]:
    """Returns the budget left and the time covered, for each window of *classes*.

    1 is untouched, 0 spent, below 0 overspent.
    """
    found = []
    for seconds in sorted({c.window_seconds for c in classes}):
        names = tuple(c.name for c in classes if c.window_seconds == seconds)
        matchers = f'{{slo_class=~"{regex(names)}"}}'
        good = mean(GOOD, seconds, options, matchers)
        bad = f"1 - {good} / ({judged(seconds, options, matchers)} > 0)"
        left = f"1 - ({bad}) / {allowed_share(options)}"
        found.append(Record(left_name(seconds), left))
        found.append(Record(covered_name(seconds), covered(seconds, options, matchers)))
    return found


def covered(
    seconds: float, options: Options, matchers: str, *, before: float = 0.0
) -> str:
    """Returns how many nominal seconds of a window were recorded.

    The window of nominal *seconds* ends so long *before* now.
    """
    window = f"{half_hourly(GOOD)}{matchers}[{options.span(seconds)}]"
    if before:
        window += f" offset {options.span(before)}"
    return f"count_over_time({window}) * {SLOW_INTERVAL:g}"


def retention_warning(slo_class: SloClass) -> str:
    """Returns what to set for a window that Prometheus does not keep, "" if it does."""
    if slo_class.window_seconds <= RETENTION:
        return ""
    window = duration(slo_class.window_seconds)
    return (
        f"class {slo_class.name}: its window of {window} is longer than the "
        f"{duration(RETENTION)} that Prometheus keeps by default; give it "
        f"--storage.tsdb.retention.time={window} or more, or the budget is that of "
        f"what is kept ({covered_name(slo_class.window_seconds)} tells)"
    )

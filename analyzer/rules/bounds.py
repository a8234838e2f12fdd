"""Recordings of the bounds on goodput that an engine's own histograms give.

Each criterion has its share of certainly and of possibly good events. Jointly no
more requests can be good than met the hardest criterion, and no fewer than all minus
every miss (Fréchet). That is not linear, so it is computed from sums over the fleet and
over a window much longer than a request; it is never called goodput.
"""

from __future__ import annotations

from collections.abc import Iterable

from analyzer.rules.requests import RATE, mean
from analyzer.rules.rule import CLASS, CRITERION, TARGET, Options, Record, by, duration

EVENTS = "criterion:goodput_engine_events:rate5m"
CERTAIN = "criterion:goodput_engine_good_events_lower:rate5m"
POSSIBLE = "criterion:goodput_engine_good_events_upper:rate5m"
RATES = (EVENTS, CERTAIN, POSSIBLE)
MEASURED = ("ttft", "tpot", "e2e")  # criteria of which an engine has histograms
PERCENTILE = (*CRITERION, "percentile")
PERCENTILE_EVENTS = "percentile:goodput_engine_events:rate5m"
PERCENTILE_POSSIBLE = "percentile:goodput_engine_good_events_upper:rate5m"
PERCENTILE_WITHIN = "percentile:goodput_engine_attainment_upper:ratio_rate1h"
_METRICS = {
    "engine_events": "goodput_engine_criterion_events_total",
    "engine_good_events_lower": "goodput_engine_criterion_good_events_lower_total",
    "engine_good_events_upper": "goodput_engine_criterion_good_events_upper_total",
}


def rates(options: Options) -> list[Record]:
    """Returns the 5-minute rates of each criterion's events, by target and in all."""
    found = []
    labels = (*TARGET, "model", "slo_class", "criterion")
    for name, metric in _METRICS.items():
        record = f"target:goodput_{name}:rate5m"
        rate = f"sum {by(labels)} (rate({metric}[{options.span(RATE)}]))"
        found.append(Record(record, rate))
        found.append(
            Record(
                f"criterion:goodput_{name}:rate5m", f"sum {by(CRITERION)} ({record})"
            )
        )
    return found


def percentiles(options: Options) -> list[Record]:
    """Returns the rates of events possibly within a percentile, and their share."""
    found = []
    for record, name in (
        (PERCENTILE_EVENTS, "events"),
        (PERCENTILE_POSSIBLE, "good_events_upper"),
    ):
        metric = f"goodput_engine_percentile_{name}_total"
        rate = f"rate({metric}[{options.span(RATE)}])"
        found.append(Record(record, f"sum {by(PERCENTILE)} ({rate})"))
    within, events = (
        mean(record, 3600.0, options)
        for record in (PERCENTILE_POSSIBLE, PERCENTILE_EVENTS)
    )
    return [*found, Record(PERCENTILE_WITHIN, f"{within} / ({events} > 0)")]


def upper_name(seconds: float) -> str:
    """Returns the name of the largest possible share of good requests."""
    return f"slo_class:goodput_upper_bound:ratio_rate{duration(seconds)}"


def lower_name(seconds: float) -> str:
    """Returns the name of the smallest possible share of good requests."""
    return f"slo_class:goodput_lower_bound:ratio_rate{duration(seconds)}"


def windowed(windows: Iterable[float], options: Options) -> list[Record]:
    """Returns attainment by criterion and the joint bounds over each window."""
    found = []
    for seconds in windows:
        events = f"({mean(EVENTS, seconds, options)} > 0)"
        names = []
        for what, good in (("lower", CERTAIN), ("upper", POSSIBLE)):
            names.append(
                f"criterion:goodput_attainment_{what}:ratio_rate{duration(seconds)}"
            )
            expr = f"{mean(good, seconds, options)} / {events}"
            found.append(Record(names[-1], expr))
        lower, upper = names
        found.append(Record(upper_name(seconds), f"min {by(CLASS)} ({upper})"))
        # Without events of a criterion yet, nothing is known, which is not 0.
        criteria = f"count {by(CLASS)} ({mean(EVENTS, seconds, options)})"
        judged = f"count {by(CLASS)} ({lower})"
        joint = f"clamp_min(sum {by(CLASS)} ({lower}) - ({judged} - 1), 0)"
        found.append(
            Record(lower_name(seconds), f"{joint}\nand {judged} == {criteria}")
        )
    return found

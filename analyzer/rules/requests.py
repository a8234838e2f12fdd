"""Recordings of exact goodput, from request logs.

Long windows are averages of the recorded 5-minute rates, of good and bad requests
apart, and their ratio comes last: an average of ratios would count a quiet hour as
much as a busy one, and a rate over weeks takes Prometheus seconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from analyzer.rules.rule import (
    CLASS,
    CRITERION,
    GATEWAY,
    SITE,
    Options,
    Record,
    by,
    duration,
    on,
)

RATE = 300.0
HALF_HOUR = 1800.0
SLOW_FROM = 6 * 3600.0  # longer windows are made of half-hour means
OBJECTIVES = (*SITE, "slo_class")
_REQUESTS = {
    "requests": "goodput_requests_total",
    "good_requests": "goodput_good_requests_total",
    "bad_requests": "goodput_bad_requests_total",
    "unevaluable_requests": "goodput_unevaluable_requests_total",
    "tokens": "goodput_tokens_total",
    "good_tokens": "goodput_good_tokens_total",
}
GOOD = "slo_class:goodput_good_requests:rate5m"
BAD = "slo_class:goodput_bad_requests:rate5m"
REQUESTS = "slo_class:goodput_requests:rate5m"
OBJECTIVE = "slo_class:goodput_objective:max"
_PER_GATEWAY = ("requests", "good_requests", "bad_requests")


def rates(options: Options) -> list[Record]:
    """Returns the 5-minute rates per gateway's log and fleet-wide, and objectives."""
    span = options.span(RATE)
    found = []
    for name, metric in _REQUESTS.items():
        source = f"rate({metric}[{span}])"
        if name in _PER_GATEWAY:
            record = f"gateway:goodput_{name}:rate5m"
            labels = (*GATEWAY, "model", "slo_class")
            found.append(Record(record, f"sum {by(labels)} ({source})"))
            source = record
        found.append(
            Record(f"slo_class:goodput_{name}:rate5m", f"sum {by(CLASS)} ({source})")
        )
    objective = f"max {by(OBJECTIVES)} (goodput_slo_objective_ratio)"
    found.append(Record(OBJECTIVE, objective))
    misses = f"rate(goodput_criterion_misses_total[{span}])"
    misses = f"sum {by(CRITERION)} ({misses})"
    found.append(Record("criterion:goodput_misses:rate5m", misses))
    return found


def mean(record: str, seconds: float, options: Options, matchers: str = "") -> str:
    """Returns a recorded 5-minute rate over a window of nominal *seconds*.

    Over days it is the mean of half-hour means, of which there are ten times fewer.
    """
    if seconds <= RATE:
        return f"{record}{matchers}"
    if seconds > SLOW_FROM:
        record = half_hourly(record)
    return f"avg_over_time({record}{matchers}[{options.span(seconds)}])"


def half_hourly(record: str) -> str:
    """Returns the name of the half-hour means of a recorded 5-minute rate."""
    return record.removesuffix("5m") + "30m"


def half_hours(records: Iterable[str], options: Options) -> list[Record]:
    """Returns the half-hour means that windows of days are made of.

    They are recorded every 5 minutes: 28 days are 8064 values instead of 80640.
    """
    return [Record(half_hourly(r), mean(r, HALF_HOUR, options)) for r in records]


def judged(seconds: float, options: Options, matchers: str = "") -> str:
    """Returns the rate of requests that are good or bad, in a window."""
    good, bad = (mean(record, seconds, options, matchers) for record in (GOOD, BAD))
    return f"({good} + {bad})"


def ratio_name(seconds: float) -> str:
    """Returns the name of the exact share of good requests in a window."""
    return f"slo_class:goodput_good_requests:ratio_rate{duration(seconds)}"


def burn_name(seconds: float) -> str:
    """Returns the name of the exact burn rate in a window."""
    return f"slo_class:goodput_budget_burn:ratio_rate{duration(seconds)}"


def windowed(windows: Iterable[float], options: Options) -> list[Record]:
    """Returns the share of good requests and the burn rate over each window.

    Both are absent without a judged request: no traffic is neither good nor bad.
    """
    found = []
    objective = f"{on(OBJECTIVES)} group_left () (1 - {OBJECTIVE})"
    for seconds in windows:
        good = mean(GOOD, seconds, options)
        ratio = f"{good} / ({judged(seconds, options)} > 0)"
        burn = f"(1 - {ratio_name(seconds)}) / {objective}"
        found.append(Record(ratio_name(seconds), ratio))
        found.append(Record(burn_name(seconds), burn))
    return found

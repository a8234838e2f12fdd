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
    INTERVAL,
    SITE,
    SLOW_INTERVAL,
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
GOOD = "slo_class:goodput_good_requests:rate5m"
BAD = "slo_class:goodput_bad_requests:rate5m"
REQUESTS = "slo_class:goodput_requests:rate5m"
OBJECTIVE = "slo_class:goodput_objective:max"
_COUNTS = ("requests", "good_requests", "bad_requests", "unevaluable_requests")
_PER_LOG = ("requests", "good_requests")


def rates(options: Options) -> list[Record]:
    """Returns 5-minute rates, by log and of the fleet, and objectives.

    Misses too, or their share of the requests would be one of two moments.
    """
    labels = (*GATEWAY, "model", "slo_class")
    found = []
    for name in _COUNTS:
        if name not in _PER_LOG:
            found.append(_rate("slo_class", CLASS, name, options))
            continue
        found.append(_rate("gateway", labels, name, options))
        whole = f"sum {by(CLASS)} (gateway:goodput_{name}:rate5m)"
        found.append(Record(f"slo_class:goodput_{name}:rate5m", whole))
    misses = f"rate(goodput_criterion_misses_total[{options.span(RATE)}])"
    objective = f"max {by(OBJECTIVES)} (goodput_slo_objective_ratio)"
    return [
        *found,
        Record("criterion:goodput_misses:rate5m", f"sum {by(CRITERION)} ({misses})"),
        Record(OBJECTIVE, objective),
    ]


def details(options: Options) -> list[Record]:
    """Returns the 5-minute rates of tokens, which panels show."""
    names = ("tokens", "good_tokens")
    return [_rate("slo_class", CLASS, name, options) for name in names]


def _rate(level: str, labels: tuple[str, ...], name: str, options: Options) -> Record:
    rate = f"rate(goodput_{name}_total[{options.span(RATE)}])"
    return Record(f"{level}:goodput_{name}:rate5m", f"sum {by(labels)} ({rate})")


def mean(record: str, seconds: float, options: Options, matchers: str = "") -> str:
    """Returns a recorded 5-minute rate over a window of nominal *seconds*.

    Over days it is the mean of half-hour means, of which there are eight times fewer.
    """
    if seconds <= RATE:
        return f"{record}{matchers}"
    if seconds > SLOW_FROM:
        record = half_hourly(record)
    return f"avg_over_time({record}{matchers}[{options.span(seconds)}])"


def counted(record: str, seconds: float, options: Options, matchers: str = "") -> str:
    """Returns how many events a recorded 5-minute rate saw in nominal *seconds*.

    Where nothing was recorded nothing is counted: the mean of a series that is minutes
    old, times the hours of a window, would make many failures of one.
    """
    if seconds <= RATE:
        return f"{record}{matchers} * {options.scaled(seconds):g}"
    every = INTERVAL
    if seconds > SLOW_FROM:
        record, every = half_hourly(record), SLOW_INTERVAL
    span = options.span(seconds)
    return f"sum_over_time({record}{matchers}[{span}]) * {options.scaled(every):g}"


def half_hourly(record: str) -> str:
    """Returns the name of the half-hour means of a recorded 5-minute rate."""
    return record.removesuffix("5m") + "30m"


def half_hours(records: Iterable[str], options: Options) -> list[Record]:
    """Returns the half-hour means that windows of days are made of.

    They are recorded every 4 minutes: 28 days are 10080 values instead of 80640.
    """
    return [Record(half_hourly(r), mean(r, HALF_HOUR, options)) for r in records]


def judged(seconds: float, options: Options, matchers: str = "") -> str:
    """Returns the rate of requests that are good or bad, in a window."""
    good, bad = (mean(record, seconds, options, matchers) for record in (GOOD, BAD))
    return f"({good} + {bad})"


def allowed_share(options: Options) -> str:
    """Returns what divides a share of bad requests: the share that may be bad.

    It outlasts a gap in scrapes. Aggregated once more, since a copy of the recording,
    federated with a label of its own, would make the match ambiguous.
    """
    known = f"last_over_time({OBJECTIVE}[{options.span(3600.0)}])"
    return f"{on(OBJECTIVES)} group_left () (1 - max {by(OBJECTIVES)} ({known}))"


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
    allowed = allowed_share(options)
    for seconds in windows:
        good = mean(GOOD, seconds, options)
        ratio = f"{good} / ({judged(seconds, options)} > 0)"
        burn = f"(1 - {ratio_name(seconds)}) / {allowed}"
        found.append(Record(ratio_name(seconds), ratio))
        found.append(Record(burn_name(seconds), burn))
    return found

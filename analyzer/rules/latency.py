"""Recordings that panels show: buckets, stages and limits, for the whole fleet.

Percentiles are taken from the summed buckets when they are shown: quantiles of several
logs have no mean that means anything. Limits are the same in every exporter: one series
in place of one a pod is what a panel over a day can afford.
"""

from __future__ import annotations

from analyzer.rules.requests import RATE
from analyzer.rules.rule import CLASS, SITE, Options, Record, by

CRITERIA = ("ttft", "tpot", "e2e")
_LIMITS = {
    "slo_class:goodput_window_seconds:max": ("goodput_slo_window_seconds", ()),
    "criterion:goodput_threshold_seconds:max": (
        "goodput_slo_threshold_seconds",
        ("criterion",),
    ),
    "percentile:goodput_threshold_seconds:max": (
        "goodput_slo_percentile_threshold_seconds",
        ("criterion", "percentile"),
    ),
}


def recordings(options: Options) -> list[Record]:
    """Returns the 5-minute rates of the time in stages, and limits."""
    found = [
        _record(f"goodput_request_stage_seconds_{part}", "stage", options)
        for part in ("sum", "count")
    ]
    for record, (metric, labels) in _LIMITS.items():
        every = by((*SITE, "slo_class", *labels))
        found.append(Record(record, f"max {every} ({metric})"))
    return found


def buckets(criterion: str, options: Options) -> Record:
    """Returns the 5-minute rates of a criterion's buckets, which are many series."""
    return _record(f"goodput_request_{criterion}_seconds_bucket", "le", options)


def _record(metric: str, label: str, options: Options) -> Record:
    rate = f"rate({metric}[{options.span(RATE)}])"
    return Record(f"slo_class:{metric}:rate5m", f"sum {by((*CLASS, label))} ({rate})")

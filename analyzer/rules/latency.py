"""Recordings of the latency of requests: buckets and stages, summed over the fleet.

Percentiles are taken from the summed buckets when they are shown: quantiles of several
logs have no mean that means anything.
"""

from __future__ import annotations

from analyzer.rules.requests import RATE
from analyzer.rules.rule import CLASS, Options, Record, by

CRITERIA = ("ttft", "tpot", "e2e")


def recordings(options: Options) -> list[Record]:
    """Returns the 5-minute rates of each bucket, and of the time in each stage."""
    found = [
        _record(f"goodput_request_{criterion}_seconds_bucket", "le", options)
        for criterion in CRITERIA
    ]
    found += [
        _record(f"goodput_request_stage_seconds_{part}", "stage", options)
        for part in ("sum", "count")
    ]
    return found


def _record(metric: str, label: str, options: Options) -> Record:
    rate = f"rate({metric}[{options.span(RATE)}])"
    return Record(f"slo_class:{metric}:rate5m", f"sum {by((*CLASS, label))} ({rate})")

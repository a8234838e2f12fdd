"""Alerts on what binds: memory, queues, compute, bandwidth, bursts and heat.

Tickets, not pages: what users feel pages by the budget, and says which of these it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.rules.advice import FIRST
from analyzer.rules.constraint import share_name
from analyzer.rules.engines import PREEMPTED
from analyzer.rules.rule import MODEL, SITE, TARGET, Alert, Options, Severity, by
from analyzer.rules.texts import EVIDENCE, plain

MINUTE = 60.0
HALF_HOUR = 1800.0
EXHAUSTED_WITHIN = 300.0
PREEMPTIONS_PER_REQUEST = 0.2
THROTTLED = 0.1
WHO = (
    "{{ $labels.model }} on {{ $labels.target }}"
    "{{ with $labels.pod }} ({{ . }}){{ end }}"
)


def alerts(options: Options) -> Iterator[Alert]:
    """Yields them, target by target first."""
    yield Alert(
        name="GoodputKvCacheExhaustion",
        expr=f"min {by((*TARGET, 'model', 'rank'))} "
        "(goodput_kv_cache_exhaustion_seconds) "
        f"< {options.scaled(EXHAUSTED_WITHIN):g}",
        severity=Severity.WARNING,
        hold=options.span(MINUTE),
        labels={"constraint": "memory"},
        annotations=plain(
            options,
            f"{WHO}: the KV cache is full in {{{{ $value | humanizeDuration }}}}",
            f"{EVIDENCE}.\n{FIRST['kv_capacity']}",
            "kv_capacity",
        ),
    )
    yield Alert(
        name="GoodputPreemptionThrash",
        expr=f"{PREEMPTED} > {PREEMPTIONS_PER_REQUEST:g}\n"
        "and target:goodput_preemptions:rate5m * "
        f"{options.scaled(300.0):g} >= {options.minimum_events}",
        severity=Severity.WARNING,
        hold=options.span(5 * MINUTE),
        labels={"constraint": "memory"},
        annotations=plain(
            options,
            f'{WHO}: {{{{ $value | printf "%.1f" }}}} preemptions a finished request',
            f"Preempted requests compute their prompt again. {EVIDENCE}.\n"
            f"{FIRST['kv_capacity']}",
            "kv_capacity",
        ),
    )
    yield from _shares(options)
    gpu = (*SITE, "instance", "uuid", "gpu_instance", "reason")
    held = 'goodput_gpu_throttled_seconds_total{reason=~"thermal|hardware"}'
    yield Alert(
        name="GoodputGpuThrottled",
        expr=f"max {by(gpu)} (rate({held}[{options.span(600.0)}])) > {THROTTLED:g}",
        severity=Severity.WARNING,
        hold=options.span(5 * MINUTE),
        labels={"constraint": "fault"},
        annotations=plain(
            options,
            "GPU {{ $labels.uuid }}: clocks held down by {{ $labels.reason }} for "
            "{{ $value | humanizePercentage }} of the time",
            FIRST["throttled"],
            "throttled",
        ),
    )


def _shares(options: Options) -> Iterator[Alert]:
    """Yields an alert for each cause that takes much of half an hour."""
    rows = (
        ("GoodputKvCacheBound", "memory", "kv_capacity", 0.5, Severity.WARNING),
        ("GoodputBandwidthBound", "memory", "hbm_bandwidth", 0.5, Severity.INFO),
        ("GoodputComputeSaturated", "compute", "prefill", 0.5, Severity.WARNING),
        ("GoodputDecodeSaturated", "compute", "decode", 0.5, Severity.WARNING),
        ("GoodputQueueingWithRoom", "queueing", "", 0.5, Severity.WARNING),
        ("GoodputCommunicationBound", "communication", "", 0.5, Severity.WARNING),
        ("GoodputBurstyTraffic", "traffic", "burst", 0.3, Severity.INFO),
    )
    for name, family, cause, share, severity in rows:
        chosen = f'family="{family}"' + (f',cause="{cause}"' if cause else "")
        labels = (*MODEL, "family", "cause")
        expr = f"max {by(labels)} ({share_name(HALF_HOUR)}{{{chosen}}}) > {share:g}"
        yield Alert(
            name=name,
            expr=expr,
            severity=severity,
            hold=options.span(10 * MINUTE),
            labels={"constraint": family},
            annotations=plain(
                options,
                "{{ $labels.model }}: {{ $labels.family }}"
                "{{ with $labels.cause }}/{{ . }}{{ end }} for "
                "{{ $value | humanizePercentage }} of half an hour",
                f"{EVIDENCE}.\n{_first(cause)}",
                cause or '{{ or $labels.cause "unknown" }}',
            ),
        )


def _first(cause: str) -> str:
    return FIRST[cause] if cause else "The runbook says what to change first."

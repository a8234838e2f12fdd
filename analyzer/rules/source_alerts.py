"""Alerts on what we watch by: GPU exporters and request logs.

A source that is gone looks like one where all is well, so each kind has an alert that
sees a single dead one: what was there in the last hours and is not now.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.rules.requests import REQUESTS, counted, mean
from analyzer.rules.rule import GATEWAY, SITE, Alert, Options, Severity, by, on
from analyzer.rules.texts import plain

MINUTE = 60.0
HOUR = 3600.0
REMEMBERED = 6 * HOUR
STALE_SECONDS = 300.0
UNEVALUABLE = 0.33  # some clients do not stream; a third is a log that lacks something


def alerts(options: Options) -> Iterator[Alert]:
    """Yields them: silence first, then what cannot be told or read."""
    yield from _silent(options)
    yield from _untold(options)
    yield from _lines(options)


def _silent(options: Options) -> Iterator[Alert]:
    target = by((*SITE, "job", "instance", "target"))
    success = 'goodput_target_last_success_timestamp_seconds{kind="gpu"}'
    yield Alert(
        name="GoodputGpuSourceStale",
        expr=f"time() - max {target} ({success}) > {STALE_SECONDS:g}\n"
        f'or max {target} (goodput_target_up{{kind="gpu"}} unless {success}) == 0\n'
        "or max by (cluster, namespace, job, instance, uuid) "
        f"(goodput_gpu_data_age_seconds) > {STALE_SECONDS:g}",
        severity=Severity.WARNING,
        hold=options.span(5 * MINUTE),
        annotations=plain(
            options,
            "{{ or $labels.uuid $labels.target }}: "
            "{{ if $value }}GPU figures are {{ $value | humanizeDuration }} old"
            "{{ else }}no GPU figures since the exporter started{{ end }}",
            "Verdicts between compute and bandwidth lack their evidence.",
            "gpu_source",
        ),
    )
    model = ("cluster", "model")
    counted = f"sum {by(model)} ({REQUESTS})"
    before = f"max {by(model)} (max_over_time({REQUESTS}[{options.span(REMEMBERED)}]))"
    yield Alert(
        name="GoodputGatewaySilent",
        expr=f"sum {by(model)} (model:goodput_finished_requests:rate5m) > 0\n"
        f"and {on(model)} {before} > 0\n"
        f"unless {on(model)} {counted} > 0",
        severity=Severity.WARNING,
        hold=options.span(10 * MINUTE),
        annotations=plain(
            options,
            "{{ $labels.model }}: engines finish requests and no log counts any",
            "Exact goodput stands still; alerts rest on the engines' bounds.",
            "gateway_source",
        ),
    )


def _untold(options: Options) -> Iterator[Alert]:
    yield Alert(
        name="GoodputCoverageBad",
        expr="avg by (cluster, namespace, job, instance, model) "
        "(goodput_source_coverage_ratio < 0.9 or goodput_source_coverage_ratio > 1.1)",
        severity=Severity.WARNING,
        hold=options.span(30 * MINUTE),
        annotations=plain(
            options,
            "{{ $labels.model }}: logs count {{ $value | humanizePercentage }} of what "
            "engines finish",
            "Below: traffic goes around the gateway, or lines are lost. Above: two "
            "hops log the same requests, and one needs `counts: false`.",
            "coverage",
        ),
    )
    unknown = mean("slo_class:goodput_unevaluable_requests:rate5m", HOUR, options)
    every = mean(REQUESTS, HOUR, options)
    yield Alert(
        name="GoodputUnevaluable",
        expr=f"{unknown} / ({every} > 0) > {UNEVALUABLE:g}\n"
        f"and {counted(REQUESTS, HOUR, options)} >= {options.minimum_events}",
        severity=Severity.WARNING,
        hold=options.span(15 * MINUTE),
        annotations=plain(
            options,
            "{{ $labels.model }} {{ $labels.slo_class }}: "
            "{{ $value | humanizePercentage }} of requests cannot be judged",
            "They count neither as good nor as bad; the log lacks what a criterion "
            "needs.",
            "coverage",
        ),
    )


def _lines(options: Options) -> Iterator[Alert]:
    span = options.span(15 * MINUTE)
    failures = 'goodput_log_parse_failures_total{reason!="stderr"}'
    yield Alert(
        name="GoodputLogUnreadable",
        expr=f"sum {by(GATEWAY)} (rate({failures}[{span}]))\n"
        f"/ (sum {by(GATEWAY)} (rate(goodput_log_lines_total[{span}])) > 0) > 0.01",
        severity=Severity.WARNING,
        hold=options.span(15 * MINUTE),
        annotations=plain(
            options,
            "{{ $labels.gateway }}: {{ $value | humanizePercentage }} of lines cannot "
            "be read",
            "Has the log's format changed? goodput check --live shows a line.",
            "log_unreadable",
        ),
    )
    yield Alert(
        name="GoodputLogLinesLost",
        expr=f"sum {by((*GATEWAY, 'reason'))} "
        f"(increase(goodput_log_losses_total[{span}])) > 0",
        severity=Severity.INFO,
        annotations=plain(
            options,
            "{{ $labels.gateway }}: lines were lost ({{ $labels.reason }})",
            "Counts of this time are too small.",
            "log_unreadable",
        ),
    )

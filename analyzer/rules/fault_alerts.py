"""Alerts on faults: of engines, of the sources we watch by, and of ourselves.

A source that is gone looks like one where all is well, so each kind has an alert that
sees a single dead pool: what was there in the last hours and is not now.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.rules.requests import REQUESTS, mean
from analyzer.rules.rule import (
    GATEWAY,
    MODEL,
    SITE,
    TARGET,
    Alert,
    Options,
    Record,
    Severity,
    by,
    on,
)
from analyzer.rules.texts import plain

MINUTE = 60.0
HOUR = 3600.0
REMEMBERED = 6 * HOUR
STALE_SECONDS = 300.0
UNEVALUABLE = 0.33  # some clients do not stream; a third is a log that lacks something
JOB = (*SITE, "job")
EXPORTERS = "job:goodput_exporters:count"
RUNNING = "model:goodput_running_requests:sum"
INSTANCE = (*SITE, "job", "instance")
WHO = "{{ $labels.target }}{{ with $labels.pod }} ({{ . }}){{ end }}"


def recordings() -> list[Record]:
    """Returns what the alerts remember of the last hours."""
    return [Record(EXPORTERS, f"count {by(JOB)} (goodput_build_info)")]


def alerts(options: Options) -> Iterator[Alert]:
    """Yields them: engines, sources, then the exporter."""
    yield from _engines(options)
    yield from _sources(options)
    yield from _exporter(options)


def _engines(options: Options) -> Iterator[Alert]:
    state = "goodput_engine_state"
    for name, value, severity, hold, text in (
        (
            "GoodputEngineDown",
            "down",
            Severity.WARNING,
            2 * MINUTE,
            "the engine does not answer",
        ),
        (
            "GoodputEngineStalled",
            "stalled",
            Severity.CRITICAL,
            MINUTE,
            "the engine has requests and makes no progress",
        ),
        (
            "GoodputEngineStatsDisabled",
            "stats_disabled",
            Severity.WARNING,
            5 * MINUTE,
            "the engine tells nothing: its statistics are disabled",
        ),
    ):
        yield Alert(
            name=name,
            expr=f'max {by(TARGET)} ({state}{{state="{value}"}}) == 1',
            severity=severity,
            hold=options.span(hold),
            labels={"constraint": "fault"},
            annotations=plain(
                options,
                f"{WHO}: {text}",
                "A start within its grace period and a drain are not counted.",
                value,
            ),
        )
    gone = f'sum {by(JOB)} ({state}{{state=~"down|stalled"}})'
    every = f'count {by(JOB)} ({state}{{state="down"}})'
    yield Alert(
        name="GoodputEnginesDown",
        expr=f"{gone} / {every} > 0.5",
        severity=Severity.CRITICAL,
        hold=options.span(2 * MINUTE),
        labels={"constraint": "fault"},
        annotations=plain(
            options,
            "{{ $labels.namespace }} {{ $labels.job }}: {{ $value | humanizePercentage "
            "}} of the engines are down or stalled",
            "See the events of the namespace first: what do they have in common?",
            "down",
        ),
    )
    yield Alert(
        name="GoodputModelUnserved",
        expr=f"group {by(MODEL)} (max_over_time({RUNNING}[{options.span(REMEMBERED)}]))"
        f"\nunless {on(MODEL)} {RUNNING}",
        severity=Severity.WARNING,
        hold=options.span(5 * MINUTE),
        labels={"constraint": "fault"},
        annotations=plain(
            options,
            "{{ $labels.model }}: no engine is seen that serves it, as one was",
            "Scaled to zero on purpose, or gone? It is forgotten after six hours.",
            "down",
        ),
    )


def _sources(options: Options) -> Iterator[Alert]:
    yield Alert(
        name="GoodputGpuSourceStale",
        expr="time() - max by (cluster, namespace, job, instance, target) "
        '(goodput_target_last_success_timestamp_seconds{kind="gpu"}) '
        f"> {STALE_SECONDS:g}\n"
        "or max by (cluster, namespace, job, instance, uuid) "
        f"(goodput_gpu_data_age_seconds) > {STALE_SECONDS:g}",
        severity=Severity.WARNING,
        hold=options.span(5 * MINUTE),
        annotations=plain(
            options,
            "{{ or $labels.uuid $labels.target }}: GPU figures are "
            "{{ $value | humanizeDuration }} old",
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
        f"and {every} * {options.scaled(HOUR):g} >= {options.minimum_events}",
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
    yield Alert(
        name="GoodputDiscoveryFailing",
        expr=f"sum {by((*INSTANCE, 'entry', 'reason'))} "
        f"(rate(goodput_discovery_failures_total[{options.span(10 * MINUTE)}])) > 0",
        severity=Severity.WARNING,
        hold=options.span(15 * MINUTE),
        annotations=plain(
            options,
            "{{ $labels.entry }}: targets cannot be found ({{ $labels.reason }})",
            "Those found before stay; new ones are not watched.",
            "exporter",
        ),
    )
    yield Alert(
        name="GoodputTargetBalanced",
        expr=f"sum {by((*TARGET, 'kind'))} (increase(goodput_target_resets_total"
        f'{{reset="other_process"}}[{span}])) > 3',
        severity=Severity.WARNING,
        annotations=plain(
            options,
            f"{WHO}: several processes answer at one address",
            "A load balancer in between: nothing can be counted. Scrape pods.",
            "exporter",
        ),
    )


def _exporter(options: Options) -> Iterator[Alert]:
    known = f"max_over_time(goodput_build_info[{options.span(HOUR)}])"
    yield Alert(
        name="GoodputExporterDown",
        expr=f"up == 0\nand {on(INSTANCE)} group {by(INSTANCE)} ({known})",
        severity=Severity.WARNING,
        hold=options.span(5 * MINUTE),
        annotations=plain(
            options,
            "{{ $labels.instance }}: goodput-exporter does not answer",
            "Its engines and logs are not watched.",
            "exporter",
        ),
    )
    yield Alert(
        name="GoodputExporterAbsent",
        expr=f"group {by(JOB)} (max_over_time({EXPORTERS}[{options.span(REMEMBERED)}]))"
        f"\nunless {on(JOB)} {EXPORTERS}",
        severity=Severity.WARNING,
        hold=options.span(5 * MINUTE),
        annotations=plain(
            options,
            "{{ $labels.namespace }} {{ $labels.job }}: no goodput-exporter is left",
            "No alert of this pool can fire. It is forgotten after six hours.",
            "exporter",
        ),
    )
    missed = f"rate(goodput_sampler_missed_cycles_total[{options.span(5 * MINUTE)}])"
    for name, expr, hold, text, more in (
        (
            "GoodputSamplerStuck",
            f"sum {by(INSTANCE)} ({missed}) > 0.05",
            10 * MINUTE,
            "the sampler misses its cycles",
            "Figures are old while the page still answers: see its log.",
        ),
        (
            "GoodputStateNotWritten",
            f"max {by(INSTANCE)} (goodput_state_last_write_successful) == 0",
            5 * MINUTE,
            "counters cannot be written to the storage path",
            "A restart would lose them: disk full, or not writable?",
        ),
        (
            "GoodputReloadFailed",
            f"max {by(INSTANCE)} (goodput_config_last_reload_successful) == 0",
            5 * MINUTE,
            "the configuration was not taken over",
            "The one before is in use; goodput check names the fault.",
        ),
    ):
        yield Alert(
            name=name,
            expr=expr,
            severity=Severity.WARNING,
            hold=options.span(hold),
            annotations=plain(
                options, f"{{{{ $labels.instance }}}}: {text}", more, "exporter"
            ),
        )
    yield Alert(
        name="GoodputLabelsDropped",
        expr=f"sum {by((*INSTANCE, 'label'))} "
        f"(increase(goodput_label_values_dropped_total[{options.span(HOUR)}])) > 0",
        severity=Severity.INFO,
        annotations=plain(
            options,
            "{{ $labels.instance }}: values of {{ $labels.label }} count under other",
            "Raise `limits` if they deserve their own series.",
            "exporter",
        ),
    )

"""Alerts on the exporter itself, and on how it finds and reaches its targets."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.rules.engine_alerts import JOB, REMEMBERED, WHO
from analyzer.rules.rule import SITE, TARGET, Alert, Options, Record, Severity, by, on
from analyzer.rules.texts import plain

MINUTE = 60.0
HOUR = 3600.0
EXPORTERS = "job:goodput_exporters:count"
INSTANCE = (*SITE, "job", "instance")


def recordings() -> list[Record]:
    """Returns what the alerts remember of the last hours."""
    return [Record(EXPORTERS, f"count {by(JOB)} (goodput_build_info)")]


def alerts(options: Options) -> Iterator[Alert]:
    """Yields them: is it there, is it well, and does it reach what it watches."""
    yield from _there(options)
    yield from _well(options)
    yield from _reaching(options)


def _there(options: Options) -> Iterator[Alert]:
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


def _well(options: Options) -> Iterator[Alert]:
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


def _reaching(options: Options) -> Iterator[Alert]:
    span = options.span(15 * MINUTE)
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

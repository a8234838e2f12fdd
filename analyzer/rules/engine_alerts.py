"""Alerts on engines: one that is down, hangs or tells nothing, and pools of them."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.rules.rule import MODEL, SITE, TARGET, Alert, Options, Severity, by, on
from analyzer.rules.texts import plain

MINUTE = 60.0
REMEMBERED = 6 * 3600.0
JOB = (*SITE, "job")
STATE = "goodput_engine_state"
RUNNING = "model:goodput_running_requests:sum"
WHO = "{{ $labels.target }}{{ with $labels.pod }} ({{ . }}){{ end }}"
_FAULT = {"constraint": "fault"}
# Alert, state, severity, how long, and what to say.
_STATES = (
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
)


def alerts(options: Options) -> Iterator[Alert]:
    """Yields them, those of single engines first."""
    for name, state, severity, hold, text in _STATES:
        yield Alert(
            name=name,
            expr=f'max {by(TARGET)} ({STATE}{{state="{state}"}}) == 1',
            severity=severity,
            hold=options.span(hold),
            labels=_FAULT,
            annotations=plain(
                options,
                f"{WHO}: {text}",
                "A start within its grace period and a drain are not counted.",
                state,
            ),
        )
    gone = f'sum {by(JOB)} ({STATE}{{state=~"down|stalled"}})'
    every = f'count {by(JOB)} ({STATE}{{state="down"}})'
    yield Alert(
        name="GoodputEnginesDown",
        expr=f"{gone} / {every} > 0.5",
        severity=Severity.CRITICAL,
        hold=options.span(2 * MINUTE),
        labels=_FAULT,
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
        labels=_FAULT,
        annotations=plain(
            options,
            "{{ $labels.model }}: no engine is seen that serves it, as one was",
            "Scaled to zero on purpose, gone, or is its exporter away? It is forgotten "
            "after six hours.",
            "down",
        ),
    )

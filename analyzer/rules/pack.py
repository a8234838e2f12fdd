"""All rules of a configuration, in the groups that Prometheus evaluates."""

from __future__ import annotations

from collections.abc import Iterable

from analyzer.rules import (
    bounds,
    budget,
    capacity_alerts,
    class_alerts,
    constraint,
    engine_alerts,
    engines,
    exporter_alerts,
    latency,
    limits,
    requests,
    slo_alerts,
    source_alerts,
)
from analyzer.rules.burn import burn_rows, refusal
from analyzer.rules.limits import percentile_limits, stage_limits
from analyzer.rules.rule import (
    INTERVAL,
    SLOW_INTERVAL,
    Alert,
    Group,
    Options,
    Record,
)
from analyzer.slo import SloClass

DETAILS_INTERVAL = 60.0
HOUR = 3600.0
GROUP_BYTES = 100_000  # of alerts, so that a group fits a resource of Kubernetes


def rule_groups(classes: tuple[SloClass, ...], options: Options) -> tuple[Group, ...]:
    """Returns the groups of rules for *classes*; recordings stand before their use."""
    windows = {requests.RATE, HOUR}
    for slo_class in classes:
        for row in burn_rows(slo_class):
            windows |= {row.long, row.short}
    ordered = sorted(windows)
    wanted = [
        limit
        for slo_class in classes
        for limit in (*percentile_limits(slo_class), *stage_limits(slo_class))
    ]

    judged_by_engines = any(c.percentiles and c.match.model_only for c in classes)

    def group(
        name: str, rules: Iterable[Record | Alert], every: float = INTERVAL
    ) -> Group:
        return Group(f"goodput-{name}", options.span(every), tuple(rules))

    verdicts = sorted(slo_alerts.VERDICT_WINDOWS.values())
    slo_rules: list[Record | Alert] = [
        *requests.rates(options),
        *requests.windowed(ordered, options),
        *bounds.rates(options),
        *bounds.windowed(ordered, options),
        *(bounds.percentiles(options) if judged_by_engines else ()),
        *limits.recordings(wanted, options),
        *engines.recordings(options),
        *constraint.rates(options),
        *constraint.leading(),
        *constraint.windowed(verdicts, options),
    ]
    first, *others = _shared_out(
        [tuple(slo_alerts.alerts(slo_class, options)) for slo_class in classes]
    )
    return (
        group("slo", [*slo_rules, *first]),
        *(group(f"slo-{number}", part) for number, part in enumerate(others, 2)),
        group(
            "budget",
            [
                *requests.half_hours(
                    (requests.GOOD, requests.BAD, *bounds.RATES), options
                ),
                *budget.recordings(classes, options),
            ],
            SLOW_INTERVAL,
        ),
        group("capacity", capacity_alerts.alerts(options)),
        # Many series, and no alert waits for them.
        *(
            group(f"details-{c}", [latency.buckets(c, options)], DETAILS_INTERVAL)
            for c in latency.CRITERIA
        ),
        group(
            "details",
            [*requests.details(options), *latency.recordings(options)],
            DETAILS_INTERVAL,
        ),
        group(
            "faults",
            [
                *exporter_alerts.recordings(),
                *engine_alerts.alerts(options),
                *source_alerts.alerts(options),
                *exporter_alerts.alerts(options),
                *class_alerts.alerts(classes, options),
            ],
        ),
    )


def _shared_out(of_classes: Iterable[tuple[Alert, ...]]) -> list[list[Alert]]:
    """Returns the alerts of all classes in as many groups as their texts need.

    Where few classes are, that is one, which is evaluated with its recordings.
    """
    parts: list[list[Alert]] = [[]]
    size = 0
    for alerts in of_classes:
        texts = sum(
            len(text)
            for alert in alerts
            for text in (alert.expr, alert.comment, *alert.annotations.values())
        )
        if parts[-1] and size + texts > GROUP_BYTES:
            parts.append([])
            size = 0
        parts[-1].extend(alerts)
        size += texts
    return parts


def warnings(classes: tuple[SloClass, ...]) -> list[str]:
    """Returns what a site should know about the rules of its classes."""
    found = []
    for slo_class in classes:
        found += [refusal(slo_class), budget.retention_warning(slo_class)]
    return [text for text in found if text]

"""An alert on rules that do not fit the classes of the exporters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from analyzer.rules.rule import SITE, Alert, Options, Severity, by, regex
from analyzer.rules.texts import plain
from analyzer.slo import SloClass

OBJECTIVE = "goodput_slo_objective_ratio"
PERCENTILE = "goodput_slo_percentile_threshold_seconds"
STAGE = "goodput_slo_stage_budget_seconds"


def alerts(classes: Sequence[SloClass], options: Options) -> Iterator[Alert]:
    """Yields it.

    A class without rules never alerts; one whose factors were made for another
    objective does so too late or never, and one of another limit tells a wrong one.
    """
    differing = "\n  or ".join(
        (
            _unknown(OBJECTIVE, ((c.name, "", c.objective) for c in classes)),
            _unknown(
                PERCENTILE,
                (
                    (c.name, f',criterion="{criterion}",percentile="{level}"', seconds)
                    for c in classes
                    for (criterion, level), seconds in c.percentiles.items()
                ),
            ),
            _unknown(
                STAGE,
                (
                    (c.name, f',stage="{stage}"', seconds)
                    for c in classes
                    for stage, seconds in c.stages.items()
                ),
            ),
        )
    )
    exporters = by((*SITE, "job", "instance", "slo_class"))
    yield Alert(
        name="GoodputRulesOutdated",
        expr=f"count {by((*SITE, 'job', 'slo_class'))} (group {exporters} (\n"
        f"  {differing}\n))",
        severity=Severity.WARNING,
        hold=options.span(1800.0),
        annotations=plain(
            options,
            "{{ $labels.slo_class }}: the rules were made for other classes than "
            "{{ $value }} exporters of {{ $labels.job }} have",
            "Its alerts come too late, never, or with a wrong limit. Write the rules "
            "anew from the exporters' configuration: goodput rules.",
            "rules_outdated",
        ),
        comment="By the objectives and limits that exporters publish.",
    )


def _unknown(metric: str, known: Iterable[tuple[str, str, float]]) -> str:
    """Returns the series of *metric* but those of a class, matchers and value known."""
    alike: dict[tuple[str, float], list[str]] = {}
    for name, matchers, value in known:
        alike.setdefault((matchers, value), []).append(name)
    same = "\n    or ".join(
        f'{metric}{{slo_class=~"{regex(tuple(names))}"{matchers}}} == {value!r}'
        for (matchers, value), names in alike.items()
    )
    return f"({metric} unless (\n    {same}\n  ))" if same else metric

"""An alert on rules that do not fit the classes of the exporters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzer.rules.rule import SITE, Alert, Options, Severity, by, regex
from analyzer.rules.texts import plain
from analyzer.slo import SloClass

OBJECTIVE = "goodput_slo_objective_ratio"


def alerts(classes: Sequence[SloClass], options: Options) -> Iterator[Alert]:
    """Yields it.

    A class without rules never alerts; one whose factors were made for another
    objective does so too late or never.
    """
    other = [
        f'{OBJECTIVE}{{slo_class=~"{regex(names)}"}} != {objective!r}'
        for objective, names in _by_objective(classes).items()
    ]
    known = regex(tuple(slo_class.name for slo_class in classes))
    differing = "\n  or ".join([*other, f'{OBJECTIVE}{{slo_class!~"{known}"}}'])
    yield Alert(
        name="GoodputRulesOutdated",
        expr=f"count {by((*SITE, 'job', 'slo_class'))} (\n  {differing}\n)",
        severity=Severity.WARNING,
        hold=options.span(1800.0),
        annotations=plain(
            options,
            "{{ $labels.slo_class }}: the rules were made for other classes than "
            "{{ $value }} exporters of {{ $labels.job }} have",
            "Its alerts come too late or never. Write the rules anew from the "
            "exporters' configuration: goodput rules.",
            "rules_outdated",
        ),
        comment="By the objectives that exporters publish.",
    )


def _by_objective(classes: Sequence[SloClass]) -> dict[float, tuple[str, ...]]:
    found: dict[float, tuple[str, ...]] = {}
    for slo_class in classes:
        alike = found.get(slo_class.objective, ())
        found[slo_class.objective] = (*alike, slo_class.name)
    return found

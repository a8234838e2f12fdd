"""Alerts on what users feel: the budget's burn, percentiles and stages, class by class.

They say what binds in their annotations. The label `constraint`, for routing, is that
of a long window; see `analyzer.rules.constraint`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzer.rules import bounds, budget, requests
from analyzer.rules.burn import BurnRow, burn_rows, refusal
from analyzer.rules.constraint import verdict_name
from analyzer.rules.limits import WINDOW, Limit, percentile_limits, stage_limits
from analyzer.rules.requests import BAD, GOOD, RATE, REQUESTS, counted, mean
from analyzer.rules.rule import (
    CLASS,
    MODEL,
    Alert,
    Options,
    Severity,
    by,
    duration,
    newest,
    on,
)
from analyzer.rules.texts import MISSED, link, looked_up, plain, with_cause
from analyzer.slo import SloClass
from analyzer.strict import format_duration

HOUR = 3600.0
DAY = 86400.0
# The window of the verdict that an alert is routed by.
VERDICT_WINDOWS = {Severity.CRITICAL: 1800.0, Severity.WARNING: 6 * HOUR}
MISSES_WANTED = 5  # requests past a percentile's limit, or it is chance
WHO = "{{ $labels.model }} {{ $labels.slo_class }}"
CLASS_AT = "cluster=%q,namespace=%q,model=%q,slo_class=%q"
CLASS_PLACE = "$labels.cluster $labels.namespace $labels.model $labels.slo_class"


def alerts(slo_class: SloClass, options: Options) -> Iterator[Alert]:
    """Yields the alerts of one class."""
    yield from _burn(slo_class, options)
    yield from _bounds(slo_class, options)
    yield from _budget(slo_class, options)
    percentiles = percentile_limits(slo_class)
    for limit in (*percentiles, *stage_limits(slo_class)):
        yield _limit(limit, slo_class, options)
    if slo_class.match.model_only:
        for limit, of in zip(percentiles, slo_class.percentiles, strict=True):
            if of[0] in bounds.MEASURED:
                yield _percentile_bound(limit, of, slo_class, options)


def _routed(expr: str, severity: Severity) -> str:
    """Returns *expr* with the label `constraint`, whose rule never lacks a model."""
    verdict = newest(verdict_name(VERDICT_WINDOWS[severity]), MODEL)
    return f"(\n{expr}\n)\n* {on(MODEL)} group_left (constraint) {verdict}"


def _by_severity(
    slo_class: SloClass,
) -> Iterator[tuple[Severity, Sequence[BurnRow], str]]:
    for severity in (Severity.CRITICAL, Severity.WARNING):
        rows = [row for row in burn_rows(slo_class) if row.severity is severity]
        if rows:
            text = "\n".join(row.derivation(slo_class) for row in rows)
            yield severity, rows, text


def _number(value: float) -> str:
    return f"{value:.6g}"


def _share(value: float) -> str:
    """Returns a share near 1 with all its nines: 0.99999 is not 1."""
    return f"{value:.12g}"


def _all_but(value: float) -> str:
    return _share(1 - float(_number(value)))


def _burn(slo_class: SloClass, options: Options) -> Iterator[Alert]:
    chosen = f'{{slo_class="{slo_class.name}"}}'
    objective, window = _share(slo_class.objective), slo_class.window_seconds
    for severity, rows, derivation in _by_severity(slo_class):
        pairs = []
        for row in rows:
            factor = _number(row.factor)
            judged = " + ".join(
                counted(record, row.short, options, chosen) for record in (GOOD, BAD)
            )
            failed = counted(BAD, row.long, options, chosen)
            pairs.append(
                f"  {requests.burn_name(row.long)}{chosen} > {factor}\n"
                f"  and {requests.burn_name(row.short)}{chosen} > {factor}\n"
                f"  and {judged} >= {options.minimum_events}\n"
                f"  and {failed} >= {options.minimum_failures}"
            )
        left = looked_up(
            f"{budget.left_name(window)}{{{CLASS_AT}}}",
            "humanizePercentage",
            arguments=CLASS_PLACE,
        )
        covered = looked_up(
            f"{budget.covered_name(window)}{{{CLASS_AT}}}",
            "humanizeDuration",
            arguments=CLASS_PLACE,
        )
        good = looked_up(
            f"{requests.ratio_name(RATE)}{{{CLASS_AT}}}",
            "humanizePercentage",
            arguments=CLASS_PLACE,
        )
        yield Alert(
            name="GoodputBudgetBurn",
            expr=_routed("\nor\n".join(pairs), severity),
            severity=severity,
            labels={"slo_class": slo_class.name, "slo": "goodput"},
            annotations=with_cause(
                options,
                f'{WHO}: the error budget burns {{{{ $value | printf "%.1f" }}}} '
                "times too fast",
                f"Good requests in the last 5 minutes: {good}; the objective is "
                f"{objective}.\n"
                f"Budget left of {duration(window)}: {left} ({covered} recorded).\n"
                f"{MISSED}",
            ),
            comment="\n".join(filter(None, (derivation, refusal(slo_class)))),
        )


def _bounds(slo_class: SloClass, options: Options) -> Iterator[Alert]:
    """Yields what can be said without a request log.

    A page when even the largest possible share of good requests is too small, a
    ticket when the smallest possible one is: it may be that nothing is wrong.
    """
    if not slo_class.match.model_only:
        return
    for severity, rows, derivation in _by_severity(slo_class):
        page = severity is Severity.CRITICAL
        lower, upper = (
            looked_up(
                f"{bound(HOUR)}{{{CLASS_AT}}}",
                "humanizePercentage",
                arguments=CLASS_PLACE,
            )
            for bound in (bounds.lower_name, bounds.upper_name)
        )
        summary = (
            f"{WHO}: at most {{{{ $value | humanizePercentage }}}} of requests are good"
            if page
            else f"{WHO}: as few as {{{{ $value | humanizePercentage }}}} of requests "
            "may be good"
        )
        yield Alert(
            name="GoodputBoundBurn" if page else "GoodputBoundUncertain",
            expr=_routed(_beyond_bound(slo_class, rows, options), severity),
            severity=severity,
            labels={"slo_class": slo_class.name, "slo": "goodput_bound"},
            annotations={
                **with_cause(
                    options,
                    summary,
                    f"No request log: from the engine's histograms between {lower} and "
                    f"{upper} were good in the last hour; the objective is "
                    f"{_share(slo_class.objective)}.\n"
                    "A request log, or buckets at the thresholds (goodput check --live "
                    "prints the flag), would tell exactly.",
                ),
                **({} if page else {"runbook_url": link("bounds", options)}),
            },
            comment=f"No exact source in the last hour. {derivation}",
        )


def _beyond_bound(
    slo_class: SloClass, rows: Sequence[BurnRow], options: Options
) -> str:
    """Returns where a bound is too small and no log tells exactly."""
    chosen = f'{{slo_class="{slo_class.name}"}}'
    page = rows[0].severity is Severity.CRITICAL
    name = bounds.upper_name if page else bounds.lower_name
    good = bounds.POSSIBLE if page else bounds.CERTAIN
    pairs = []
    for row in rows:
        least = _all_but(row.bad_share)
        events = counted(bounds.EVENTS, row.short, options, chosen)
        events = f"{'max' if page else 'min'} {by(CLASS)} ({events})"
        every, met = (
            counted(record, row.long, options, chosen)
            for record in (bounds.EVENTS, good)
        )
        pairs.append(
            f"  {name(row.long)}{chosen} < {least}\n"
            f"  and {name(row.short)}{chosen} < {least}\n"
            f"  and {events} >= {options.minimum_events}\n"
            f"  and max {by(CLASS)} ({every} - {met}) >= {options.minimum_failures}"
        )
    pairs_or = "\nor\n".join(pairs)
    return f"(\n{pairs_or}\n)\n{_unless_exact(REQUESTS, slo_class, options)}"


def _unless_exact(record: str, slo_class: SloClass, options: Options) -> str:
    """Returns the clauses that leave a class to a log, of which *record* is a rate."""
    chosen = f'{{slo_class="{slo_class.name}"}}'
    exact = f"({mean(record, HOUR, options, chosen)} > 0)"
    # A log of another namespace counts only when that has no engines of its own.
    engines = f"{on(MODEL)} {mean(bounds.EVENTS, HOUR, options)}"
    return (
        f"unless {on(CLASS)} {exact}\n"
        f"unless {on(('cluster', 'model', 'slo_class'))} ({exact} unless {engines})"
    )


def _budget(slo_class: SloClass, options: Options) -> Iterator[Alert]:
    window = slo_class.window_seconds
    chosen = f'{{slo_class="{slo_class.name}"}}'
    left, covered = budget.left_name(window), budget.covered_name(window)
    yield Alert(
        name="GoodputBudgetSpent",
        expr=f"{left}{chosen} < 0\nand {covered}{chosen} >= {_number(window / 4)}\n"
        f"and count_over_time({GOOD}{chosen}[{options.span(6 * HOUR)}])",
        severity=Severity.WARNING,
        hold=options.span(HOUR),
        labels={"slo_class": slo_class.name, "slo": "goodput"},
        annotations=with_cause(
            options,
            f"{WHO}: the error budget of {duration(window)} is spent",
            "{{ $value | humanizePercentage }} of it is left: hold risky changes "
            "until it recovers.\n" + MISSED,
        ),
        comment="A quarter of the window must be recorded, and some of it lately.",
    )
    grown = f"({covered}{chosen} - {covered}{chosen} offset {options.span(DAY)})"
    latest = budget.covered(DAY, options, chosen)
    oldest = budget.covered(DAY, options, chosen, before=0.9 * window)
    yield Alert(
        name="GoodputBudgetHistoryShort",
        expr=f"{covered}{chosen} < {_number(0.9 * window)}\n"
        f"and {latest} - {grown} > {_number(0.1 * DAY)}\n"
        f"unless {oldest}",
        severity=Severity.INFO,
        hold=options.span(HOUR),
        labels={"slo_class": slo_class.name},
        annotations=plain(
            options,
            f"{WHO}: the budget of {duration(window)} rests on "
            "{{ $value | humanizeDuration }} only",
            "What is recorded no longer grows: Prometheus deletes it sooner. Set "
            f"--storage.tsdb.retention.time={duration(window)} or more.",
            "budget_history",
        ),
        comment="It grows by what is recorded until it is whole, unless it is deleted.",
    )


def _limit(limit: Limit, slo_class: SloClass, options: Options) -> Alert:
    chosen = f'{{slo_class="{limit.slo_class}"}}'
    wanted = MISSES_WANTED / (1 - limit.share)
    count = counted(limit.events, WINDOW, options, chosen)
    seconds = format_duration(limit.seconds)
    stage = limit.matcher != ""
    quantile = (
        f"histogram_quantile({_share(limit.share)}, sum by (le) "
        f"(rate({limit.metric}_bucket{{{CLASS_AT}{limit.matcher}}}"
        f"[{options.span(WINDOW)}])))"
    )
    now = looked_up(quantile, "humanizeDuration", arguments=CLASS_PLACE)
    expr = (
        f"{limit.record}{chosen} < {_share(limit.share)}\nand {count} >= {wanted:.0f}"
    )
    what = limit.name.removesuffix("_stage") if stage else limit.name
    return Alert(
        name="GoodputStageOverBudget" if stage else "GoodputPercentileMissed",
        expr=expr,
        severity=Severity.WARNING,
        hold=options.span(900.0),
        labels={
            "slo_class": slo_class.name,
            "stage" if stage else "percentile": what,
        },
        annotations=with_cause(
            options,
            f"{WHO}: only {{{{ $value | humanizePercentage }}}} of requests within "
            f"{seconds} ({'stage ' if stage else ''}{what})",
            f"In the last hour {_share(limit.share)} of requests took up to {now}; the "
            f"limit is {seconds}.",
        ),
        comment=f"Rests on {MISSES_WANTED} requests past the limit at least.",
    )


def _percentile_bound(
    limit: Limit, of: tuple[str, str], slo_class: SloClass, options: Options
) -> Alert:
    """Returns the alert on a percentile that no reading of the engine's buckets keeps.

    It is *of* a criterion and a level. For where no request log knows that time; a
    limit between two buckets may be missed unseen.
    """
    criterion, level = of
    chosen = (
        f'{{slo_class="{slo_class.name}",criterion="{criterion}",percentile="{level}"}}'
    )
    share, seconds = _share(limit.share), format_duration(limit.seconds)
    count = counted(bounds.PERCENTILE_EVENTS, WINDOW, options, chosen)
    expr = (
        f"max {by(CLASS)} (\n"
        f"  {bounds.PERCENTILE_WITHIN}{chosen} < {share}\n"
        f"  and {count} >= {MISSES_WANTED / (1 - limit.share):.0f}\n"
        f")\n{_unless_exact(limit.events, slo_class, options)}"
    )
    return Alert(
        name="GoodputPercentileBoundMissed",
        expr=expr,
        severity=Severity.WARNING,
        hold=options.span(900.0),
        labels={"slo_class": slo_class.name, "percentile": limit.name},
        annotations=with_cause(
            options,
            f"{WHO}: at most {{{{ $value | humanizePercentage }}}} of requests within "
            f"{seconds} ({limit.name})",
            "No request log tells. By the engine's histograms no more of the last "
            f"hour's requests can have been within {seconds}; {share} should be.",
        ),
        comment="No exact source in the last hour. Rests on "
        f"{MISSES_WANTED} requests past the limit at least.",
    )

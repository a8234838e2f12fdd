"""From a summary to the tables of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from analyzer.report.constraints import (
    Constraint,
    constraint_rows,
    constraint_shares,
)
from analyzer.report.report import Report, Row, empty_tables, ratio, table
from analyzer.report.run import Part
from analyzer.report.sketch import RELATIVE_ERROR
from analyzer.report.summary import (
    COUNTERS,
    LENGTHS,
    MEASURES,
    STAGES,
    Summary,
    level_of,
)
from analyzer.report.tables_time import bin_seconds, budget, timeline_of, worst
from analyzer.report.verdicts import MISSES
from analyzer.report.workload import quantiles, workload
from analyzer.slo import CRITERIA, SloClass, Threshold

NO_TENANT = "(none)"


def report_of(
    summary: Summary,
    classes: tuple[SloClass, ...],
    *,
    parts: Sequence[Part] = (),
    constraints: Sequence[Constraint] = (),
    missing: dict[str, str] | None = None,
    beside: tuple[list[Row], list[Row]] = ([], []),
) -> Report:
    """Returns the report of what a log came to, with *constraints* beside it.

    *beside* are its operating points on a sweep's curves, and verdicts on those.
    """
    by_name = {c.name: c for c in classes}
    dated = summary.first <= summary.last
    start, end = (summary.first, summary.last) if dated else (None, None)
    seconds = summary.last - summary.first if dated else 0.0
    width = bin_seconds(seconds)
    counters = _counters(summary)
    tables = empty_tables()
    tables["goodput"] = _goodput(counters, by_name, seconds)
    tables["misses"] = _misses(counters, by_name)
    tables["reasons"] = table(
        "reasons",
        [
            dict(zip(("class", "model", "kind", "reason"), key, strict=True))
            | {"requests": number}
            for key, number in sorted(summary.reasons.items())
        ],
    )
    tables["budget"] = budget(tables["goodput"], by_name, seconds)
    tables["tenants"] = _tenants(counters)
    tables["percentiles"] = _percentiles(summary)
    tables["targets"] = _targets(summary, classes)
    tables["stages"] = _stages(summary, by_name)
    tables["timeline"], width = timeline_of(summary, width)
    tables["worst"] = worst(tables["timeline"], width, by_name, constraints)
    tables["constraints"] = table("constraints", constraint_rows(constraints))
    tables["constraint_shares"] = table(
        "constraint_shares", constraint_shares(constraints)
    )
    tables["by_prompt"] = _by_prompt(summary)
    tables["operating_points"] = table("operating_points", beside[0])
    tables["reconciliation"] = table("reconciliation", beside[1])
    tables["sources"] = table("sources", _sources(parts))
    return Report(
        start,
        end,
        tables,
        workload(summary),
        width,
        RELATIVE_ERROR,
        f"Percentiles are within {RELATIVE_ERROR:.0%} of the exact ones.",
        missing or {},
        thresholds(classes),
    )


def thresholds(classes: Sequence[SloClass]) -> dict[str, dict[str, str]]:
    """Returns what each class asks for, in words."""
    return {
        c.name: {name: limit_text(t) for name, t in c.good.items()} for c in classes
    }


def limit_text(threshold: Threshold) -> str:
    """Returns a threshold in words."""
    text = f"{threshold.seconds * 1e3:g} ms"
    if threshold.seconds >= 1:
        text = f"{threshold.seconds:g} s"
    if threshold.per_prompt_token:
        text += f" + {threshold.per_prompt_token * 1e3:g} ms a prompt token"
    return text


def _counters(summary: Summary) -> pd.DataFrame:
    rows = [
        {"class": name, "model": model, "tenant": tenant}
        | dict(zip(COUNTERS, sums.tolist(), strict=True))
        for (name, model, tenant), sums in sorted(summary.counters.items())
    ]
    return pd.DataFrame(rows, columns=["class", "model", "tenant", *COUNTERS])


def _sums(
    counters: pd.DataFrame, *keys: str
) -> Iterator[tuple[tuple[str, ...], dict[str, float]]]:
    """Yields the sums of all counters for each combination of *keys*, in order."""
    sums = counters.groupby(list(keys), sort=True)[list(COUNTERS)].sum().reset_index()
    for row in sums.to_dict("records"):
        yield (
            tuple(str(row[key]) for key in keys),
            {name: float(row[name]) for name in COUNTERS},
        )


def _goodput(
    counters: pd.DataFrame, classes: dict[str, SloClass], seconds: float
) -> pd.DataFrame:
    rows = []
    for (name, model), row in _sums(counters, "class", "model"):
        total, good = row["requests"], row["good"]
        upper = ratio(good + row["unevaluable"], total)
        objective = classes[name].objective if name in classes else None
        missed = None
        if objective is not None and upper is not None:
            missed = upper < objective
        rows.append(
            {
                "class": name,
                "model": model,
                "total": total,
                "good": good,
                "bad": row["bad"],
                "unevaluable": row["unevaluable"],
                "excluded": row["excluded"],
                "attainment": ratio(good, good + row["bad"]),
                "lower": ratio(good, total),
                "upper": upper,
                "objective": objective,
                "missed_objective": missed,
                "requests_per_second": ratio(total, seconds),
                "good_requests_per_second": ratio(good, seconds),
                **{
                    key: row[key]
                    for key in (
                        "prompt_tokens",
                        "cached_tokens",
                        "output_tokens",
                        "good_output_tokens",
                    )
                },
                "source": "log",
            }
        )
    return table("goodput", rows)


def _misses(counters: pd.DataFrame, classes: dict[str, SloClass]) -> pd.DataFrame:
    rows: list[Row] = []
    for (name, model), row in _sums(counters, "class", "model"):
        good = classes[name].good if name in classes else {}
        rows += (
            {
                "class": name,
                "model": model,
                "criterion": criterion,
                "threshold": limit_text(good[criterion]) if criterion in good else "",
                "requests": row[f"missed_{criterion}"],
                "share": ratio(row[f"missed_{criterion}"], row["requests"]),
            }
            for criterion in MISSES
            if criterion in good or criterion not in CRITERIA
        )
    return table("misses", rows)


def _tenants(counters: pd.DataFrame) -> pd.DataFrame:
    rows: list[Row] = []
    for (tenant,), row in _sums(counters, "tenant"):
        rows.append(
            {
                "tenant": tenant or NO_TENANT,
                "total": row["requests"],
                **{k: row[k] for k in ("good", "bad", "unevaluable", "excluded")},
                "attainment": ratio(row["good"], row["good"] + row["bad"]),
                "prompt_tokens": row["prompt_tokens"],
                "output_tokens": row["output_tokens"],
                "good_output_tokens": row["good_output_tokens"],
            }
        )
    rows.sort(key=_by_tokens)
    return table("tenants", rows)


def _by_tokens(row: Row) -> tuple[float, float, str]:
    return -row["output_tokens"], -row["total"], row["tenant"]


def _percentiles(summary: Summary) -> pd.DataFrame:
    rows = []
    order = (*MEASURES, *LENGTHS)
    for (name, model, measure), sketch in sorted(
        summary.sketches.items(),
        key=lambda item: (*item[0][:2], order.index(item[0][2])),
    ):
        if sketch.count:
            rows.append(
                {
                    "class": name,
                    "model": model,
                    "measure": measure,
                    "count": sketch.count,
                    "mean": sketch.mean,
                    **quantiles(sketch, whole=measure in LENGTHS),
                    "max": sketch.greatest,
                }
            )
    return table("percentiles", rows)


def _targets(summary: Summary, classes: tuple[SloClass, ...]) -> pd.DataFrame:
    by_name = {c.name: c for c in classes}
    rows = []
    for (name, model, criterion, level), within in sorted(summary.within.items()):
        sketch = summary.sketches[name, model, criterion]
        share = ratio(within, sketch.count)
        rows.append(
            {
                "class": name,
                "model": model,
                "criterion": criterion,
                "level": level,
                "threshold": by_name[name].percentiles[criterion, level],
                "value": sketch.quantile(level_of(level)),
                "within": share,
                "met": None if share is None else share >= level_of(level),
            }
        )
    return table("targets", rows)


def _stages(summary: Summary, classes: dict[str, SloClass]) -> pd.DataFrame:
    rows = []
    spent: dict[tuple[str, str, str], float] = {}
    for (name, model, verdict, _), sketch in summary.stages.items():
        key = (name, model, verdict)
        spent[key] = spent.get(key, 0.0) + sketch.sum
    for (name, model, verdict, stage), sketch in sorted(
        summary.stages.items(),
        key=lambda item: (*item[0][:3], STAGES.index(item[0][3])),
    ):
        bad = verdict == "bad"
        budgets = classes[name].stages if name in classes and bad else {}
        rows.append(
            {
                "class": name,
                "model": model,
                "verdict": verdict,
                "stage": stage,
                "requests": sketch.count,
                "mean": sketch.mean,
                "p50": sketch.quantile(0.5),
                "p95": sketch.quantile(0.95),
                "share": ratio(sketch.sum, spent[name, model, verdict]),
                "longest": summary.longest[name, model, stage] if bad else None,
                "budget": budgets.get(stage),
                "over_budget": summary.over_budget[name, model, stage]
                if stage in budgets
                else None,
            }
        )
    return table("stages", rows)


def _by_prompt(summary: Summary) -> pd.DataFrame:
    return table(
        "by_prompt",
        [
            {
                "model": model,
                "from_tokens": 2**step,
                "to_tokens": 2 ** (step + 1) - 1,
                "count": sketch.count,
                "mean": sketch.mean,
                "p50": sketch.quantile(0.5),
                "p95": sketch.quantile(0.95),
            }
            for (model, step), sketch in sorted(summary.by_prompt.items())
        ],
    )


def _sources(parts: Sequence[Part]) -> list[Row]:
    rows: dict[str, Row] = {}
    for part in parts:
        path = str(part.piece.path)
        row = rows.setdefault(
            path,
            {
                "source": path,
                "format": part.piece.source.format,
                "lines": 0,
                "records": 0,
                "unreadable": 0,
                "first_problem": "",
                "error": "",
            },
        )
        lines = part.lines
        if lines.first is not None and not row["first_problem"]:
            number = row["lines"] + lines.first[0]
            row["first_problem"] = f"{path}:{number}: {lines.first[1]}"
        row["lines"] += lines.lines
        row["records"] += lines.records
        # A container's standard error holds messages; they are no broken requests.
        row["unreadable"] += sum(
            n for reason, n in lines.problems.items() if reason != "stderr"
        )
        row["error"] = row["error"] or part.error
    return list(rows.values())

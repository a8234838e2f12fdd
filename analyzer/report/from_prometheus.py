"""Reports a period from what Prometheus kept of the exporter's metrics.

Counters are read at both ends of each step, so what they grew by is exact; only in a
step with a counter reset it is `increase()`, an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from analyzer.goodput import Marginal, joint_bounds
from analyzer.histogram import Histogram
from analyzer.report.constraints import (
    Constraint,
    constraint_rows,
    constraint_shares,
)
from analyzer.report.report import Report, Row, empty_tables, ratio, table
from analyzer.report.summary import MEASURES
from analyzer.report.tables import limit_text, thresholds
from analyzer.report.tables_time import bin_seconds, budget, worst
from analyzer.report.verdicts import MISSES
from analyzer.report.workload import QUANTILES
from analyzer.slo import CRITERIA, Match, SloClass, Threshold
from analyzer.sources.prometheus import Answer, Prometheus, Range

INTERPOLATED = (
    "Percentiles are interpolated within the buckets of histograms, as "
    "histogram_quantile does."
)
MISSING = {
    "tenants": "the exporter's metrics do not tell tenants apart; request logs do",
    "stages of bad requests": "metrics tell stages of all requests; request logs do",
    "workload shape": "it takes single requests; request logs have them",
    "TTFT by the prompt's length": "it takes single requests; request logs have them",
}
COUNTS = {
    "total": "goodput_requests_total",
    "good": "goodput_good_requests_total",
    "bad": "goodput_bad_requests_total",
    "unevaluable": "goodput_unevaluable_requests_total",
    "output_tokens": "goodput_tokens_total",
    "good_output_tokens": "goodput_good_tokens_total",
}
Key = tuple[str, str]  # class and model
Steps = dict[tuple[str, ...], dict[int, float]]


class NoData(ValueError):  # noqa: N818  it is nobody's error
    """A server without the exporter's metrics in the period."""


@dataclass(frozen=True, slots=True)
class Period:
    """Unix seconds from *start* to *end*, and the width of a step."""

    start: int
    end: int
    step: int

    @property
    def moments(self) -> Range:
        """The ends of the steps."""
        return Range(self.start + self.step, self.end, self.step)


def period(start: float, end: float, step: int | None = None) -> Period:
    """Returns the period between two moments in whole steps that contain it."""
    width = step or bin_seconds(end - start)
    return Period(
        math.floor(start / width) * width, math.ceil(end / width) * width, width
    )


class Source:
    """What the exporter's counters grew by in each step of a period."""

    def __init__(
        self,
        server: Prometheus,
        when: Period,
        *,
        match: str = "",
        on_query: Callable[[], None] = lambda: None,
    ) -> None:
        self.when = when
        self.warnings: list[str] = []
        self._server = server
        self.match = match
        self._on_query = on_query

    def grown(self, metric: str, *labels: str) -> Steps:
        """Returns the increase of a counter by labels and by the step's end."""
        series = f"{metric}{{{self.match}}}" if self.match else metric
        step = f"{self.when.step}s"
        before = f"(({series} offset {step}) or min_over_time({series}[{step}]))"
        steady = (
            f"((max_over_time({series}[{step}]) - {before}) >= 0 "
            f"and resets({series}[{step}]) == 0)"
        )
        return self._steps(
            f"sum by ({', '.join(labels)}) ({steady} or increase({series}[{step}]))",
            labels,
        )

    def latest(self, metric: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Returns the last value of a gauge in the period."""
        series = f"{metric}{{{self.match}}}" if self.match else metric
        found = self._steps(
            f"max by ({', '.join(labels)}) "
            f"(last_over_time({series}[{self.when.step}s]))",
            labels,
        )
        return {key: values[max(values)] for key, values in found.items() if values}

    def _steps(self, query: str, labels: tuple[str, ...]) -> Steps:
        answer: Answer = self._server.query_range(query, self.when.moments)
        self.warnings += answer.warnings
        self._on_query()
        return {
            tuple(dict(found).get(label, "") for label in labels): values
            for found, values in answer.series.items()
        }


QUERIES = len(COUNTS) + len(MEASURES) * 2 + 11


def report_prometheus(source: Source, classes: tuple[SloClass, ...]) -> Report:
    """Returns the report of a period; *classes* default to those it publishes.

    Raises PrometheusError, and NoData when the exporter's metrics are not there.
    """
    classes = classes or _classes(source)
    by_name = {c.name: c for c in classes}
    when = source.when
    counts = {
        name: source.grown(metric, "slo_class", "model")
        for name, metric in COUNTS.items()
    }
    tables = empty_tables()
    goodput = [*_exact(counts, by_name, when)]
    exact = {(row["class"], row["model"]) for row in goodput if row["total"]}
    goodput = [row for row in goodput if row["total"]]
    goodput += _bounded(source, by_name, exact)
    constraints = _constraints(source)
    if not goodput and not constraints:
        raise NoData(
            "the server has none of goodput-exporter's metrics in this period"
            + (" for --match" if source.match else "")
        )
    goodput.sort(key=lambda row: (row["class"], row["model"]))
    tables["goodput"] = table("goodput", goodput)
    tables["misses"] = table("misses", _misses(source, by_name, counts["total"]))
    tables["reasons"] = table("reasons", _reasons(source))
    tables["budget"] = budget(tables["goodput"], by_name, when.end - when.start)
    tables["percentiles"] = table("percentiles", _percentiles(source))
    tables["timeline"] = table("timeline", _timeline(counts, when))
    tables["worst"] = worst(tables["timeline"], when.step, by_name, constraints)
    tables["constraints"] = table("constraints", constraint_rows(constraints))
    tables["constraint_shares"] = table(
        "constraint_shares", constraint_shares(constraints)
    )
    return Report(
        when.start,
        when.end,
        tables,
        bin_seconds=when.step,
        percentiles_note=INTERPOLATED,
        missing=MISSING,
        thresholds=thresholds(classes),
    )


def _classes(source: Source) -> tuple[SloClass, ...]:
    """Returns the classes as the exporter publishes them."""
    objectives = source.latest("goodput_slo_objective_ratio", "slo_class")
    windows = source.latest("goodput_slo_window_seconds", "slo_class")
    limits = source.latest("goodput_slo_threshold_seconds", "slo_class", "criterion")
    grows = source.latest(
        "goodput_slo_threshold_per_prompt_token_seconds", "slo_class", "criterion"
    )
    return tuple(
        SloClass(
            name,
            Match(),
            {
                criterion: Threshold(
                    limits[name, criterion], grows.get((name, criterion), 0.0)
                )
                for criterion in CRITERIA
                if (name, criterion) in limits
            },
            objective,
            windows.get((name,), 28 * 86400.0),
        )
        for (name,), objective in sorted(objectives.items())
    )


def _sum(steps: Mapping[int, float] | None) -> float:
    """Returns the whole of what grew; counters are of whole events."""
    total = sum(steps.values()) if steps else 0.0
    near = round(total)
    return float(near) if abs(total - near) < 1e-6 * max(1.0, total) else total


def _exact(
    counts: Mapping[str, Steps], classes: Mapping[str, SloClass], when: Period
) -> list[Row]:
    seconds = when.end - when.start
    rows = []
    for key in sorted(counts["total"]):
        found = {name: _sum(steps.get(key)) for name, steps in counts.items()}
        total, good, bad = found["total"], found["good"], found["bad"]
        slo_class = classes.get(key[0])
        upper = ratio(good + found["unevaluable"], total)
        objective = slo_class.objective if slo_class else None
        rows.append(
            {
                "class": key[0],
                "model": key[1],
                **found,
                "attainment": ratio(good, good + bad),
                "lower": ratio(good, total),
                "upper": upper,
                "objective": objective,
                "missed_objective": upper < objective
                if upper is not None and objective is not None
                else None,
                "requests_per_second": total / seconds,
                "good_requests_per_second": good / seconds,
                "source": "log",
            }
        )
    return rows


def _bounded(
    source: Source, classes: Mapping[str, SloClass], exact: set[Key]
) -> list[Row]:
    """Returns bounds from the engines' histograms, for what no request log told."""
    labels = ("slo_class", "model", "criterion")
    parts = [
        source.grown(f"goodput_engine_criterion_{name}_total", *labels)
        for name in ("events", "good_events_lower", "good_events_upper")
    ]
    finished = source.grown("goodput_engine_finished_requests_total", "model")
    marginals: dict[Key, dict[str, Marginal]] = {}
    for name, model, criterion in sorted(parts[0]):
        values = [_sum(part.get((name, model, criterion))) for part in parts]
        marginals.setdefault((name, model), {})[criterion] = Marginal(
            values[0], values[1], values[2]
        )
    rows = []
    seconds = source.when.end - source.when.start
    for key, by_criterion in marginals.items():
        total = _sum(finished.get((key[1],)))
        if key in exact or not total:
            continue
        bounds = joint_bounds(total, by_criterion).ratios
        slo_class = classes.get(key[0])
        objective = slo_class.objective if slo_class else None
        rows.append(
            {
                "class": key[0],
                "model": key[1],
                "total": total,
                "lower": bounds[0] if bounds else None,
                "upper": bounds[1] if bounds else None,
                "objective": objective,
                "missed_objective": bounds[1] < objective
                if bounds and objective is not None
                else None,
                "requests_per_second": total / seconds,
                "source": "engine",
            }
        )
    return rows


def _misses(
    source: Source, classes: Mapping[str, SloClass], totals: Steps
) -> list[Row]:
    found = source.grown(
        "goodput_criterion_misses_total", "slo_class", "model", "criterion"
    )
    rows = []
    for (name, model, criterion), steps in sorted(
        found.items(), key=lambda item: (*item[0][:2], MISSES.index(item[0][2]))
    ):
        missed = _sum(steps)
        good = classes[name].good if name in classes else {}
        if criterion in CRITERIA and criterion not in good:
            continue
        rows.append(
            {
                "class": name,
                "model": model,
                "criterion": criterion,
                "threshold": limit_text(good[criterion]) if criterion in good else "",
                "requests": missed,
                "share": ratio(missed, _sum(totals.get((name, model)))),
            }
        )
    return rows


def _reasons(source: Source) -> list[Row]:
    found = source.grown("goodput_excluded_requests_total", "reason")
    return [
        {
            "class": "all",
            "model": "all",
            "kind": "excluded",
            "reason": reason,
            "requests": _sum(steps),
        }
        for (reason,), steps in sorted(found.items())
        if _sum(steps)
    ]


def _percentiles(source: Source) -> list[Row]:
    rows = []
    for measure in MEASURES:
        metric = f"goodput_request_{measure}_seconds"
        buckets = source.grown(f"{metric}_bucket", "slo_class", "model", "le")
        sums = source.grown(f"{metric}_sum", "slo_class", "model")
        for key, histogram in histograms(buckets).items():
            if not histogram.count:
                continue
            rows.append(
                {
                    "class": key[0],
                    "model": key[1],
                    "measure": measure,
                    "count": histogram.count,
                    "mean": ratio(_sum(sums.get(key)), histogram.count),
                    **{p: histogram.quantile(q) for p, q in QUANTILES.items()},
                }
            )
    rows.sort(
        key=lambda row: (row["class"], row["model"], MEASURES.index(row["measure"]))
    )
    return rows


def histograms(buckets: Steps) -> dict[tuple[str, ...], Histogram]:
    """Returns the histogram of each class and model; those without +Inf are none."""
    counts: dict[tuple[str, ...], dict[float, float]] = {}
    for (*key, bound), steps in buckets.items():
        counts.setdefault(tuple(key), {})[float(bound)] = _sum(steps)
    return {
        key: Histogram(
            tuple(sorted(found)), tuple(found[bound] for bound in sorted(found))
        )
        for key, found in sorted(counts.items())
        if math.inf in found
    }


def _timeline(counts: Mapping[str, Steps], when: Period) -> list[Row]:
    rows = []
    for key, steps in counts["total"].items():
        for end, total in sorted(steps.items()):
            if not total:
                continue
            found = {
                name: counts[name].get(key, {}).get(end, 0.0)
                for name in ("good", "bad", "unevaluable", "output_tokens")
            }
            rows.append(
                {
                    "start": end - when.step,
                    "class": key[0],
                    "model": key[1],
                    "total": total,
                    **found,
                    "attainment": ratio(found["good"], found["good"] + found["bad"]),
                }
            )
    rows.sort(key=lambda row: (row["start"], row["class"], row["model"]))
    return rows


def _constraints(source: Source) -> Sequence[Constraint]:
    """Returns how long each verdict held in each step."""
    labels = ("target", "model", "family", "cause")
    found = source.grown("goodput_constraint_seconds_total", *labels)
    step = source.when.step
    return [
        Constraint(end - step, end, target, model, "", family, cause, seconds)
        for (target, model, family, cause), steps in sorted(found.items())
        for end, seconds in sorted(steps.items())
        if seconds > 0
    ]

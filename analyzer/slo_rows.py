"""The part of the analysis that says how many requests were good, class by class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from analyzer import goodput
from analyzer.flow import EngineFlow
from analyzer.goodput import Marginal
from analyzer.history import Totals
from analyzer.logflow import Counts, LogFlow
from analyzer.slo import SloClass

Document = dict[str, Any]
ENGINE_BOUNDS = (
    "bounds from the engine's marginal histograms; exact goodput needs a request log"
)


def slo_rows(
    flows: Sequence[EngineFlow],
    logs: Sequence[LogFlow],
    at: float,
    seconds: float | None,
) -> list[Document]:
    """Returns one row a class and model over all sources, the last *seconds* or all.

    Where a request log tells, counts are exact and the bounds hold only what it
    cannot know; else they are the engine's. In a window, classes that a log expects
    have a row also when none of their requests was logged.
    """
    rows = {(row["class"], row["model"]): row for row in _engine_rows(flows, seconds)}
    exact: dict[tuple[str, str], Counts] = {}
    covered: dict[tuple[str, str], float] = {}
    classes: dict[str, SloClass] = {}
    for log in logs:
        found = log.counts() if seconds is None else log.over(seconds, at)
        for (model, name), counts in found.items():
            key = name, model
            exact[key] = exact.get(key, Counts()) + counts
            if seconds is not None:
                span = log.covered(seconds, at)
                covered[key] = max(covered.get(key, 0.0), span)
        classes.update((c.name, c) for c in log.classes)
    for key, counts in exact.items():
        engine = rows.get(key)
        if not counts.requests and engine is not None:
            engine.update(_excluded(counts) if counts.excluded else {})
        elif counts.requests or counts.excluded or (covered and key[0] in classes):
            rows[key] = _exact_row(
                key, counts, classes.get(key[0]), engine, seconds=covered.get(key)
            )
    return [rows[key] for key in sorted(rows)]


def _exact_row(
    key: tuple[str, str],
    counts: Counts,
    slo_class: SloClass | None,
    engine: Document | None,
    *,
    seconds: float | None,
) -> Document:
    """Returns an exact row; *seconds* that the logs cover, None for all they have."""
    judged = counts.good + counts.bad
    total = counts.requests
    wanted = (*slo_class.good, "error", "abort") if slo_class else ("error", "abort")
    return {
        **(engine or {"output_tokens": None, "criteria": {}}),
        "class": key[0],
        "model": key[1],
        "total": count(total),
        "good": count(counts.good),
        "bad": count(counts.bad),
        **_excluded(counts),
        "unevaluable": count(counts.unevaluable),
        "unevaluable_for": _by_reason(counts.unevaluable_for),
        "unevaluable_unstreamed": count(counts.unstreamed),
        "attainment": counts.good / judged if judged else None,
        "bounds": [counts.good / total, (counts.good + counts.unevaluable) / total]
        if total
        else None,
        "engine_bounds": engine["bounds"] if engine else None,
        "engine_total": engine["total"] if engine else None,
        "engine_seconds": engine["seconds"] if engine else None,
        "missed": {m: count(counts.misses.get(m, 0.0)) for m in wanted},
        "thresholds": {
            criterion: {
                "seconds": threshold.seconds,
                "per_prompt_token_seconds": threshold.per_prompt_token,
            }
            for criterion, threshold in (slo_class.good if slo_class else {}).items()
        },
        "objective": slo_class.objective if slo_class else None,
        "seconds": seconds,
        "source": "gateway",
        "reason": "" if total else "no request counted",
    }


def _excluded(counts: Counts) -> Document:
    return {
        "excluded": count(counts.excluded),
        "excluded_for": _by_reason(counts.excluded_for),
    }


def _by_reason(counts: Mapping[str, float]) -> Document:
    """Returns the reasons that occurred, the most frequent first."""
    found = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {reason: count(number) for reason, number in found if number}


def _engine_rows(flows: Sequence[EngineFlow], seconds: float | None) -> list[Document]:
    """Returns one row a class and model, over all targets that serve the model."""
    rows = []
    found: dict[tuple[str, str], SloClass] = {}
    for flow in flows:
        for model in flow.totals:
            slo_class, _ = flow.class_of(model)
            if slo_class is not None:
                found[slo_class.name, model] = slo_class
    for (_, model), slo_class in sorted(found.items()):
        rows.append(_engine_row(flows, slo_class, model, seconds))
    return rows


def _engine_row(
    flows: Sequence[EngineFlow], slo_class: SloClass, model: str, seconds: float | None
) -> Document:
    finished = in_flight = covered = tokens = 0.0
    marginals: dict[str, Marginal] = {}
    for flow in flows:
        if model not in flow.totals or flow.class_of(model)[0] != slo_class:
            continue
        stretch = flow.histories[model].over(seconds) if seconds is not None else None
        if seconds is not None and stretch is None:
            continue
        part: dict[str, Marginal]
        if stretch is not None:
            finished += stretch.finished
            tokens += stretch.tokens
            in_flight += stretch.in_flight_at_begin
            covered = max(covered, stretch.seconds)
            part = stretch.marginals
        else:
            totals: Totals = flow.totals[model]
            finished += totals.finished
            tokens += totals.tokens
            in_flight += flow.in_flight_at_begin.get(model, 0.0)
            covered = max(covered, totals.at - flow.memory.since)
            part = totals.marginals
        for criterion, marginal in part.items():
            if criterion in slo_class.good:  # a reload may have removed it
                known = marginals.get(criterion)
                marginals[criterion] = marginal if known is None else known + marginal
    bounds = goodput.joint_bounds(finished, marginals, in_flight=in_flight)
    ratios = bounds.ratios
    return {
        "class": slo_class.name,
        "model": model,
        "total": count(finished),
        "good": None,
        "excluded": None,
        "unevaluable": None,
        "attainment": None,
        "bounds": None if ratios is None else list(ratios),
        "missed": dict.fromkeys((*slo_class.good, "error")),
        "objective": slo_class.objective,
        "seconds": covered,
        "output_tokens": count(tokens),
        "criteria": {
            name: _criterion(slo_class, name, marginal)
            for name, marginal in marginals.items()
        },
        "source": "engine",
        "reason": _reason(covered, measured=ratios is not None),
    }


def _reason(covered: float, *, measured: bool) -> str:
    if measured:
        return ENGINE_BOUNDS
    return "no request finished" if covered else "not measured yet: it takes two pages"


def _criterion(slo_class: SloClass, name: str, marginal: Marginal) -> Document:
    threshold = slo_class.good[name]
    return {
        "threshold_seconds": threshold.seconds,
        "per_prompt_token_seconds": threshold.per_prompt_token,
        "events": count(marginal.events),
        "good_lower": count(marginal.lower),
        "good_upper": count(marginal.upper),
        "reason": marginal.reason,
    }


def count(value: float) -> int | float:
    """Returns whole counts as integers; vLLM prints them as floats."""
    return int(value) if math.isfinite(value) and value == int(value) else value

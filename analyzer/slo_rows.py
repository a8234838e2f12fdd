"""The part of the analysis that says how many requests were good, class by class."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    cannot know; else they are the engine's.
    """
    rows = {(row["class"], row["model"]): row for row in _engine_rows(flows, seconds)}
    exact: dict[tuple[str, str], Counts] = {}
    classes: dict[str, SloClass] = {}
    for log in logs:
        found = log.counts() if seconds is None else log.over(seconds, at)
        for (model, name), counts in found.items():
            exact[name, model] = exact.get((name, model), Counts()) + counts
        classes.update((c.name, c) for c in log.classes)
    for key, counts in exact.items():
        if counts.requests or counts.excluded or key in rows:
            rows[key] = _exact_row(rows.get(key), key, counts, classes.get(key[0]))
    return [rows[key] for key in sorted(rows)]


def _exact_row(
    engine: Document | None,
    key: tuple[str, str],
    counts: Counts,
    slo_class: SloClass | None,
) -> Document:
    if not counts.requests and engine is not None:
        return engine
    judged = counts.good + counts.bad
    total = counts.requests
    wanted = (*slo_class.good, "error", "abort") if slo_class else ("error", "abort")
    return {
        **(engine or {"seconds": None, "output_tokens": None, "criteria": {}}),
        "class": key[0],
        "model": key[1],
        "total": count(total),
        "good": count(counts.good),
        "bad": count(counts.bad),
        "excluded": count(counts.excluded),
        "unevaluable": count(counts.unevaluable),
        "attainment": counts.good / judged if judged else None,
        "bounds": [counts.good / total, (counts.good + counts.unevaluable) / total]
        if total
        else None,
        "engine_bounds": engine["bounds"] if engine else None,
        "missed": {m: count(counts.misses.get(m, 0.0)) for m in wanted},
        "objective": slo_class.objective if slo_class else None,
        "source": "gateway",
        "reason": "" if total else "no request counted",
    }


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

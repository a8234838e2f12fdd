"""The analysis as one JSON document: of a recording, or of the live exporter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from analyzer import goodput
from analyzer.engines.capabilities import missing
from analyzer.flow import EngineFlow
from analyzer.goodput import Marginal
from analyzer.history import Totals
from analyzer.slo import SloClass
from analyzer.timeline import Segment
from analyzer.verdict import Verdict

Document = dict[str, Any]
ENGINE_BOUNDS = (
    "bounds from the engine's marginal histograms; exact goodput needs a request log"
)


def document(
    flows: Sequence[EngineFlow],
    at: float,
    *,
    seconds: float | None = None,
    pictures: bool = False,
) -> Document:
    """Returns the analysis of *flows* as of *at*.

    With *seconds* it covers that trailing window and the verdict in force, without
    it everything since the flows began. *pictures* adds the values of sparklines.
    """
    return {
        "windows": windows(flows, latest=seconds is not None),
        "slo": slo_rows(flows, seconds),
        "capacity": {
            "requests_per_second": {"lower": None, "estimate": None, "upper": None},
            "headroom_ratio": None,
            "reason": "no capacity model was fitted",
        },
        "sources": [source_row(flow) for flow in flows],
        "targets": [target_row(flow, at, pictures=pictures) for flow in flows],
    }


def windows(flows: Iterable[EngineFlow], *, latest: bool) -> list[Document]:
    """Returns the verdicts over time per target, model and rank; *latest* ones only."""
    rows: list[Document] = []
    for flow in flows:
        for (model, rank), timeline in sorted(flow.timelines.items()):
            segments = timeline.segments()
            rows += (
                _window(flow.source.name, model, rank, segment)
                for segment in (segments[-1:] if latest else segments)
            )
    return rows


def _window(target: str, model: str, rank: str, segment: Segment) -> Document:
    return {
        "start": segment.start,
        "end": segment.end,
        "target": target,
        "model": model,
        "rank": rank,
        **verdict_row(segment.verdict),
        "requests_per_second": segment.per_second(segment.requests),
        "tokens_per_second": segment.per_second(segment.tokens),
    }


def verdict_row(verdict: Verdict) -> Document:
    """Returns a verdict's part of a window."""
    return {
        "family": verdict.family.value,
        "cause": verdict.cause or None,
        "confidence": verdict.confidence,
        "evidence": [
            {
                "signal": item.signal,
                "value": item.value,
                "threshold": item.threshold,
                "source": item.source,
            }
            for item in verdict.evidence
        ],
        "missing": list(verdict.missing),
        "candidates": list(verdict.candidates),
        "advice": list(verdict.advice),
    }


def slo_rows(flows: Sequence[EngineFlow], seconds: float | None) -> list[Document]:
    """Returns one row a class and model, over all targets that serve the model."""
    rows = []
    found: dict[tuple[str, str], SloClass] = {}
    for flow in flows:
        for model in flow.totals:
            slo_class, _ = flow.class_of(model)
            if slo_class is not None:
                found[slo_class.name, model] = slo_class
    for (_, model), slo_class in sorted(found.items()):
        rows.append(_slo_row(flows, slo_class, model, seconds))
    return rows


def _slo_row(
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
        "total": _count(finished),
        "good": None,
        "excluded": None,
        "unevaluable": None,
        "attainment": None,
        "bounds": None if ratios is None else list(ratios),
        "missed": dict.fromkeys((*slo_class.good, "error")),
        "objective": slo_class.objective,
        "seconds": covered,
        "output_tokens": _count(tokens),
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
        "events": _count(marginal.events),
        "good_lower": _count(marginal.lower),
        "good_upper": _count(marginal.upper),
        "reason": marginal.reason,
    }


def source_row(flow: EngineFlow) -> Document:
    """Returns what is to be known of one engine as a source."""
    ledger = flow.ledger
    resets = sum(value for _, value in ledger.rows("goodput_target_resets_total"))
    attempt = flow.attempt
    return {
        "source": "engine",
        "name": flow.source.name,
        "up": attempt is not None and not attempt.reason,
        "reason": "not scraped yet" if attempt is None else attempt.reason,
        "gaps": flow.liveness.gaps,
        "resets": _count(resets),
        "missing_signals": sorted(missing(flow.reading)) if flow.reading else [],
    }


def target_row(flow: EngineFlow, at: float, *, pictures: bool) -> Document:
    """Returns an engine's state, its models, and what its page lacks."""
    state, why = flow.state(at)
    attempt = flow.attempt
    stale = flow.stale(at)
    return {
        "target": flow.source.name,
        "url": flow.source.url,
        "state": state,
        "reason": why,
        "detail": attempt.detail if attempt else "",
        "scrape_seconds": attempt.seconds if attempt else None,
        "last_success": flow.memory.last_success,
        "stale": stale,
        "missing": dict(missing(flow.reading)) if flow.reading else {},
        "damaged_lines_total": _count(
            flow.ledger.counter("goodput_target_damaged_lines_total", ("engine",))
            or 0.0
        ),
        "damaged_lines": [
            {"line": e.line, "reason": e.reason, "excerpt": e.excerpt}
            for e in flow.damaged
        ],
        "models": [
            _model_row(flow, model, at, stale=stale, pictures=pictures)
            for model in sorted({model for model, _ in flow.ranks()})
        ],
    }


def _model_row(
    flow: EngineFlow, model: str, at: float, *, stale: str, pictures: bool
) -> Document:
    slo_class, reason = flow.class_of(model)
    ranks = []
    for name, rank in flow.ranks():
        if name != model:
            continue
        row: Document = {"rank": rank}
        for signal in ("running", "waiting", "kv_cache_usage"):
            row[signal] = None if stale else flow.gauge(signal, model, rank)
            if pictures:
                trail = flow.trails.get((model, rank, signal))
                row[f"{signal}_trail"] = trail.values() if trail else []
        row["kv_cache_usage_max60s"] = None if stale else flow.kv_peak(model, rank, at)
        ranks.append(row)
    return {
        "model": model,
        "class": slo_class.name if slo_class else None,
        "class_reason": reason,
        "ranks": ranks,
    }


def _count(value: float) -> int | float:
    """Returns whole counts as integers; vLLM prints them as floats."""
    return int(value) if math.isfinite(value) and value == int(value) else value

"""The analysis as one JSON document: of a recording, or of the live exporter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analyzer.engines.capabilities import missing
from analyzer.flow import EngineFlow
from analyzer.gpus import rows as gpu_rows
from analyzer.gpus.flow import GpuFlow
from analyzer.logflow import LogFlow
from analyzer.outlook import hottest, outlook, strip
from analyzer.slo_rows import Document, count, slo_rows
from analyzer.timeline import Segment
from analyzer.verdict import Verdict


def document(
    flows: Sequence[EngineFlow],
    at: float,
    *,
    logs: Sequence[LogFlow] = (),
    gpus: Sequence[GpuFlow] = (),
    seconds: float | None = None,
    pictures: bool = False,
) -> Document:
    """Returns the analysis of *flows*, *logs* and *gpus* as of *at*.

    With *seconds* it covers that trailing window and the verdict in force, without
    it everything since the flows began. *pictures* adds the values of sparklines.
    """
    engines = [flow.source for flow in flows]
    return {
        "windows": windows(
            flows, latest=seconds is not None, strip_at=at if pictures else None
        ),
        "slo": slo_rows(flows, logs, at, seconds),
        "capacity": {
            "requests_per_second": {"lower": None, "estimate": None, "upper": None},
            "headroom_ratio": None,
            "reason": "no capacity model was fitted",
        },
        "sources": [
            *(source_row(flow) for flow in flows),
            *(gpu_rows.source_row(gpu, at, engines) for gpu in gpus),
            *(log_row(log) for log in logs),
        ],
        "targets": [target_row(flow, at, pictures=pictures) for flow in flows],
        "gpus": [gpu_rows.exporter_row(gpu, at, engines) for gpu in gpus],
    }


def windows(
    flows: Iterable[EngineFlow], *, latest: bool, strip_at: float | None = None
) -> list[Document]:
    """Returns the verdicts over time per target, model and rank.

    Of *latest* ones only, with what is known beside them, and with *strip_at* (Unix
    seconds) the families of the hour before it.
    """
    rows: list[Document] = []
    for flow in flows:
        for (model, rank), timeline in sorted(flow.timelines.items()):
            place = {"target": flow.source.name, "model": model, "rank": rank}
            now = timeline.latest
            if not latest or now is None:
                rows += (
                    _window(place, segment, segment.surest)
                    for segment in timeline.segments()
                )
                continue
            row = _window(place, now, now.verdict)
            known = flow.diagnosis.ranks.get((model, rank))
            row |= outlook(known, stale=flow.stale(now.end))
            if strip_at is not None:
                row["strip"] = strip(timeline.segments(), strip_at)
            rows.append(row)
    return rows


def _window(place: Document, segment: Segment, verdict: Verdict) -> Document:
    return {
        "start": segment.start,
        "end": segment.end,
        **place,
        **verdict_row(verdict),
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
        "resets": count(resets),
        "missing_signals": sorted(missing(flow.reading)) if flow.reading else [],
    }


def log_row(log: LogFlow) -> Document:
    """Returns what is to be known of one request log as a source."""
    totals = log.totals
    # A container's standard error holds messages; they are no broken requests.
    unread = sum(n for reason, n in totals.failures.items() if reason != "stderr")
    return {
        "source": "gateway",
        "name": log.source.name,
        "up": totals.lines > 0,
        "reason": log.problem or ("" if totals.lines else "no line read yet"),
        "gaps": 0,
        "resets": 0,
        "missing_signals": sorted(
            {name for reason in totals.unknown for name in reason.split(", ")}
        ),
        "format": log.format.name if log.format else None,
        "lines": count(totals.lines),
        "unreadable": count(unread),
        "parse_failures": {r: count(n) for r, n in totals.failures.items() if n},
        "excluded": {r: count(n) for r, n in totals.excluded.items()},
        "unevaluable_for": {r: count(n) for r, n in totals.unknown.items()},
        "last_record": totals.last_record,
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
        "damaged_lines_total": count(
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
    for rank in flow.reading.ranks_of(model) if flow.reading else ():
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
        "hottest_rank": hottest([(r["rank"], r["kv_cache_usage"]) for r in ranks]),
        "ranks": ranks,
    }

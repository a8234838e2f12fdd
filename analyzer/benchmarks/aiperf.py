"""Results of aiperf and its ancestor genai-perf: one load point a folder.

`profile_export_aiperf.json` has the figures, `profile_export.jsonl` beside it a line
a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from analyzer.benchmarks.run import BenchmarkError, Problem, Requests, Run
from analyzer.benchmarks.values import Document, member, number, part, span

_LATENCIES = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",  # a mean a request: our TPOT
    "e2e": "request_latency",
}
_UNITS = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9, "s": 1.0, "sec": 1.0}
_MEASURED = ("profiling", "")  # the other phase is warm-up


class _Value(msgspec.Struct):
    value: float | list[float] | None = None
    unit: str = ""


class _Metadata(msgspec.Struct):
    request_start_ns: int = 0
    request_end_ns: int = 0
    benchmark_phase: str = ""
    was_cancelled: bool = False


class _Record(msgspec.Struct):
    """One line of profile_export.jsonl."""

    metadata: _Metadata
    metrics: dict[str, _Value] = {}
    error: dict[str, Any] | None = None


def recognises(document: Document) -> bool:
    """Whether a document is the summary of a load point."""
    return b'"avg"' in bytes(document.get("request_throughput", b""))


def recognises_line(document: Document) -> bool:
    """Whether a document is the record of one request."""
    return "metadata" in document and "metrics" in document


def read(document: Document, file: str) -> Run:
    """Returns the run of one summary. Raises BenchmarkError."""
    asked = member(document, "input_config", dict[str, Any]) or {}
    completed = _figure(document, "request_count")
    if completed is None:
        raise BenchmarkError("request_count: is missing")
    failed = _figure(document, "error_request_count") or 0.0
    # The time that its own rates are over; benchmark_duration has other ends.
    rate = _figure(document, "request_throughput")
    duration = completed / rate if rate else None
    phase = _phase(asked)
    old = part(asked, "loadgen") or part(part(asked, "perf_analyzer"), "stimulus")
    models = part(asked, "models").get("items") or asked.get("model_names")
    return Run(
        file=file,
        place="",
        tool="aiperf",
        duration=span(duration, "request_throughput"),
        completed=int(completed),
        failed=int(failed),
        model=_model(models),
        concurrency=number(phase.get("concurrency", old.get("concurrency"))),
        request_rate=_rate(phase.get("rate", old.get("request_rate"))),
        input_tokens=_figure(document, "total_isl")
        or _total(document, "input_sequence_length", completed),
        output_tokens=_figure(document, "total_osl")
        or _figure(document, "total_output_tokens")
        or _total(document, "output_sequence_length", completed),
        quantiles=_quantiles(document),
        reported_goodput=_figure(document, "goodput"),
        began=member(document, "start_time", str) or "",
    )


def _phase(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    phases = asked.get("phases")
    for phase in phases if isinstance(phases, list) else ():
        if isinstance(phase, dict) and phase.get("kind") == "profiling":
            return phase
    return {}


def _rate(value: object) -> float | None:
    if isinstance(value, dict):
        value = value.get("value")
    return number(value)


def _model(models: object) -> str:
    first = models[0] if isinstance(models, list) and models else None
    if isinstance(first, dict):
        return str(first.get("name") or "")
    return first if isinstance(first, str) else ""  # of genai-perf


def _total(document: Document, name: str, requests: float) -> float | None:
    """Returns what the mean of *requests* adds up to: genai-perf tells no totals."""
    mean = _figure(document, name)
    return None if mean is None else mean * requests


def _figure(document: Document, name: str) -> float | None:
    return number((member(document, name, dict[str, Any]) or {}).get("avg"))


def _seconds(document: Document, name: str, which: str) -> float | None:
    figures = member(document, name, dict[str, Any]) or {}
    value = number(figures.get(which))
    return None if value is None else value * _unit(str(figures.get("unit", "")))


def _unit(name: str) -> float:
    if name not in _UNITS:
        raise BenchmarkError(f"unknown unit {name!r} of a latency")
    return _UNITS[name]


def _quantiles(document: Document) -> dict[str, dict[float, float]]:
    found: dict[str, dict[float, float]] = {}
    for latency, name in _LATENCIES.items():
        figures = member(document, name, dict[str, Any]) or {}
        for level in figures:
            known = level[:1] == "p" and level[1:].isdigit()
            value = _seconds(document, name, level) if known else None
            if value is not None:
                found.setdefault(latency, {})[float(level[1:]) / 100] = value
    return found


def read_record(data: msgspec.Raw | bytes, requests: Requests) -> tuple[float, float]:
    """Adds one record to *requests*; returns its begin and end in Unix seconds.

    One of the warm-up, or that aiperf itself broke off, adds nothing. Raises
    BenchmarkError.
    """
    try:
        record = msgspec.json.decode(data, type=_Record)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BenchmarkError(f"no record of a request: {error}") from None
    metadata = record.metadata
    begin, end = metadata.request_start_ns / 1e9, metadata.request_end_ns / 1e9
    if metadata.benchmark_phase not in _MEASURED or metadata.was_cancelled:
        return begin, end
    values = record.metrics
    gaps = values.get("inter_chunk_latency")
    listed = gaps.value if gaps and isinstance(gaps.value, list) else []
    requests.add(
        failed=record.error is not None,
        start=begin,
        ttft=_value(values, "time_to_first_token"),
        tpot=_value(values, "inter_token_latency"),
        e2e=_value(values, "request_latency"),
        gaps=[gap * _unit(gaps.unit) for gap in listed] if gaps else (),
        prompt_tokens=_plain(values, "input_sequence_length"),
        output_tokens=_plain(values, "output_sequence_length"),
    )
    return begin, end


def _value(values: Mapping[str, _Value], name: str) -> float | None:
    plain = _plain(values, name)
    return None if plain is None else plain * _unit(values[name].unit)


def _plain(values: Mapping[str, _Value], name: str) -> float | None:
    return number(values[name].value) if name in values else None


def with_requests(
    run: Run, requests: Requests, file: str
) -> tuple[Run, Problem | None]:
    """Returns a summary's run with the records of the file beside it."""
    failed = sum(requests.failed)
    if len(requests) - failed != run.completed:
        message = f"{len(requests) - failed} records, {run.completed} completed"
        return run, Problem(file, "", message)
    return replace(run, requests=requests, failed=failed), None

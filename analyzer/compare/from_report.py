"""Samples of a report's JSON: blocks of time are the bins of its timeline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from analyzer.compare.sample import (
    LATENCIES,
    CompareError,
    Figure,
    Lengths,
    Sample,
    Side,
)
from analyzer.compare.span import Span
from analyzer.sweep.intervals import counted_share


class _Bin(msgspec.Struct):
    start: float
    total: float
    good: float
    bad: float
    slo_class: str = msgspec.field(name="class")
    model: str = ""


class _Percentiles(msgspec.Struct):
    measure: str
    slo_class: str = msgspec.field(name="class")
    model: str = ""
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class _Report(msgspec.Struct):
    timeline: list[_Bin]
    percentiles: list[_Percentiles]
    period: dict[str, Any]
    bin_seconds: float | None = None
    workload: dict[str, Any] | None = None


def recognises(document: Mapping[str, Any]) -> bool:
    """Whether a document is a report."""
    return "timeline" in document and "percentiles" in document


def report_side(name: str, data: bytes, span: Span) -> Side:
    """Returns the classes and models of a report. Raises CompareError."""
    try:
        report = msgspec.json.decode(data, type=_Report)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CompareError(f"{name}: no report of goodput: {error}") from None
    samples = {}
    bins: dict[str, list[_Bin]] = {}
    for item in report.timeline:
        if span.begin <= item.start < span.end:
            key = f"{item.slo_class} {item.model}".strip()
            bins.setdefault(key, []).append(item)
    latencies = {} if span.limited else _latencies(report.percentiles)
    width = report.bin_seconds or 0.0
    alone = len(bins) == 1 and not span.limited
    for key, listed in sorted(bins.items()):
        listed.sort(key=lambda item: item.start)
        samples[key] = _sample(
            listed, width, latencies.get(key, {}), report, alone=alone
        )
    warnings: tuple[str, ...] = ()
    if span.limited:
        warnings = ("a report has percentiles and lengths of its whole period only",)
    return Side(name, "report", samples, warnings)


def _latencies(
    rows: Iterable[_Percentiles],
) -> dict[str, dict[tuple[str, str], Figure]]:
    found: dict[str, dict[tuple[str, str], Figure]] = {}
    for row in rows:
        if row.measure in LATENCIES:
            named = found.setdefault(f"{row.slo_class} {row.model}".strip(), {})
            for level in ("p50", "p95", "p99"):
                value = getattr(row, level)
                if value is not None:
                    named[row.measure, level] = Figure(value)
    return found


def _sample(
    bins: list[_Bin],
    width: float,
    latencies: Mapping[tuple[str, str], Figure],
    report: _Report,
    *,
    alone: bool,
) -> Sample:
    good = np.array([item.good for item in bins])
    judged = good + np.array([item.bad for item in bins])
    total = math.fsum(item.total for item in bins)
    seconds = bins[-1].start + width - bins[0].start
    period = report.period.get("seconds")
    if alone and isinstance(period, int | float) and period > 0:
        seconds = float(period)
    interval = counted_share(good, judged)
    workload = (report.workload or {}) if alone else {}
    concurrency = workload.get("concurrency")
    mean = concurrency.get("mean") if isinstance(concurrency, dict) else None
    return Sample(
        requests=int(total),
        seconds=seconds,
        attainment=None if interval is None else Figure(interval.estimate, interval),
        latencies=latencies,
        workload={
            name: found
            for name in ("prompt_tokens", "output_tokens")
            if (found := _lengths(workload.get(name))) is not None
        },
        rate=total / seconds if seconds else None,
        throughput=None,
        blocks=len(bins),
        reason="" if mean is None else f"{mean:.3g} requests at once on average",
    )


def _lengths(row: object) -> Lengths | None:
    if not isinstance(row, dict) or not isinstance(row.get("mean"), int | float):
        return None
    named = {
        level: float(row[level])
        for level in ("p50", "p95")
        if isinstance(row.get(level), int | float)
    }
    return Lengths(float(row["mean"]), named)

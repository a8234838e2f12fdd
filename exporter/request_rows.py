"""The rows of request logs: exact counters, histograms and how each log fares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from analyzer.histogram import Histogram
from analyzer.requests_total import CRITERIA, STAGES, RequestTotals, Row
from exporter.tail_batch import LOST_REASONS

Labels = tuple[str, ...]
Numbers = Iterator[tuple[Labels, float]]
Histograms = Iterator[tuple[Labels, Histogram]]


@dataclass(frozen=True, slots=True)
class LogView:
    """One log as a scrape shows it."""

    name: str
    totals: RequestTotals
    lost: Mapping[str, float]
    lag_bytes: float


def _per_row(value: Callable[[Row], float]) -> Callable[[LogView], Numbers]:
    def rows(log: LogView) -> Numbers:
        for (model, name), row in log.totals.rows.items():
            yield (log.name, model, name), value(row)

    return rows


def _misses(log: LogView) -> Numbers:
    for (model, name), row in log.totals.rows.items():
        for criterion, times in row.misses.items():
            yield (log.name, model, name, criterion), times


def _by_reason(
    values: Callable[[LogView], Mapping[str, float]],
) -> Callable[[LogView], Numbers]:
    def rows(log: LogView) -> Numbers:
        for reason, times in values(log).items():
            yield (log.name, reason), times

    return rows


def _lines(log: LogView) -> Numbers:
    yield (log.name,), log.totals.lines


COUNTERS: Mapping[str, Callable[[LogView], Numbers]] = {
    "goodput_requests_total": _per_row(lambda row: row.requests),
    "goodput_good_requests_total": _per_row(lambda row: row.good),
    "goodput_bad_requests_total": _per_row(lambda row: row.bad),
    "goodput_unevaluable_requests_total": _per_row(lambda row: row.unevaluable),
    "goodput_criterion_misses_total": _misses,
    "goodput_excluded_requests_total": _by_reason(lambda log: log.totals.excluded),
    "goodput_tokens_total": _per_row(lambda row: row.tokens),
    "goodput_good_tokens_total": _per_row(lambda row: row.good_tokens),
    "goodput_log_lines_total": _lines,
    "goodput_log_parse_failures_total": _by_reason(lambda log: log.totals.failures),
    "goodput_log_losses_total": _by_reason(
        # At 0 before the first, which an increase would not show otherwise.
        lambda log: {**dict.fromkeys(LOST_REASONS, 0.0), **log.lost}
    ),
}


def _lag(log: LogView) -> Numbers:
    yield (log.name,), log.lag_bytes


def _last_record(log: LogView) -> Numbers:
    if log.totals.last_record is not None:
        yield (log.name,), log.totals.last_record


GAUGES: Mapping[str, Callable[[LogView], Numbers]] = {
    "goodput_log_lag_bytes": _lag,
    "goodput_log_last_record_timestamp_seconds": _last_record,
}


def _latencies(criterion: str) -> Callable[[LogView], Histograms]:
    def rows(log: LogView) -> Histograms:
        for (model, name), row in log.totals.rows.items():
            yield (log.name, model, name), row.latencies[criterion].histogram()

    return rows


def _stages(log: LogView) -> Histograms:
    for (model, name), row in log.totals.rows.items():
        for stage in STAGES:
            yield (log.name, model, name, stage), row.stages[stage].histogram()


HISTOGRAMS: Mapping[str, Callable[[LogView], Histograms]] = {
    **{f"goodput_request_{c}_seconds": _latencies(c) for c in CRITERIA},
    "goodput_request_stage_seconds": _stages,
}

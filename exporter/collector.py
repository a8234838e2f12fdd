"""Turns the state into metric families, one consistent reading a scrape."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.utils import floatToGoString

from analyzer.catalogue import ENGINE_STATES, METRICS
from analyzer.config import Config
from analyzer.flow import KIND as ENGINE_KIND
from analyzer.flow import EngineFlow
from analyzer.gpus.flow import KIND as GPU_KIND
from analyzer.gpus.flow import GpuFlow
from analyzer.histogram import Histogram
from analyzer.ledger import Ledger
from analyzer.metric import Kind
from exporter import constraint_rows, gpu_rows, request_rows
from exporter.gpu_rows import GpuView
from exporter.request_rows import LogView

Row = tuple[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class View:
    """What one scrape shows: the flows in service, those that went, and ourselves.

    `retired` flows are gone from the configuration: their counters are shown until
    every scraper has seen their end, their gauges are not.
    """

    at: float
    config: Config
    flows: Sequence[EngineFlow]
    retired: Sequence[EngineFlow]
    process: Ledger
    reload_ok: bool
    loaded_at: float
    state_ok: bool | None
    version: str
    logs: Sequence[LogView] = ()
    gpus: Sequence[GpuView] = ()
    coverage: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    discovered: Mapping[str, int] = field(default_factory=dict)


def families(view: View) -> list[Family]:
    """Returns every family of the catalogue that has rows, with the process's own."""
    result: list[Family] = []
    for metric in METRICS:
        if metric.kind is Kind.COUNTER:
            counter = CounterMetricFamily(
                metric.name, metric.documentation, labels=metric.labels
            )
            for labels, value in _counter_rows(view, metric.name):
                counter.add_metric(labels, value)
            result.append(counter)
        elif metric.kind is Kind.HISTOGRAM:
            family = HistogramMetricFamily(
                metric.name, metric.documentation, labels=metric.labels
            )
            for labels, histogram in _histogram_rows(view, metric.name):
                family.add_metric(labels, _buckets(histogram), histogram.sum)
            result.append(family)
        else:
            gauge = GaugeMetricFamily(
                metric.name, metric.documentation, labels=metric.labels
            )
            for labels, value in GAUGES[metric.name](view):
                gauge.add_metric(labels, value)
            result.append(gauge)
    result = [family for family in result if family.samples]
    result.extend(ProcessCollector(registry=None).collect())
    return result


class Families:
    """Families as the registry that prometheus_client's encoders ask for."""

    def __init__(self, collected: Iterable[Family]) -> None:
        self._collected = collected

    def collect(self) -> Iterator[Family]:
        """Yields the families."""
        yield from self._collected


def _counter_rows(view: View, name: str) -> Iterator[Row]:
    if name.startswith(PROCESS_PREFIXES):
        yield from view.process.rows(name)
        return
    if name in request_rows.COUNTERS:
        for log in view.logs:
            yield from request_rows.COUNTERS[name](log)
        return
    if name in gpu_rows.COUNTERS:
        yield from gpu_rows.COUNTERS[name](view.gpus)
        return
    flows: list[EngineFlow | GpuFlow] = [*view.flows, *view.retired]
    flows += (gpu.flow for gpu in view.gpus)
    for flow in flows:
        for labels, value in flow.ledger.rows(name):
            yield (flow.source.name, *labels), value


# Counters about the exporter rather than about one target.
PROCESS_PREFIXES = (
    "goodput_discovery_failures",
    "goodput_label_values_dropped",
    "goodput_state_write_failures",
    "goodput_sampler_missed_cycles",
)


def _histogram_rows(
    view: View, name: str
) -> Iterator[tuple[tuple[str, ...], Histogram]]:
    if name in request_rows.HISTOGRAMS:
        for log in view.logs:
            yield from request_rows.HISTOGRAMS[name](log)
        return
    for flow in (*view.flows, *view.retired):
        for labels, histogram in flow.ledger.histograms.get(name, {}).items():
            yield (flow.source.name, *labels), histogram


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    pairs = zip(histogram.bounds, histogram.counts, strict=True)
    return [(_le(bound), count) for bound, count in pairs]


def _le(bound: float) -> str:
    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]


def _objectives(view: View) -> Iterator[Row]:
    for slo_class in view.config.slo_classes:
        yield (slo_class.name,), slo_class.objective


def _windows(view: View) -> Iterator[Row]:
    for slo_class in view.config.slo_classes:
        yield (slo_class.name,), slo_class.window_seconds


def _thresholds(view: View) -> Iterator[Row]:
    for slo_class in view.config.slo_classes:
        for criterion, threshold in slo_class.good.items():
            yield (slo_class.name, criterion), threshold.seconds


def _thresholds_per_token(view: View) -> Iterator[Row]:
    for slo_class in view.config.slo_classes:
        for criterion, threshold in slo_class.good.items():
            if threshold.per_prompt_token:
                yield (slo_class.name, criterion), threshold.per_prompt_token


def _percentiles(view: View) -> Iterator[Row]:
    for slo_class in view.config.slo_classes:
        for (criterion, level), seconds in slo_class.percentiles.items():
            yield (slo_class.name, criterion, level), seconds


def _stages(view: View) -> Iterator[Row]:
    for slo_class in view.config.slo_classes:
        for stage, seconds in slo_class.stages.items():
            yield (slo_class.name, stage), seconds


def _states(view: View) -> Iterator[Row]:
    for flow in view.flows:
        current, _ = flow.state(view.at)
        for state in ENGINE_STATES:
            yield (flow.source.name, state), float(state == current)


def _rank_gauge(signal: str) -> Callable[[View], Iterator[Row]]:
    def rows(view: View) -> Iterator[Row]:
        for flow in view.flows:
            if flow.stale(view.at):
                continue
            for model, rank in flow.ranks():
                value = flow.gauge(signal, model, rank)
                if value is not None:
                    yield (flow.source.name, model, rank), value

    return rows


def _waiting(view: View) -> Iterator[Row]:
    for flow in view.flows:
        if flow.stale(view.at) or flow.reading is None:
            continue
        gauges = flow.reading.gauges
        by_reason = "waiting_by_reason" in flow.reading.names
        wanted = {"waiting_by_reason" if by_reason else "waiting", "swapped"}
        for group, value in gauges.items():
            if group.signal in wanted:
                plain = "swapped" if group.signal == "swapped" else "unattributed"
                reason = group.extra or plain
                yield (flow.source.name, group.model, group.rank, reason), value


def _kv_peaks(view: View) -> Iterator[Row]:
    for flow in view.flows:
        if flow.stale(view.at):
            continue
        for model, rank in flow.ranks():
            value = flow.kv_peak(model, rank, view.at)
            if value is not None:
                yield (flow.source.name, model, rank), value


def _scraped(view: View) -> Iterator[tuple[tuple[str, str], EngineFlow | GpuFlow]]:
    """Yields every target in service with its labels."""
    for flow in view.flows:
        yield (flow.source.name, ENGINE_KIND), flow
    for gpu in view.gpus:
        if not gpu.retired:
            yield (gpu.flow.source.name, GPU_KIND), gpu.flow


def _up(view: View) -> Iterator[Row]:
    for labels, flow in _scraped(view):
        if flow.attempt is not None:
            yield labels, float(not flow.attempt.reason)


def _durations(view: View) -> Iterator[Row]:
    for labels, flow in _scraped(view):
        if flow.attempt is not None:
            yield labels, flow.attempt.seconds


def _successes(view: View) -> Iterator[Row]:
    for labels, flow in _scraped(view):
        if flow.memory.last_success is not None:
            yield labels, flow.memory.last_success


def _target_info(view: View) -> Iterator[Row]:
    for flow in view.flows:
        source = flow.source
        pod, node = (source.labels.get(name, "") for name in ("pod", "node"))
        yield (source.name, ENGINE_KIND, pod, node, source.url), 1.0
    for gpu in view.gpus:
        if not gpu.retired:
            exporter = gpu.flow.source
            yield (exporter.name, GPU_KIND, "", "", exporter.url), 1.0


def _discovered(view: View) -> Iterator[Row]:
    for entry, targets in view.discovered.items():
        yield (entry,), float(targets)


def _state_written(view: View) -> Iterator[Row]:
    if view.state_ok is not None:
        yield (), float(view.state_ok)


def _gpu_gauge(name: str) -> Callable[[View], Iterator[Row]]:
    def rows(view: View) -> Iterator[Row]:
        yield from gpu_rows.GAUGES[name](view.gpus)

    return rows


def _build_info(view: View) -> Iterator[Row]:
    yield (view.version, platform.python_version()), 1.0


def _log_gauge(name: str) -> Callable[[View], Iterator[Row]]:
    def rows(view: View) -> Iterator[Row]:
        for log in view.logs:
            yield from request_rows.GAUGES[name](log)

    return rows


GAUGES: Mapping[str, Callable[[View], Iterable[Row]]] = {
    "goodput_slo_objective_ratio": _objectives,
    "goodput_slo_window_seconds": _windows,
    "goodput_slo_threshold_seconds": _thresholds,
    "goodput_slo_threshold_per_prompt_token_seconds": _thresholds_per_token,
    "goodput_slo_percentile_threshold_seconds": _percentiles,
    "goodput_slo_stage_budget_seconds": _stages,
    "goodput_engine_state": _states,
    "goodput_engine_running_requests": _rank_gauge("running"),
    "goodput_engine_waiting_requests": _waiting,
    "goodput_engine_kv_cache_usage_ratio": _rank_gauge("kv_cache_usage"),
    "goodput_engine_kv_cache_usage_ratio_max60s": _kv_peaks,
    "goodput_constraint": lambda v: constraint_rows.constraints(v.flows, v.at),
    "goodput_kv_cache_exhaustion_seconds": lambda v: constraint_rows.exhaustions(
        v.flows, v.at
    ),
    "goodput_target_up": _up,
    "goodput_target_scrape_duration_seconds": _durations,
    "goodput_target_last_success_timestamp_seconds": _successes,
    "goodput_target_info": _target_info,
    "goodput_discovery_targets": _discovered,
    "goodput_config_last_reload_successful": lambda v: [((), float(v.reload_ok))],
    "goodput_config_last_reload_success_timestamp_seconds": lambda v: [
        ((), v.loaded_at)
    ],
    "goodput_state_last_write_successful": _state_written,
    "goodput_build_info": _build_info,
    "goodput_source_coverage_ratio": lambda v: v.coverage.items(),
    **{name: _log_gauge(name) for name in request_rows.GAUGES},
    **{name: _gpu_gauge(name) for name in gpu_rows.GAUGES},
}

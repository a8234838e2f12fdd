"""`goodput check --live` for GPU exporters: which GPUs are ours, and what is told."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import click

from analyzer.commands.findings import finding_row, print_findings
from analyzer.config import Config
from analyzer.config_gpus import GpuSource
from analyzer.config_sources import EngineSource
from analyzer.finding import Finding
from analyzer.gpus.audit import gpu_findings
from analyzer.gpus.flow import GpuFlow
from analyzer.gpus.match import leaves
from analyzer.gpus.ownership import Joins, joins, together
from analyzer.gpus.reading import SIGNALS
from analyzer.gpus.rows import device_name, exporter_row
from analyzer.signals import Signal, State
from analyzer.sources.scrape import Fetcher, ScrapeError

EVERY_SECONDS = 2.0  # between two pages while we listen for a change of the figures
RELOAD_SECONDS = 5.0  # for which an exporter's page may be empty
LISTED_ENGINES = 20
LISTED_GPUS = 16
_EXPORTERS = {
    "dcgm": "dcgm-exporter",
    "amd": "AMD device-metrics-exporter",
    "nvidia_smi": "nvidia_gpu_exporter",
}


@dataclass(frozen=True, slots=True)
class GpuProbe:
    """One exporter as it was found at *at*: its flow, and each engine's own GPUs."""

    flow: GpuFlow
    at: float
    engines: tuple[EngineSource, ...]
    joins: Joins
    findings: tuple[Finding, ...]

    @property
    def error(self) -> str:
        """Why no page could be read, "" when one was."""
        attempt = self.flow.attempt
        if attempt is None or not attempt.reason:
            return ""
        return f"{attempt.reason}: {attempt.detail}"


class GpuProbes:
    """Asks the exporters of a configuration while others are asked."""

    def __init__(self, config: Config, seconds: float) -> None:
        """Begins to ask, until figures were seen to change or *seconds* are over."""
        sources = config.gpus
        self._pool = ThreadPoolExecutor(max(1, len(sources)), thread_name_prefix="gpu")
        self._asked: list[Future[tuple[GpuFlow, float]]] = [
            self._pool.submit(_ask, source, seconds) for source in sources
        ]

    def found(self, engines: Sequence[EngineSource]) -> list[GpuProbe]:
        """Waits for every answer, and returns it with the GPUs of each of *engines*."""
        self._pool.shutdown()
        return [_probe(*asked.result(), engines) for asked in self._asked]


def _ask(source: GpuSource, seconds: float) -> tuple[GpuFlow, float]:
    flow = GpuFlow(source)
    fetcher = Fetcher.of(source)
    begun = time.monotonic()
    try:
        while True:
            at = time.time()
            try:
                page = fetcher.get(source.url, timeout=source.timeout)
                flow.observe(flow.read(page.text, at), seconds=page.seconds)
            except ScrapeError as error:
                flow.fail(error.reason, at, seconds=0.0, detail=error.detail)
            empty = flow.attempt is not None and flow.attempt.reason == "empty_page"
            patience = max(seconds, RELOAD_SECONDS if empty else 0.0)
            over = time.monotonic() - begun + EVERY_SECONDS > patience
            if over or (_known(flow, at) and not empty):
                return flow, time.time()
            time.sleep(EVERY_SECONDS)
    finally:
        fetcher.close()


def _known(flow: GpuFlow, at: float) -> bool:
    """Whether there is nothing more to wait for: a failure, or every age."""
    if flow.attempt is not None and flow.attempt.reason:
        return True
    return all(d.signals["gpu_data_age_seconds"] for d in flow.reading(at).devices)


def _probe(flow: GpuFlow, at: float, engines: Sequence[EngineSource]) -> GpuProbe:
    found = joins(flow, engines, at)
    attempt = flow.attempt
    findings: tuple[Finding, ...] = ()
    if attempt is not None and not attempt.reason:
        findings = gpu_findings(flow, found, at)
    return GpuProbe(flow, at, tuple(engines), found, findings)


def gpu_document(probe: GpuProbe) -> dict[str, Any]:
    """Returns what was found of an exporter, for JSON."""
    return {
        **exporter_row(probe.flow, probe.at, probe.engines),
        "up": not probe.error,
        "findings": list(map(finding_row, probe.findings)),
    }


def print_gpu(probe: GpuProbe) -> None:
    """Prints what was found of an exporter."""
    flow = probe.flow
    devices = flow.reading(probe.at).devices
    head = probe.error or _EXPORTERS[flow.exporter]
    if devices:
        number = len(leaves(devices))
        head += f", {number} GPU{'s' * (number != 1)}"
        if flow.base_units:
            head += ", in the names of 4.9 and later"
    click.echo(f"\n{flow.source.name} ({flow.source.url}): {head}")
    if not devices:
        return
    _print_joins(probe)
    own = together(probe.joins).devices
    shown = own or devices
    whose = "ours" if own else "all of the page"
    click.echo(f"  signals ({whose}):")
    for name in SIGNALS:
        click.echo(f"    {name:28} {_said([d.signals[name] for d in shown])}")
    click.echo("  share of time with clocks held down:")
    for reason in shown[0].throttled:
        said = _said([device.throttled[reason] for device in shown])
        click.echo(f"    {reason:28} {said}")
    if not all(device.signals["gpu_data_age_seconds"] for device in devices):
        click.echo("  the age shows with --listen 40s, when the figures change")
    print_findings(probe.findings)


def _print_joins(probe: GpuProbe) -> None:
    told = tuple(each for each in probe.joins if each[1].devices)
    listed = told or probe.joins  # other nodes' exporters have the other engines' GPUs
    for engine, join in listed[:LISTED_ENGINES]:
        of = f" of {engine}" if engine else ""
        if join.problem:
            click.echo(f"  GPUs{of}: not known: {join.problem}")
            continue
        click.echo(f"  GPUs{of}: {len(join.devices)}, told by: {join.how}")
        for device in join.devices[:LISTED_GPUS]:
            pods = ", ".join(f"{w.namespace}/{w.pod}" for w in device.workloads)
            words = (device.index, device.model_name, device_name(device), pods)
            click.echo(f"    {' '.join(filter(None, words))}")
        if len(join.devices) > LISTED_GPUS:
            click.echo(f"    and {len(join.devices) - LISTED_GPUS} more")
    if len(listed) > LISTED_ENGINES:
        click.echo(f"  and {len(listed) - LISTED_ENGINES} more engines")


def _said(signals: Sequence[Signal]) -> str:
    """Returns the range of a signal over GPUs, or the first reason why not."""
    values = [s.value for s in signals if s.value is not None]
    lacking = next((s for s in signals if s.value is None), None)
    said = ""
    if values:
        low, high = min(values), max(values)
        said = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
        why = next((s.reason for s in signals if s.value is not None and s.reason), "")
        said += f" ({why})" if why else ""
    if lacking is None:
        return said
    if lacking.state is State.BOUNDED:
        return f"{lacking.lower:.4g} to {lacking.upper:.4g} ({lacking.reason})"
    return (
        f"{said}, and one absent: {lacking.reason}"
        if said
        else (f"absent: {lacking.reason}")
    )

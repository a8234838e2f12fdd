"""A GPU exporter in the JSON document: what it tells of which GPU, and why not more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analyzer.config_sources import EngineSource
from analyzer.gpus.flow import GpuFlow
from analyzer.gpus.ownership import joins, together
from analyzer.gpus.reading import SIGNALS, Device
from analyzer.signals import Signal, State

Document = dict[str, Any]


def source_row(
    flow: GpuFlow, at: float, engines: Sequence[EngineSource] = ()
) -> Document:
    """Returns what is to be known of one GPU exporter as a source at *at*.

    A signal is missing when no GPU of *engines* has it.
    """
    own = together(joins(flow, engines, at)).devices
    devices = own or flow.reading(at).devices
    attempt = flow.attempt
    return {
        "source": "gpu",
        "name": flow.source.name,
        "up": attempt is not None and not attempt.reason,
        "reason": "not scraped yet" if attempt is None else attempt.reason,
        "gaps": flow.gaps,
        "resets": 0,
        "missing_signals": [
            name
            for name in sorted(SIGNALS)
            if all(d.signal(name).state is State.ABSENT for d in devices)
        ],
    }


def exporter_row(
    flow: GpuFlow, at: float, engines: Sequence[EngineSource] = ()
) -> Document:
    """Returns a GPU exporter's page, how our GPUs were told, and all GPUs it has.

    Ours are those of *engines*.
    """
    attempt, found = flow.attempt, joins(flow, engines, at)
    join = together(found)
    devices = flow.reading(at).devices
    own = {(device.uuid, device.gpu_instance) for device in join.devices}
    return {
        "target": flow.source.name,
        "url": flow.source.url,
        "reason": "not scraped yet" if attempt is None else attempt.reason,
        "detail": attempt.detail if attempt else "",
        "scrape_seconds": attempt.seconds if attempt else None,
        "last_success": flow.memory.last_success,
        "stale": flow.stale(at),
        "exporter": flow.exporter or None,
        "join": {
            "how": join.how,
            "problem": join.problem,
            "caution": join.caution,
            "engines": [
                {
                    "engine": engine,
                    "devices": list(map(device_name, each.devices)),
                    "how": each.how,
                    "problem": each.problem,
                    "caution": each.caution,
                }
                for engine, each in found
            ],
        },
        "damaged_lines": [
            {"line": e.line, "reason": e.reason, "excerpt": e.excerpt}
            for e in flow.damaged
        ],
        "devices": [
            {**_device_row(d), "ours": (d.uuid, d.gpu_instance) in own} for d in devices
        ],
    }


def device_name(device: Device) -> str:
    """Returns a GPU's UUID; of a MIG instance with a slash and its number."""
    return (
        f"{device.uuid}/{device.gpu_instance}" if device.gpu_instance else device.uuid
    )


def _device_row(device: Device) -> Document:
    return {
        "uuid": device.uuid,
        "gpu_instance": device.gpu_instance,
        "gpu": device.index,
        "model_name": device.model_name,
        "hostname": device.hostname,
        "pci_bus_id": device.pci_bus_id,
        "workloads": [workload._asdict() for workload in device.workloads],
        "signals": {name: _signal_row(device.signal(name)) for name in SIGNALS},
        "throttled": {
            reason: _signal_row(share) for reason, share in device.throttled.items()
        },
    }


def _signal_row(signal: Signal) -> Document:
    row: Document = {"value": signal.value, "state": signal.state.value}
    if signal.reason:
        row["reason"] = signal.reason
    if signal.state is State.BOUNDED:
        row["bounds"] = [signal.lower, signal.upper]
    return row

"""The rows of GPUs on our own page: what is present or a proxy, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from analyzer.gpus.catalogue import GAUGES as SIGNALS
from analyzer.gpus.flow import THROTTLED, GpuFlow
from analyzer.gpus.match import leaves
from analyzer.gpus.reading import Device
from analyzer.signals import State

Row = tuple[tuple[str, ...], float]
_SHOWN_STATES = (State.PRESENT, State.PROXY)


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU exporter as a scrape shows it: its flow, and its GPUs that are ours.

    `devices` is empty while they cannot be told or the page is too old; `retired`
    says that the exporter has gone from the configuration.
    """

    flow: GpuFlow
    devices: tuple[Device, ...] = ()
    retired: bool = False


def views(
    flows: Sequence[GpuFlow], retired: Sequence[GpuFlow], at: float
) -> tuple[GpuView, ...]:
    """Returns what a scrape at *at* shows; a GPU that two exporters have, once."""
    seen: set[tuple[str, str]] = set()
    found = []
    for flow in flows:
        shown = () if flow.stale(at) else flow.shown(at)
        own = tuple(d for d in shown if (d.uuid, d.gpu_instance) not in seen)
        seen.update((d.uuid, d.gpu_instance) for d in own)
        found.append(GpuView(flow, own))
    return (*found, *(GpuView(flow, retired=True) for flow in retired))


def _signal(name: str) -> Callable[[Sequence[GpuView]], Iterator[Row]]:
    def rows(gpus: Sequence[GpuView]) -> Iterator[Row]:
        for view in gpus:
            for device in view.devices:
                signal = device.signal(name)
                if signal.value is not None and signal.state in _SHOWN_STATES:
                    yield (device.uuid, device.gpu_instance), signal.value

    return rows


def _info(gpus: Sequence[GpuView]) -> Iterator[Row]:
    for view in gpus:
        for device in view.devices:
            labels = (
                device.uuid,
                device.gpu_instance,
                view.flow.source.name,
                device.index,
                device.model_name,
                device.hostname,
                device.pci_bus_id,
                device.namespace,
                device.pod,
            )
            yield labels, 1.0


def _devices(gpus: Sequence[GpuView]) -> Iterator[Row]:
    for view in gpus:
        if not view.retired:
            yield (view.flow.source.name,), float(len(leaves(view.devices)))


def _throttled(gpus: Sequence[GpuView]) -> Iterator[Row]:
    seen: set[tuple[str, ...]] = set()
    for view in gpus:
        for labels, seconds in view.flow.ledger.rows(THROTTLED):
            if labels not in seen:
                seen.add(labels)
                yield labels, seconds


GAUGES: Mapping[str, Callable[[Sequence[GpuView]], Iterator[Row]]] = {
    **{f"goodput_{name}": _signal(name) for name in SIGNALS},
    "goodput_gpu_info": _info,
    "goodput_gpu_devices": _devices,
}
COUNTERS: Mapping[str, Callable[[Sequence[GpuView]], Iterator[Row]]] = {
    THROTTLED: _throttled
}

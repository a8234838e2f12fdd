"""Which engine has which GPUs of an exporter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analyzer.config_sources import EngineSource
from analyzer.gpus.flow import GpuFlow
from analyzer.gpus.match import expected_gpus
from analyzer.gpus.reading import Device, Join

Joins = tuple[tuple[str, Join], ...]  # by the engine's name
SAID = 3  # different sentences in one


def engine_join(flow: GpuFlow, engine: EngineSource, at: float) -> Join:
    """Returns the GPUs of one engine, by its pod and node where discovery told them."""
    return flow.join(
        at,
        pod=engine.labels.get("pod", ""),
        node=engine.labels.get("node", ""),
        expected=expected_gpus(engine.declared),
    )


def joins(flow: GpuFlow, engines: Sequence[EngineSource], at: float) -> Joins:
    """Returns the GPUs of each engine; without engines those that are ours at all."""
    if not engines:
        return (("", flow.join(at)),)
    return tuple((engine.name, engine_join(flow, engine, at)) for engine in engines)


def together(found: Joins) -> Join:
    """Returns the GPUs of all engines as one.

    The exporter of another node has none of an engine's GPUs, which is no problem as
    long as somebody has some.
    """
    devices: dict[tuple[str, str], Device] = {}
    for _, join in found:
        devices.update(((d.uuid, d.gpu_instance), d) for d in join.devices)
    if not devices:
        return Join(problem=_said(join.problem for _, join in found))
    return Join(
        tuple(devices.values()),
        how=_said(join.how for _, join in found),
        caution=_said(join.caution for _, join in found),
    )


def _said(sentences: Iterable[str]) -> str:
    different = list(dict.fromkeys(filter(None, sentences)))
    more = f"; and {len(different) - SAID} more" if len(different) > SAID else ""
    return "; ".join(different[:SAID]) + more

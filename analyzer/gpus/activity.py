"""What the diagnosis of an engine gets to know of its GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from analyzer.config_sources import EngineSource
from analyzer.diagnosis.situation import GpuActivity
from analyzer.gpus.flow import GpuFlow
from analyzer.gpus.ownership import engine_join
from analyzer.gpus.reading import Device
from analyzer.gpus.trace import DEFAULT_REFRESH_SECONDS
from analyzer.signals import Signal, State

_USED = (State.PRESENT, State.PROXY)


def engine_activity(
    flows: Iterable[GpuFlow], engine: EngineSource, at: float
) -> GpuActivity | None:
    """Returns the activity of an engine's GPUs at *at*, None when none are its own.

    They are on one exporter's page: of GPUs on several nodes those of the first one.
    """
    for flow in flows:
        devices = engine_join(flow, engine, at).devices
        if devices:
            return activity(devices)
    return None


def activity(devices: Sequence[Device]) -> GpuActivity | None:
    """Returns the mean activity of *devices*, and the most that one was held down.

    None when somebody else shares one: its figures are of all of them together. The
    slowest of several GPUs makes all wait, so neither being held down nor power is
    averaged. Figures
    not yet seen to change are at least as young as the exporter's refresh, as far as
    is known.
    """
    if any(len(device.workloads) > 1 for device in devices):
        return None
    ages = _values(device.signal("gpu_data_age_seconds") for device in devices)
    age = DEFAULT_REFRESH_SECONDS if len(ages) < len(devices) else max(ages)
    return GpuActivity(
        dram=_mean(devices, "gpu_dram_active_ratio"),
        tensor=_mean(devices, "gpu_tensor_active_ratio"),
        sm=_mean(devices, "gpu_sm_active_ratio"),
        power=max(_power(devices), default=None),
        age=age,
        throttled=_most(devices, ("thermal", "hardware")),
        power_capped=_most(devices, ("power",)),
    )


def _mean(devices: Iterable[Device], name: str) -> float | None:
    values = _values(device.signal(name) for device in devices)
    return fmean(values) if values else None


def _most(devices: Iterable[Device], reasons: Sequence[str]) -> float | None:
    return max(
        _values(device.throttled[r] for device in devices for r in reasons),
        default=None,
    )


def _power(devices: Iterable[Device]) -> Iterator[float]:
    """Yields the power drawn over that allowed, of devices that tell both."""
    for device in devices:
        drawn, allowed = (
            _values([device.signal(name)])
            for name in ("gpu_power_watts", "gpu_power_limit_watts")
        )
        if drawn and allowed and allowed[0] > 0:
            yield drawn[0] / allowed[0]


def _values(signals: Iterable[Signal]) -> list[float]:
    return [s.value for s in signals if s.value is not None and s.state in _USED]

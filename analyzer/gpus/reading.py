"""What a GPU exporter says of its GPUs, in canonical names and base units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from analyzer.signals import Signal, absent

# Every device has each of these, present or with the reason why not. Ratios are
# 0..1, rates sum both directions.
SIGNALS = (
    "gpu_utilization_ratio",  # NVML's: was any kernel there; only idle or not idle
    "gpu_engine_active_ratio",
    "gpu_dram_active_ratio",
    "gpu_tensor_active_ratio",
    "gpu_sm_active_ratio",
    "gpu_memory_used_bytes",
    "gpu_memory_bytes",
    "gpu_power_watts",
    "gpu_power_limit_watts",
    "gpu_sm_clock_hertz",
    "gpu_nvlink_bytes_per_second",
    "gpu_pcie_bytes_per_second",
    "gpu_data_age_seconds",
)
# Signals of the whole board: no MIG instance has them of its own.
BOARD_SIGNALS = frozenset(
    {
        "gpu_utilization_ratio",
        "gpu_power_watts",
        "gpu_power_limit_watts",
        "gpu_sm_clock_hertz",
        "gpu_nvlink_bytes_per_second",
        "gpu_pcie_bytes_per_second",
    }
)
# Why clocks are held down: the power cap, heat, or what the hardware demands (a power
# brake, a slowdown); sync_boost waits for another GPU of its group.
THROTTLE_REASONS = ("power", "thermal", "hardware", "sync_boost")


class Workload(NamedTuple):
    """The container that a GPU is given to, as far as the exporter tells it."""

    namespace: str
    pod: str
    container: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, or one MIG instance of it, at one moment.

    `gpu_instance` is empty for a whole GPU. `workloads` are those that the exporter
    names: none when the GPU is free or the exporter cannot tell, several when they
    share it, so that no figure is one workload's own. `signals` has every name of
    SIGNALS; `throttled` has every one of THROTTLE_REASONS: the share of the time
    (0..1) for which it held the clocks down lately.
    """

    uuid: str
    gpu_instance: str = ""
    index: str = ""
    model_name: str = ""
    hostname: str = ""
    pci_bus_id: str = ""
    workloads: tuple[Workload, ...] = ()
    signals: Mapping[str, Signal] = field(default_factory=dict)
    throttled: Mapping[str, Signal] = field(default_factory=dict)

    @property
    def pod(self) -> str:
        """The pod that has the GPU alone, "" when there is none or several."""
        return self.workloads[0].pod if len(self.workloads) == 1 else ""

    @property
    def namespace(self) -> str:
        """The namespace of `pod`."""
        return self.workloads[0].namespace if len(self.workloads) == 1 else ""

    def signal(self, name: str) -> Signal:
        """Returns a signal, absent when nothing is known of it."""
        found = self.signals.get(name)
        return absent("nothing is known of it") if found is None else found


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The GPUs of one exporter as known at *at* (Unix seconds)."""

    at: float
    devices: tuple[Device, ...] = ()


@dataclass(frozen=True, slots=True)
class Join:
    """Which GPUs are a workload's own: `how` they were told, or `problem`: why not.

    With a `caution` the figures stand, but not for the workload alone, or not surely.
    """

    devices: tuple[Device, ...] = ()
    how: str = ""
    problem: str = ""
    caution: str = ""

"""The names of AMD's device-metrics-exporter and of nvidia_gpu_exporter."""

from __future__ import annotations

from collections.abc import Mapping

from analyzer.gpus.dcgm import MIB
from analyzer.gpus.fields import Field, Printed

_PERCENT = 0.01

# ROCm/device-metrics-exporter; a site may put a prefix before each name. Its memory
# figures say MB and are MiB: an MI300X of 192 GiB has 196592 of them.
_AMD: Mapping[str, Printed] = {
    "gpu_gfx_activity": Printed(Field.UTILIZATION, _PERCENT),
    "gpu_umc_activity": Printed(Field.DRAM, _PERCENT),
    "gpu_prof_gui_util_percent": Printed(Field.ENGINE, _PERCENT),
    "gpu_prof_sm_active": Printed(Field.SM, _PERCENT),
    "gpu_prof_tensor_active_percent": Printed(Field.TENSOR, _PERCENT),
    "gpu_used_vram": Printed(Field.USED, MIB),
    "gpu_free_vram": Printed(Field.FREE, MIB),
    "gpu_total_vram": Printed(Field.TOTAL, MIB),
    "gpu_power_usage": Printed(Field.POWER),
    "gpu_package_power": Printed(Field.POWER),
    "gpu_average_package_power": Printed(Field.POWER),
    "gpu_energy_consumed": Printed(Field.ENERGY, 1e-6),
    "gpu_clock": Printed(Field.SM_CLOCK, 1e6),
    "pcie_bandwidth": Printed(Field.PCIE, 1e6 / 8),  # megabits a second
    "gpu_violation_ppt_residency_percentage": Printed(Field.POWER_SHARE, _PERCENT),
    "gpu_violation_socket_thermal_residency_percentage": Printed(
        Field.THERMAL_SHARE, _PERCENT
    ),
    "gpu_violation_hbm_thermal_residency_percentage": Printed(
        Field.THERMAL_SHARE, _PERCENT
    ),
    "gpu_violation_vr_thermal_residency_percentage": Printed(
        Field.THERMAL_SHARE, _PERCENT
    ),
}
# What stands in for another quantity there.
AMD_PROXIES: Mapping[Field, str] = {
    Field.DRAM: "the memory controller's busy time (gpu_umc_activity)",
    Field.SM: "the time in which vector instructions ran (gpu_prof_sm_active)",
}
AMD_CLOCK = "system"  # of the several clocks, the compute units'

# utkuozdemir/nvidia_gpu_exporter: nvidia-smi's figures, so no profiling ones.
_SMI_PREFIX = "nvidia_smi_"
_SMI: Mapping[str, Printed] = {
    "utilization_gpu_ratio": Printed(Field.UTILIZATION),
    "memory_used_bytes": Printed(Field.USED),
    "memory_free_bytes": Printed(Field.FREE),
    "memory_reserved_bytes": Printed(Field.RESERVED),
    "memory_total_bytes": Printed(Field.TOTAL),
    "power_draw_watts": Printed(Field.POWER),
    "enforced_power_limit_watts": Printed(Field.POWER_LIMIT),
    "energy_joules_total": Printed(Field.ENERGY),
    "clocks_current_sm_clock_hz": Printed(Field.SM_CLOCK),
    "pcie_throughput_tx_bytes_per_second": Printed(Field.PCIE_TX),
    "pcie_throughput_rx_bytes_per_second": Printed(Field.PCIE_RX),
    "clocks_event_reasons_sw_power_cap": Printed(Field.POWER_FLAG),
    "clocks_event_reasons_sw_thermal_slowdown": Printed(Field.THERMAL_FLAG),
    "clocks_event_reasons_hw_thermal_slowdown": Printed(Field.THERMAL_FLAG),
    "clocks_event_reasons_hw_power_brake_slowdown": Printed(Field.HARDWARE_FLAG),
    "clocks_event_reasons_sync_boost": Printed(Field.SYNC_BOOST_FLAG),
}


def amd(name: str, labels: Mapping[str, str]) -> Printed | None:
    """Returns what AMD's exporter prints under this name, None when it is not read."""
    for begin in ("gpu_", "pcie_"):
        start = name.find(begin)
        found = _AMD.get(name[start:]) if start >= 0 else None
        if found is not None:
            clock = labels.get("clock_type", AMD_CLOCK)
            return found if clock == AMD_CLOCK else None
    return None


def nvidia_smi(name: str) -> Printed | None:
    """Returns what nvidia_gpu_exporter prints under this name."""
    if not name.startswith(_SMI_PREFIX):
        return None
    return _SMI.get(name.removeprefix(_SMI_PREFIX))

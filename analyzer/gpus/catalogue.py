"""The metrics of GPUs, as the catalogue of all metrics has them."""

from __future__ import annotations

from analyzer.metric import Kind, Metric

_DEVICE = ("uuid", "gpu_instance")

# By signal; a signal that is stale or absent has no row.
GAUGES = {
    "gpu_utilization_ratio": "Share of time in which any kernel ran (NVML). Says idle "
    "or not, never how much: one spinning kernel makes it 1.",
    "gpu_engine_active_ratio": "Share of time in which the compute engine was busy.",
    "gpu_dram_active_ratio": "Share of cycles in which device memory moved data; about "
    "0.8 is the practical peak. Of AMD the memory controller's busy time.",
    "gpu_tensor_active_ratio": "Share of cycles in which a tensor core was busy; about "
    "0.93 is the practical peak.",
    "gpu_sm_active_ratio": "Share of cycles in which a multiprocessor had work, also "
    "while it waited for memory.",
    "gpu_memory_used_bytes": "Device memory taken. vLLM takes it at its start, so it "
    "says nothing of the KV cache.",
    "gpu_memory_bytes": "Device memory there is.",
    "gpu_power_watts": "Power drawn, of the whole board.",
    "gpu_power_limit_watts": "Power allowed, of the whole board.",
    "gpu_sm_clock_hertz": "Clock of the multiprocessors.",
    "gpu_nvlink_bytes_per_second": "NVLink traffic of both directions.",
    "gpu_pcie_bytes_per_second": "PCIe traffic of both directions.",
    "gpu_data_age_seconds": "Time since the figures were seen to change: exporters "
    "refresh them every 30 seconds by default. Absent before the first change.",
}
METRICS: tuple[Metric, ...] = (
    *(
        Metric(f"goodput_{signal}", Kind.GAUGE, documentation, _DEVICE)
        for signal, documentation in GAUGES.items()
    ),
    Metric(
        "goodput_gpu_throttled_seconds_total",
        Kind.COUNTER,
        "Time for which clocks were held down, by reason: from the exporter's "
        "counters, else from the state at each reading.",
        (*_DEVICE, "reason"),
    ),
    Metric(
        "goodput_gpu_info",
        Kind.GAUGE,
        "Which GPU it is and whose: always 1. Pod and namespace are empty when several "
        "share it, or the exporter names none.",
        (
            *_DEVICE,
            "target",
            "gpu",
            "model_name",
            "hostname",
            "pci_bus_id",
            "namespace",
            "pod",
        ),
    ),
    Metric(
        "goodput_gpu_devices",
        Kind.GAUGE,
        "GPUs and MIG instances of the exporter that the configuration selects; 0 when "
        "they cannot be told, as the status page explains.",
        ("target",),
    ),
)

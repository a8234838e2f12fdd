"""What each GPU signal is for, and the row that an exporter's CSV needs for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Need:
    """One signal: what it decides, and its dcgm-exporter fields before and since 4.9.

    Several fields are needed together. `default` says whether the exporter's own list
    of fields has them. `profiling` ones need a GPU with profiling, and the right
    to use it.
    """

    signal: str
    purpose: str
    before: tuple[str, ...]
    since: tuple[str, ...]
    default: bool
    profiling: bool = False
    note: str = ""

    def fields(self, *, base_units: bool) -> tuple[str, ...]:
        """Returns the full names under which the exporter prints it."""
        names = self.since if base_units else self.before
        return tuple(f"DCGM_FI_{name}" for name in names)


NEEDS: tuple[Need, ...] = (
    Need(
        "gpu_utilization_ratio",
        "idle or not: one busy kernel makes it 1",
        ("DEV_GPU_UTIL",),
        ("DEV_GPU_UTIL_RATIO",),
        default=True,
        note="Not told of MIG instances.",
    ),
    Need(
        "gpu_engine_active_ratio",
        "compute engine busy; what MIG instances have instead of utilisation",
        ("PROF_GR_ENGINE_ACTIVE",),
        ("PROF_GR_ENGINE_UTIL_RATIO",),
        default=True,
        profiling=True,
        note="Bare Docker installs have it since 4.0.",
    ),
    Need(
        "gpu_dram_active_ratio",
        "memory bandwidth in use; about 0.8 is the practical peak",
        ("PROF_DRAM_ACTIVE",),
        ("PROF_DRAM_UTIL_RATIO",),
        default=True,
        profiling=True,
        note="Bare Docker installs have it since 4.0. Of AMD it is a proxy.",
    ),
    Need(
        "gpu_tensor_active_ratio",
        "tensor cores in use; high means arithmetic is the limit",
        ("PROF_PIPE_TENSOR_ACTIVE",),
        ("PROF_TENSOR_UTIL_RATIO",),
        default=True,
        profiling=True,
        note="Bare Docker installs have it since 4.0.",
    ),
    Need(
        "gpu_sm_active_ratio",
        "multiprocessors with work, also while it waits for memory",
        ("PROF_SM_ACTIVE",),
        ("PROF_SM_UTIL_RATIO",),
        default=False,
        profiling=True,
        note="Of AMD it is a proxy.",
    ),
    Need(
        "gpu_memory_used_bytes",
        "memory taken; vLLM takes it at its start, so it says nothing of KV pressure",
        ("DEV_FB_USED",),
        ("DEV_FB_USED_BYTES",),
        default=True,
    ),
    Need(
        "gpu_memory_bytes",
        "memory there is",
        ("DEV_FB_USED", "DEV_FB_FREE", "DEV_FB_RESERVED"),
        ("DEV_FB_CAPACITY_BYTES",),
        default=True,
        note="Without the reserve, which older drivers do not tell apart, it is a "
        "proxy.",
    ),
    Need(
        "gpu_power_watts",
        "power drawn",
        ("DEV_POWER_USAGE",),
        ("DEV_BOARD_POWER_WATTS",),
        default=True,
    ),
    Need(
        "gpu_power_limit_watts",
        "power allowed; drawing nearly all of it slows the clocks",
        ("DEV_ENFORCED_POWER_LIMIT",),
        ("DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",),
        default=False,
    ),
    Need(
        "gpu_sm_clock_hertz",
        "clock of the multiprocessors",
        ("DEV_SM_CLOCK",),
        ("DEV_SM_CLOCK_HERTZ",),
        default=True,
    ),
    Need(
        "gpu_nvlink_bytes_per_second",
        "traffic between GPUs, both directions",
        ("DEV_NVLINK_BANDWIDTH_TOTAL",),
        ("DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND",),
        default=True,
        note="PROF_NVLINK_TX_BYTES and PROF_NVLINK_RX_BYTES stand above it where "
        "they are there. Parts without NVLink have neither.",
    ),
    Need(
        "gpu_pcie_bytes_per_second",
        "traffic with the host, both directions",
        ("PROF_PCIE_TX_BYTES", "PROF_PCIE_RX_BYTES"),
        ("PROF_PCIE_TX_BYTES", "PROF_PCIE_RX_BYTES"),
        default=True,
        profiling=True,
        note="Not told of MIG instances.",
    ),
    Need(
        "gpu_data_age_seconds",
        "how old the figures are, and whether the exporter still refreshes them",
        ("DEV_TOTAL_ENERGY_CONSUMPTION",),
        ("DEV_GPU_ENERGY_JOULES_TOTAL",),
        default=True,
    ),
)

# The rows for `throttled`: each reason's time, or else the mask of the moment.
THROTTLE_FIELDS: tuple[tuple[str, str, str], ...] = (
    ("power", "DEV_POWER_VIOLATION", "DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL"),
    ("thermal", "DEV_THERMAL_VIOLATION", "DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL"),
    (
        "hardware",
        "DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS",
        "DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS",
    ),
    (
        "sync_boost",
        "DEV_SYNC_BOOST_VIOLATION",
        "DEV_GPU_SYNC_BOOST_THROTTLE_SECONDS_TOTAL",
    ),
)
MASK_FIELD = "DEV_CLOCKS_EVENT_REASONS"


def csv_rows(signals: tuple[str, ...], *, base_units: bool) -> tuple[str, ...]:
    """Returns the rows to add to dcgm-exporter's CSV for *signals*, each once.

    `throttled` stands for the reasons why clocks are held down.
    """
    rows: dict[str, str] = {}
    for need in NEEDS:
        if need.signal in signals:
            kind = "counter" if need.signal == "gpu_data_age_seconds" else "gauge"
            for name in need.fields(base_units=base_units):
                rows[name] = f"{name}, {kind}, {_help(need.purpose)}"
    if "throttled" in signals:
        rows[f"DCGM_FI_{MASK_FIELD}"] = (
            f"DCGM_FI_{MASK_FIELD}, gauge, why clocks are held down (bit mask)"
        )
        for reason, before, since in THROTTLE_FIELDS[:2]:
            name = f"DCGM_FI_{since if base_units else before}"
            unit = "s" if base_units else "ns"
            rows[name] = f"{name}, counter, time held down by {reason} ({unit})"
    return tuple(rows.values())


def _help(purpose: str) -> str:
    """Returns a help text without the comma that would end it."""
    return purpose.partition(";")[0].partition(",")[0]

"""The names of NVIDIA's dcgm-exporter, 1.x to 4.9: renames and changes of unit.

A site may print any of them under any version, and with any type: the type line is
never used. Two rates are even called totals.
"""

from __future__ import annotations

from collections.abc import Mapping

from analyzer.gpus.fields import Field, Printed

PREFIX = "DCGM_"
MIB = 1_048_576.0
# The rate of NVLink is printed in KiB per millisecond or so: v = bytes/s ÷ 1 024 000.
NVLINK_UNIT = 1_024_000.0
_NS = 1e-9
_PERCENT = 0.01
_MEGA = 1e6

# Names as DCGM's fields have them, without DCGM_FI_. Those with units came with 4.9.
_FIELDS: Mapping[str, Printed] = {
    "DEV_GPU_UTIL": Printed(Field.UTILIZATION, _PERCENT),
    # Percent in DCGM 4.6, a ratio since 4.7.
    "DEV_GPU_UTIL_RATIO": Printed(Field.UTILIZATION_UNSURE),
    "PROF_GR_ENGINE_ACTIVE": Printed(Field.ENGINE),
    "PROF_GR_ENGINE_UTIL_RATIO": Printed(Field.ENGINE),
    "PROF_SM_ACTIVE": Printed(Field.SM),
    "PROF_SM_UTIL_RATIO": Printed(Field.SM),
    "PROF_PIPE_TENSOR_ACTIVE": Printed(Field.TENSOR),
    "PROF_TENSOR_UTIL_RATIO": Printed(Field.TENSOR),
    "PROF_DRAM_ACTIVE": Printed(Field.DRAM),
    "PROF_DRAM_UTIL_RATIO": Printed(Field.DRAM),
    "DEV_FB_USED": Printed(Field.USED, MIB),
    "DEV_FB_USED_BYTES": Printed(Field.USED),
    "DEV_FB_FREE": Printed(Field.FREE, MIB),
    "DEV_FB_FREE_BYTES": Printed(Field.FREE),
    "DEV_FB_RESERVED": Printed(Field.RESERVED, MIB),
    "DEV_FB_RESERVED_BYTES": Printed(Field.RESERVED),
    "DEV_FB_TOTAL": Printed(Field.TOTAL, MIB),
    "DEV_FB_CAPACITY_BYTES": Printed(Field.TOTAL),
    "DEV_POWER_USAGE": Printed(Field.POWER),
    "DEV_BOARD_POWER_WATTS": Printed(Field.POWER),
    "DEV_ENFORCED_POWER_LIMIT": Printed(Field.POWER_LIMIT),
    "DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS": Printed(Field.POWER_LIMIT),
    "DEV_POWER_MGMT_LIMIT": Printed(Field.POWER_LIMIT_ASKED),
    "DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS": Printed(Field.POWER_LIMIT_ASKED),
    "DEV_TOTAL_ENERGY_CONSUMPTION": Printed(Field.ENERGY, 1e-3),
    "DEV_GPU_ENERGY_JOULES_TOTAL": Printed(Field.ENERGY),
    "DEV_SM_CLOCK": Printed(Field.SM_CLOCK, _MEGA),
    "DEV_SM_CLOCK_HERTZ": Printed(Field.SM_CLOCK),
    "DEV_NVLINK_BANDWIDTH_TOTAL": Printed(Field.NVLINK, NVLINK_UNIT),
    "DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND": Printed(Field.NVLINK),
    "PROF_NVLINK_TX_BYTES": Printed(Field.NVLINK_TX),
    "PROF_NVLINK_RX_BYTES": Printed(Field.NVLINK_RX),
    "PROF_PCIE_TX_BYTES": Printed(Field.PCIE_TX),
    "PROF_PCIE_RX_BYTES": Printed(Field.PCIE_RX),
    "DEV_CLOCKS_EVENT_REASONS": Printed(Field.MASK),
    "DEV_CLOCK_THROTTLE_REASONS": Printed(Field.MASK),
    # Nanoseconds, although their help texts said microseconds until 4.4.2-4.7.1.
    "DEV_POWER_VIOLATION": Printed(Field.POWER_SECONDS, _NS),
    "DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL": Printed(Field.POWER_SECONDS),
    "DEV_THERMAL_VIOLATION": Printed(Field.THERMAL_SECONDS, _NS),
    "DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL": Printed(Field.THERMAL_SECONDS),
    "DEV_SYNC_BOOST_VIOLATION": Printed(Field.SYNC_BOOST_SECONDS, _NS),
    "DEV_GPU_SYNC_BOOST_THROTTLE_SECONDS_TOTAL": Printed(Field.SYNC_BOOST_SECONDS),
    "DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS": Printed(Field.POWER_CAP_SECONDS, _NS),
    "DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS": Printed(
        Field.SW_THERMAL_SECONDS, _NS
    ),
    "DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS": Printed(
        Field.HW_THERMAL_SECONDS, _NS
    ),
    "DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS": Printed(
        Field.BRAKE_SECONDS, _NS
    ),
    "DEV_CLOCKS_EVENT_REASON_SYNC_BOOST_NS": Printed(
        Field.SYNC_BOOST_EVENT_SECONDS, _NS
    ),
}
# What 1.x called its own; its profiling fields are those above in lower case.
_OLD: Mapping[str, Printed] = {
    "GPU_UTILIZATION": _FIELDS["DEV_GPU_UTIL"],
    "FB_USED": _FIELDS["DEV_FB_USED"],
    "FB_FREE": _FIELDS["DEV_FB_FREE"],
    "FB_TOTAL": _FIELDS["DEV_FB_TOTAL"],
    "POWER_USAGE": _FIELDS["DEV_POWER_USAGE"],
    "TOTAL_ENERGY_CONSUMPTION": _FIELDS["DEV_TOTAL_ENERGY_CONSUMPTION"],
    "SM_CLOCK": _FIELDS["DEV_SM_CLOCK"],
    "NVLINK_BANDWIDTH_TOTAL": _FIELDS["DEV_NVLINK_BANDWIDTH_TOTAL"],
    "POWER_VIOLATION": _FIELDS["DEV_POWER_VIOLATION"],
    "THERMAL_VIOLATION": _FIELDS["DEV_THERMAL_VIOLATION"],
    "SYNC_BOOST_VIOLATION": _FIELDS["DEV_SYNC_BOOST_VIOLATION"],
}
NAMES: Mapping[str, Printed] = {
    **{f"{PREFIX}FI_{name}": printed for name, printed in _FIELDS.items()},
    **{f"{PREFIX}{name}": printed for name, printed in _OLD.items()},
}
_BASE_UNIT_ENDINGS = ("_HERTZ", "_BYTES", "_WATTS", "_CELSIUS", "_JOULES_TOTAL")
NEW_LABEL = "DCGM_FI_SYSTEM_DRIVER_VERSION"


def printed(name: str) -> Printed | None:
    """Returns what a metric of this name holds, None when it is not read."""
    return NAMES.get(name.upper())


def in_base_units(name: str, labels: Mapping[str, str]) -> bool:
    """Whether a row can only be of 4.9 or later, which prints ratios as ratios."""
    return NEW_LABEL in labels or (
        name.startswith("DCGM_FI_DEV_") and name.endswith(_BASE_UNIT_ENDINGS)
    )

"""The figures that are read from GPU exporters, and what of a printed one is none."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple


class Field(StrEnum):
    """One figure of one GPU, in base units whatever the exporter prints."""

    UTILIZATION = "utilization"
    ENGINE = "engine"
    SM = "sm"
    TENSOR = "tensor"
    DRAM = "dram"
    USED = "used"
    FREE = "free"
    RESERVED = "reserved"
    TOTAL = "total"
    POWER = "power"
    POWER_LIMIT = "power_limit"
    POWER_LIMIT_ASKED = "power_limit_asked"
    ENERGY = "energy"
    SM_CLOCK = "sm_clock"
    NVLINK = "nvlink"
    NVLINK_TX = "nvlink_tx"
    NVLINK_RX = "nvlink_rx"
    PCIE = "pcie"
    PCIE_TX = "pcie_tx"
    PCIE_RX = "pcie_rx"
    # Seconds since the driver was loaded for which clocks were held down.
    POWER_SECONDS = "power_seconds"
    POWER_CAP_SECONDS = "power_cap_seconds"
    THERMAL_SECONDS = "thermal_seconds"
    SW_THERMAL_SECONDS = "sw_thermal_seconds"
    HW_THERMAL_SECONDS = "hw_thermal_seconds"
    BRAKE_SECONDS = "brake_seconds"
    SYNC_BOOST_SECONDS = "sync_boost_seconds"
    SYNC_BOOST_EVENT_SECONDS = "sync_boost_event_seconds"
    # The same as a share of the exporter's last interval.
    POWER_SHARE = "power_share"
    THERMAL_SHARE = "thermal_share"
    # Whether it was so at the moment of the reading: 0 or 1.
    POWER_FLAG = "power_flag"
    THERMAL_FLAG = "thermal_flag"
    HARDWARE_FLAG = "hardware_flag"
    SYNC_BOOST_FLAG = "sync_boost_flag"
    # Two that need a look at the whole page, or at the bits, first.
    UTILIZATION_UNSURE = "utilization_unsure"
    MASK = "mask"


class Printed(NamedTuple):
    """What an exporter prints under one name: the field, and the factor to our unit."""

    field: Field
    factor: float = 1.0


PROFILING = frozenset({Field.ENGINE, Field.SM, Field.TENSOR, Field.DRAM})
RATIOS = PROFILING | {Field.UTILIZATION, Field.POWER_SHARE, Field.THERMAL_SHARE}
COUNTERS = frozenset(
    {
        Field.ENERGY,
        Field.POWER_SECONDS,
        Field.POWER_CAP_SECONDS,
        Field.THERMAL_SECONDS,
        Field.SW_THERMAL_SECONDS,
        Field.HW_THERMAL_SECONDS,
        Field.BRAKE_SECONDS,
        Field.SYNC_BOOST_SECONDS,
        Field.SYNC_BOOST_EVENT_SECONDS,
    }
)
# What one MIG instance cannot have of its own.
BOARD = (
    COUNTERS
    | frozenset(f for f in Field if f.value.endswith(("_flag", "_share")))
    | {
        Field.UTILIZATION,
        Field.POWER,
        Field.POWER_LIMIT,
        Field.POWER_LIMIT_ASKED,
        Field.SM_CLOCK,
        Field.NVLINK,
        Field.NVLINK_TX,
        Field.NVLINK_RX,
        Field.PCIE,
        Field.PCIE_TX,
        Field.PCIE_RX,
    }
)

# DCGM prints "no value" as a number just below the type's limit: not supported, not
# found, not permitted. As a double the 64-bit ones are all 9.223372036854776e18.
_SENTINEL_64 = 9.2e18
_SENTINEL_DOUBLE = 140_737_488_355_328.0
_SENTINEL_32 = 2_147_483_632.0
_SENTINELS = 4  # of each type, one after the other
_ALMOST_ONE = 1.005  # a 1 that was rounded

_MASK_BITS = {
    Field.POWER_FLAG: 0x4,
    Field.THERMAL_FLAG: 0x20 | 0x40,
    Field.HARDWARE_FLAG: 0x80,
    Field.SYNC_BOOST_FLAG: 0x10,
}
_HW_SLOWDOWN, _HW_CAUSES = 0x8, 0x40 | 0x80


def refusal(field: Field, value: float) -> str:
    """Returns why a printed *value* (not yet in our unit) is none, "" when it is one.

    Counters may pass every limit of a gauge: 39 hours of a throttle in nanoseconds
    look like the sentinel of a double.
    """
    if not math.isfinite(value) or value < 0:
        return f"printed {value:g}, which is no value"
    sentinel = value >= _SENTINEL_64 or _within(value, _SENTINEL_DOUBLE)
    if field not in COUNTERS:
        sentinel = sentinel or value >= _SENTINEL_DOUBLE or _within(value, _SENTINEL_32)
    if sentinel:
        return "printed the number that means not supported or not permitted"
    return ""


def _within(value: float, first: float) -> bool:
    return first <= value < first + _SENTINELS


def share_refusal(printed: float, share: float) -> str:
    """Returns why what was *printed* is no *share* of 0..1, "" when it is one."""
    return f"printed {printed:.10g}, which is no share" if share > _ALMOST_ONE else ""


def flags(mask: float) -> dict[Field, float]:
    """Returns the flags of a bitmask of clock event reasons.

    `hw_slowdown` stands beside its cause, heat or brake; alone it is the hardware's.
    """
    bits = int(mask)
    found = {field: float(bool(bits & bit)) for field, bit in _MASK_BITS.items()}
    if bits & _HW_SLOWDOWN and not bits & _HW_CAUSES:
        found[Field.HARDWARE_FLAG] = 1.0
    return found

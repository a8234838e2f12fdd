"""Makes signals of a GPU's figures: each present, or absent with the reason why."""

from __future__ import annotations

from collections.abc import Mapping

from analyzer.gpus.capabilities import MASK_FIELD, NEEDS, THROTTLE_FIELDS, Need
from analyzer.gpus.fields import COUNTERS, PROFILING, Field
from analyzer.gpus.other_exporters import AMD_PROXIES
from analyzer.gpus.page import GpuPage, RawDevice
from analyzer.gpus.reading import BOARD_SIGNALS, THROTTLE_REASONS
from analyzer.signals import Signal, absent, present, proxy

BUSY_RATIO = 0.9  # of utilisation, with which no profiling figure can be 0
_PLAIN: Mapping[str, Field] = {
    "gpu_utilization_ratio": Field.UTILIZATION,
    "gpu_engine_active_ratio": Field.ENGINE,
    "gpu_dram_active_ratio": Field.DRAM,
    "gpu_tensor_active_ratio": Field.TENSOR,
    "gpu_sm_active_ratio": Field.SM,
    "gpu_memory_used_bytes": Field.USED,
    "gpu_power_watts": Field.POWER,
    "gpu_sm_clock_hertz": Field.SM_CLOCK,
}
_NEEDS = {need.signal: need for need in NEEDS}
_SHARES = {"power": Field.POWER_SHARE, "thermal": Field.THERMAL_SHARE}
_FLAGS = {
    "power": Field.POWER_FLAG,
    "thermal": Field.THERMAL_FLAG,
    "hardware": Field.HARDWARE_FLAG,
    "sync_boost": Field.SYNC_BOOST_FLAG,
}
_THROTTLE_FIELDS = {reason: names for reason, *names in THROTTLE_FIELDS}


_FIELDS: Mapping[str, frozenset[Field]] = {
    **{name: frozenset({field}) for name, field in _PLAIN.items()},
    "gpu_memory_bytes": frozenset({Field.TOTAL, Field.FREE}),
    "gpu_power_limit_watts": frozenset({Field.POWER_LIMIT, Field.POWER_LIMIT_ASKED}),
    "gpu_nvlink_bytes_per_second": frozenset(
        {Field.NVLINK, Field.NVLINK_TX, Field.NVLINK_RX}
    ),
    "gpu_pcie_bytes_per_second": frozenset({Field.PCIE, Field.PCIE_TX, Field.PCIE_RX}),
    "gpu_data_age_seconds": frozenset({Field.ENERGY}),
}


def lacking(fields: frozenset[Field]) -> tuple[str, ...]:
    """Returns the signals of which a page with these *fields* prints nothing.

    `throttled` is among them when it has neither counters nor states.
    """
    found = [name for name, needed in _FIELDS.items() if not needed & fields]
    if not any(field.value.endswith(("_flag", "_share")) for field in fields) and (
        not fields & COUNTERS - {Field.ENERGY}
    ):
        found.append("throttled")
    return tuple(found)


def signals(device: RawDevice, page: GpuPage) -> dict[str, Signal]:
    """Returns every signal of *device* but the age of its data."""
    found = {name: _plain(device, page, name, field) for name, field in _PLAIN.items()}
    found["gpu_memory_bytes"] = _memory(device, page)
    found["gpu_power_limit_watts"] = _power_limit(device, page)
    found["gpu_nvlink_bytes_per_second"] = _traffic(
        device,
        page,
        "gpu_nvlink_bytes_per_second",
        (Field.NVLINK_TX, Field.NVLINK_RX, Field.NVLINK),
    )
    found["gpu_pcie_bytes_per_second"] = _traffic(
        device,
        page,
        "gpu_pcie_bytes_per_second",
        (Field.PCIE_TX, Field.PCIE_RX, Field.PCIE),
    )
    return found


def throttle_shares(device: RawDevice, page: GpuPage) -> dict[str, Signal]:
    """Returns what one page tells of the time for which clocks were held down."""
    return {reason: _share(device, page, reason) for reason in THROTTLE_REASONS}


def _plain(device: RawDevice, page: GpuPage, name: str, field: Field) -> Signal:
    value = device.values.get(field)
    if value is None:
        return _absent(device, page, name, (field,))
    if field in PROFILING:
        if _stuck(device):
            return absent(
                "every profiling figure is 0 while utilisation is "
                f"{device.values[Field.UTILIZATION]:.0%}: DCGM's profiling is stuck"
            )
        if page.exporter == "amd" and field in AMD_PROXIES:
            return proxy(value, AMD_PROXIES[field])
    return present(value)


def _stuck(device: RawDevice) -> bool:
    """Whether profiling shows nothing of a GPU that is busy, as it does after weeks."""
    found = [device.values[f] for f in PROFILING if f in device.values]
    busy = device.values.get(Field.UTILIZATION, 0.0) >= BUSY_RATIO
    return busy and bool(found) and not any(found)


def _memory(device: RawDevice, page: GpuPage) -> Signal:
    values = device.values
    if Field.TOTAL in values:
        return present(values[Field.TOTAL])
    if Field.USED in values and Field.FREE in values:
        known = values[Field.USED] + values[Field.FREE]
        if Field.RESERVED in values:
            return present(known + values[Field.RESERVED])
        return proxy(known, "used and free; the driver's reserve is not on the page")
    return _absent(
        device, page, "gpu_memory_bytes", (Field.TOTAL, Field.USED, Field.FREE)
    )


def _power_limit(device: RawDevice, page: GpuPage) -> Signal:
    values = device.values
    if Field.POWER_LIMIT in values:
        return present(values[Field.POWER_LIMIT])
    if Field.POWER_LIMIT_ASKED in values:
        return proxy(values[Field.POWER_LIMIT_ASKED], "the limit that was asked for")
    return _absent(device, page, "gpu_power_limit_watts", (Field.POWER_LIMIT,))


def _traffic(
    device: RawDevice, page: GpuPage, name: str, fields: tuple[Field, Field, Field]
) -> Signal:
    """Returns both directions together; *fields* are out, in, and both at once."""
    out, back, both = fields
    values = device.values
    if out in values and back in values:
        return present(values[out] + values[back])
    if both in values:
        return present(values[both])
    for one in (out, back):
        if one in values:
            return proxy(values[one], f"one direction only ({device.names[one]})")
    return _absent(device, page, name, fields)


def _share(device: RawDevice, page: GpuPage, reason: str) -> Signal:
    share = _SHARES.get(reason)
    if share in device.values:
        return present(device.values[share])
    flag = _FLAGS[reason]
    if flag in device.values:
        moment = "the reasons in force at one moment, not a share of time"
        return proxy(device.values[flag], moment)
    if flag in device.refused:
        return absent(device.refused[flag])
    if device.gpu_instance:
        return absent("a figure of the whole board, not of one MIG instance")
    if page.exporter != "dcgm":
        return absent("the page does not tell why clocks are held down")
    before, since = _THROTTLE_FIELDS[reason]
    counter = f"DCGM_FI_{since if page.base_units else before}"
    return absent(
        f"neither {counter} nor DCGM_FI_{MASK_FIELD} is on the page: neither is in "
        "the exporter's own list of fields"
    )


def _absent(
    device: RawDevice, page: GpuPage, name: str, fields: tuple[Field, ...]
) -> Signal:
    """Returns the lack of a signal with the reason, as exactly as a page tells it."""
    for field in fields:
        if field in device.refused:
            return absent(device.refused[field])
    need = _NEEDS[name]
    if device.gpu_instance and name in BOARD_SIGNALS:
        return absent("a figure of the whole board, not of one MIG instance")
    if device.uuid in page.split and not device.gpu_instance:
        if name not in BOARD_SIGNALS and page.fields.intersection(fields):
            return absent("told of each MIG instance, not of the board")
        if name in ("gpu_utilization_ratio", "gpu_pcie_bytes_per_second"):
            return absent("not told of a GPU that is split into MIG instances")
    if page.exporter != "dcgm":
        return absent(f"the page has no figure for {need.purpose.partition(';')[0]}")
    row = ", ".join(need.fields(base_units=page.base_units))
    if page.fields.intersection(fields):
        return absent(f"no {row} of this GPU, though others on the page have it")
    if need.profiling and not page.fields & PROFILING:
        return absent(_no_profiling(row))
    return absent(f"no {row} on the page: {_remedy(need)}")


def _no_profiling(row: str) -> str:
    return (
        f"no {row} on the page, nor any other profiling field: the exporter's list "
        "of fields lacks them, the GPU has no profiling (before Volta, GeForce before "
        "the 50 series), or the exporter has no CAP_SYS_ADMIN"
    )


def _remedy(need: Need) -> str:
    if need.signal == "gpu_nvlink_bytes_per_second":
        return "the GPU has no NVLink, or the exporter's list of fields lacks it"
    return "the exporter's list of fields lacks it"

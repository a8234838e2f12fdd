"""Reads a GPU exporter's page into the figures of each GPU, printed twice or not.

What is wrong with a page is sorted out here: sentinels, figures of a board repeated
for each of its MIG instances, rows repeated for each pod that shares a GPU, labels
that Prometheus moved, and the name that changed its unit without changing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from analyzer.exposition import Exposition, LineError, Parser, Series
from analyzer.gpus import dcgm, identity, other_exporters
from analyzer.gpus.fields import BOARD, RATIOS, Field, flags, refusal, share_refusal
from analyzer.gpus.reading import Workload

MAX_DEVICES = 1024
DETAIL_CHARACTERS = 80
_MAX_KNOWN_SERIES = 50_000
_PERCENT = 0.01


@dataclass(slots=True)
class RawDevice:
    """The figures of one GPU or MIG instance as printed, in base units.

    `names` says under which metric name a field was printed, `refused` why what was
    printed is no value; `of_workloads` holds fields known from rows of workloads only.
    """

    uuid: str
    gpu_instance: str = ""
    index: str = ""
    model_name: str = ""
    hostname: str = ""
    pci_bus_id: str = ""
    workloads: set[Workload] = field(default_factory=set)
    values: dict[Field, float] = field(default_factory=dict)
    names: dict[Field, str] = field(default_factory=dict)
    refused: dict[Field, str] = field(default_factory=dict)
    of_workloads: set[Field] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class GpuPage:
    """One page: its GPUs, and what is to be known of the page as a whole.

    `exporter` is `dcgm`, `amd` or `nvidia_smi`, empty when no row is a GPU's. `split`
    holds the UUIDs of boards that have MIG instances. `base_units` says that the
    names are those of dcgm-exporter 4.9 or later. `fields` has all that is printed,
    values or not. `failure` is the reason why it is no page of GPUs, one of those
    under which scrapes fail, with its `detail`; "" when it is one.
    """

    at: float
    devices: tuple[RawDevice, ...] = ()
    exporter: str = ""
    base_units: bool = False
    split: frozenset[str] = frozenset()
    fields: frozenset[Field] = frozenset()
    damaged_lines: int = 0
    errors: tuple[LineError, ...] = ()
    failure: str = ""
    detail: str = ""


class _Slot(NamedTuple):
    """Where a series leads: whose figure it is, and which, None when it is not read."""

    exporter: str
    name: str
    field: Field | None
    factor: float
    key: tuple[str, str]
    workload: Workload | None
    moved: bool
    base_units: bool
    labels: Mapping[str, str]


_Rows = Sequence[tuple[_Slot, float]]


class GpuReader:
    """Reads the pages of one exporter, and remembers where each series leads."""

    def __init__(self) -> None:
        self._parser = Parser()
        self._slots: dict[Series, _Slot | None] = {}

    def read(self, text: str, at: float) -> GpuPage:
        """Returns the GPUs in *text*, scraped at *at* (Unix seconds).

        Rows that are not of a GPU are passed over.
        """
        exposition = self._parser.parse(text)
        page = _assemble(self._rows(exposition), at)
        failure, detail = _failure(text, exposition, page)
        return replace(
            page,
            damaged_lines=exposition.damaged_lines,
            errors=exposition.errors,
            failure=failure,
            detail=detail,
        )

    def _rows(self, exposition: Exposition) -> _Rows:
        if len(self._slots) > _MAX_KNOWN_SERIES:
            self._slots.clear()
        rows: list[tuple[_Slot, float]] = []
        for series, value in zip(exposition.series, exposition.values, strict=True):
            try:
                slot = self._slots[series]
            except KeyError:
                slot = self._slots[series] = _slot(series)
            if slot is not None:
                rows.append((slot, value))
        return rows


def _failure(text: str, exposition: Exposition, page: GpuPage) -> tuple[str, str]:
    """Returns why *text* is no page of GPUs, and what it is instead."""
    if not text.strip():
        return "empty_page", "empty, as for some seconds while the exporter reloads"
    if not text.endswith("\n"):
        return "connection", "ends within a line"
    if not exposition.values and not text.rstrip().endswith("# EOF"):
        return "not_an_exposition", text[:DETAIL_CHARACTERS]
    if not page.devices:
        first = exposition.series[0].name if exposition.series else "nothing"
        return "no_gpu_metrics", f"no GPU series, first: {first[:DETAIL_CHARACTERS]}"
    return "", ""


def _slot(series: Series) -> _Slot | None:
    name, labels = series.name, series.labels
    exporter, printed = "dcgm", dcgm.printed(name)
    if printed is None:
        exporter, printed = "nvidia_smi", other_exporters.nvidia_smi(name)
    if printed is None:
        exporter, printed = "amd", other_exporters.amd(name, labels)
    if printed is None:  # of DCGM it tells all the same which GPU there is
        exporter = "dcgm"
        if not name.startswith(dcgm.PREFIX):
            return None
    uuid = identity.uuid(labels)
    if not uuid:
        return None
    return _Slot(
        exporter,
        name,
        None if printed is None else printed.field,
        1.0 if printed is None else printed.factor,
        (uuid, identity.instance(labels)),
        identity.workload(labels),
        identity.moved(labels),
        dcgm.in_base_units(name, labels),
        labels,
    )


def _assemble(rows: _Rows, at: float) -> GpuPage:
    devices: dict[tuple[str, str], RawDevice] = {}
    base_units = any(slot.base_units for slot, _ in rows)
    share = _share_unit(rows, base_units=base_units)
    moved = any(slot.moved for slot, _ in rows)
    for slot, value in rows:
        device = devices.get(slot.key)
        if device is None:
            if len(devices) >= MAX_DEVICES:
                continue
            device = devices[slot.key] = _device(slot)
        workload = slot.workload
        if moved != slot.moved or (workload and identity.is_exporter(workload)):
            workload = None
        if workload is not None:
            device.workloads.add(workload)
        _take(device, slot, value, share, of_workload=workload is not None)
    _split_boards(devices)
    return GpuPage(
        at,
        tuple(sorted(devices.values(), key=_place)),
        rows[0][0].exporter if rows else "",
        base_units,
        frozenset(uuid for uuid, instance in devices if instance),
        frozenset(
            f for d in devices.values() for f in (d.values.keys() | d.refused.keys())
        ),
    )


def _share_unit(rows: _Rows, *, base_units: bool) -> float | None:
    """Returns the factor of DCGM_FI_DEV_GPU_UTIL_RATIO on this page, None if unsure.

    The name is of percent in DCGM 4.6, and of a ratio since 4.7.
    """
    values = [v for slot, v in rows if slot.field is Field.UTILIZATION_UNSURE]
    if base_units or any(0 < value < 1 for value in values):
        return 1.0
    return _PERCENT if any(1 < value <= 100 for value in values) else None


def _place(device: RawDevice) -> tuple[object, ...]:
    """Returns what sorts GPUs as their numbers do, a board before its instances."""
    numbers = (device.index, device.gpu_instance)
    parts = (
        (text.isdecimal(), int(text) if text.isdecimal() else 0) for text in numbers
    )
    index, instance = parts
    return (device.hostname, *index, device.uuid, *instance, device.gpu_instance)


def _device(slot: _Slot) -> RawDevice:
    labels = slot.labels
    return RawDevice(
        *slot.key,
        index=identity.index(labels),
        model_name=identity.model_name(labels),
        hostname=identity.hostname(labels),
        pci_bus_id=identity.text(labels, "pci_bus_id"),
    )


def _take(
    device: RawDevice,
    slot: _Slot,
    printed: float,
    share: float | None,
    *,
    of_workload: bool,
) -> None:
    """Adds one row to the GPU that it is about: as a value, or why it is none."""
    found, factor = slot.field, slot.factor
    if found is None:
        return
    why = refusal(found, printed)
    if found is Field.MASK:
        for flag, state in flags(0 if why else printed).items():
            if why:
                device.refused[flag] = f"{slot.name} {why}"
            else:
                _put(device, slot, flag, state, of_workload=of_workload)
        return
    if found is Field.UTILIZATION_UNSURE:
        found = Field.UTILIZATION
        factor = share or 1.0
        if share is None and printed == 1:
            why = (
                "printed 1 on a page that does not tell its version: DCGM 4.6 means "
                "1 % by it, 4.7 means 100 %"
            )
    value = printed * factor
    if not why and found in RATIOS:
        why = share_refusal(printed, value)
        value = min(value, 1.0)
    if why:
        device.refused[found] = f"{slot.name} {why}"
    else:
        _put(device, slot, found, value, of_workload=of_workload)


def _put(
    device: RawDevice, slot: _Slot, found: Field, value: float, *, of_workload: bool
) -> None:
    """Adds a value; the row of the GPU itself stands above those of its workloads.

    Rows of the same rank that differ are parts of the GPU: the highest counts.
    """
    known = device.values.get(found)
    if known is not None and of_workload != (found in device.of_workloads):
        if of_workload:
            return
        known = None
    if of_workload:
        device.of_workloads.add(found)
    else:
        device.of_workloads.discard(found)
    device.values[found] = value if known is None else max(known, value)
    device.names[found] = slot.name


def _split_boards(devices: dict[tuple[str, str], RawDevice]) -> None:
    """Moves the figures of a board from its MIG instances to the board, once."""
    instances = [device for (_, instance), device in devices.items() if instance]
    for device in instances:
        board = devices.get((device.uuid, ""))
        if board is None:
            board = devices[device.uuid, ""] = RawDevice(
                device.uuid,
                index=device.index,
                model_name=device.model_name,
                hostname=device.hostname,
                pci_bus_id=device.pci_bus_id,
            )
        for found in BOARD & device.values.keys():
            board.names.setdefault(found, device.names[found])
            board.values.setdefault(found, device.values.pop(found))
        for found in BOARD & device.refused.keys():
            board.refused.setdefault(found, device.refused.pop(found))

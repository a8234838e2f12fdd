"""What an operator may want to change about GPU figures, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzer.finding import Finding
from analyzer.gpus.capabilities import NEEDS, csv_rows
from analyzer.gpus.derive import lacking
from analyzer.gpus.fields import PROFILING
from analyzer.gpus.flow import GpuFlow
from analyzer.gpus.ownership import Joins, together
from analyzer.signals import State

PAGE = "docs/gpus.md"
_PROFILED = frozenset(need.signal for need in NEEDS if need.profiling)
# What no row brings: parts without NVLink print nothing of it.
_OPTIONAL = frozenset({"gpu_nvlink_bytes_per_second"})


def gpu_findings(flow: GpuFlow, joins: Joins, at: float) -> tuple[Finding, ...]:
    """Returns what is to be found of an exporter that answered, as known at *at*.

    *joins* says which GPUs are each engine's own.
    """
    found = [
        *_of_joins(joins),
        *_of_frozen(flow, at),
        *_of_fields(flow),
    ]
    return tuple(dict.fromkeys(found))


def _of_joins(joins: Joins) -> Iterator[Finding]:
    whole = together(joins)
    if whole.problem:
        message = f"which GPUs are ours is not known: {whole.problem}"
        yield Finding("gpus_unknown", "warning", message, file=PAGE)
    if whole.caution:
        yield Finding("gpus_uncertain", "warning", whole.caution, file=PAGE)


def _of_frozen(flow: GpuFlow, at: float) -> Iterator[Finding]:
    for device in flow.reading(at).devices:
        for signal in device.signals.values():
            if signal.state is State.STALE:
                yield Finding("gpus_frozen", "warning", signal.reason)


def _of_fields(flow: GpuFlow) -> Iterator[Finding]:
    if flow.exporter != "dcgm":
        return
    missing = [name for name in lacking(flow.fields) if name not in _OPTIONAL]
    profiled = [name for name in missing if name in _PROFILED]
    if not flow.fields & PROFILING:
        yield Finding(
            "no_profiling",
            "warning",
            "no profiling figures: whether memory bandwidth or arithmetic limits "
            "decoding cannot be told",
            "use GPUs with profiling, an exporter with CAP_SYS_ADMIN, and these rows "
            "in its list of fields",
            PAGE,
            _rows(profiled, flow),
        )
        missing = [name for name in missing if name not in _PROFILED]
    if missing:
        yield Finding(
            "fields_missing",
            "info",
            f"not on the page: {', '.join(missing)}",
            "add these rows to the exporter's list of fields",
            PAGE,
            _rows(missing, flow),
        )


def _rows(missing: Sequence[str], flow: GpuFlow) -> str:
    return "\n".join(csv_rows(tuple(missing), base_units=flow.base_units))

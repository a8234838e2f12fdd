"""Finds a workload's own GPUs on an exporter's page, and says why it cannot."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from analyzer.gpus.reading import Device, Join, Workload

NAMED = 4  # pods or hosts in a sentence


@dataclass(frozen=True, slots=True)
class GpuMatch:
    """What a workload's GPUs have in common; all that is given must hold.

    `uuids` may end in `/N` for the MIG instance N. `indexes` are the exporter's
    numbers, which a container need not share.
    """

    hostname: str = ""
    pod: str = ""
    namespace: str = ""
    container: str = ""
    uuids: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    pci_bus_ids: tuple[str, ...] = ()

    @property
    def selects(self) -> bool:
        """Whether it tells GPUs of one host apart."""
        return bool(
            self.pod
            or self.namespace
            or self.container
            or self.uuids
            or self.indexes
            or self.pci_bus_ids
        )

    def of(self, *, pod: str = "", node: str = "") -> GpuMatch:
        """Returns the match of one engine, of which discovery told *pod* and *node*.

        What the configuration gives stands above them.
        """
        return replace(
            self,
            pod=self.pod or ("" if self.selects else pod),
            hostname=self.hostname or node,
        )


def expected_gpus(declared: Mapping[str, int]) -> int | None:
    """Returns how many GPUs an engine should have by its declared parallelism.

    None without `tensor_parallel`. Over several nodes each has fewer.
    """
    if "tensor_parallel" not in declared:
        return None
    sizes = ("tensor_parallel", "pipeline_parallel", "data_parallel")
    return math.prod(declared.get(size, 1) for size in sizes)


def leaves(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Returns the GPUs that work can run on: no board that has MIG instances."""
    devices = tuple(devices)
    split = {device.uuid for device in devices if device.gpu_instance}
    return tuple(d for d in devices if d.gpu_instance or d.uuid not in split)


def same_host(one: str, other: str) -> bool:
    """Whether two names mean the same host: one may lack the other's domain."""
    short, long = sorted((f"{one.lower()}.", f"{other.lower()}."), key=len)
    return long.startswith(short)


def on_host(devices: tuple[Device, ...], match: GpuMatch) -> Join:
    """Returns the devices of the host that *match* gives, or why there is none.

    A row of the very pod proves the host, whatever the exporter calls it.
    """
    wanted = match.hostname
    hosts = {device.hostname for device in devices}
    if not wanted:
        several = len(hosts - {""}) > 1
        caution = f"the page is of several hosts: {_listed(hosts)}" if several else ""
        return Join(devices, caution=caution)
    if hosts == {""}:
        return Join(devices, caution="the page does not tell its host")
    kept = tuple(d for d in devices if same_host(d.hostname, wanted))
    if kept:
        return Join(kept)
    if match.pod and _by_pod(devices, match)[0]:
        return Join(devices, caution=f"the exporter calls its host {_listed(hosts)}")
    return Join(
        problem=f"the page is of {_listed(hosts)}, not of {wanted}: an address that "
        "leads to any node's exporter (a Service needs internalTrafficPolicy: Local)"
    )


def find(
    devices: Sequence[Device], match: GpuMatch, *, expected: int | None = None
) -> Join:
    """Returns the GPUs among *devices* that *match*, and how they were told.

    Without anything to tell them apart they are those of the only pod that has GPUs,
    or all when no row names a pod. *expected* is how many the workload should have.
    """
    if not devices:
        return Join(problem="the page has no GPU")
    host = on_host(leaves(devices), match)
    if host.problem:
        return host
    found = _selected(host.devices, match)
    if found.problem:
        return found
    cautions = (
        host.caution,
        _sharing(found.devices),
        _miscount(found.devices, expected),
    )
    return replace(found, caution="; ".join(filter(None, cautions)))


_Found = tuple[tuple[Device, ...], str]


def _selected(devices: tuple[Device, ...], match: GpuMatch) -> Join:
    if not match.selects:
        return _by_elimination(devices)
    for kept_by in (_by_uuid, _by_index, _by_bus, _by_pod):
        devices, problem = kept_by(devices, match)
        if problem:
            return Join(problem=problem)
    return Join(devices, how=_criteria(match))


def _filter(
    devices: tuple[Device, ...], fits: Callable[[Device], bool], problem: str
) -> _Found:
    kept = tuple(filter(fits, devices))
    return kept, "" if kept else problem


def _by_uuid(devices: tuple[Device, ...], match: GpuMatch) -> _Found:
    if not match.uuids:
        return devices, ""
    wanted = {_plain_uuid(uuid) for uuid in match.uuids}

    def fits(device: Device) -> bool:
        uuid = device.uuid.lower()
        return uuid in wanted or f"{uuid}/{device.gpu_instance}" in wanted

    problem = f"no GPU of the page has a UUID of match ({_listed(match.uuids)})"
    if any(uuid.startswith("mig-") for uuid in wanted):
        problem += "; a MIG instance is given as its board's UUID, /, and its number"
    return _filter(devices, fits, problem)


def _plain_uuid(uuid: str) -> str:
    """Returns a UUID as rows have it; MIG-GPU-…/3/0 means instance 3 of its board."""
    uuid = uuid.strip().lower()
    if uuid.startswith("mig-gpu-"):
        board, _, rest = uuid.removeprefix("mig-").partition("/")
        return f"{board}/{rest.partition('/')[0]}"
    return uuid


def _by_index(devices: tuple[Device, ...], match: GpuMatch) -> _Found:
    if not match.indexes:
        return devices, ""
    return _filter(
        devices,
        lambda device: device.index in match.indexes,
        f"no GPU of the page has the number {_listed(match.indexes)}",
    )


def _by_bus(devices: tuple[Device, ...], match: GpuMatch) -> _Found:
    if not match.pci_bus_ids:
        return devices, ""
    wanted = {bus.lower().lstrip("0") for bus in match.pci_bus_ids}
    return _filter(
        devices,
        lambda device: device.pci_bus_id.lower().lstrip("0") in wanted,
        f"no GPU of the page has the PCI bus id {_listed(match.pci_bus_ids)}",
    )


def _by_pod(devices: tuple[Device, ...], match: GpuMatch) -> _Found:
    if not (match.pod or match.namespace or match.container):
        return devices, ""

    def fits(workload: Workload) -> bool:
        return (
            match.pod in ("", workload.pod)
            and match.namespace in ("", workload.namespace)
            and match.container in ("", workload.container)
        )

    kept = tuple(d for d in devices if any(map(fits, d.workloads)))
    if kept:
        return kept, ""
    named = _workloads(devices)
    if not named:
        return (), (
            "no row names a pod: the exporter's Kubernetes mapping is off or failed, "
            "or the pod has its GPUs without asking for nvidia.com/gpu; give match.uuid"
        )
    wanted = f"{match.namespace or '*'}/{match.pod or '*'}"
    if match.container:
        wanted += f" (container {match.container})"
    return (), f"no GPU is given to {wanted}; the page names {_pods(named)}"


def _by_elimination(devices: tuple[Device, ...]) -> Join:
    named = _workloads(devices)
    pods = {(workload.namespace, workload.pod) for workload in named}
    if not pods:
        return Join(devices, how="no row names a pod, so every GPU of the page counts")
    if len(pods) > 1:
        return Join(
            problem=f"several pods have GPUs here ({_pods(named)}); give match.pod or "
            "match.uuid"
        )
    kept = tuple(device for device in devices if device.workloads)
    return Join(kept, how=f"{_pods(named)} is the only pod with GPUs on the page")


def _workloads(devices: Iterable[Device]) -> set[Workload]:
    return {workload for device in devices for workload in device.workloads}


def _criteria(match: GpuMatch) -> str:
    parts = []
    if match.uuids or match.indexes or match.pci_bus_ids:
        parts.append("the configured GPUs")
    if match.pod:
        parts.append(f"pod {match.pod}")
    if match.namespace:
        parts.append(f"namespace {match.namespace}")
    if match.container:
        parts.append(f"container {match.container}")
    return ", ".join(parts)


def _sharing(devices: Iterable[Device]) -> str:
    shared = [device for device in devices if len(device.workloads) > 1]
    if not shared:
        return ""
    return (
        f"shared by several pods ({_pods(_workloads(shared))}): the figures are of all "
        "of them together"
    )


def _miscount(devices: Sequence[Device], expected: int | None) -> str:
    if expected is None or expected == len(devices):
        return ""
    found = f"{len(devices)} GPU{'s' * (len(devices) != 1)}"
    return f"{found} found where the engine should have {expected}"


def _pods(workloads: Iterable[Workload]) -> str:
    return _listed(f"{w.namespace}/{w.pod}" for w in workloads)


def _listed(names: Iterable[str]) -> str:
    found = sorted({name for name in names if name})
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more

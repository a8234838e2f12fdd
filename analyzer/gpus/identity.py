"""Tells GPUs and their workloads by the labels of a row, in every spelling of them."""

from __future__ import annotations

from collections.abc import Mapping

from analyzer.gpus.reading import Workload

MAX_CHARACTERS = 256  # of a label that is kept
_MODELS = ("modelName", "model_name", "card_model", "name")
_PODS = ("exported_pod", "pod", "pod_name")
_NAMESPACES = ("exported_namespace", "namespace", "pod_namespace")
_CONTAINERS = ("exported_container", "container", "container_name")
_EXPORTED = frozenset({"exported_pod", "exported_namespace", "exported_container"})
_EXPORTER_NAME = "dcgm-exporter"
# Rows of a link or a switch, not of a GPU.
_PART_LABELS = frozenset({"nvlink", "nvswitch", "nvlink_index", "link_index"})
_NULL = "<<<"  # begins what DCGM prints for a text that it lacks


def uuid(labels: Mapping[str, str]) -> str:
    """Returns what a GPU is told apart by: its UUID, else its place on a host.

    "" when the row is of no GPU. nvidia-smi's exporter leaves out the prefix GPU-.
    """
    if not _PART_LABELS.isdisjoint(labels):
        return ""
    found = text(labels, "UUID", "uuid", "gpu_uuid")
    if found:
        bare = labels.get("uuid") == found and not found.startswith(("GPU-", "MIG-"))
        return f"GPU-{found}" if bare else found
    found = text(labels, "serial_number")
    position = index(labels)
    if found or not position:
        return found
    return f"{hostname(labels)}:{position}"


def instance(labels: Mapping[str, str]) -> str:
    """Returns the MIG instance, or AMD's partition of a GPU that is partitioned."""
    found = text(labels, "GPU_I_ID")
    if not found and labels.get("gpu_compute_partition_type", "spx").lower() != "spx":
        found = text(labels, "gpu_partition_id")
    return found


def index(labels: Mapping[str, str]) -> str:
    """Returns the GPU's number on its host; in a pod it may have another."""
    return text(labels, "gpu", "gpu_id")


def hostname(labels: Mapping[str, str]) -> str:
    """Returns the host, as the exporter calls it."""
    return text(labels, "hostname", "Hostname")


def model_name(labels: Mapping[str, str]) -> str:
    """Returns the product's name."""
    return text(labels, *_MODELS)


def workload(labels: Mapping[str, str]) -> Workload | None:
    """Returns the container that has the GPU, None when the row names no pod."""
    pod = text(labels, *_PODS)
    if not pod:
        return None
    return Workload(text(labels, *_NAMESPACES), pod, text(labels, *_CONTAINERS))


def moved(labels: Mapping[str, str]) -> bool:
    """Whether Prometheus moved the workload's labels aside for the exporter's own."""
    return not _EXPORTED.isdisjoint(labels)


def is_exporter(found: Workload) -> bool:
    """Whether a workload is the exporter itself, as Prometheus puts it on each row."""
    return _EXPORTER_NAME in found.container or _EXPORTER_NAME in found.pod


def text(labels: Mapping[str, str], *names: str) -> str:
    """Returns the first of these labels that says something."""
    for name in names:
        value = labels.get(name, "")
        if value and not value.startswith(_NULL):
            return value[:MAX_CHARACTERS]
    return ""

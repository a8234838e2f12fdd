"""The section `gpus` of a configuration: GPU exporters, and which GPUs are ours."""

from __future__ import annotations

from dataclasses import dataclass, field

from analyzer.config_sources import (
    NAME,
    NAME_TEXT,
    Credentials,
    Tls,
    read_credentials,
    read_tls,
    read_url,
)
from analyzer.gpus.match import GpuMatch
from analyzer.strict import Node

_TEXTS = ("hostname", "pod", "namespace", "container")
MAX_INDEX = 1023
_LISTS = ("uuid", "gpu", "pci_bus_id")


@dataclass(frozen=True, slots=True)
class GpuSource:
    """One GPU exporter; durations in seconds, `max_body_bytes` in bytes.

    Exporters serve a cache that is 30 seconds old at most by default, so that asking
    more often than every ten finds little new.
    """

    name: str
    url: str
    interval: float = 10.0
    timeout: float = 10.0
    max_body_bytes: int = 16 << 20
    match: GpuMatch = field(default_factory=GpuMatch)
    tls: Tls = field(default_factory=Tls)
    credentials: Credentials = field(default_factory=Credentials)


def read_gpu(node: Node) -> GpuSource:
    """Returns one entry of `gpus`. Raises ConfigError."""
    members = node.mapping(
        required=("name", "url"),
        optional=(
            "interval",
            "timeout",
            "max_body_bytes",
            "match",
            "tls",
            "authorization",
            "basic_auth",
        ),
    )
    default = GpuSource("", "")
    return GpuSource(
        name=members["name"].text(pattern=NAME, what=NAME_TEXT),
        url=read_url(members["url"]),
        interval=members["interval"].duration(minimum=0.2)
        if "interval" in members
        else default.interval,
        timeout=members["timeout"].duration(minimum=0.1)
        if "timeout" in members
        else default.timeout,
        max_body_bytes=members["max_body_bytes"].integer(minimum=1024, maximum=1 << 30)
        if "max_body_bytes" in members
        else default.max_body_bytes,
        match=_read_match(members.get("match")),
        tls=read_tls(members.get("tls")),
        credentials=read_credentials(members),
    )


def _read_match(node: Node | None) -> GpuMatch:
    if node is None:
        return GpuMatch()
    members = node.mapping(optional=(*_TEXTS, *_LISTS))
    texts = {name: members[name].text() for name in _TEXTS if name in members}
    return GpuMatch(
        **texts,
        uuids=_read_list(members.get("uuid")),
        indexes=_read_indexes(members.get("gpu")),
        pci_bus_ids=_read_list(members.get("pci_bus_id")),
    )


def _read_indexes(node: Node | None) -> tuple[str, ...]:
    """Returns the exporter's numbers of GPUs, as YAML reads 0 or as text."""
    if node is None:
        return ()
    items = node.items() if isinstance(node.value, list) else iter((node,))
    found: list[str] = []
    for item in items:
        if isinstance(item.value, int):
            found.append(str(item.integer(minimum=0, maximum=MAX_INDEX)))
        else:
            found += _read_list(item)
    if not found:
        raise node.error("must name at least one GPU")
    return tuple(found)


def _read_list(node: Node | None) -> tuple[str, ...]:
    """Returns what a list holds; one text may hold several, with commas between.

    So does the variable of the environment that names a container's GPUs.
    """
    if node is None:
        return ()
    parts = (part.strip() for text in node.texts() for part in text.split(","))
    found = tuple(filter(None, parts))
    if not found:
        raise node.error("must name at least one GPU")
    return found

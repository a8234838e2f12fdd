"""How an entry of `engines` finds its targets: `file_sd` files or a DNS name."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from analyzer.strict import Node, shown

SCHEMES = ("http", "https")
METRICS_PATH = r"/[!-~]*"
METRICS_PATH_TEXT = "a path such as /metrics"
# As in Prometheus: one * at most, and in the last part of the path only.
FILE = r"[^*]*(\*[^/*]*)?\.(json|yml|yaml|JSON|YML|YAML)"
FILE_TEXT = "a path that ends in .json, .yml or .yaml, at most one * in its last part"
_LABEL = r"[a-zA-Z0-9_](?:[a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?"
HOST_NAME = rf"(?=.{{1,254}}\Z){_LABEL}(?:\.{_LABEL})*\.?"
HOST_NAME_TEXT = "a DNS name such as vllm.ns.svc.cluster.local"
MAX_FILES = 100
MIN_REFRESH_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class FileSd:
    """Files in Prometheus' file_sd format; *refresh* in seconds.

    `files` are paths, whose last part may hold one `*`. `scheme` and `metrics_path`
    hold for targets whose labels say nothing else.
    """

    files: tuple[str, ...]
    scheme: str = "http"
    metrics_path: str = "/metrics"
    refresh: float = 30.0


@dataclass(frozen=True, slots=True)
class DnsSd:
    """A DNS name whose every A and AAAA record is a target; *refresh* in seconds."""

    name: str
    port: int
    scheme: str = "http"
    metrics_path: str = "/metrics"
    refresh: float = 30.0


class _Common(TypedDict, total=False):
    scheme: str
    metrics_path: str
    refresh: float


def read_file_sd(node: Node) -> FileSd:
    """Returns a `file_sd` mapping; paths are relative to the configuration file's.

    Raises ConfigError.
    """
    members = node.mapping(
        required=("files",), optional=("scheme", "metrics_path", "refresh")
    )
    folder = Path(node.file).parent if node.file else Path()
    files = [
        str(folder / item.text(pattern=FILE, what=FILE_TEXT))
        for item in members["files"].items(at_most=MAX_FILES)
    ]
    if not files:
        raise members["files"].error("must name at least one file")
    return FileSd(tuple(files), **_common(members))


def read_dns_sd(node: Node) -> DnsSd:
    """Returns a `dns` mapping. Raises ConfigError."""
    members = node.mapping(
        required=("name", "port"), optional=("scheme", "metrics_path", "refresh")
    )
    name = members["name"].text(pattern=HOST_NAME, what=HOST_NAME_TEXT)
    if _is_address(name):
        raise members["name"].error(
            f"must be {HOST_NAME_TEXT}, got {shown(name)}; an address goes into url"
        )
    port = members["port"].integer(maximum=65535)
    return DnsSd(name, port, **_common(members))


def _common(members: Mapping[str, Node]) -> _Common:
    given: _Common = {}
    if "scheme" in members:
        given["scheme"] = members["scheme"].choice(SCHEMES)
    if "metrics_path" in members:
        given["metrics_path"] = members["metrics_path"].text(
            pattern=METRICS_PATH, what=METRICS_PATH_TEXT
        )
    if "refresh" in members:
        given["refresh"] = members["refresh"].duration(minimum=MIN_REFRESH_SECONDS)
    return given


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

"""Turns what discovery found into engines: Prometheus' file_sd format, and names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from analyzer.config_discovery import METRICS_PATH, SCHEMES
from analyzer.config_sources import EngineGroup, EngineSource, usable_url
from analyzer.strict import MAX_BYTES, MAX_VALUES, ConfigError, Node, parse, shown

MAX_TARGETS = 1000  # of one entry
MAX_CHARACTERS = 260  # of an address, a path, a pod and a node: a host name and a port
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9._-]+)(:[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Found:
    """One target as discovery tells it; what it does not tell is empty."""

    address: str
    scheme: str = ""
    metrics_path: str = ""
    pod: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a discovery; `reason` is the failure counter's label."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Look:
    """What a look for targets gave: whether they may be others, and what to count."""

    changed: bool
    faults: tuple[Fault, ...] = ()


def parse_targets(data: bytes, file: str) -> tuple[Found, ...]:
    """Returns the targets in a file_sd file: JSON by the name's end, else YAML.

    Values are taken as they stand: no variables of the environment. Raises
    ConfigError with the place of a fault.
    """
    root = _parse_json(data, file) if file.lower().endswith(".json") else None
    root = parse(data, file) if root is None else root
    if root.value is None:  # more likely caught while being written than meant
        raise root.error("is empty; [] means no targets")
    return tuple(_targets(root))


def _parse_json(data: bytes, file: str) -> Node:
    if len(data) > MAX_BYTES:
        raise ConfigError("", f"larger than {MAX_BYTES} bytes", file)
    try:
        return Node(msgspec.json.decode(data), "", file)
    except (msgspec.DecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError("", f"not JSON: {reason}", file) from None


def _targets(root: Node) -> Iterator[Found]:
    for group in root.items(at_most=MAX_VALUES):
        members = {
            name: node
            for name, node in group.mapping(optional=("targets", "labels")).items()
            if node.value is not None
        }
        labels = _labels(members["labels"]) if "labels" in members else {}
        if "targets" not in members:
            continue
        for target in members["targets"].items(at_most=MAX_VALUES):
            if not isinstance(target.value, str):
                raise target.error(f"must be HOST:PORT, got {shown(target.value)}")
            # The target's own address stands above an __address__ of the labels.
            yield Found(
                target.value,
                scheme=labels.get("__scheme__", ""),
                metrics_path=labels.get("__metrics_path__", ""),
                pod=labels.get("pod", ""),
                node=labels.get("node", ""),
            )


def _labels(node: Node) -> Mapping[str, str]:
    """Returns the labels that mean something here."""
    found = {}
    for name, label in node.members().items():
        if name not in ("__scheme__", "__metrics_path__", "pod", "node"):
            continue
        value = label.value
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            raise label.error(f"must be text, got {shown(value)}")
        found[name] = value
    return found


def engine_sources(
    group: EngineGroup, found: Iterable[Found]
) -> tuple[tuple[EngineSource, ...], tuple[Fault, ...]]:
    """Returns the engines of a group by their order, and what was left out.

    The same URL counts once, with the labels of the first. A name is the entry's with
    the pod after it, or with the address where no pod is given or several targets
    have it.
    """
    faults: list[Fault] = []
    by_url: dict[str, Found] = {}
    bad: list[Found] = []
    for target in found:
        url = _url(group, target)
        if url:
            by_url.setdefault(url, target)
        else:
            bad.append(target)
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        detail = f"{shown(bad[0].address)}{more} cannot be scraped"
        faults.append(Fault("bad_target", detail))
    if len(by_url) > MAX_TARGETS:
        detail = f"{len(by_url)} targets, of which the first {MAX_TARGETS} are used"
        faults.append(Fault("too_many", detail))
        by_url = dict(list(by_url.items())[:MAX_TARGETS])
    sources = tuple(
        replace(
            group.template,
            name=f"{group.name}/{name}",
            url=url,
            labels={
                label: value
                for label, value in (("pod", target.pod), ("node", target.node))
                if value
            },
        )
        for (url, target), name in zip(by_url.items(), _names(by_url), strict=True)
    )
    return sources, tuple(faults)


def _url(group: EngineGroup, target: Found) -> str:
    """Returns the URL of a target, "" when it has something that cannot be used."""
    scheme = target.scheme or group.found_by.scheme
    path = target.metrics_path or group.found_by.metrics_path
    path = path if path.startswith("/") else f"/{path}"
    texts = (target.address, path, target.pod, target.node)
    if any(len(text) > MAX_CHARACTERS or not text.isprintable() for text in texts):
        return ""
    if scheme not in SCHEMES or not re.fullmatch(METRICS_PATH, path):
        return ""
    url = f"{scheme}://{target.address}{path}"
    return url if _ADDRESS.fullmatch(target.address) and usable_url(url) else ""


def _names(by_url: Mapping[str, Found]) -> list[str]:
    """Returns a name for each URL: the shortest that no other one can have."""
    pods = Counter(target.pod for target in by_url.values())
    addresses = Counter(target.address for target in by_url.values())
    names = [
        target.pod
        if target.pod and pods[target.pod] == 1
        else target.address
        if addresses[target.address] == 1
        else url
        for url, target in by_url.items()
    ]
    given = Counter(names)  # a pod may be called like an address
    return [
        name if given[name] == 1 else url
        for name, url in zip(names, by_url, strict=True)
    ]

"""The configuration file: SLO classes, sources and limits, strictly read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analyzer import slo
from analyzer.config_gateways import PLACES, GatewaySource, read_gateway
from analyzer.config_gpus import GpuSource, read_gpu
from analyzer.config_sources import EngineGroup, EngineSource, read_engine
from analyzer.slo import SloClass
from analyzer.strict import ConfigError, Node, load, parse, shown

SECTIONS = ("slo_classes", "engines", "gpus", "gateways", "limits", "engine_histograms")


@dataclass(frozen=True, slots=True)
class Limits:
    """How many label values the exporter keeps apart before it says `other`."""

    models: int = 20
    label_values: int = 20
    ranks: int = 128


@dataclass(frozen=True, slots=True)
class Config:
    """A valid configuration; nothing downstream checks it again.

    `engine_groups` are those entries of `engines` whose targets are discovered.
    `engine_histograms` false leaves out the engines' latency histograms.
    """

    slo_classes: tuple[SloClass, ...] = ()
    engines: tuple[EngineSource, ...] = ()
    engine_groups: tuple[EngineGroup, ...] = ()
    gpus: tuple[GpuSource, ...] = ()
    gateways: tuple[GatewaySource, ...] = ()
    limits: Limits = field(default_factory=Limits)
    engine_histograms: bool = True

    def summary(self) -> str:
        """Returns in a few words how much it configures."""
        amounts = (
            (len(self.slo_classes), "SLO class", "SLO classes"),
            (len(self.engines), "engine", "engines"),
            (
                len(self.engine_groups),
                "discovered group of engines",
                "discovered groups of engines",
            ),
            (len(self.gpus), "GPU exporter", "GPU exporters"),
            (len(self.gateways), "request log", "request logs"),
        )
        words = [
            f"{amount} {one if amount == 1 else many}"
            for place, (amount, one, many) in enumerate(amounts)
            if amount or place < 2
        ]
        return ", ".join(words)


def load_config(path: Path) -> Config:
    """Returns the configuration at *path*. Raises ConfigError."""
    return read_config(load(path))


def parse_config(text: str, file: str = "") -> Config:
    """Returns the configuration in *text*. Raises ConfigError."""
    return read_config(parse(text, file))


def read_config(node: Node) -> Config:
    """Returns the configuration of a document. Raises ConfigError."""
    if node.value is None:
        raise node.error("is empty; give at least one engine or SLO class")
    members = node.mapping(optional=SECTIONS)
    classes = members.get("slo_classes")
    slo_classes = slo.read_classes(classes) if classes else ()
    entries = tuple(map(read_engine, _list(members, "engines")))
    config = Config(
        slo_classes=slo_classes,
        engines=tuple(e for e in entries if isinstance(e, EngineSource)),
        engine_groups=tuple(e for e in entries if isinstance(e, EngineGroup)),
        gpus=tuple(map(read_gpu, _list(members, "gpus"))),
        gateways=tuple(map(read_gateway, _list(members, "gateways"))),
        limits=_read_limits(members.get("limits")),
        engine_histograms=members["engine_histograms"].boolean()
        if "engine_histograms" in members
        else True,
    )
    for section, sources in (
        ("engines", entries),
        ("gpus", config.gpus),
        ("gateways", config.gateways),
    ):
        _refuse_twins(members.get(section), [source.name for source in sources])
    urls = [(e.name, "url", getattr(e, "url", f" {e.name}")) for e in entries]
    _refuse_read_twice(members.get("engines"), "engine", urls)
    logs = _log_places(config.gateways)
    _refuse_read_twice(members.get("gateways"), "log", logs)
    return config


def _list(members: Mapping[str, Node], name: str) -> list[Node]:
    return list(members[name].items()) if name in members else []


def _refuse_twins(node: Node | None, names: list[str]) -> None:
    for index, name in enumerate(names):
        if node is not None and name in names[:index]:
            path = f"{node.path}[{index}].name"
            raise ConfigError(path, f"{name!r} is given twice", node.file)


def _refuse_read_twice(
    node: Node | None, what: str, sources: Sequence[tuple[str, str, str]]
) -> None:
    """Raises ConfigError for a source that two entries have: it would count twice.

    *sources* are each entry's name, and the key and value that say where it is.
    """
    readers: dict[tuple[str, str], str] = {}
    for index, (name, key, address) in enumerate(sources):
        first = readers.setdefault((key, address), name)
        if node is not None and first != name:
            path = f"{node.path}[{index}].{key}"
            message = f"{shown(address)} is the {what} of {first!r} already"
            raise ConfigError(path, message, node.file)


def _log_places(logs: Sequence[GatewaySource]) -> list[tuple[str, str, str]]:
    places = [next(p for p in PLACES if getattr(log, p)) for log in logs]
    return [
        (log.name, place, getattr(log, place))
        for log, place in zip(logs, places, strict=True)
    ]


def _read_limits(node: Node | None) -> Limits:
    if node is None:
        return Limits()
    members = node.mapping(optional=("models", "label_values", "ranks"))
    values = {name: value.integer(maximum=1000) for name, value in members.items()}
    return Limits(**values)

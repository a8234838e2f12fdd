"""Entries of engines whose targets stand in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from synthetic_engine import SyntheticEngine

from analyzer.config_discovery import FileSd
from analyzer.config_sources import EngineGroup, EngineSource

EVENTS = "goodput_engine_criterion_events_total"
FAILURES = "goodput_discovery_failures_total"
TARGETS = "goodput_discovery_targets"
CLASSES = "slo_classes: [{name: c, good: {e2e: 2s}, objective: 0.95}]\n"


def group_of(*files: Path, name: str = "fleet") -> EngineGroup:
    """Returns an entry of files."""
    return EngineGroup(
        EngineSource(name, ""), FileSd(tuple(map(str, files)), refresh=1.0)
    )


def write(path: Path, *groups: dict[str, Any]) -> None:
    """Puts a file of target groups in the place of what was there."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(json.dumps(groups))
    temporary.replace(path)


def listed(*addresses: str, **labels: str) -> dict[str, Any]:
    """Returns a target group."""
    return {"targets": list(addresses), "labels": labels}


def address_of(engine: SyntheticEngine) -> str:
    """Returns the host and port of an engine."""
    return engine.url.removeprefix("http://").removesuffix("/metrics")


def configured(folder: Path, entry: str) -> Path:
    """Writes a configuration of one class and one discovered entry."""
    path = folder / "c.yml"
    path.write_text(
        f"{CLASSES}engines: [{{name: fleet, interval: 1s, timeout: 2s, {entry}}}]\n"
    )
    return path


FILES = 'file_sd: {files: ["targets/*.json"], refresh: 1s}'

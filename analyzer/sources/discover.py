"""Finds every engine of a configuration once, for commands that do not stay."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass

from analyzer.config import Config
from analyzer.config_discovery import FileSd
from analyzer.config_sources import EngineGroup, EngineSource
from analyzer.sources.target_files import TargetFiles
from analyzer.sources.target_names import LOOKUP_SECONDS, Resolve, TargetName
from analyzer.targets import Fault, engine_sources


@dataclass(frozen=True, slots=True)
class Discovered:
    """What an entry stands for now, and what stood in the way of knowing it."""

    entry: str
    sources: tuple[EngineSource, ...]
    faults: tuple[Fault, ...]


def discover(
    group: EngineGroup, *, resolve: Resolve = socket.getaddrinfo
) -> Discovered:
    """Returns the engines of *group*; a name is waited for ten seconds at most."""
    answered = threading.Event()
    finder = (
        TargetFiles(group.found_by)
        if isinstance(group.found_by, FileSd)
        else TargetName(group.found_by, resolve, answered.set)
    )
    finder.look(0.0)
    if finder.waiting:
        answered.wait(LOOKUP_SECONDS)
        finder.look(LOOKUP_SECONDS)
    sources, refused = engine_sources(group, finder.found)
    return Discovered(group.name, sources, (*finder.faults, *refused))


def all_engines(config: Config) -> tuple[EngineSource, ...]:
    """Returns the engines that *config* names, and those that its entries find."""
    found = [discover(group).sources for group in config.engine_groups]
    return (*config.engines, *(source for sources in found for source in sources))

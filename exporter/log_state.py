"""How a request log fares beside its totals: what the status page says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LogState:
    """One log under watch.

    `place` is its path, socket or address; `detected` says that its format is to be
    recognised by its lines, of which `undecided` wait for one that tells; `never`
    names the criteria of configured classes that the format cannot evaluate, `blind`
    says in sentences what else it never tells. `counts` is False for a log whose
    requests another log counts. `lost` counts losses by reason since counters began,
    `problems` says in sentences what stands in the way of reading now.
    """

    name: str
    place: str = ""
    detected: bool = True
    undecided: int = 0
    never: tuple[str, ...] = ()
    blind: tuple[str, ...] = ()
    counts: bool = True
    lag_bytes: float = 0.0
    lost: Mapping[str, float] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

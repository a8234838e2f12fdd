"""An engine's pages made by hand, and flows that follow them."""

from __future__ import annotations

from analyzer.flow import EngineFlow
from analyzer.snapshot import Increase


def observe(
    flow: EngineFlow, text: str, at: float, *, seconds: float = 0.0, tick: bool = True
) -> Increase | None:
    """Reads and records one page, as a sample does."""
    return flow.observe(flow.read(text, at), seconds=seconds, tick=tick)

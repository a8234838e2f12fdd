"""What the diagnosis of an engine gets to know of the gateways before it."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.diagnosis.hops import Hops, hops
from analyzer.flow import EngineFlow
from analyzer.logflow import LogFlow


def engine_hops(
    engine: EngineFlow,
    engines: Sequence[EngineFlow],
    logs: Sequence[LogFlow],
    at: float,
) -> dict[str, Hops]:
    """Returns by model of *engine* what *logs* have of late requests until *at*.

    *engines* are all that are watched, *engine* among them: which of them answered a
    request, most logs do not tell in names that we know.
    """
    found = {}
    recent = [log.recent for log in logs]
    for model in {model for model, _ in engine.ranks()} if recent else ():
        windows = (
            known.window
            for flow in engines
            for (name, _), known in flow.diagnosis.ranks.items()
            if name == model
        )
        told = hops(recent, windows, model, at)
        if told is not None:
            found[model] = told
    return found

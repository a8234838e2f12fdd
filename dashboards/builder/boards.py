"""All dashboards, in the order in which one reads them."""

from __future__ import annotations

import json

from builder import (
    capacity,
    constraint,
    engine,
    fleet,
    gateway,
    goodput,
    gpus,
    health,
)

BOARDS = tuple(
    module.BOARD
    for module in (goodput, constraint, capacity, engine, gpus, gateway, fleet, health)
)


def build() -> dict[str, str]:
    """Returns the text of each dashboard's file by its name."""
    return {
        f"{board.uid}.json": json.dumps(board.built(), indent=1, ensure_ascii=False)
        + "\n"
        for board in BOARDS
    }

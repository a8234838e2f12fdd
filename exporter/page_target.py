"""One target as the status page sees it: its weight, its state, its figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter import page_verdict
from exporter.page_text import Markup, count, percent, plural, tag

Row = dict[str, Any]

SIGNALS = (
    ("running", "Running"),
    ("waiting", "Waiting"),
    ("kv_cache_usage", "KV cache"),
)
_WARNED = 3  # an engine that serves and yet has something to say
# Glyph, colour and weight of each state.
_STATES: Mapping[str, tuple[str, str | None, int]] = {
    "down": ("■", "bad", 0),
    "stalled": ("■", "bad", 1),
    "stats_disabled": ("▲", "warn", 2),
    "starting": ("○", "soft", 4),
    "draining": ("○", "soft", 5),
    "sleeping": ("○", "soft", 6),
    "serving": ("●", None, 7),
}
_OTHER_STATE = ("?", "warn", _WARNED)


@dataclass(frozen=True, slots=True)
class Target:
    """A target with its verdicts and its figures as a source; *number* from 1."""

    number: int
    row: Row
    source: Row
    windows: tuple[Row, ...]

    @property
    def state(self) -> str:
        """The state as the engine_state metric names it."""
        return str(self.row["state"])

    @property
    def constraints(self) -> list[str]:
        """What limits it now, faults apart: its state says those."""
        return page_verdict.binding(w for w in self.windows if w["family"] != "fault")

    @property
    def stale(self) -> str:
        """Why a serving engine's gauges do not count; other states say it all."""
        return str(self.row["stale"]) if self.state == "serving" else ""

    @property
    def weight(self) -> int:
        """How far up it belongs: 0 is the worst."""
        _, _, weight = _STATES.get(self.state, _OTHER_STATE)
        return min(weight, _WARNED) if self.stale or self.constraints else weight

    @property
    def troubled(self) -> bool:
        """Whether somebody should look at it."""
        return self.weight <= _WARNED

    @property
    def unread(self) -> str:
        """Why its gauges do not count now, "" when they do."""
        if self.row["stale"] or self.state != "down":
            return str(self.row["stale"])
        return f"the engine is down: {self.row['reason']}"

    @property
    def anchor(self) -> str:
        """The id of its details."""
        return f"target-{self.number}"

    @property
    def note(self) -> str:
        """What is to be said of it in one line, "" when all is well."""
        row = self.row
        parts = [row["reason"], self.stale, *self.constraints]
        if row["damaged_lines"]:
            parts.append("damaged lines on its page")
        if row["missing"] and self.state != "stats_disabled":
            parts.append(f"{plural(len(row['missing']), 'signal')} missing")
        return "; ".join(part for part in parts if part)

    def why_absent(self, signal: str) -> str:
        """Returns why it has no value of a gauge now."""
        if self.unread:
            return self.unread
        missing = self.row["missing"].get(signal)
        return str(missing or self.row["reason"] or "the page gives no such value")


def targets_of(document: Row) -> list[Target]:
    """Returns the targets of a document, those that need attention first."""
    sources = {s["name"]: s for s in document["sources"] if s["source"] == "engine"}
    windows: dict[str, list[Row]] = {}
    for window in document["windows"]:
        windows.setdefault(window["target"], []).append(window)
    found = [
        Target(
            number,
            row,
            sources.get(row["target"], {}),
            tuple(windows.get(row["target"], ())),
        )
        for number, row in enumerate(document["targets"], 1)
    ]
    return sorted(found, key=lambda target: (target.weight, target.number))


def state_of(target: Target) -> Markup:
    """Returns a target's state as glyph and word."""
    glyph, colour, _ = _STATES.get(target.state, _OTHER_STATE)
    if target.troubled and colour in (None, "soft"):
        glyph, colour = "▲", "warn"
    mark = tag("span", glyph, class_="glyph", aria_hidden="true")
    return tag("span", mark, target.state.replace("_", " "), class_=colour)


def gauge(signal: str, value: float) -> str:
    """Returns a gauge's value as text."""
    return percent(value) if signal == "kv_cache_usage" else count(value, 1)

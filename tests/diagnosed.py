"""Scores the diagnosis over recordings with labelled phases, as one would judge it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Any

from episodes import DIRECTORY

from analyzer.config import parse_config
from analyzer.document import windows
from analyzer.replay import replay
from analyzer.sources.recording import Scrape, read_scrapes

# The SLO that the labels of the recordings were made for.
SLO = "slo_classes: [{name: c, good: {ttft: 1s, tpot: 50ms, e2e: 10s}, objective: 0.9}]"
FAMILIES = {
    "none": "none",
    "queue": "queueing",
    "memory": "memory",
    "compute": "compute",
    "traffic": "traffic",
    "down": "fault",
}
AFTER_SECONDS = 10.0  # two scrapes at the slowest pace: the last window reaches on
SETTLED_SECONDS = 10.0  # after a phase's begin


@dataclass(frozen=True)
class Phase:
    """A labelled stretch of a recording; `family` is "" without a label."""

    recording: str
    name: str
    family: str
    cause: str
    begin: float
    end: float


@dataclass
class Score:
    """The share of a phase under each family and cause, and the longest wrong run."""

    phase: Phase
    families: defaultdict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )
    causes: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    longest_wrong: float = 0.0
    confidences: list[float] = field(default_factory=list)

    def right(self) -> float:
        """Returns the share of the time under the phase's family."""
        return self.families[self.phase.family]

    def wrong(self) -> float:
        """Returns the share of the time under another family, abstaining aside."""
        return 1.0 - self.right() - self.families["unknown"]


def phases(recording: str) -> list[Phase]:
    """Returns the phases of a recording that are long enough to be scored."""
    text = (DIRECTORY / recording / "phases.json").read_text(encoding="utf-8")
    found = [
        Phase(
            recording,
            row["name"],
            FAMILIES.get(row["constraint"], ""),
            row.get("cause", ""),
            row["begin"] + SETTLED_SECONDS,
            row["load_end"],
        )
        for row in json.loads(text)["phases"]
    ]
    return [phase for phase in found if phase.end > phase.begin]


def score(
    recording: str,
    *,
    slo: str = SLO,
    every: int = 1,
    offset: int = 0,
    without: Iterable[str] = (),
    since: float = 0.0,
    labelled: bool = False,
) -> list[Score]:
    """Returns the scores of a recording's phases, replayed as it would be seen live.

    If *labelled*, of those with a label. Only one scrape of *every* is used, from
    *offset* on and after *since* (Unix seconds); lines of the metrics in *without* are
    taken out. What comes after the last phase is left out, and all of a recording
    without phases.
    """
    known = phases(recording)
    if labelled:
        known = [phase for phase in known if phase.family]
    until = max((phase.end for phase in known), default=None)
    if until is None:
        return []
    recorded = takewhile(
        lambda scrape: scrape.at <= until + AFTER_SECONDS,
        read_scrapes(DIRECTORY / recording),
    )
    scrapes = (s for s in recorded if s.at >= since)
    kept = _without(islice(scrapes, offset, None, every), tuple(without))
    found = replay(kept, parse_config(slo))
    assert found is not None
    rows = [w for w in windows([found[0]], latest=False) if w["rank"] in ("0", "")]
    return [_score(phase, rows) for phase in known]


def _without(scrapes: Iterable[Scrape], names: tuple[str, ...]) -> Iterator[Scrape]:
    starts = tuple(f"vllm:{name}" for name in names)
    for scrape in scrapes:
        if scrape.text is None or not starts:
            yield scrape
            continue
        lines = scrape.text.splitlines(keepends=True)
        text = "".join(line for line in lines if not line.startswith(starts))
        yield Scrape(scrape.at, scrape.seconds, text, scrape.reason)


def _score(phase: Phase, rows: Sequence[Mapping[str, Any]]) -> Score:
    result = Score(phase)
    wrong = 0.0
    seconds = phase.end - phase.begin
    for row in rows:
        inside = min(row["end"], phase.end) - max(row["start"], phase.begin)
        if inside <= 0:
            continue
        result.families[row["family"]] += inside / seconds
        result.causes[row["cause"] or ""] += inside / seconds
        result.confidences.append(row["confidence"])
        wrong = wrong + inside if row["family"] != phase.family else 0.0
        result.longest_wrong = max(result.longest_wrong, wrong)
    return result


def confusion(scores: Iterable[Score]) -> str:
    """Returns a table: how the time of each label was named, in percent."""
    total: dict[str, defaultdict[str, float]] = {}
    for item in scores:
        label = item.phase.family or f"({item.phase.recording})"
        row = total.setdefault(label, defaultdict(float))
        length = item.phase.end - item.phase.begin
        for family, share in item.families.items():
            row[family] += share * length
    families = sorted({family for row in total.values() for family in row})
    lines = [f"{'label':16}" + "".join(f"{family:>10}" for family in families)]
    for label, row in sorted(total.items()):
        seconds = sum(row.values())
        cells = (f"{100 * row[family] / seconds:9.1f}%" for family in families)
        lines.append(f"{label:16}" + "".join(cells) + f"   of {seconds:5.0f} s")
    return "\n".join(lines)

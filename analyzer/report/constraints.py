"""What bound when: verdicts of a recording or of Prometheus, beside the requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analyzer.report.report import Row, ratio
from analyzer.verdict import Family

if TYPE_CHECKING:
    from analyzer.flow import EngineFlow

NOTHING_BINDS = (Family.NONE.value, Family.UNKNOWN.value)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A verdict that held from *start* to *end*, for *seconds* of that time.

    `seconds` is less than the whole where only sums over a step are known.
    """

    start: float
    end: float
    target: str
    model: str
    rank: str
    family: str
    cause: str
    seconds: float

    @property
    def name(self) -> str:
        """Family and cause."""
        return f"{self.family}/{self.cause}" if self.cause else self.family


def constraints_of(flow: EngineFlow) -> list[Constraint]:
    """Returns the verdicts of a replayed recording."""
    return [
        Constraint(
            segment.start,
            segment.end,
            flow.source.name,
            model,
            rank,
            segment.verdict.family.value,
            segment.verdict.cause,
            segment.end - segment.start,
        )
        for (model, rank), timeline in sorted(flow.timelines.items())
        for segment in timeline.segments()
    ]


def constraint_rows(constraints: Iterable[Constraint]) -> list[Row]:
    """Returns the rows of the table of constraints."""
    return [
        {
            "start": c.start,
            "end": c.end,
            "target": c.target,
            "model": c.model,
            "rank": c.rank,
            "family": c.family,
            "cause": c.cause,
        }
        for c in constraints
    ]


def constraint_shares(constraints: Sequence[Constraint]) -> list[Row]:
    """Returns how much of the time each constraint held, the most first."""
    seconds: Counter[tuple[str, str]] = Counter()
    for c in constraints:
        seconds[c.family, c.cause] += c.seconds  # type: ignore[assignment]
    total = sum(seconds.values())
    return [
        {
            "family": family,
            "cause": cause,
            "seconds": found,
            "share": ratio(found, total),
        }
        for (family, cause), found in seconds.most_common()
    ]


def constraint_during(
    constraints: Iterable[Constraint], start: float, end: float
) -> str:
    """Returns what bound longest between two moments, "" when nothing is known.

    What binds comes before `none` when it held for a tenth of the time.
    """
    held: Counter[str] = Counter()
    binding: Counter[str] = Counter()
    for c in constraints:
        shared = min(end, c.end) - max(start, c.start)
        length = c.end - c.start
        if shared > 0 and length > 0:
            seconds = c.seconds * shared / length
            held[c.name] += seconds  # type: ignore[assignment]
            if c.family not in NOTHING_BINDS:
                binding[c.name] += seconds  # type: ignore[assignment]
    if binding and sum(binding.values()) >= 0.1 * sum(held.values()):
        held = binding
    return held.most_common(1)[0][0] if held else ""

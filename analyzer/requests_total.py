"""Running totals of one request log: what the exact counters are made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from analyzer.gateways.record import LINE_PROBLEMS
from analyzer.slo import SloClass
from analyzer.tally import Tally

EXCLUSIONS = ("client_abort", "caller_error", "not_generation", "policy")
MISSES = ("ttft", "tpot", "max_gap", "e2e", "error", "abort")
STAGES = ("gateway", "serving", "delivery")
CRITERIA = ("ttft", "tpot", "max_gap", "e2e")
# Finite bounds in seconds; every threshold of the configuration is added.
BOUNDS = {
    "ttft": (
        0.02,
        0.05,
        0.1,
        0.2,
        0.3,
        0.5,
        0.75,
        1,
        1.5,
        2,
        3,
        5,
        7.5,
        10,
        20,
        40,
        80,
    ),
    "tpot": (0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.4, 1),
    "max_gap": (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10, 30),
    "e2e": (0.1, 0.25, 0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 120, 300, 600),
    "stage": (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
}


def bounds_for(kind: str, classes: tuple[SloClass, ...]) -> tuple[float, ...]:
    """Returns the bounds of a histogram, all thresholds of *classes* among them."""
    found = set(map(float, BOUNDS[kind]))
    for slo_class in classes:
        if kind == "stage":
            found.update(slo_class.stages.values())
            continue
        if kind in slo_class.good:
            found.add(slo_class.good[kind].seconds)
        found.update(s for (c, _), s in slo_class.percentiles.items() if c == kind)
    return tuple(sorted(found))


@dataclass(slots=True)
class Row:
    """Totals of one model and class; tallies by criterion and by stage.

    `requests` is good, bad and unevaluable ones; `excluded` ones are beside them.
    Both of these have their reasons; `unstreamed` are the unevaluable ones whose
    answer was not streamed.
    """

    requests: float = 0.0
    good: float = 0.0
    bad: float = 0.0
    unevaluable: float = 0.0
    excluded: float = 0.0
    tokens: float = 0.0
    good_tokens: float = 0.0
    misses: dict[str, float] = field(default_factory=lambda: dict.fromkeys(MISSES, 0.0))
    excluded_for: dict[str, float] = field(default_factory=dict)
    unevaluable_for: dict[str, float] = field(default_factory=dict)
    unstreamed: float = 0.0
    latencies: dict[str, Tally] = field(default_factory=dict)
    stages: dict[str, Tally] = field(default_factory=dict)

    def exclude(self, reason: str) -> None:
        """Adds one request that says nothing about the serving."""
        self.excluded += 1.0
        self.excluded_for[reason] = self.excluded_for.get(reason, 0.0) + 1.0


@dataclass(slots=True)
class RequestTotals:
    """Totals of one log by (model, class), with what was excluded and unreadable.

    `last_record` is the Unix time of the latest request's end, as far as known;
    `unknown` counts unevaluable requests by what could not be known.
    """

    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    excluded: dict[str, float] = field(default_factory=dict)
    unknown: dict[str, float] = field(default_factory=dict)
    lines: float = 0.0
    failures: dict[str, float] = field(default_factory=dict)
    last_record: float | None = None

    def __post_init__(self) -> None:
        # Totals that an earlier version wrote may lack a reason.
        self.excluded = {**dict.fromkeys(EXCLUSIONS, 0.0), **self.excluded}
        self.failures = {**dict.fromkeys(LINE_PROBLEMS, 0.0), **self.failures}

    def row(self, model: str, name: str, classes: tuple[SloClass, ...]) -> Row:
        """Returns the row of a model and class, made at 0 when it is new."""
        found = self.rows.get((model, name))
        if found is None:
            found = self.rows[model, name] = Row(
                latencies={c: Tally(bounds_for(c, classes)) for c in CRITERIA},
                stages={s: Tally(bounds_for("stage", classes)) for s in STAGES},
            )
        return found

    def configure(self, classes: tuple[SloClass, ...]) -> None:
        """Moves every histogram to the bounds of another configuration."""
        kept = {slo_class.name for slo_class in classes} | {"none"}
        for key in [key for key in self.rows if key[1] not in kept]:
            del self.rows[key]
        for row in self.rows.values():
            for criterion in CRITERIA:
                tally = row.latencies[criterion]
                row.latencies[criterion] = tally.rebased(bounds_for(criterion, classes))
            for stage in STAGES:
                row.stages[stage] = row.stages[stage].rebased(
                    bounds_for("stage", classes)
                )

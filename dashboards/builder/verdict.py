"""Panels that say in words what binds: several dashboards begin with them."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as d

from analyzer.verdict import Family
from builder.board import LEADING, SERVED, typed
from builder.panels import BAD, DIM, GOOD, WARN, About, Query, states, tile
from builder.query import BY_ENGINE, ENGINE, ENGINE_NAME, LINES, hottest
from builder.tables import DRILL, Column, Link, field, table_of

ASIDE = "nothing"
NO_ENGINES = "No engine seen, or the rules of `goodput rules` are not loaded"
COLORS = {
    Family.NONE: GOOD,
    Family.MEMORY: "purple",
    Family.COMPUTE: WARN,
    Family.QUEUEING: "yellow",
    Family.COMMUNICATION: "#8F6B4E",
    Family.TRAFFIC: "blue",
    Family.GATEWAY: "light-blue",
    Family.FAULT: BAD,
    Family.UNKNOWN: DIM,
}
RUNBOOKS = typed("runbooks", "Runbooks at", "alerts/runbooks")


LEAD = f'label_join({LEADING}, "verdict", ": ", "family", "cause")'


def _aside(**labels: str) -> str:
    """Returns 0 for each model that is served, with *labels*."""
    running = f"model:goodput_running_requests:sum{{{SERVED}}}"
    aside = f"0 * group by (cluster, model) ({running})"
    for label, value in labels.items():
        aside = f'label_replace({aside}, "{label}", "{value}", "", "")'
    return aside


def binding() -> d.Panel:
    """Returns the tile that names the cause which leads now."""
    return tile(
        About(
            "What binds",
            "The family and cause that engines were under for most of the last five "
            "minutes; the two worst models.",
            f"“{ASIDE}”: there is room, or nobody waits and no criterion is missed.",
            "Do what the table says first, then open its runbook.",
            NO_ENGINES,
        ),
        Query(
            f"topk(2, {LEAD})\nor on () topk(1, {_aside(verdict=ASIDE)})", "{{verdict}}"
        ),
        colors=((None, GOOD), (0.05, WARN), (0.5, BAD)),
        named=True,
    )


def advice() -> d.Panel:
    """Returns the table of what binds each model, why it matters and what to do."""
    runbook = f"${{runbooks}}/{field('Cause')}.md"
    labels = {
        "cluster": "Cluster",
        "model": "Model",
        "family": "Family",
        "cause": "Cause",
        "advice": "What to do first",
    }
    # The cause stays empty: a click on it would lead to no runbook.
    aside = _aside(family=ASIDE, advice="Nothing: there is room.")
    known = f"{LEADING}\nor on (cluster, model) {aside}"
    board = f"/d/llm-goodput-constraint?var-model={field('Model')}&{DRILL}"
    return table_of(
        About(
            "What binds, and what to do first",
            "The leading verdict of each model in the last five minutes, the share of "
            "the engines' time under it, and the first step of its runbook.",
            f"“{ASIDE}” everywhere.",
            "Click a cause for its runbook, a model for the evidence.",
            NO_ENGINES,
        ),
        labels=labels,
        columns=[
            Column(
                "Time bound",
                f"max by ({', '.join(labels)}) ({known})",
                "percentunit",
                ((None, GOOD), (0.05, WARN), (0.5, BAD)),
                decimals=0,
            )
        ],
        sort_by="Time bound",
        links=[
            Link("cause", "Open the runbook", runbook),
            Link("model", "Show the evidence", board),
        ],
        wrapped=("What to do first",),
        widths={
            "Cluster": 100,
            "Model": 140,
            "Family": 100,
            "Cause": 145,
            "Time bound": 95,
        },
    )


def families() -> d.Panel:
    """Returns the bands of what bound each engine over time."""
    ranked = f"{BY_ENGINE}, rank"
    numbered = "\nor ".join(
        f'{number} * (goodput_constraint{{family="{family}",{ENGINE}}} == 1)'
        for number, family in enumerate(Family)
    )
    # Most engines have one rank, which needs no name.
    named = f'label_replace(max by ({ranked}) ({numbered}), "rank", "", "rank", "0")'
    return states(
        About(
            "What bound each engine",
            f"The family of each engine's verdict over time; the {LINES} engines in "
            "which most requests wait, or which are fullest.",
            "Green: nothing binds. Short bands are bursts.",
            "Long bands of one colour are the limit to lift; a fleet in one colour "
            "needs a knob or replicas, one engine in another colour is a fault or "
            "uneven routing.",
            "No engine seen",
        ),
        Query(hottest(named), f"{ENGINE_NAME} {{{{rank}}}}"),
        said=[
            (number, family.value, COLORS[family])
            for number, family in enumerate(Family)
        ],
    )

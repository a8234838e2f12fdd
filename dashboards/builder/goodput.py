"""The front door: are we good, what binds, how much is left, what to do."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as d

from analyzer.rules.burn import DAY, TABLE, TABLE_WINDOW
from builder import latency, verdict
from builder.board import Board, Line, slo_classes
from builder.panels import (
    BAD,
    DIM,
    GOOD,
    PLAIN,
    WARN,
    About,
    Query,
    series,
    spans,
    tile,
    words,
)
from builder.query import BY_CLASS, CLASS, CLASS_NAME, SITE, or_none, smaller
from builder.tables import DRILL, Column, Link, field, table_of

REQUESTS = f"slo_class:goodput_requests:rate5m{{{CLASS}}}"
GOODS = f"slo_class:goodput_good_requests:rate5m{{{CLASS}}}"
BADS = f"slo_class:goodput_bad_requests:rate5m{{{CLASS}}}"
SHARE = f"sum by ({BY_CLASS}) ({GOODS}) / (sum by ({BY_CLASS}) ({GOODS} + {BADS}) > 0)"
OBJECTIVE = f'slo_class:goodput_objective:max{{{SITE},slo_class=~"$slo_class"}}'
# The window is part of the recording's name, and classes may differ in it.
BUDGET = f'{{__name__=~"slo_class:goodput_budget_left:ratio.+",{CLASS}}}'
COVERED = f'{{__name__=~"slo_class:goodput_budget_covered_seconds:count.+",{CLASS}}}'
WINDOW = f'slo_class:goodput_window_seconds:max{{{SITE},slo_class=~"$slo_class"}}'
# Of a class; the largest is what the first tile shows first.
QUIET, CANNOT_TELL, BURNING, NO = -1, 1, 2, 3
REASONS = (
    ("^ttft", "blue"),
    ("^tpot", "orange"),
    ("^e2e", "purple"),
    ("^max_gap", "yellow"),
    ("^error", BAD),
    ("^abort|^none", DIM),
)
FOR_EVER = 3650 * DAY
NO_LOG = "No traffic, no request log read, or the rules are not loaded"


def bound(side: str, window: str) -> str:
    """Returns the recorded upper or lower bound of the share of good requests."""
    return f"slo_class:goodput_{side}_bound:ratio_rate{window}{{{CLASS}}}"


def burn(window: str) -> str:
    """Returns the recorded burn rate of a window: 1 spends the budget just in time."""
    return f"slo_class:goodput_budget_burn:ratio_rate{window}{{{CLASS}}}"


def _threshold(row: int) -> str:
    """Returns the burn rate at which an alert fires, as `goodput rules` derives it."""
    wish = TABLE[row]
    window = f"max by (slo_class) (clamp_min({WINDOW}, {TABLE_WINDOW:g}))"
    table = f"({wish.share:g} / {wish.long:g} * {window})"
    allowed = f"(max by (slo_class) (1 - {OBJECTIVE}) > 0)"
    return smaller(table, f"clamp_min({wish.most:g} / {allowed}, 1)")


def _bounded() -> str:
    """Returns the status that the engines' bounds prove: No, Yes, or not to be told."""
    objective = f"on (slo_class) group_left () max by (slo_class) ({OBJECTIVE})"
    upper, lower = (
        f"max by ({BY_CLASS}) ({bound(side, '1h')})" for side in ("upper", "lower")
    )
    missed = f"{NO} * ({upper} < bool {objective})"
    unsure = f"({upper} >= bool {objective}) * ({lower} < bool {objective})"
    known = f"{missed} + {CANNOT_TELL} * {unsure}"
    return f'label_replace({known}, "source", "(bound)", "", "")'


def _status() -> d.Panel:
    long, short = (f"(max by ({BY_CLASS}) ({burn(w)}) >= bool 1)" for w in ("1h", "5m"))
    # Each alone is burning, both together are a miss.
    exact = f"{BURNING} * ({short} + {long}) - {2 * BURNING - NO} * {short} * {long}"
    # Below the others, or an idle class would hide one that misses its objective.
    quiet = f"(sum by ({BY_CLASS}) ({REQUESTS}) == 0) + {QUIET}"
    known = f"{exact}\nor on ({BY_CLASS}) {_bounded()}\nor on ({BY_CLASS}) {quiet}"
    return tile(
        About(
            "Are we good?",
            "Whether bad requests come faster than the objective allows, in the last "
            "five minutes and in the last hour; the two worst classes. Without a "
            "request log the engines' bounds of the last hour answer: yes and no are "
            "proven then, the rest cannot be told.",
            "“Yes”. “Burning” is one of the two: it began just now, or is over.",
            "Read what binds, and do the first step of its runbook.",
            NO_LOG,
        ),
        Query(f"topk(2, {known})", f"{CLASS_NAME} {{{{source}}}}"),
        said=words(
            (QUIET, "No traffic", DIM),
            (0, "Yes", GOOD),
            (CANNOT_TELL, "Cannot tell", DIM),
            (BURNING, "Burning", WARN),
            (NO, "No", BAD),
        ),
    )


def _now() -> d.Panel:
    def alone(side: str) -> str:
        return f"min({bound(side, '5m')}) unless on () ({SHARE})"

    return tile(
        About(
            "Good requests now",
            "Share of requests that met every criterion of their class in the last "
            "five minutes, the worst class, beside the objective. Without a request "
            "log: the bounds that the engines give.",
            "The first figure is above the objective.",
            "See which criterion is missed below, and what binds.",
            NO_LOG,
        ),
        Query(f"min({SHARE})", "good"),
        Query(alone("lower"), "at least"),
        Query(alone("upper"), "at most"),
        Query(f"max({OBJECTIVE})", "objective"),
        unit="percentunit",
        colors=((None, "transparent"),),
    )


def _left() -> d.Panel:
    return tile(
        About(
            "Error budget left",
            "What is left of the bad requests that the objective allows in its "
            "window, the worst class: 100 % is untouched, below 0 it is overspent.",
            "More than the share of the window that is still to come.",
            "Below 0, freeze changes and spend on headroom. The second figure is how "
            "much of the window was recorded: much less than the window means that "
            "little is known yet.",
            NO_LOG,
        ),
        Query(f"min({BUDGET})", "left"),
        Query(f"min({COVERED})", "recorded"),
        unit="percentunit",
        others=(("recorded", "s", ((None, "transparent"),)),),
        colors=((None, BAD), (0.0, WARN), (0.25, GOOD)),
    )


def _gone() -> d.Panel:
    window = f"on (slo_class) group_left () max by (slo_class) ({WINDOW})"
    left = f"max by ({BY_CLASS}) (clamp_min({BUDGET}, 0))"
    pace = f"(max by ({BY_CLASS}) ({burn('1h')}) > 0)"
    calm = f"sum by ({BY_CLASS}) ({REQUESTS}) * 0 + {FOR_EVER:g}"
    return tile(
        About(
            "Budget lasts",
            "How long the budget lasts at the last hour's pace, the worst class.",
            "“For ever”, or longer than the window.",
            "Hours mean that an alert is due: read what binds.",
            NO_LOG,
        ),
        Query(f"min({left} / {pace} * {window}\nor {calm})", "at this pace"),
        unit="s",
        colors=((None, BAD), (DAY, WARN), (7 * DAY, GOOD)),
        said=spans((0, 0, "spent", BAD), (FOR_EVER, FOR_EVER, "for ever", GOOD)),
    )


def _table() -> d.Panel:
    def per_class(expr: str) -> str:
        return f"max by ({BY_CLASS}) ({expr})"

    objective = f"max by (slo_class) ({OBJECTIVE})"
    joined = f"0 * {SHARE} + on (slo_class) group_left () {objective}"
    detail = f"/d/llm-goodput-gateway?var-model={field('Model')}&{DRILL}"
    within = ((None, GOOD), (1.0, WARN), (2.0, BAD))
    return table_of(
        About(
            "Classes",
            "A row for each model and SLO class. Burn 1 spends the budget just in its "
            "window. Covered is the time that the figure of the budget rests on.",
            "Burn below 1, budget above 0.",
            "Click a model for its requests, stages and logs.",
            NO_LOG,
        ),
        labels={"model": "Model", "slo_class": "Class"},
        columns=[
            Column("Requests/s", f"sum by ({BY_CLASS}) ({REQUESTS})", "reqps"),
            Column("Good/s", f"sum by ({BY_CLASS}) ({GOODS})", "reqps"),
            Column("Good", SHARE, "percentunit", decimals=1),
            Column("Objective", joined, "percentunit", decimals=1),
            Column("Burn 5m", per_class(burn("5m")), "none", within, decimals=1),
            Column("Burn 1h", per_class(burn("1h")), "none", within, decimals=1),
            Column(
                "Budget left",
                per_class(BUDGET),
                "percentunit",
                ((None, BAD), (0.0, WARN), (0.25, GOOD)),
                decimals=0,
            ),
            Column("Covered", per_class(COVERED), "s", decimals=0),
        ],
        sort_by="Burn 5m",
        links=[Link("model", "Show its requests", detail)],
    )


def _throughput() -> d.Panel:
    return series(
        About(
            "Goodput against throughput",
            "Requests that ended a second, and those of them that met every "
            "criterion. The gap is work that users did not get in time.",
            "The lines lie on each other.",
            "A gap that opens as requests rise: the knee is passed, see Capacity. A "
            "gap without more requests: a fault, see what binds.",
            NO_LOG,
        ),
        Query(f"sum({REQUESTS})", "requests"),
        Query(f"sum({GOODS})", "good requests"),
        unit="reqps",
        colors=(("^requests$", PLAIN), ("^good requests$", GOOD)),
        filled=True,
    )


def _share() -> d.Panel:
    return series(
        About(
            "Share of good requests",
            "Good over judged requests in five minutes, by class, and the objective.",
            "Above the dashed objective.",
            "See “Bad requests by reason” for the criterion.",
            NO_LOG,
        ),
        Query(SHARE, CLASS_NAME),
        Query(f"max by (slo_class) ({OBJECTIVE})", "objective {{slo_class}}"),
        unit="percentunit",
        most=1.0,
    )


def _burn() -> d.Panel:
    lines = [
        Query(f"max by ({BY_CLASS}) ({burn(window)})", f"{window} {CLASS_NAME}")
        for window in ("5m", "1h")
    ]
    return series(
        About(
            "Burn rate against what alerts",
            "How many times faster than allowed the budget is spent. A page needs the "
            "burn of five minutes and of an hour (of a quarter of an hour where the "
            "limit is half of all requests bad) above the page limit; a ticket that of "
            "days above the ticket limit.",
            "Below 1.",
            "Above the page limit: act now. Between: in working hours.",
            NO_LOG,
        ),
        *lines,
        Query(_threshold(0), "page limit {{slo_class}}"),
        Query(_threshold(len(TABLE) - 1), "ticket limit {{slo_class}}"),
        colors=(("^5m", PLAIN), ("^1h", "purple")),
    )


def _reasons() -> d.Panel:
    misses = f"criterion:goodput_misses:rate5m{{{CLASS}}}"
    return series(
        About(
            "Bad requests by reason",
            "Criteria missed a second; a request may miss several. error: it failed, "
            "abort: its client left after a threshold had passed.",
            "Nothing.",
            "ttft: queueing or prefill. tpot: batch too wide. e2e alone: answers grew. "
            "error: see the engine's log.",
            NO_LOG,
        ),
        Query(
            or_none(f"sum by (criterion) ({misses})", "criterion", misses),
            "{{criterion}}",
        ),
        unit="reqps",
        stack=True,
        least=0.1,
        colors=REASONS,
    )


def _attainment() -> d.Panel:
    chosen = f'{CLASS},criterion=~"ttft|tpot|max_gap|e2e|error"'
    misses = (
        f"sum by ({BY_CLASS}, criterion) (criterion:goodput_misses:rate5m{{{chosen}}})"
    )
    whole = f"(sum by ({BY_CLASS}) ({REQUESTS}) > 0)"
    return series(
        About(
            "Attainment by criterion",
            "Share of requests that did not miss the criterion: the joint share of "
            "good requests is at most the lowest of these.",
            "All above the dashed objective.",
            "The lowest line is the criterion to work on.",
            NO_LOG,
        ),
        Query(
            f"clamp_min(1 - {misses} / on ({BY_CLASS}) group_left () {whole}, 0)",
            "{{criterion}} {{slo_class}}",
        ),
        Query(f"max by (slo_class) ({OBJECTIVE})", "objective {{slo_class}}"),
        unit="percentunit",
        most=1.0,
        colors=REASONS,
    )


def stages() -> d.Panel:
    """Returns the panel of the mean time that requests spend in each stage."""
    seconds = f"slo_class:goodput_request_stage_seconds_sum:rate5m{{{CLASS}}}"
    count = f"slo_class:goodput_request_stage_seconds_count:rate5m{{{CLASS}}}"
    return series(
        About(
            "Time by stage",
            "Mean time of a request before the server (gateway), at it (serving) and "
            "after it (delivery). Means add up; percentiles would not.",
            "Serving is nearly all of it.",
            "gateway grew: look at the gateway. delivery grew: slow clients, or links.",
            NO_LOG,
        ),
        Query(
            f"sum by (stage) ({seconds}) / (sum by (stage) ({count}) > 0)", "{{stage}}"
        ),
        unit="s",
        stack=True,
    )


def _bounds() -> d.Panel:
    upper, lower = bound("upper", "1h"), bound("lower", "1h")
    return series(
        About(
            "Bounds from the engines alone (1 h)",
            "Without a request log only each criterion's share is known. Jointly no "
            "more requests can be good than the upper bound and no fewer than the "
            "lower: a bound, not goodput.",
            "The lower bound is above the objective.",
            "Upper bound below the objective: certainly missed. Objective between "
            "them: read a request log to know, or align buckets with thresholds "
            "(goodput check --live prints how).",
            "No traffic, or the rules are not loaded",
        ),
        Query(f"max by ({BY_CLASS}) ({upper})", f"upper bound {CLASS_NAME}"),
        Query(f"max by ({BY_CLASS}) ({lower})", f"lower bound {CLASS_NAME}"),
        Query(f"max by (slo_class) ({OBJECTIVE})", "objective {{slo_class}}"),
        unit="percentunit",
        most=1.0,
    )


BOARD = Board(
    uid="llm-goodput-slo",
    title="LLM Goodput: SLO",
    description="Are users served as promised, what binds, how much budget is left, "
    "and what to do first.",
    variables=(slo_classes(), verdict.RUNBOOKS),
    lines=(
        Line(
            4,
            (
                (5, _status()),
                (5, _now()),
                (4, _left()),
                (4, _gone()),
                (6, verdict.binding()),
            ),
        ),
        Line(4, ((24, verdict.advice()),)),
        Line(4, ((24, _table()),)),
        Line(8, ((12, _throughput()), (12, _share()))),
        Line(8, ((8, _burn()), (8, _reasons()), (8, _attainment()))),
        Line(
            9,  # legends of several percentiles and targets
            tuple((8, latency.percentiles(name)) for name in latency.MEANING),
            title="Latency against target",
        ),
        Line(
            8,
            ((12, stages()), (12, _bounds())),
            title="Where the time goes, and what the engines alone tell",
        ),
    ),
)

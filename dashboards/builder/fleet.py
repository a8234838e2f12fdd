"""Every engine in a row: which are hot, which differ, which are gone."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as d

from analyzer.diagnosis.thresholds import KV_HIGH
from analyzer.verdict import Family
from builder import verdict
from builder.board import Board, Line, engines
from builder.panels import (
    BAD,
    DIM,
    GOOD,
    PLAIN,
    WARN,
    About,
    Query,
    series,
    tile,
    words,
)
from builder.query import BY_ENGINE, ENGINE, ENGINE_NAME, MODEL, TARGET, grown, quantile
from builder.tables import DRILL, Column, Link, field, table_of

HOT = 10  # lines that one can still tell apart
NONE_SEEN = "No engine seen"
USAGE = f"target:goodput_kv_cache_usage_max60s:max{{{ENGINE}}}"


def _state(state: str, title: str, act: str, color: str) -> d.Panel:
    serving = state == "serving"
    return tile(
        About(
            title,
            f"Engines in the state {state}.",
            "All of them." if serving else "0.",
            act,
            NONE_SEEN,
        ),
        Query(f'sum(goodput_engine_state{{{TARGET},state="{state}"}})', "engines"),
        unit="short",
        colors=((None, BAD), (1, GOOD)) if serving else ((None, GOOD), (1, color)),
    )


def _table() -> d.Panel:
    def most(expr: str) -> str:
        return f"max by ({BY_ENGINE}) ({expr})"

    def of(name: str) -> str:
        return most(f"target:goodput_{name}{{{ENGINE}}}")

    families = "\nor ".join(
        f'{number} * (goodput_constraint{{family="{family}",{ENGINE}}} == 1)'
        for number, family in enumerate(Family)
    )
    waiting = f"sum by ({BY_ENGINE}) (goodput_engine_waiting_requests{{{ENGINE}}})"
    running = f"sum by ({BY_ENGINE}) (goodput_engine_running_requests{{{ENGINE}}})"
    detail = (
        f"/d/llm-goodput-engine?var-target={field('Engine')}"
        f"&var-instance={field('Exporter')}&{DRILL}"
    )
    said = [(n, f.value, verdict.COLORS[f]) for n, f in enumerate(Family)]
    high = KV_HIGH.value
    return table_of(
        About(
            "Engines, hottest first",
            "A row an engine, sortable by each column.",
            "Rows alike.",
            "Some hot, others idle: the routing is uneven. All hot: see Capacity. "
            "Click an engine for its details.",
            NONE_SEEN,
        ),
        labels={
            "target": "Engine",
            "pod": "Pod",
            "model": "Model",
            "instance": "Exporter",
        },
        columns=[
            Column("What binds", most(families), said=words(*said), width=120),
            Column(
                "Fullest KV",
                of("kv_cache_usage_max60s:max"),
                "percentunit",
                ((None, GOOD), (high - 0.1, WARN), (high, BAD)),
                decimals=0,
            ),
            Column("Waiting", waiting, "short", ((None, GOOD), (1, WARN)), decimals=0),
            Column("Running", running, "short", decimals=0),
            Column("Tokens/s", of("generation_tokens:rate5m"), "short"),
            Column(
                "Preemptions/request",
                of("preemptions_per_request:ratio_rate5m"),
                "short",
                ((None, GOOD), (0.05, WARN), (0.5, BAD)),
                decimals=2,
            ),
            Column(
                "TTFT p95",
                quantile(0.95, "goodput_engine_ttft_seconds", ENGINE, BY_ENGINE),
                "s",
            ),
        ],
        sort_by="Fullest KV",
        links=[Link("target", "Show this engine", detail)],
        widths={"Engine": 180, "Model": 150},
    )


def _states() -> d.Panel:
    return series(
        About(
            "Engines by state",
            "How many engines are in each state.",
            "All serving.",
            "down or stalled: see Engine. Many starting: a rollout, or crashes.",
            NONE_SEEN,
        ),
        Query(f"sum by (state) (goodput_engine_state{{{TARGET}}}) > 0", "{{state}}"),
        unit="short",
        stack=True,
        colors=(
            ("serving", GOOD),
            ("down|stalled", BAD),
            ("starting", PLAIN),
            ("draining", WARN),
            ("sleeping", DIM),
        ),
    )


def _balance() -> d.Panel:
    return series(
        About(
            "KV cache: is the load even?",
            "The fullest, the median and the emptiest engine. A mean would hide the "
            "one that preempts.",
            "The lines lie together.",
            "Far apart: the router does not see how full engines are, or sessions "
            "stick to few.",
            NONE_SEEN,
        ),
        Query(f"max({USAGE})", "fullest"),
        Query(f"quantile(0.5, {USAGE})", "median"),
        Query(f"min({USAGE})", "emptiest"),
        unit="percentunit",
        most=1.0,
        colors=(("fullest", BAD), ("median", WARN), ("emptiest", GOOD)),
    )


def _hot(title: str, metric: str, shows: str, act: str, unit: str) -> d.Panel:
    return series(
        About(
            f"{title}: the {HOT} highest",
            f"{shows} Only the {HOT} engines with the most.",
            "Lines together.",
            act,
            NONE_SEEN,
        ),
        Query(f"topk({HOT}, sum by ({BY_ENGINE}) ({metric}))", ENGINE_NAME),
        unit=unit,
        least=10.0,
    )


def _restarts() -> d.Panel:
    chosen = f'{TARGET},kind="engine",reset="restart"'
    restarted = grown("goodput_target_resets_total", chosen)
    return series(
        About(
            "Restarts",
            "Restarts of engines at each step of the axis, seen by their counters.",
            "0 outside of rollouts.",
            "The same engine again and again: its log's end, out of memory, probes.",
            NONE_SEEN,
        ),
        Query(
            f"topk({HOT}, sum by (target, pod) ({restarted}))",
            ENGINE_NAME,
        ),
        unit="short",
        least=1.0,
    )


BOARD = Board(
    uid="llm-goodput-fleet",
    title="LLM Goodput: fleet",
    description="Every engine in a row: which are hot, which differ, which are gone.",
    variables=engines(),
    lines=(
        Line(
            4,
            (
                (6, _state("serving", "Serving", "See which state they are in.", GOOD)),
                (6, _state("starting", "Starting", "A rollout, or crashes.", WARN)),
                (6, _state("stalled", "Stalled", "Stack dump, then restart.", BAD)),
                (6, _state("down", "Down", "See the pods' events.", BAD)),
            ),
        ),
        Line(10, ((24, _table()),)),
        Line(8, ((8, _states()), (8, _balance()), (8, _restarts()))),
        Line(
            8,
            (
                (
                    12,
                    _hot(
                        "Waiting",
                        f"goodput_engine_waiting_requests{{{ENGINE}}}",
                        "Requests that wait in the engine.",
                        "Few engines hold the queue: routing. All: capacity.",
                        "short",
                    ),
                ),
                (
                    12,
                    _hot(
                        "Tokens/s",
                        f"target:goodput_generation_tokens:rate5m{{{MODEL}}}",
                        "Output tokens a second.",
                        "One far above the others: sessions stick to it.",
                        "si:tok/s",
                    ),
                ),
            ),
        ),
    ),
)

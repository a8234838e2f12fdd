"""What binds, since when, on what evidence, and what to do about it."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as d

from analyzer.diagnosis.thresholds import DRAM_HIGH, KV_HIGH, PREEMPTION_RATE
from builder import verdict
from builder.board import Board, Line, engines
from builder.panels import (
    BAD,
    GOOD,
    PLAIN,
    WARN,
    About,
    Query,
    note,
    series,
    spans,
    tile,
)
from builder.query import (
    BY_ENGINE,
    ENGINE,
    ENGINE_NAME,
    LINES,
    MODEL,
    hottest,
    mean,
    rate,
)
from builder.tables import Column, table_of

NO_ENGINES = verdict.NO_ENGINES
FULL = 0.98  # the last blocks are too few for any prompt
NEVER = 86400.0  # forecasts reach ten minutes
_SITE_GPU = 'cluster=~"$cluster",namespace=~"$namespace",instance=~"$instance"'


def limit(expr: str, value: float) -> str:
    """Returns a line at *value* that is there only while *expr* is."""
    return f"0 * max({expr}) + {value:g}"


def forecast(matchers: str = ENGINE) -> d.Panel:
    """Returns the tile of when the first KV cache will be full."""
    filling = f"goodput_kv_cache_exhaustion_seconds{{{matchers}}}"
    usage = f"goodput_engine_kv_cache_usage_ratio{{{matchers}}}"
    full = f"0 * ({usage} >= {FULL:g})"
    calm = f"{NEVER:g} + 0 * {usage}"
    return tile(
        About(
            "KV cache full in",
            "When the first engine's KV cache is full if it goes on filling as in the "
            "last half minute.",
            "“not filling”.",
            "Minutes: lower --max-num-seqs or add a replica before preemption begins. "
            "full: see whether requests wait or are preempted.",
            "No engine seen",
        ),
        Query(f"min({filling}\nor {full}\nor {calm})", "the first engine"),
        unit="s",
        colors=((None, BAD), (120, WARN), (600, GOOD)),
        said=spans((0, 0, "full", BAD), (NEVER, NEVER, "not filling", GOOD)),
    )


def shares() -> d.Panel:
    """Returns the table of how long each cause was in force in the shown time."""
    recorded = f"target:goodput_constraint_seconds:rate5m{{{ENGINE}}}"
    spent = f"sum_over_time({recorded}[$__range])"
    share = f"sum by (family, cause) ({spent}) / scalar(sum({spent})) > 0.001"
    return table_of(
        About(
            "Share of time by cause",
            "How much of the engines' time in the shown range each verdict was in "
            "force.",
            "none is nearly all of it.",
            "The longest bar that is not none is where effort pays.",
            NO_ENGINES,
        ),
        labels={"family": "Family", "cause": "Cause"},
        columns=[Column("Share", share, "percentunit", decimals=0, gauge=1.0)],
        sort_by="Share",
        widths={"Family": 100, "Cause": 130},
    )


def fullest(matchers: str = MODEL) -> d.Panel:
    """Returns the tile of the fullest KV cache."""
    return tile(
        About(
            "Fullest KV cache",
            "The highest share of KV blocks in use in the last minute, of any engine.",
            f"Below {KV_HIGH.value:.0%}, or above it with nobody waiting.",
            "Above it with a queue, memory binds.",
            "No engine seen",
        ),
        Query(
            f"max(target:goodput_kv_cache_usage_max60s:max{{{matchers}}})",
            "of any engine",
        ),
        unit="percentunit",
        colors=((None, GOOD), (KV_HIGH.value - 0.1, WARN), (KV_HIGH.value, BAD)),
        spark=True,
    )


def waiting_share() -> d.Panel:
    """Returns the tile of how many of the requests in engines wait."""
    running = f"model:goodput_running_requests:sum{{{MODEL}}}"
    waiting = f"model:goodput_waiting_requests:sum{{{MODEL}}}"
    return tile(
        About(
            "Share of requests that wait",
            "Share of the requests in engines that wait rather than run.",
            "0: everyone who comes is served at once.",
            "A third and more: demand is above what the engines take; a knob or "
            "replicas, see what binds.",
        ),
        Query(f"sum({waiting}) / (sum({running} + {waiting}) > 0)", "now"),
        unit="percentunit",
        colors=((None, GOOD), (0.05, WARN), (0.3, BAD)),
        spark=True,
    )


def _over_time() -> d.Panel:
    share = f"model:goodput_constraint:ratio_rate5m{{{MODEL}}}"
    count = f"count(sum by (cluster, namespace, model) ({share}))"
    colors = tuple(
        (f"^{family.value}$", color) for family, color in verdict.COLORS.items()
    )
    return series(
        About(
            "Share of time by family",
            "The engines' time in five minutes by the family of their verdict; the "
            "mean over the chosen models.",
            "All green.",
            "See which family grows with traffic: that one sets the capacity.",
            NO_ENGINES,
        ),
        Query(f"sum by (family) ({share}) / scalar({count}) > 0", "{{family}}"),
        unit="percentunit",
        stack=True,
        most=1.0,
        colors=colors,
    )


def preemptions() -> d.Panel:
    """Returns the panel of preemptions by engine."""
    preempted = (
        f"sum by ({BY_ENGINE}) ({rate('goodput_engine_preemptions_total', ENGINE)})"
    )
    return series(
        About(
            "Preemptions",
            "Requests thrown out of the KV cache a second; their tokens are computed "
            "again. It moves when the victim resumes, so it lags.",
            f"0; the diagnosis takes {PREEMPTION_RATE.value:g}/s as evidence.",
            "Lower --max-num-seqs, give the KV cache more, or add a replica.",
            "No engine seen",
        ),
        Query(hottest(preempted), ENGINE_NAME),
        unit="reqps",
        least=1.0,
    )


def _memory() -> d.Panel:
    usage = f"goodput_engine_kv_cache_usage_ratio_max60s{{{ENGINE}}}"
    return series(
        About(
            "Memory: fullest KV cache",
            "Share of KV blocks in use, the highest of each last minute. A stock: it "
            "is what running requests hold.",
            "Below the limit, or above it with nobody waiting: well used.",
            "At the limit with a queue or preemptions it is the memory that binds.",
            "No engine seen",
        ),
        Query(hottest(f"max by ({BY_ENGINE}) ({usage})"), ENGINE_NAME),
        Query(limit(usage, KV_HIGH.value), "evidence limit"),
        unit="percentunit",
        most=1.0,
    )


def _prefill() -> d.Panel:
    computed = f'{ENGINE},source!~"local_cache_hit|external_kv_transfer"'
    tokens = rate("goodput_engine_prompt_tokens_total", computed)
    return series(
        About(
            "Compute: prompt tokens computed",
            "Prompt tokens a second that were computed, without those of the caches. "
            "A rate: prefill is arithmetic.",
            "It follows the arrivals.",
            "Flat while requests wait: prefill binds; prefix caching, shorter prompts "
            "or replicas help.",
            "No engine seen",
        ),
        Query(hottest(f"sum by ({BY_ENGINE}) ({tokens})"), ENGINE_NAME),
        unit="si:tok/s",
    )


def _decode() -> d.Panel:
    return series(
        About(
            "Compute: time between outputs",
            "Mean gap between two outputs of a request: the time of a step.",
            "Flat while the batch grows.",
            "Growing with the batch while tokens/s stay: decode is saturated; see GPU "
            "for whether arithmetic or bandwidth.",
        ),
        Query(
            hottest(mean("goodput_engine_itl_seconds", ENGINE, BY_ENGINE)), ENGINE_NAME
        ),
        unit="s",
    )


def _queue() -> d.Panel:
    waiting = f"goodput_engine_waiting_requests{{{ENGINE}}}"
    return series(
        About(
            "Queueing: waiting requests",
            "Requests that wait in the engine, by its reason: capacity (no room in "
            "batch or cache) or deferred (not ready to run).",
            "0, or gone within seconds.",
            "Waiting with a KV cache that has room: raise --max-num-seqs or "
            "--max-num-batched-tokens. deferred: adapters, grammars, KV transfers.",
            "No engine seen",
        ),
        Query(
            hottest(f"sum by ({BY_ENGINE}, reason) ({waiting})"),
            f"{ENGINE_NAME} {{{{reason}}}}",
        ),
        unit="short",
        least=10.0,
    )


def _running() -> d.Panel:
    running = f"goodput_engine_running_requests{{{ENGINE}}}"
    return series(
        About(
            "Queueing: running requests",
            "Requests in the batch. A flat top with a queue is a cap.",
            "Moves with the traffic.",
            "Flat at --max-num-seqs while others wait: the sequence cap binds.",
            "No engine seen",
        ),
        Query(hottest(f"sum by ({BY_ENGINE}) ({running})"), ENGINE_NAME),
        unit="short",
    )


def _gpu() -> d.Panel:
    dram = f"goodput_gpu_dram_active_ratio{{{_SITE_GPU}}}"
    tensor = f"goodput_gpu_tensor_active_ratio{{{_SITE_GPU}}}"
    return series(
        About(
            "GPU: bandwidth or arithmetic",
            "Share of cycles in which memory moved data, and in which tensor cores "
            "were busy: the busiest GPU.",
            "DRAM below the limit.",
            "DRAM at the limit while outputs slow down: bandwidth binds. Both low "
            "while requests wait: look at queueing, CPU or links.",
            "No GPU exporter read, or it lacks profiling metrics",
        ),
        Query(f"max({dram})", "DRAM active"),
        Query(f"max({tensor})", "tensor cores active"),
        Query(limit(dram, DRAM_HIGH.value), "DRAM evidence limit"),
        unit="percentunit",
        most=1.0,
        colors=(("^DRAM active", PLAIN), ("^tensor", "purple")),
    )


def _how() -> d.Panel:
    return note(
        "How to read this",
        "A family binds only **under pressure**: requests wait, a criterion is missed, "
        "or more load brings no more tokens. A full cache or a busy GPU alone is a "
        "machine well used.\n\n"
        f"Panels with a line an engine show the {LINES} in which most requests wait, "
        "or which are fullest.\n\n"
        "`goodput diagnose` prints the evidence, and what is missing.",
    )


BOARD = Board(
    uid="llm-goodput-constraint",
    title="LLM Goodput: binding constraint",
    description="What limits the engines, since when, on what evidence, and what to "
    "do first.",
    variables=(*engines(), verdict.RUNBOOKS),
    lines=(
        Line(
            4,
            (
                (8, verdict.binding()),
                (4, forecast()),
                (6, fullest(ENGINE)),
                (6, waiting_share()),
            ),
        ),
        Line(4, ((24, verdict.advice()),)),
        Line(8, ((16, verdict.families()), (8, shares()))),
        Line(8, ((8, _over_time()), (8, preemptions()), (8, _how()))),
        Line(
            7,
            ((8, _memory()), (8, _prefill()), (8, _decode())),
            title="Evidence, family by family",
        ),
        Line(7, ((8, _queue()), (8, _running()), (8, _gpu()))),
    ),
)

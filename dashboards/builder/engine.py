"""One engine, or some: scheduler, tokens, cache, latency by phase."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as d

from analyzer.catalogue import ENGINE_STATES
from analyzer.diagnosis.thresholds import KV_HIGH
from builder import constraint, verdict
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
    spread,
    states,
)
from builder.query import (
    BY_ENGINE,
    BY_TARGET,
    ENGINE,
    ENGINE_NAME,
    LINES,
    TARGET,
    hottest,
    mean,
    quantile,
    rate,
    ratio,
    total,
)

NONE_SEEN = "No engine seen"
STATE_COLORS = {
    "starting": PLAIN,
    "serving": GOOD,
    "stalled": BAD,
    "sleeping": DIM,
    "draining": WARN,
    "stats_disabled": "purple",
    "down": BAD,
}


def _states() -> d.Panel:
    numbered = "\nor ".join(
        f'{number} * (goodput_engine_state{{state="{state}",{TARGET}}} == 1)'
        for number, state in enumerate(ENGINE_STATES)
    )
    others = f'goodput_engine_state{{state!="serving",{TARGET}}}'
    spent = f"sum by ({BY_TARGET}) (sum_over_time({others}[$__range] @ end()))"
    away = f"topk({LINES}, {spent})"
    return states(
        About(
            "State of each engine",
            f"Whether each engine answers, serves and makes progress; the {LINES} that "
            "did not for the longest.",
            "All green.",
            "stalled: work is there and no counter moves: take a stack dump and "
            "restart. down: see the pod's events and the end of its log.",
            NONE_SEEN,
        ),
        Query(
            f"max by ({BY_TARGET}) ({numbered})\nand on ({BY_TARGET}) {away}",
            ENGINE_NAME,
        ),
        said=[
            (number, state, STATE_COLORS[state])
            for number, state in enumerate(ENGINE_STATES)
        ],
    )


def _scheduler() -> d.Panel:
    running = f"sum(goodput_engine_running_requests{{{ENGINE}}})"
    waiting = f"sum by (reason) (goodput_engine_waiting_requests{{{ENGINE}}}) > 0"
    return series(
        About(
            "Requests in the engine",
            "In the batch, and waiting by the engine's reason.",
            "Nobody waits for long.",
            "Waiting grows: see Binding constraint for what holds them.",
            NONE_SEEN,
        ),
        Query(running, "running"),
        Query(waiting, "waiting: {{reason}}"),
        unit="short",
        stack=True,
        colors=(("^running", GOOD), ("capacity", WARN), ("deferred", "purple")),
    )


def _finished() -> d.Panel:
    finished = rate("goodput_engine_finished_requests_total", ENGINE)
    rejected = rate("goodput_engine_rejected_requests_total", ENGINE)
    return series(
        About(
            "Requests that end",
            "A second, by the engine's reason. Clients that leave hardly ever show "
            "here: see Gateway and stages.",
            "stop and length only.",
            "length: answers cut at max_tokens. error: the engine's log. rejected: the "
            "engine's queue limit refused them.",
        ),
        Query(f"{total('reason', finished)} > 0", "{{reason}}"),
        Query(f"{total('', rejected)} > 0", "rejected"),
        unit="reqps",
        stack=True,
        colors=(("error|rejected|abort", BAD),),
    )


def _tokens() -> d.Panel:
    prompt = rate("goodput_engine_prompt_tokens_total", ENGINE)
    output = rate("goodput_engine_generation_tokens_total", ENGINE)
    return series(
        About(
            "Tokens",
            "Prompt tokens a second by where they came from, and output tokens.",
            "Much of the prompts from the cache.",
            "Few from the cache though prompts repeat: see the hit rate below.",
        ),
        Query(f"{total('source', prompt)} > 0", "prompt: {{source}}"),
        Query(f"sum({output})", "output"),
        unit="si:tok/s",
        colors=(("^output", PLAIN), ("compute", WARN), ("cache_hit", GOOD)),
    )


def _cache() -> d.Panel:
    usage = f"goodput_engine_kv_cache_usage_ratio_max60s{{{ENGINE}}}"
    return series(
        About(
            "KV cache in use",
            "Share of KV blocks that running requests hold, the highest of each last "
            "minute. Blocks that only cache prefixes are free.",
            "Below the limit, or above it with nobody waiting.",
            "At the limit with a queue or preemptions: memory binds.",
            NONE_SEEN,
        ),
        Query(hottest(f"max by ({BY_ENGINE}) ({usage})"), ENGINE_NAME),
        Query(constraint.limit(usage, KV_HIGH.value), "evidence limit"),
        unit="percentunit",
        most=1.0,
    )


def _cache_spread() -> d.Panel:
    samples = rate("goodput_engine_kv_cache_usage_samples_bucket", ENGINE)
    return spread(
        About(
            "KV cache in use: distribution",
            "How often each share was in use, all chosen engines: peaks between "
            "scrapes show.",
            "Nearly all lie below 90 %.",
            "Two bands: engines are loaded unevenly, see Fleet.",
            NONE_SEEN,
        ),
        Query(f"sum by (le) ({samples})"),
        unit="percentunit",
    )


def _hits() -> d.Panel:
    queries = rate("goodput_engine_prefix_cache_queries_tokens_total", ENGINE)
    hits = rate("goodput_engine_prefix_cache_hits_tokens_total", ENGINE)
    share = ratio(total(BY_ENGINE, hits), total(BY_ENGINE, queries))
    drafts = rate("goodput_engine_draft_tokens_total", ENGINE)
    kept = rate("goodput_engine_accepted_tokens_total", ENGINE)
    drafted = ratio(total(BY_ENGINE, kept), total(BY_ENGINE, drafts))
    return series(
        About(
            "Prefix cache and speculation",
            "Share of prompt tokens found in the prefix cache, and of proposed tokens "
            "that were kept (where speculation is on).",
            "Steady; what is possible depends on the prompts.",
            "A drop after a deployment: the start of prompts changed, or routing no "
            "longer keeps sessions together.",
        ),
        Query(hottest(share), f"prefix hits {ENGINE_NAME}"),
        Query(hottest(drafted), f"drafts kept {ENGINE_NAME}"),
        unit="percentunit",
        most=1.0,
    )


def _phases() -> d.Panel:
    prefill = total("", rate("goodput_engine_prefill_seconds_total", ENGINE))
    decode = total("", rate("goodput_engine_decode_seconds_total", ENGINE))
    count = total("", rate("goodput_engine_finished_requests_total", ENGINE))
    queue = mean("goodput_engine_queue_seconds", ENGINE, "")
    return series(
        About(
            "Time of a request by phase",
            "Mean seconds of finished requests: queued, prefill, decode. Means add up.",
            "Hardly any queue.",
            "Queue: what binds. Prefill: long prompts. Decode: long answers or wide "
            "batches.",
        ),
        Query(queue, "queue"),
        Query(ratio(prefill, count), "prefill"),
        Query(ratio(decode, count), "decode"),
        unit="s",
        stack=True,
        colors=(("queue", WARN), ("prefill", "purple"), ("decode", PLAIN)),
    )


def _queued() -> d.Panel:
    return series(
        About(
            "Time in the queue",
            "Mean time from a request's arrival in the scheduler to its first step. Of "
            "percentiles the engine's buckets tell nothing below 300 ms.",
            "Near 0.",
            "See what binds.",
        ),
        Query(
            hottest(mean("goodput_engine_queue_seconds", ENGINE, BY_ENGINE)),
            ENGINE_NAME,
        ),
        unit="s",
        least=0.1,
    )


def _latency(name: str, title: str, shows: str, act: str) -> d.Panel:
    metric = f"goodput_engine_{name}_seconds"
    shares = ((0.5, "p50", PLAIN), (0.95, "p95", WARN), (0.99, "p99", "purple"))
    known = ("ttft", "tpot", "e2e")
    lines = [Query(quantile(share, metric, ENGINE), said) for share, said, _ in shares]
    if name in known:
        allowed = (
            f'goodput_slo_threshold_seconds{{criterion="{name}",'
            'cluster=~"$cluster",namespace=~"$namespace"}'
        )
        lines.append(Query(f"max by (slo_class) ({allowed})", "target {{slo_class}}"))
    return series(
        About(
            title,
            f"{shows} Percentiles of all chosen engines together, between the bounds "
            "of the engine's own buckets: an estimate within one bucket.",
            "p95 below the dashed target." if name in known else "Steady.",
            act,
        ),
        *lines,
        unit="s",
        colors=tuple((f"^{said}$", color) for _, said, color in shares),
    )


BOARD = Board(
    uid="llm-goodput-engine",
    title="LLM Goodput: engine",
    description="Scheduler, tokens, cache and latency by phase of the chosen engines.",
    variables=engines(),
    lines=(
        Line(6, ((12, _states()), (12, verdict.families()))),
        Line(8, ((8, _scheduler()), (8, _tokens()), (8, _finished()))),
        Line(
            8,
            (
                (6, _cache()),
                (6, _cache_spread()),
                (6, constraint.preemptions()),
                (6, _hits()),
            ),
            title="Cache",
        ),
        Line(
            8,
            (
                (8, _phases()),
                (
                    8,
                    _latency(
                        "ttft",
                        "TTFT in the engine",
                        "Arrival at the API server to first token.",
                        "Queue or long prompts.",
                    ),
                ),
                (
                    8,
                    _latency(
                        "tpot",
                        "TPOT in the engine",
                        "Time per output token after the first, of each request.",
                        "Wide batches: see what binds.",
                    ),
                ),
            ),
            title="Latency by phase",
        ),
        Line(
            8,
            (
                (8, _queued()),
                (
                    8,
                    _latency(
                        "itl",
                        "Gap between outputs",
                        "One step's time, of each token.",
                        "p99 grows alone: prompts computed in between. All grow: wide "
                        "batches.",
                    ),
                ),
                (
                    8,
                    _latency(
                        "e2e",
                        "Whole request",
                        "Arrival to last token.",
                        "TTFT, or TPOT times the length of answers.",
                    ),
                ),
            ),
        ),
    ),
)

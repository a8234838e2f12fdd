"""Recordings of what engines do: throughput, queues, KV cache and preemptions."""

from __future__ import annotations

from analyzer.rules.requests import RATE
from analyzer.rules.rule import MODEL, TARGET, Options, Record, by

PREEMPTED = "target:goodput_preemptions_per_request:ratio_rate5m"
_RATES = {
    "generation_tokens": "goodput_engine_generation_tokens_total",
    "prompt_tokens": "goodput_engine_prompt_tokens_total",
    "finished_requests": "goodput_engine_finished_requests_total",
    "preemptions": "goodput_engine_preemptions_total",
    "prefix_queries": "goodput_engine_prefix_cache_queries_tokens_total",
    "prefix_hits": "goodput_engine_prefix_cache_hits_tokens_total",
}
_PER_TARGET = ("generation_tokens", "finished_requests", "preemptions")
_LEVELS = {
    "running_requests": "goodput_engine_running_requests",
    "waiting_requests": "goodput_engine_waiting_requests",
}


def recordings(options: Options) -> list[Record]:
    """Returns rates in 5 minutes and the latest levels, by model and some by target."""
    found = []
    for name, metric in _RATES.items():
        source = f"rate({metric}[{options.span(RATE)}])"
        if name in _PER_TARGET:
            record = f"target:goodput_{name}:rate5m"
            expr = f"sum {by((*TARGET, 'model'))} ({source})"
            found.append(Record(record, expr))
            source = record
        expr = f"sum {by(MODEL)} ({source})"
        found.append(Record(f"model:goodput_{name}:rate5m", expr))
    for name, metric in _LEVELS.items():
        found.append(Record(f"model:goodput_{name}:sum", f"sum {by(MODEL)} ({metric})"))
    peak = "goodput_engine_kv_cache_usage_ratio_max60s"
    target = (*TARGET, "model")
    found += [
        Record(
            "target:goodput_kv_cache_usage_max60s:max", f"max {by(target)} ({peak})"
        ),
        # The fullest replica is the one that preempts: an average hides it.
        Record("model:goodput_kv_cache_usage_max60s:max", f"max {by(MODEL)} ({peak})"),
        Record(
            PREEMPTED,
            "target:goodput_preemptions:rate5m "
            "/ (target:goodput_finished_requests:rate5m > 0)",
        ),
        Record(
            "model:goodput_prefix_cache_hits:ratio_rate5m",
            "model:goodput_prefix_hits:rate5m "
            "/ (model:goodput_prefix_queries:rate5m > 0)",
        ),
    ]
    return found

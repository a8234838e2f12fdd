"""Every metric that the exporter publishes; code, docs and tests compare with it."""

from __future__ import annotations

from collections.abc import Mapping

from analyzer.exposition import MAX_SAMPLES
from analyzer.gpus.catalogue import METRICS as GPU_METRICS
from analyzer.metric import Kind, Metric

_ENGINE = ("target", "model")
_RANK = ("target", "model", "rank")
_CRITERION = ("target", "model", "slo_class", "criterion")
_TARGET = ("target", "kind")
_REQUEST = ("gateway", "model", "slo_class")


def _request_histogram(name: str, what: str) -> Metric:
    return Metric(
        f"goodput_request_{name}_seconds",
        Kind.HISTOGRAM,
        f"{what} Exact, one observation a counted request that has it; the bounds "
        "include every threshold of the configuration.",
        _REQUEST,
    )


def _engine_histogram(name: str, what: str) -> Metric:
    return Metric(
        f"goodput_engine_{name}_seconds",
        Kind.HISTOGRAM,
        f"{what} The engine's own buckets, summed over ranks and kept over restarts.",
        _ENGINE,
    )


def _counter(name: str, documentation: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(f"goodput_{name}_total", Kind.COUNTER, documentation, labels)


def _gauge(name: str, documentation: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(f"goodput_{name}", Kind.GAUGE, documentation, labels)


METRICS: tuple[Metric, ...] = (
    _gauge(
        "slo_objective_ratio",
        "Share of counted requests that must be good, from the configuration.",
        ("slo_class",),
    ),
    _gauge("slo_window_seconds", "Compliance window of the objective.", ("slo_class",)),
    _gauge(
        "slo_threshold_seconds",
        "Latency that a criterion allows, inclusive; for TTFT that grows with the "
        "prompt, the part that does not.",
        ("slo_class", "criterion"),
    ),
    _gauge(
        "slo_threshold_per_prompt_token_seconds",
        "Latency that a criterion allows on top for each prompt token.",
        ("slo_class", "criterion"),
    ),
    _gauge(
        "slo_percentile_threshold_seconds",
        "Latency that a percentile of a criterion should stay under.",
        ("slo_class", "criterion", "percentile"),
    ),
    _gauge(
        "slo_stage_budget_seconds",
        "Share of the latency budget given to a stage.",
        ("slo_class", "stage"),
    ),
    _counter(
        "requests",
        "Requests of the log that count: good, bad and unevaluable ones.",
        _REQUEST,
    ),
    _counter(
        "good_requests", "Requests that met every criterion of their class.", _REQUEST
    ),
    _counter(
        "bad_requests",
        "Requests that failed, missed a criterion, or whose client left after a "
        "threshold had passed.",
        _REQUEST,
    ),
    _counter(
        "unevaluable_requests",
        "Requests that missed nothing known, of which some criterion cannot be known.",
        _REQUEST,
    ),
    _counter(
        "criterion_misses",
        "Misses by criterion; a request may miss several. error: it failed, abort: its "
        "client left late.",
        (*_REQUEST, "criterion"),
    ),
    _counter(
        "excluded_requests",
        "Requests that say nothing about the serving: the client left in time, the "
        "caller was wrong, no generation was asked for, or a policy refused them.",
        ("gateway", "reason"),
    ),
    _counter("tokens", "Output tokens of counted requests.", _REQUEST),
    _counter("good_tokens", "Output tokens of good requests.", _REQUEST),
    _request_histogram("ttft", "Time to first token."),
    _request_histogram("tpot", "Mean time per output token after the first."),
    _request_histogram("max_gap", "Longest wait between two outputs."),
    _request_histogram("e2e", "Time to the last byte."),
    Metric(
        "goodput_request_stage_seconds",
        Kind.HISTOGRAM,
        "Time in a stage: gateway before the server, serving at it, delivery after it.",
        (*_REQUEST, "stage"),
    ),
    _gauge(
        "source_coverage_ratio",
        "Requests that the logs counted over requests that the engines finished, last "
        "ten minutes; where one process sees both. Failures and clients that left are "
        "in neither.",
        ("model",),
    ),
    _counter("log_lines", "Lines read from the log.", ("gateway",)),
    _counter("log_parse_failures", "Lines that gave no record.", ("gateway", "reason")),
    _counter(
        "log_losses",
        "Occasions on which lines were surely lost before they could be read.",
        ("gateway", "reason"),
    ),
    _gauge("log_lag_bytes", "Bytes of the log not read yet.", ("gateway",)),
    _gauge(
        "log_last_record_timestamp_seconds",
        "End of the latest request that the log holds.",
        ("gateway",),
    ),
    _counter(
        "engine_criterion_events",
        "Requests that the engine's metrics can judge by this criterion alone: TTFT at "
        "first token, the others at finish.",
        _CRITERION,
    ),
    _counter(
        "engine_criterion_good_events_lower",
        "Of the criterion's events, those that certainly met the threshold.",
        _CRITERION,
    ),
    _counter(
        "engine_criterion_good_events_upper",
        "Of the criterion's events, those that possibly met the threshold.",
        _CRITERION,
    ),
    _counter(
        "engine_percentile_events",
        "Requests that the engine's metrics can hold against this percentile's limit.",
        (*_CRITERION, "percentile"),
    ),
    _counter(
        "engine_percentile_good_events_upper",
        "Of the percentile's events, those that possibly were within the limit.",
        (*_CRITERION, "percentile"),
    ),
    _counter(
        "engine_single_token_requests",
        "Finished requests of at most one output token; the engine records their TPOT "
        "as 0.",
        _ENGINE,
    ),
    _engine_histogram("ttft", "Time to first token, from arrival at the API server."),
    _engine_histogram(
        "itl", "Gap between two outputs of a request (a step, not always a token)."
    ),
    _engine_histogram(
        "tpot", "Mean time per output token of a finished request; 0 for one token."
    ),
    _engine_histogram("e2e", "Arrival to last token of a finished request."),
    _engine_histogram("queue", "Queued to first scheduled, of finished requests."),
    _counter(
        "engine_prefill_seconds", "Prefill time of finished requests, summed.", _ENGINE
    ),
    _counter(
        "engine_decode_seconds", "Decode time of finished requests, summed.", _ENGINE
    ),
    _counter(
        "engine_finished_requests",
        "Requests that the engine finished, by its reason. Aborts hardly ever show.",
        (*_ENGINE, "reason"),
    ),
    _counter(
        "engine_rejected_requests",
        "Requests that the engine's queue limits refused.",
        (*_ENGINE, "reason"),
    ),
    _gauge(
        "engine_state",
        "Whether the engine is in this state; exactly one is 1.",
        ("target", "state"),
    ),
    _gauge("engine_running_requests", "Requests in the running batch, latest.", _RANK),
    _gauge(
        "engine_waiting_requests",
        "Requests waiting, latest, by reason (unattributed when the engine gives "
        "none).",
        (*_RANK, "reason"),
    ),
    _gauge(
        "engine_kv_cache_usage_ratio",
        "Share of KV-cache blocks in use, latest; cached blocks nobody uses are free.",
        _RANK,
    ),
    _gauge(
        "engine_kv_cache_usage_ratio_max60s",
        "Highest share of KV-cache blocks in use during the last 60 seconds.",
        _RANK,
    ),
    Metric(
        "goodput_engine_kv_cache_usage_samples",
        Kind.HISTOGRAM,
        "Share of KV-cache blocks in use, observed once a tick of the sampler and "
        "rank.",
        _ENGINE,
    ),
    _counter(
        "engine_preemptions",
        "Preemptions, counted by the engine when the victim's next output appears.",
        _ENGINE,
    ),
    _counter("engine_generation_tokens", "Output tokens, at each step.", _ENGINE),
    _counter(
        "engine_prompt_tokens",
        "Prompt tokens by where they came from (unattributed before vLLM 0.16).",
        (*_ENGINE, "source"),
    ),
    _counter(
        "engine_prefix_cache_queries_tokens",
        "Prompt tokens looked up in the prefix cache.",
        _ENGINE,
    ),
    _counter(
        "engine_prefix_cache_hits_tokens",
        "Prompt tokens found in the prefix cache.",
        _ENGINE,
    ),
    _counter("engine_draft_tokens", "Tokens proposed by speculation.", _ENGINE),
    _counter("engine_accepted_tokens", "Proposed tokens that were kept.", _ENGINE),
    _gauge(
        "constraint",
        "Whether what binds is of this family; exactly one is 1. What binds is named "
        "only under pressure, else the family is none.",
        (*_RANK, "family"),
    ),
    _counter(
        "constraint_seconds",
        "Time under each verdict, summed over ranks; time in which the exporter did "
        "not run counts under none of them.",
        (*_ENGINE, "family", "cause"),
    ),
    _gauge(
        "kv_cache_exhaustion_seconds",
        "Time until the KV cache is full if it goes on filling as in the last half "
        "minute; absent when it is not filling, or not within ten minutes.",
        _RANK,
    ),
    *GPU_METRICS,
    _gauge("target_up", "Whether the last scrape of the target worked.", _TARGET),
    _gauge("target_scrape_duration_seconds", "Duration of the last scrape.", _TARGET),
    _gauge(
        "target_last_success_timestamp_seconds",
        "When the target was last scraped with success.",
        _TARGET,
    ),
    _counter("target_scrapes", "Scrapes of the target that were tried.", _TARGET),
    _counter(
        "target_scrape_failures",
        "Scrapes of the target that failed, by reason.",
        (*_TARGET, "reason"),
    ),
    _counter(
        "target_damaged_lines",
        "Lines of the target's page that could not be read, or lie past its first "
        f"{MAX_SAMPLES} samples; the rest was used.",
        _TARGET,
    ),
    _counter(
        "target_resets",
        "Counter resets seen: restart, some series only, or an older process "
        "answering (a load balancer in between).",
        (*_TARGET, "reset"),
    ),
    _counter(
        "target_sum_anomalies",
        "Histogram sums that moved as their buckets do not allow, held to what they "
        "do.",
        _TARGET,
    ),
    Metric(
        "goodput_target_info",
        Kind.GAUGE,
        "Where the target is: always 1. Pod and node are empty when discovery does not "
        "tell them.",
        (*_TARGET, "pod", "node", "url"),
    ),
    _gauge(
        "discovery_targets", "Targets that the entry of engines stands for.", ("entry",)
    ),
    _counter(
        "discovery_failures",
        "Failed attempts to find the targets of an entry, by reason; those found "
        "before stay.",
        ("entry", "reason"),
    ),
    _counter(
        "label_values_dropped",
        "Series of engines and requests of logs that count under other, since the "
        "label had its limit of values.",
        ("label",),
    ),
    _gauge(
        "config_last_reload_successful", "Whether the last (re)load of the file worked."
    ),
    _gauge(
        "config_last_reload_success_timestamp_seconds",
        "When the configuration in use was loaded.",
    ),
    _gauge(
        "state_last_write_successful",
        "Whether the counters were on disk before they were published; absent without "
        "a storage path.",
    ),
    _counter("state_write_failures", "Failed attempts to write the state."),
    _counter(
        "sampler_missed_cycles",
        "Timer samples that did not start because the one before was still running.",
    ),
    Metric(
        "goodput_build_info",
        Kind.GAUGE,
        "Version of the exporter.",
        ("version", "python"),
    ),
)

BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}

SCRAPE_FAILURES = (
    "refused",
    "timeout",
    "dns",
    "tls",
    "connection",
    "http_status",
    "too_large",
    "not_an_exposition",
    "no_engine_metrics",
    "credentials",
)
GPU_SCRAPE_FAILURES = (
    *(reason for reason in SCRAPE_FAILURES if reason != "no_engine_metrics"),
    "no_gpu_metrics",
    "empty_page",
    "wrong_node",
)
DISCOVERY_FAILURES = (
    "missing",
    "unreadable",
    "malformed",
    "bad_target",
    "too_many",
    "dns",
    "timeout",
)
ENGINE_STATES = (
    "starting",
    "serving",
    "stalled",
    "sleeping",
    "draining",
    "stats_disabled",
    "down",
)
KV_SAMPLE_BOUNDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99, 1.0)

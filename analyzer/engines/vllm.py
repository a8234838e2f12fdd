"""vLLM's metrics, V0 to 0.33, under every prefix they are seen with.

Sources: the released sources of 58 versions from 0.1.7 to 0.33.0, and expositions
of 0.32.0. Where a metric was renamed the newest name comes first and wins when two
are on one page (0.10.2 to 0.11 print inter-token latency under both).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

# Ray Serve's agent, KServe's runtimes and UTF-8 escaping change the prefix.
PREFIXES = (
    "vllm:",
    "ray_vllm:",
    "kserve_vllm:",
    "ray_vllm_",
    "kserve_vllm_",
    "vllm_",
)
MODEL_LABELS = ("model_name", "model")  # Triton's backend says `model`
RANK_LABEL = "engine"  # absent up to 0.8.3


class Kind(Enum):
    """How a metric's samples are read."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"  # adds up over the series of one rank
    RATIO = "ratio"  # the highest series of one rank counts
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Metric:
    """One canonical signal and the names it has had, the preferred one first.

    *label* is the label kept as the signal's own; *bare* says that NVIDIA NIM
    prints it without any prefix; *ranked* is false for what the API server counts
    before a rank is chosen. *values* are those of the label that vLLM is known to
    print.
    """

    signal: str
    kind: Kind
    names: tuple[str, ...]
    label: str = ""
    bare: bool = False
    ranked: bool = True
    values: tuple[str, ...] = ()


def _counter(
    signal: str,
    *names: str,
    label: str = "",
    bare: bool = False,
    values: tuple[str, ...] = (),
) -> Metric:
    return Metric(signal, Kind.COUNTER, names, label, bare, values=values)


def _histogram(signal: str, *names: str, bare: bool = False) -> Metric:
    return Metric(signal, Kind.HISTOGRAM, names, "", bare)


METRICS: tuple[Metric, ...] = (
    Metric("running", Kind.GAUGE, ("num_requests_running",), bare=True),
    Metric("waiting", Kind.GAUGE, ("num_requests_waiting",), bare=True),
    Metric("swapped", Kind.GAUGE, ("num_requests_swapped",)),  # V0 only
    Metric(
        "waiting_by_reason",
        Kind.GAUGE,
        ("num_requests_waiting_by_reason",),
        "reason",
        values=("capacity", "deferred"),
    ),
    Metric(
        "kv_cache_usage",
        Kind.RATIO,  # 0 to 1 in spite of its name
        ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        bare=True,
    ),
    Metric(
        "sleep_state",
        Kind.RATIO,
        ("engine_sleep_state",),
        "sleep_state",
        values=("awake", "weights_offloaded", "discard_all"),
    ),
    Metric("max_num_seqs", Kind.RATIO, ("num_request_max",), bare=True),  # NIM only
    Metric("cache_config", Kind.INFO, ("cache_config_info",)),
    _counter("generation_tokens", "generation_tokens_total", bare=True),
    _counter("prompt_tokens", "prompt_tokens_total", bare=True),
    _counter(
        "prompt_tokens_by_source",
        "prompt_tokens_by_source_total",
        label="source",
        values=("local_compute", "local_cache_hit", "external_kv_transfer"),
    ),
    _counter("preemptions", "num_preemptions_total"),
    _counter(
        "finished",
        "request_success_total",
        "request_finish_total",
        label="finished_reason",
        bare=True,
        values=("stop", "length", "abort", "error", "repetition"),
    ),
    _counter(
        "prefix_cache_queries",
        "prefix_cache_queries_total",
        "gpu_prefix_cache_queries_total",
    ),
    _counter(
        "prefix_cache_hits", "prefix_cache_hits_total", "gpu_prefix_cache_hits_total"
    ),
    _counter("draft_tokens", "spec_decode_num_draft_tokens_total"),
    _counter("accepted_tokens", "spec_decode_num_accepted_tokens_total"),
    Metric(
        "rejections",
        Kind.COUNTER,
        ("admission_rejections_total",),
        "reason",
        ranked=False,
        values=("max_num_queued_reqs", "max_num_queued_tokens"),
    ),
    _counter("flops", "estimated_flops_per_gpu_total"),
    _counter("read_bytes", "estimated_read_bytes_per_gpu_total"),
    _counter("write_bytes", "estimated_write_bytes_per_gpu_total"),
    _histogram("ttft", "time_to_first_token_seconds", bare=True),
    # Up to 0.11 `time_per_output_token` is the gap between two outputs, not TPOT.
    _histogram(
        "itl",
        "inter_token_latency_seconds",
        "time_per_output_token_seconds",
        bare=True,
    ),
    _histogram("tpot", "request_time_per_output_token_seconds"),
    _histogram("e2e", "e2e_request_latency_seconds", bare=True),
    _histogram("queue", "request_queue_time_seconds", "time_in_queue_requests"),
    _histogram("prefill", "request_prefill_time_seconds"),
    _histogram("decode", "request_decode_time_seconds"),
    _histogram("iteration_tokens", "iteration_tokens_total"),  # in spite of its name
    _histogram("prompt_length", "request_prompt_tokens", bare=True),
    _histogram("generation_length", "request_generation_tokens", bare=True),
)

# The API server's own series, the same under every engine prefix.
# The second has no labels, so it is there before the first request.
FRONTEND_NAMES = frozenset(
    {"http_requests_total", "http_request_duration_highr_seconds_count"}
)
GENERATION_HANDLERS = frozenset(
    {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/generate",
    }
)


@dataclass(frozen=True, slots=True)
class Field:
    """Where one metric name leads: its metric, which of its names, which part."""

    metric: Metric
    preference: int
    part: str  # value, bucket, sum, count or created


def fields() -> Iterator[tuple[str, Field]]:
    """Yields every name on the wire, without prefix, with where it leads."""
    for metric in METRICS:
        for preference, name in enumerate(metric.names):
            if metric.kind is Kind.HISTOGRAM:
                for part in ("bucket", "sum", "count", "created"):
                    yield f"{name}_{part}", Field(metric, preference, part)
            elif metric.kind is Kind.COUNTER:
                base = name.removesuffix("_total")
                yield name, Field(metric, preference, "value")
                yield base, Field(metric, preference, "value")  # some pipelines
                yield f"{base}_created", Field(metric, preference, "created")
            else:
                yield name, Field(metric, preference, "value")

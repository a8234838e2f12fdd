"""A replica's metrics as the families of vLLM 0.32's exposition, in its order.

Whoever serves them adds `_created` series and the HTTP and process families.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from analyzer.capacity.metrics import Buckets, EngineMetrics
from analyzer.capacity.settings import SchedulerConfig
from analyzer.histogram import Histogram


class Row(NamedTuple):
    """One series, or the buckets, sum and count of one histogram."""

    labels: Mapping[str, str]
    value: float | Histogram


class Family(NamedTuple):
    """All series of one name, as its TYPE line gives it."""

    name: str
    kind: str
    help: str
    rows: list[Row]


def families(
    metrics: EngineMetrics, *, model: str, engine: str = "0"
) -> Iterator[Family]:
    """Yields every `vllm:` family of a replica that serves *model*.

    Labels stand in the alphabetical order in which vLLM prints them.
    """
    base = {"engine": engine, "model_name": model}
    for name, text, value in _counters_of_speculation(metrics):
        yield _family(name, "counter", text, base, value)
    for name, kind, text, value in _scalars(metrics):
        labels = {"model_name": model} if name == "admission_rejections_total" else base
        yield _family(name, kind, text, labels, value)
    for name, text, buckets in _histograms(metrics):
        rows = [Row(base, buckets.histogram())]
        yield Family(f"vllm:{name}", "histogram", text, rows)
    info = Row(_cache_config(metrics.config, engine), 1.0)
    text = "Information of the LLMEngine CacheConfig"
    yield Family("vllm:cache_config_info", "gauge", text, [info])


# A value, or values by the label that tells them apart.
_Value = float | tuple[str, Mapping[str, float]]


def _family(
    name: str, kind: str, text: str, base: Mapping[str, str], value: _Value
) -> Family:
    if isinstance(value, tuple):
        label, values = value
        rows = [
            Row(dict(sorted({**base, label: at}.items())), float(v))
            for at, v in values.items()
        ]
    else:
        rows = [Row(base, float(value))]
    return Family(f"vllm:{name}", kind, text, rows)


def _counters_of_speculation(m: EngineMetrics) -> Iterator[tuple[str, str, _Value]]:
    if m.config.speculation is None:
        return
    yield "spec_decode_num_drafts_total", "Number of spec decoding drafts.", m.drafts
    yield (
        "spec_decode_num_draft_tokens_total",
        "Number of draft tokens.",
        m.draft_tokens,
    )
    yield (
        "spec_decode_num_accepted_tokens_total",
        "Number of accepted tokens.",
        m.accepted_tokens,
    )
    positions = {str(at): float(n) for at, n in enumerate(m.accepted_by_position)}
    yield (
        "spec_decode_num_accepted_tokens_per_pos_total",
        "Accepted tokens per draft position.",
        ("position", positions),
    )


def _scalars(m: EngineMetrics) -> Iterator[tuple[str, str, str, _Value]]:
    for name in ("flops", "read_bytes", "write_bytes"):  # 0 without the MFU option
        text = f"Estimated {name.replace('_', ' ')} per GPU."
        yield f"estimated_{name}_per_gpu_total", "counter", text, 0.0
    reasons = {"capacity": float(m.waiting), "deferred": 0.0}
    sleep = {"awake": 1.0, "weights_offloaded": 0.0, "discard_all": 0.0}
    computed = m.prompt_tokens - m.prompt_tokens_cached
    sources = {
        "local_compute": float(computed),
        "local_cache_hit": float(m.prompt_tokens_cached),
        "external_kv_transfer": 0.0,
    }
    tiers = dict.fromkeys(
        ("device", "host", "p2p", "disk", "external_unspecified"), 0.0
    )
    tiers["device"] = float(m.prefix_cache_hits)
    gauge, counter = "gauge", "counter"
    yield "num_requests_running", gauge, "Requests in execution batches.", m.running
    yield "num_requests_waiting", gauge, "Requests waiting.", m.waiting
    yield (
        "num_requests_waiting_by_reason",
        gauge,
        "Waiting requests by reason.",
        ("reason", reasons),
    )
    yield "engine_sleep_state", gauge, "Engine sleep state.", ("sleep_state", sleep)
    yield "kv_cache_usage_perc", gauge, "KV cache usage, 1 is all.", m.kv_cache_usage
    queries, hits = m.prefix_cache_queries, m.prefix_cache_hits
    yield "prefix_cache_queries_total", counter, "Tokens looked up.", queries
    yield "prefix_cache_hits_total", counter, "Tokens found.", hits
    for cache in ("external_prefix", "mm"):
        yield f"{cache}_cache_queries_total", counter, "Items looked up.", 0.0
        yield f"{cache}_cache_hits_total", counter, "Items found.", 0.0
    yield "num_preemptions_total", counter, "Preemptions.", m.preemptions
    yield "prompt_tokens_total", counter, "Prefill tokens.", m.prompt_tokens
    yield (
        "prompt_tokens_by_source_total",
        counter,
        "Prompt tokens by source.",
        ("source", sources),
    )
    cached = m.prompt_tokens_cached
    yield "prompt_tokens_cached_total", counter, "Cached prompt tokens.", cached
    yield (
        "prompt_tokens_cached_by_source_total",
        counter,
        "Prefix cache hits by tier.",
        ("source", tiers),
    )
    yield "generation_tokens_total", counter, "Generated tokens.", m.generation_tokens
    yield (
        "request_success_total",
        counter,
        "Finished requests.",
        ("finished_reason", {r: float(n) for r, n in m.finish_reasons.items()}),
    )
    yield (
        "admission_rejections_total",
        counter,
        "Requests rejected by a queue limit.",
        ("reason", {r: float(n) for r, n in m.rejections.items()}),
    )


def _histograms(m: EngineMetrics) -> Iterator[tuple[str, str, Buckets]]:
    yield "request_prompt_tokens", "Prompt tokens.", m.request_prompt_tokens
    yield "request_generation_tokens", "Tokens.", m.request_generation_tokens
    yield "iteration_tokens_total", "Tokens per engine step.", m.iteration_tokens
    most = m.request_max_num_generation_tokens
    yield "request_max_num_generation_tokens", "Most tokens of a sequence.", most
    yield "request_params_n", "The parameter n.", m.request_params_n
    asked = m.request_params_max_tokens
    yield "request_params_max_tokens", "The parameter max_tokens.", asked
    yield "time_to_first_token_seconds", "TTFT.", m.time_to_first_token
    yield "inter_token_latency_seconds", "ITL.", m.inter_token_latency
    tpot = m.time_per_output_token
    yield "request_time_per_output_token_seconds", "TPOT of a request.", tpot
    yield "e2e_request_latency_seconds", "E2E latency.", m.e2e_latency
    yield "request_queue_time_seconds", "Time WAITING.", m.queue_time
    yield "request_inference_time_seconds", "Time RUNNING.", m.inference_time
    yield "request_prefill_time_seconds", "Time in PREFILL.", m.prefill_time
    yield "request_decode_time_seconds", "Time in DECODE.", m.decode_time
    yield "request_num_preemptions", "Preemptions.", m.request_preemptions
    computed = m.request_prefill_kv_computed_tokens
    yield "request_prefill_kv_computed_tokens", "New KV tokens.", computed


def _cache_config(config: SchedulerConfig, engine: str) -> dict[str, str]:
    """Returns the labels of `cache_config_info`: what a plain GPU server prints."""
    tokens = config.num_blocks * config.block_size
    unset = (
        *("cache_hit_alignment_tokens", "hash_block_size", "kv_cache_layout"),
        *("kv_offloading_size", "mamba_block_size", "mamba_page_size_padded"),
        *("num_cpu_blocks", "num_gpu_blocks_override", "prefix_match_unit"),
        *("skip_page_size_padded", "sliding_window", "kv_cache_memory_bytes"),
    )
    false = (
        *("enable_mamba_shared_prefix_checkpoint", "is_attention_free"),
        *("kv_sharing_fast_prefill", "use_kda_recoverssm", "use_replayssm"),
        "user_specified_block_size",
    )
    labels = {
        **dict.fromkeys(unset, "None"),
        **dict.fromkeys(false, "False"),
        "_block_size_resolved": "True",
        "block_size": str(config.block_size),
        "cache_dtype": "auto",
        "effective_attention_block_size": str(config.block_size),
        "enable_prefix_caching": str(config.prefix_caching),
        "engine": engine,
        "gpu_memory_utilization": "0.92",
        "kv_cache_dtype_skip_layers": "[]",
        "kv_cache_max_concurrency": str(tokens / config.max_model_len),
        "kv_cache_size_tokens": str(tokens),
        "kv_offloading_backend": "native",
        "mamba_cache_dtype": "auto",
        "mamba_cache_mode": "none",
        "mamba_ssm_cache_dtype": "float32",
        "num_gpu_blocks": str(config.num_blocks),
        "prefix_cache_retention_interval": "0",
        "prefix_caching_hash_algo": "sha256",
        "replayssm_buffer_len": "16",
        "swa_bounded_replay": "True",
    }
    return dict(sorted(labels.items()))

"""What to change, in sentences that know what is set already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from analyzer.diagnosis.situation import Situation
from analyzer.diagnosis.thresholds import FLAT, GPU_AGE, THROTTLED
from analyzer.verdict import Family, Verdict

NARROW = ("fp8", "int8", "nvfp4", "turboquant")  # KV dtypes that are small already
HIGH_UTILIZATION = 0.94  # of GPU memory; beyond it activations run out
VERIFY = {
    "kv_capacity": "preemptions per second fall and good requests per second rise",
    "hbm_bandwidth": "time per output token falls at the same running requests",
    "prefill": "TTFT falls at the same arrivals",
    "decode": "time per output token falls at the same running requests",
    "sequence_cap": "completed requests per second rise and TPOT keeps its criterion",
    "overhead": "the gateway's stage shrinks at the same rate",
    "network": "TTFT by the gateway comes near the engine's, delivery shrinks",
    "token_budget": "computed prompt tokens per second rise and ITL keeps its limit",
}


def advice(verdict: Verdict, s: Situation) -> tuple[str, ...]:
    """Returns what to do about *verdict*, most promising first, and how to verify.

    Nothing that is on already is recommended; a setting that is not known is named
    with "if it is not set".
    """
    make = _ADVICE.get((verdict.family, verdict.cause))
    if make is None:
        return verdict.advice
    sentences = tuple(make(s))
    verify = VERIFY.get(verdict.cause)
    return (*sentences, f"Verify: {verify}.") if verify else sentences


def _kv_capacity(s: Situation) -> Iterator[str]:
    knobs = s.knobs
    if knobs.blocks_override:
        yield "Remove --num-gpu-blocks-override: the cache is smaller than it could be."
    if not knobs.kv_dtype.startswith(NARROW):
        yield "Halve the cache of a token: --kv-cache-dtype fp8 (check quality)."
    memory = knobs.memory_utilization
    if memory is not None and memory < HIGH_UTILIZATION and not knobs.blocks_override:
        yield f"Raise --gpu-memory-utilization from {memory:g}, if the GPU is ours."
    running = s.now.running
    if running:
        fitting = max(1, int(running))
        yield (
            f"To stop preemption at once, set --max-num-seqs near {fitting}, what the "
            "cache holds now; requests then wait instead of being computed twice."
        )
    yield (
        "Lower the limit on tokens a request, quantise the weights, or shard the model "
        "over more GPUs (--tensor-parallel-size): each frees memory for the cache. "
        "Another replica halves what each must hold."
    )


def _hbm_bandwidth(s: Situation) -> Iterator[str]:
    fixed = s.fixed
    if fixed is not None and fixed.likely >= FLAT.value:
        yield "Raise the batch: weights are read once a step whatever its size."
    if not s.knobs.kv_dtype.startswith(NARROW):
        yield "Read less for each token: --kv-cache-dtype fp8 (check quality)."
    yield (
        "Quantise the weights, decode speculatively, shard over more GPUs, or use one "
        "with more memory bandwidth."
    )


def _prefill(s: Situation) -> Iterator[str]:
    knobs = s.knobs
    if knobs.max_num_seqs is not None and s.now.queued:
        yield (
            "Leave --max-num-seqs as it is: requests wait for arithmetic, and a larger "
            "batch would only have them wait inside."
        )
    if knobs.prefix_caching is False:
        yield "Switch prefix caching on (--enable-prefix-caching)."
    late = s.missed("tpot") or s.missed("itl") or 0.0
    if late > (s.missed("ttft") or 0.0):
        yield (
            "Smaller steps make gaps between tokens even: a smaller "
            f"--max-num-batched-tokens{_now(knobs.max_num_batched_tokens)}, at some "
            "TTFT."
        )
    yield (
        "Shorten prompts, let them share a prefix, or compute them elsewhere "
        "(disaggregated prefill)."
    )
    yield from _power(s)
    yield (
        "Add a replica if requests are independent; lower precision (fp8 weights) or a "
        "faster GPU makes each prompt shorter."
    )


def _decode(s: Situation) -> Iterator[str]:
    cap = s.now.running
    if s.now.queued and cap:
        yield (
            "Do not raise --max-num-seqs: tokens/s would hardly grow, and every token "
            "would come later."
        )
    yield from _power(s)
    yield (
        "Add a replica and split the requests; lower precision, a smaller model or "
        "speculative decoding makes each step shorter."
    )
    if s.gpu is None or s.gpu.dram is None:
        yield (
            "To tell arithmetic from memory bandwidth, scrape dcgm-exporter (section "
            "gpus) with DCGM_FI_PROF_DRAM_ACTIVE."
        )


def _power(s: Situation) -> Iterator[str]:
    gpu = s.gpu
    if gpu is None or gpu.age > GPU_AGE.value:
        return
    capped = gpu.power_capped or 0.0
    if capped >= THROTTLED.value:
        yield (
            f"The power cap holds the GPU's clocks down for {capped:.0%} of the time: "
            "raise it (nvidia-smi -pl), if supply and cooling allow."
        )


def _sequence_cap(s: Situation) -> Iterator[str]:
    running, kv = s.now.running_most or 0.0, s.now.kv_most
    cap = s.knobs.max_num_seqs or running
    target = 2.0 * cap
    if kv:
        target = min(target, 0.9 * cap / kv)
    fixed = s.fixed
    gain = ""
    if fixed is not None and fixed.estimate is not None and target > cap:
        growth = target / cap
        faster = growth / (growth * (1 - fixed.estimate) + fixed.estimate)
        gain = f"; by the step times seen, some {faster - 1:.0%} more tokens/s"
    if target >= 1.1 * cap:
        yield f"Raise --max-num-seqs from {cap:.0f} to about {target:.0f}{gain}."
    else:
        yield (
            f"The cache is {kv or 0:.0%} full: --max-num-seqs has little room above "
            f"{cap:.0f} without more of it."
        )
    limit = s.limits.get("tpot")
    if limit is not None and fixed is not None and fixed.step > 0.5 * limit:
        yield (
            f"Tokens take {fixed.step * 1000:.0f} ms of the {limit * 1000:.0f} ms "
            "allowed, and more with each sequence: raise it in steps, or add a replica."
        )


def _token_budget(s: Situation) -> Iterator[str]:
    now = _now(s.knobs.max_num_batched_tokens)
    yield (
        f"Raise --max-num-batched-tokens{now} for TTFT and throughput, above 8192 for "
        "small models on large GPUs; gaps between tokens grow with it."
    )


def _deferral(_: Situation) -> Iterator[str]:
    yield (
        "See why requests are deferred: with adapters raise --max-loras or route by "
        "adapter; with structured output keep grammars few and warm."
    )


def _api_server(_: Situation) -> Iterator[str]:
    yield "Raise --api-server-count, or give the pod more CPU: that is no GPU work."


def _kv_transfer(_: Situation) -> Iterator[str]:
    yield "Look at the KV connector: its bandwidth, and how many instances prefill."


def _burst(s: Situation) -> Iterator[str]:
    yield "Smooth arrivals at the caller or the gateway, or limit the queue there."
    if s.now.running_most:
        yield (
            "Spare capacity for bursts is a replica more; scale on queue length, which "
            "shows a burst before latency does."
        )


def _overhead(_: Situation) -> Iterator[str]:
    yield (
        "Leave the engine as it is: look at the gateway's filters, connection pools, "
        "rate limits that delay, and retries; give it more CPU."
    )


def _network(_: Situation) -> Iterator[str]:
    yield (
        "Leave the engine as it is: reuse connections between gateway and engine, keep "
        "both in one zone, and let no proxy in between buffer streams."
    )


def _now(value: float | None) -> str:
    return "" if value is None else f" (now {value:.0f})"


_ADVICE: Mapping[tuple[Family, str], Callable[[Situation], Iterator[str]]] = {
    (Family.MEMORY, "kv_capacity"): _kv_capacity,
    (Family.MEMORY, "hbm_bandwidth"): _hbm_bandwidth,
    (Family.COMPUTE, "prefill"): _prefill,
    (Family.COMPUTE, "decode"): _decode,
    (Family.QUEUEING, "sequence_cap"): _sequence_cap,
    (Family.QUEUEING, "token_budget"): _token_budget,
    (Family.QUEUEING, "deferral"): _deferral,
    (Family.QUEUEING, "api_server"): _api_server,
    (Family.COMMUNICATION, "kv_transfer"): _kv_transfer,
    (Family.TRAFFIC, "burst"): _burst,
    (Family.GATEWAY, "overhead"): _overhead,
    (Family.GATEWAY, "network"): _network,
}

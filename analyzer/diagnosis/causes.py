"""What is known of each cause: how it comes about, and how one would be wrong.

docs/diagnosis.md prints this table, and a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.diagnosis import thresholds as t
from analyzer.diagnosis.thresholds import Threshold
from analyzer.verdict import Family


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause: its mechanism, the rule that names it, and what to do.

    `refuted` is what one would see if the verdict were wrong, `verify` what must
    change after a knob was turned.
    """

    family: Family
    cause: str
    mechanism: str
    rule: str
    thresholds: tuple[Threshold, ...]
    refuted: str
    knobs: str
    verify: str


QUEUE = (t.QUEUE_SHARE, t.QUEUE_MINIMUM, t.SUSTAINED, t.DRAINED_TO)
STEP = (t.FIXED_SHARE, t.FIXED_SHARE_PREFILL, t.FIXED_SHARE_LATE, t.LEAVE)
SHARE_OF_WORK = (t.PREFILL_TOKENS, t.PREFILL_NEARLY_ALL)
GPU = (t.TENSOR_HIGH, t.SM_HIGH, t.POWER_HIGH, t.GPU_AGE)
OUTSIDE = (t.OWED, t.STAGE_PART, t.MISSED, t.MISSED_EVENTS, t.SUSTAINED, t.RECENT)
BETWEEN = (t.API_GAP_SECONDS, t.COVERED, t.UNWATCHED)
FLATNESS = (t.FLAT, t.FLAT_WITHIN_SLO, t.FLAT_NEAR_SLO, t.FLAT_BATCH, t.GROWN)
LATE = (t.MISSED, t.MISSED_EVENTS, t.MISSED_MOST, t.SLO_USED)

TABLE: tuple[Cause, ...] = (
    Cause(
        Family.MEMORY,
        "kv_capacity",
        "The KV cache is a stock: each running request holds blocks for all of its "
        "tokens. When none is free, new requests wait, and running ones are "
        "preempted: their tokens are thrown away and computed again.",
        "Requests go on waiting with the cache as full as a mean prompt needs it to be "
        "empty, and the batch is below max_num_seqs; or they are preempted at that "
        "usage. The preemption counter moves only when a victim resumes, so a batch "
        "that shrinks while the queue grows counts as well. If the fixed share of a "
        "step says that a larger batch gains nothing, and nothing is preempted, the "
        "step is the limit instead.",
        (t.KV_HIGH, t.KV_PROMPTS, t.PREEMPTION_RATE, *QUEUE, *STEP),
        "More blocks, or shorter requests, and the queue stays; usage high with nobody "
        "waiting and no preemption, which is a cache well used.",
        "kv_cache_dtype fp8, gpu_memory_utilization, quantised weights, "
        "tensor_parallel_size, max_model_len or max_tokens, max_num_seqs (lower), KV "
        "offloading, replicas",
        "preemptions per second fall to 0 and good requests per second rise at the "
        "same arrivals",
    ),
    Cause(
        Family.MEMORY,
        "hbm_bandwidth",
        "Each step of decoding reads all weights and the context of every sequence "
        "from GPU memory. When that takes the step's time, arithmetic waits.",
        "The signs of compute/decode, and DRAM activity near its practical peak. The "
        "mean over prefill and decode is split by the engine's own token rates.",
        (t.DRAM_HIGH, t.DRAM_LOW, t.GPU_AGE, *STEP, t.FLAT),
        "Tokens/s rise with clocks of the compute units alone, or DRAM activity is low "
        "while steps are long.",
        "a larger batch while the SLO has room, kv_cache_dtype fp8, quantised weights, "
        "shorter contexts, speculative decoding, tensor_parallel_size, a GPU with more "
        "bandwidth",
        "time per output token falls at the same batch",
    ),
    Cause(
        Family.COMPUTE,
        "prefill",
        "Prefill is a rate: computing prompts takes arithmetic in proportion to their "
        "tokens, and every decode in the same step waits for it. Admitting more only "
        "queues the prompts elsewhere.",
        "The fixed share of a step is so small that nothing that admits more would "
        "help, and most of the work is prompt tokens. That holds at the cap of "
        "sequences too: a queue there is a queue for arithmetic. A GPU that is busy "
        "makes it surer; one held down by its power cap is shown as evidence.",
        (*STEP, *SHARE_OF_WORK, t.RIDGE_TOKENS, t.FLAT, t.FLAT_PREFILLS, *LATE, *GPU),
        "A higher max_num_seqs or max_num_batched_tokens raises completed requests per "
        "second.",
        "prefix caching, shorter prompts, max_num_batched_tokens (smaller for ITL, "
        "larger for TTFT), disaggregated prefill, a faster GPU or lower precision, "
        "replicas",
        "computed prompt tokens per second rise, or TTFT falls at the same rate",
    ),
    Cause(
        Family.COMPUTE,
        "decode",
        "Every sequence adds to a step. When that outweighs what is there for any "
        "batch, more sequences make each token slower and bring no more tokens.",
        "The fixed share of a step, learnt from smaller batches, is below what a "
        "larger one could share, and most of the work is output tokens; or tokens are "
        "late in the smallest batch seen already. Whether arithmetic or bandwidth is "
        "behind it only a GPU's DRAM activity tells; without it confidence is 0.6 at "
        "most and memory/hbm_bandwidth a candidate. A power cap is evidence here too.",
        (*STEP, *FLATNESS, *LATE, *GPU),
        "Tokens per second rise in proportion when the batch grows.",
        "replicas, lower precision, a smaller or speculative model, "
        "tensor_parallel_size, fewer sequences a replica",
        "time per output token falls at the same number of running requests",
    ),
    Cause(
        Family.QUEUEING,
        "sequence_cap",
        "The batch holds as many sequences as max_num_seqs allows; the rest wait "
        "though memory has room and a larger batch would hardly be slower.",
        "Requests go on waiting, the cache has room, the fixed share of a step says "
        "that a larger batch gains, and the batch is at its declared cap or held at a "
        "plateau.",
        (*QUEUE, *STEP, t.AT_CAP, t.PINNED, t.KV_HIGH),
        "With a higher cap the batch does not grow, or completed requests per second "
        "do not.",
        "max_num_seqs (higher), replicas",
        "completed requests per second rise and queue time falls; time per output "
        "token stays within its criterion",
    ),
    Cause(
        Family.QUEUEING,
        "token_budget",
        "A step computes max_num_batched_tokens at most. When prompts fill every step "
        "and a step is mostly fixed time, more tokens a step would cost little.",
        "Requests go on waiting with room in the cache, below the cap of sequences, "
        "with a fixed share that says that larger steps gain. Steps are full by the "
        "declared budget, or all alike with prompts in them while nothing holds the "
        "batch at one size.",
        (*QUEUE, *STEP, t.FULL_STEPS, t.PINNED),
        "With a larger budget prompt tokens per second do not rise.",
        "max_num_batched_tokens (larger), replicas",
        "computed prompt tokens per second rise and TTFT falls; gaps between tokens "
        "stay within the SLO",
    ),
    Cause(
        Family.QUEUEING,
        "deferral",
        "The scheduler puts requests off that cannot run yet: no place for their "
        "adapter, a grammar that is being compiled.",
        "Most waiting requests are deferred.",
        (t.DEFERRED, *QUEUE),
        "waiting requests are of reason capacity",
        "max_loras, warm grammars, routing by adapter",
        "deferred requests fall to 0",
    ),
    Cause(
        Family.QUEUEING,
        "api_server",
        "One process takes requests in, tokenises and streams. When it is busy, "
        "requests wait before the engine can see them.",
        "TTFT is missed, the engine has no queue, and most of the mean TTFT is neither "
        "queue nor prefill.",
        (t.API_GAP, t.API_GAP_SECONDS, t.MISSED, t.MISSED_EVENTS),
        "TTFT does not change with more API servers.",
        "api_server_count, CPU of the pod, replicas",
        "TTFT less queue time less prefill time falls",
    ),
    Cause(
        Family.QUEUEING,
        "flow_control",
        "A router holds requests back before the engines.",
        "Named only with a router's own evidence; none is read yet.",
        (),
        "the router's queue is empty",
        "the router's saturation thresholds",
        "the router's queue time falls",
    ),
    Cause(
        Family.COMMUNICATION,
        "collectives",
        "GPUs that share a model wait for each other's partial sums.",
        "Named only with evidence of its own: no engine that is read publishes any.",
        (),
        "throughput per GPU is the same without tensor parallelism",
        "pipeline over tensor parallelism without NVLink, fewer GPUs a replica",
        "time per output token falls",
    ),
    Cause(
        Family.COMMUNICATION,
        "kv_transfer",
        "Requests wait for their KV cache from another instance.",
        "Most waiting requests are deferred while prompt tokens come from transfers.",
        (t.DEFERRED, *QUEUE),
        "deferred requests wait for adapters or grammars",
        "the connector's bandwidth, more prefill instances",
        "deferred requests fall to 0",
    ),
    Cause(
        Family.TRAFFIC,
        "burst",
        "The engine has room for the mean load; requests that come together wait for "
        "each other.",
        "Arrivals vary far more than chance allows, at least two bursts broke a calm, "
        "made requests wait or miss a criterion, and their queues drain.",
        (t.DISPERSION, t.DISPERSION_SECONDS, t.CALM_SHARE, t.SLOWDOWN, t.SUSTAINED),
        "The queue does not drain between bursts.",
        "smoothing at the caller or gateway, queue limits, spare capacity, scaling on "
        "queue length",
        "the index of dispersion falls, or the longest queue does",
    ),
    Cause(
        Family.GATEWAY,
        "overhead",
        "The latency budget is spent before the engine has the request.",
        "Many requests miss TTFT or E2E by a request log's clock, most of them would "
        "not without the gateway's stage, and that stage is most of the latency or "
        "above its budget (`stages`). The engine's own metrics say that its part was "
        "in time: few criteria missed, or nobody waiting.",
        OUTSIDE,
        "the serving stage is the long one",
        "the gateway's filters, connection pools, rate limits and retries",
        "the gateway stage shrinks",
    ),
    Cause(
        Family.GATEWAY,
        "network",
        "The latency budget is spent between gateway and engine, or on the way to the "
        "client.",
        "As overhead, with the delivery stage; or TTFT by the log, less the gateway's "
        "stage, is far above that of all engines of the model in the same time, and "
        "these engines are the ones that answered. That rests on means and may be the "
        "engine's API server too, so its confidence is 0.6. A log without the "
        "gateway's stage leaves the cause open.",
        (*OUTSIDE, *BETWEEN),
        "the engine's own TTFT is as long as the gateway's",
        "placement, connection reuse, proxies that buffer streams",
        "the gateway's TTFT comes near the engine's, and the delivery stage shrinks",
    ),
    Cause(
        Family.FAULT,
        "down",
        "The engine does not answer.",
        "Connections are refused, or scrapes fail for ten seconds.",
        (),
        "clients get answers",
        "see the runbook of the engine",
        "scrapes succeed",
    ),
    Cause(
        Family.FAULT,
        "stalled",
        "Work is present and no counter moves.",
        "See docs/engines.md.",
        (),
        "a counter moves",
        "restart after a stack dump",
        "tokens per second",
    ),
    Cause(
        Family.FAULT,
        "frozen_gauges",
        "Old versions keep the last gauges after all requests were aborted.",
        "See docs/engines.md.",
        (),
        "tokens are generated",
        "upgrade to vLLM 0.12 or later",
        "gauges return to 0",
    ),
    Cause(
        Family.FAULT,
        "stats_disabled",
        "The engine prints no series of its own.",
        "A page of the API server without engine series.",
        (),
        "engine series appear",
        "start without --disable-log-stats",
        "engine series appear",
    ),
    Cause(
        Family.FAULT,
        "throttled",
        "Heat or the hardware holds the GPU's clocks down.",
        "The GPU's own counters say so for a share of the time while there is work. A "
        "power cap is no fault but evidence on compute.",
        (t.THROTTLED, t.GPU_AGE),
        "clocks are at their maximum",
        "cooling, power supply, the node's firmware",
        "throttled seconds stand still",
    ),
    Cause(
        Family.NONE,
        "headroom",
        "Nothing binds: nobody waits, criteria are met, and the batch can grow.",
        "No other rule holds. The nearest limits are the evidence.",
        (t.KV_HIGH, t.FLAT),
        "good requests per second rise with any one knob",
        "none is needed",
        "none",
    ),
    Cause(
        Family.NONE,
        "underbatched",
        "Steps are mostly fixed time: more requests at once would be nearly free.",
        "As headroom, with work all the time and a large fixed share.",
        (t.UNDERBATCHED,),
        "tokens per second do not rise with more requests",
        "fewer replicas, or more traffic on this one",
        "tokens per second rise with running requests",
    ),
    Cause(
        Family.NONE,
        "idle",
        "There is nothing to do, or the engine sleeps or drains.",
        "Nothing runs, waits or is generated.",
        (),
        "requests are running",
        "none is needed",
        "none",
    ),
)

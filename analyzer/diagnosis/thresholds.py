"""Every number that the diagnosis compares with, with its reason and its source.

docs/diagnosis.md prints this table; nothing else in the package holds a threshold.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number with its unit, why it is what it is, and who says so."""

    name: str
    value: float
    unit: str
    reason: str
    source: str


OURS = "reasoned here"

RECENT = Threshold(
    "recent_seconds",
    8.0,
    "s",
    "What is said of now rests on this much of the past, or on the last two scrapes "
    "when they are further apart: long enough to average a few steps of long "
    "prompts, short enough to name a new regime within 10 s.",
    OURS,
)
LONGER = Threshold(
    "longer_seconds",
    20.0,
    "s",
    "What comes in lumps (prompts that count when they are through, requests that "
    "finish) is summed up over this much.",
    OURS,
)
SUSTAINED = Threshold(
    "sustained_seconds",
    5.0,
    "s",
    "A queue younger than this may be one burst; an older one is there to stay.",
    OURS,
)
QUEUE_SHARE = Threshold(
    "queue_share",
    0.8,
    "share of time",
    "A sustained queue may be empty for the moment between two admissions.",
    OURS,
)
QUEUE_MINIMUM = Threshold(
    "queue_minimum",
    0.05,
    "waiting per running request",
    "One request that waits behind hundreds that run waits for a fraction of a second.",
    OURS,
)
DRAINED_TO = Threshold(
    "drained_to",
    0.6,
    "of the queue at the begin",
    "A queue that shrinks this much while it is watched goes away by itself.",
    OURS,
)
KV_HIGH = Threshold(
    "kv_high",
    0.9,
    "share of KV blocks",
    "With nine tenths in use the next prompts hardly fit. Alone it proves nothing: a "
    "full cache with nobody waiting and no preemption is well used.",
    "vllm-project/vllm#23444; facts of vLLM 0.32 under KV pressure",
)
KV_PROMPTS = Threshold(
    "kv_prompts",
    1.5,
    "mean prompts",
    "The scheduler admits a request only when its whole prompt fits; with less room "
    "than this for a mean prompt, longer ones wait.",
    "vllm/v1/core/sched/scheduler.py (scheduler_reserve_full_isl)",
)
PREEMPTION_RATE = Threshold(
    "preemption_rate",
    0.1,
    "preemptions per second",
    "Each one throws computed tokens away. The counter moves only when the victim "
    "resumes, so it confirms and never rules out.",
    "measured on vLLM 0.32",
)
FIXED_SHARE = Threshold(
    "fixed_share",
    0.10,
    "share of a step's time",
    "The part of a step that is there whatever is in the batch: the time that more "
    "requests or tokens a step would share. Doubling the batch gains 1/(1 − f/2): "
    "5 % at 0.1. Below it no setting that admits more helps; the step itself is what "
    "takes the time.",
    "step-time model, checked by doubling each knob in the simulator",
)
FIXED_SHARE_PREFILL = Threshold(
    "fixed_share_prefill",
    0.15,
    "share of a step's time",
    "As above where nearly all tokens are prompts: their arithmetic is not shared by "
    "anything, and what is admitted waits again for its prefill.",
    "step-time model, checked by doubling each knob in the simulator",
)
FIXED_SHARE_LATE = Threshold(
    "fixed_share_late",
    0.15,
    "share of a step's time",
    "As fixed_share when most tokens are late already: the gain of a larger batch, "
    "8 % for twice the size, comes with tokens 1.85 times as slow.",
    "step-time model",
)
FLAT = Threshold(
    "flat",
    0.33,
    "gain in tokens/s per gain in batch",
    "Tokens/s grow with the batch by the fixed share of a step: at 0.33, ten percent "
    "more requests bring 3.3 % more tokens and make every token 6.5 % slower.",
    OURS,
)
FLAT_WITHIN_SLO = Threshold(
    "flat_within_slo",
    0.15,
    "gain in tokens/s per gain in batch",
    "As flat while the SLO leaves room for longer steps: then only a batch that gains "
    "next to nothing is at its limit.",
    OURS,
)
FLAT_NEAR_SLO = Threshold(
    "flat_near_slo",
    0.4,
    "gain in tokens/s per gain in batch",
    "As above when the time per token has used most of what the SLO allows: the SLO "
    "breaks before the batch can grow to the point above.",
    OURS,
)
SLO_USED = Threshold(
    "slo_used",
    0.6,
    "of the threshold of TPOT",
    "A batch grown by two thirds makes tokens as much slower at most; from here on "
    "that misses the criterion.",
    OURS,
)
FLAT_BATCH = Threshold(
    "flat_batch",
    8.0,
    "running requests",
    "In smaller batches single prompts move the time of a step too much to tell.",
    OURS,
)
GROWN = Threshold(
    "grown",
    2.0,
    "times the reference batch",
    "How much larger than the smallest batch seen one must be for the slope of the "
    "step time to mean something.",
    OURS,
)
RIDGE_TOKENS = Threshold(
    "ridge_tokens",
    512.0,
    "tokens per step",
    "Above the ridge point of every data-centre GPU (A100 161, H200 206, H100 295, "
    "L40S 419 FLOP per byte) a step is bound by arithmetic, and its fixed share at "
    "most the ridge over its tokens. For engines whose light load was never seen.",
    "hungchun0201.github.io, ridge points in dense bf16",
)
PREFILL_TOKENS = Threshold(
    "prefill_tokens",
    0.5,
    "share of work in tokens",
    "Prompt tokens against output tokens, which count twice: they cost the same "
    "arithmetic, and read their context besides.",
    "step costs of six models and GPUs in analyzer/capacity/machines.py",
)
PREFILL_NEARLY_ALL = Threshold(
    "prefill_nearly_all",
    0.8,
    "share of work in tokens",
    "Decode then hardly matters, whatever a token of it costs.",
    OURS,
)
MISSED = Threshold(
    "missed",
    0.25,
    "share of requests",
    "Fewer misses of a criterion are a tail: no limit that all requests meet.",
    OURS,
)
MISSED_MOST = Threshold(
    "missed_most",
    0.5,
    "share of requests",
    "Most tokens come too slowly already, so that slower ones cost goodput.",
    OURS,
)
MISSED_EVENTS = Threshold(
    "missed_events",
    4.0,
    "requests",
    "A share of fewer requests is chance.",
    OURS,
)
OWED = Threshold(
    "owed",
    0.5,
    "share of late requests",
    "So many would have met their criterion without a stage of the gateway, or without "
    "what lies between it and the engine: then that is the knob to turn.",
    OURS,
)
STAGE_PART = Threshold(
    "stage_part",
    0.5,
    "share of the latency",
    "A stage is to blame for a late request when it is most of its latency, or above "
    "the budget that the class gives it: a request that a fast gateway makes late by "
    "a hair is not the gateway's.",
    OURS,
)
COVERED = Threshold(
    "covered",
    0.5,
    "of the engines' first tokens",
    "With fewer of them in the log, the engines' mean is that of other requests.",
    OURS,
)
UNWATCHED = Threshold(
    "unwatched",
    1.25,
    "of the engines' first tokens",
    "With more of them in the log, engines that nobody watches have answered, and "
    "their share of the latency is not known. A quarter is what comes and goes at the "
    "edges of the time compared.",
    OURS,
)
DEFERRED = Threshold(
    "deferred",
    0.5,
    "share of waiting requests",
    "Most of the queue waits for an adapter, a grammar or a KV transfer.",
    "vllm:num_requests_waiting_by_reason (vLLM 0.20)",
)
FULL_STEPS = Threshold(
    "full_steps",
    0.85,
    "of the token budget",
    "Steps that carry this much of max_num_batched_tokens on average are full.",
    OURS,
)
AT_CAP = Threshold(
    "at_cap",
    0.85,
    "of max_num_seqs",
    "Scrapes see a batch between an end and the next admission.",
    "recordings of vLLM 0.32 at a cap of 4, 8 and 16",
)
PINNED = Threshold(
    "pinned",
    0.6,
    "share of scrapes",
    "A batch that is at its largest, or one below, in most scrapes is held there.",
    "recordings of vLLM 0.32 at a cap of 4, 8 and 16",
)
API_GAP = Threshold(
    "api_gap",
    0.5,
    "share of TTFT",
    "TTFT less queue and prefill is time in the API server: tokenising, waiting for "
    "its event loop, passing on.",
    "vllm/v1/engine/output_processor.py; difference of means, not of quantiles",
)
API_GAP_SECONDS = Threshold(
    "api_gap_seconds",
    0.25,
    "s",
    "Below this it does not hurt, whatever its share.",
    OURS,
)
DRAM_HIGH = Threshold(
    "dram_high",
    0.6,
    "ratio",
    "Three quarters of the practical peak of about 0.8.",
    "NVIDIA DCGM user guide, profiling metrics",
)
DRAM_LOW = Threshold(
    "dram_low",
    0.4,
    "ratio",
    "Half of the practical peak: bandwidth is to spare.",
    "NVIDIA DCGM user guide, profiling metrics",
)
TENSOR_HIGH = Threshold(
    "tensor_high",
    0.5,
    "ratio",
    "Matrix units at work most of the time; dcgmproftester reaches 0.93.",
    "NVIDIA DCGM user guide, profiling metrics",
)
SM_HIGH = Threshold(
    "sm_high",
    0.8,
    "ratio",
    "Multiprocessors have work nearly all the time, also while it waits for memory or "
    "for other GPUs. With bandwidth to spare and matrix units at rest it may be the "
    "latter, so arithmetic is not sure then.",
    "NVIDIA DCGM user guide, profiling metrics (0.8 for an effective use)",
)
POWER_HIGH = Threshold(
    "power_high",
    0.95,
    "of the power limit",
    "A board this near its limit is about to lower its clocks. Shown as evidence; it "
    "decides nothing.",
    OURS,
)
RIDGE = Threshold(
    "ridge",
    295.0,
    "FLOP per byte",
    "Where arithmetic and bandwidth of an H100 are used up together. The engine's "
    "estimates are shown against it and decide nothing: the ridge is the machine's, "
    "and they leave out what its caches save.",
    "hungchun0201.github.io, ridge points in dense bf16",
)
THROTTLED = Threshold(
    "throttled",
    0.1,
    "share of time",
    "Clocks held down by heat or hardware for a tenth of the time cost throughput.",
    OURS,
)
GPU_AGE = Threshold(
    "gpu_age",
    60.0,
    "s",
    "dcgm-exporter collects every 30 s and its means reach back as far again; older "
    "data speak of something else.",
    "NVIDIA/DCGM#170",
)
DISPERSION = Threshold(
    "dispersion",
    3.0,
    "variance over mean",
    "Independent arrivals have 1 at any rate.",
    "index of dispersion of counts",
)
DISPERSION_SECONDS = Threshold(
    "dispersion_seconds",
    60.0,
    "s",
    "Fewer bins than this gives make the index jump about. A verdict may rest on "
    "half of it when chance is excluded at five standard deviations.",
    "issue: arrivals over at least a minute",
)
CALM_SHARE = Threshold(
    "calm_share",
    0.25,
    "share of time",
    "An engine with nobody waiting and a third of its largest batch, for a quarter of "
    "the time, has room for its mean load.",
    OURS,
)
BURST = Threshold(
    "burst",
    20.0,
    "s",
    "What goes on for longer without a calm is a load.",
    OURS,
)
BURST_QUEUE = Threshold(
    "burst_queue",
    15.0,
    "s",
    "A queue older than this is no burst's, whatever arrivals look like.",
    OURS,
)
BUSY = Threshold(
    "busy",
    0.95,
    "share of time",
    "Time with work throughout: it passed in steps, and more work would add to it.",
    OURS,
)
FLAT_PREFILLS = Threshold(
    "flat_prefills",
    2.0,
    "running requests",
    "Two prompts at once share the arithmetic already: a rate saturates early.",
    OURS,
)
SLOWDOWN = Threshold(
    "slowdown",
    3.0,
    "times the TTFT alone",
    "What a burst does to a first token when no SLO says what is late.",
    "Splitwise, TTFT at the 90th percentile",
)
LEAVE = Threshold(
    "leave",
    1.25,
    "times the threshold of entry",
    "How far a share must be back before its verdict goes: at a limit, noise would "
    "otherwise switch it on and off.",
    OURS,
)
HOLD = Threshold(
    "hold_seconds",
    3.0,
    "s",
    "A verdict gives way only to one that holds this long.",
    OURS,
)
FORECAST_SECONDS = Threshold(
    "forecast_seconds",
    600.0,
    "s",
    "Beyond ten minutes a straight line through the last one says nothing.",
    OURS,
)
UNDERBATCHED = Threshold(
    "underbatched",
    0.7,
    "gain in tokens/s per gain in batch",
    "Most of a step is there for any batch: further requests are nearly free.",
    OURS,
)

TABLE: tuple[Threshold, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Threshold)
)

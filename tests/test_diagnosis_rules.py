"""What is named under which evidence, and what never is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_rank import IDLE, SIGNALS, Load, Watched

from analyzer.diagnosis.situation import GpuActivity, Knobs
from analyzer.verdict import Family, Verdict

LIGHT = Load(running=2.0, step=0.011)
# 16 sequences, each of which adds 0.5 ms to the 10 ms of a step, with some prompts.
CAPPED = Load(running=16.0, step=0.019, waiting=30.0, prefill=800.0)
LONG_PROMPTS = Load(running=8.0, step=0.6, waiting=8.0, prefill=3000.0, arrivals=1.0)
WIDE = Load(running=256.0, step=0.060, prefill=500.0)
FULL = Load(running=40.0, step=0.020, waiting=20.0, kv=0.98)
CAPACITY = {Family.MEMORY, Family.COMPUTE, Family.QUEUEING}


def name(verdict: Verdict) -> str:
    """Returns family and cause in one word."""
    return f"{verdict.family}/{verdict.cause}"


def learnt(load: Load, **options: object) -> tuple[Watched, Verdict]:
    """Returns a rank that was under light load before, and its verdict under *load*."""
    watched = Watched(**options)  # type: ignore[arg-type]
    watched.play(LIGHT, 15)
    return watched, watched.play(load, 15)


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (LIGHT, "none/underbatched"),
        (replace(LIGHT, running=20.0, step=0.016), "none/headroom"),
        (CAPPED, "queueing/sequence_cap"),
        (LONG_PROMPTS, "compute/prefill"),
        (replace(LONG_PROMPTS, waiting=0.0), "compute/prefill"),
        (WIDE, "compute/decode"),
        (FULL, "memory/kv_capacity"),
        (replace(FULL, waiting=0.0, preemptions=2.0), "memory/kv_capacity"),
        (replace(CAPPED, deferred=25.0), "queueing/deferral"),
        (replace(CAPPED, deferred=25.0, external=90.0), "communication/kv_transfer"),
        (IDLE, "none/headroom"),  # idle is the engine state's to say
    ],
)
def test_what_binds_is_named(load: Load, expected: str) -> None:
    """One regime each, after a light load."""
    _, verdict = learnt(load)
    assert name(verdict) == expected
    assert verdict.evidence


def test_a_regime_is_named_within_ten_seconds_and_goes_when_it_has_gone() -> None:
    """Not before five seconds of queue, which may be a burst."""
    for load in (CAPPED, LONG_PROMPTS, FULL):
        watched = Watched()
        watched.play(LIGHT, 15)
        assert watched.play(load, 3).family is Family.NONE
        assert watched.play(load, 6).family in CAPACITY
        assert watched.play(replace(LIGHT, kv=0.1), 12).family is Family.NONE


def test_a_batch_that_shrinks_while_the_queue_grows_is_preemption() -> None:
    """The counter stands still until the victims resume."""
    watched = Watched()
    watched.play(LIGHT, 15)
    loads = [
        replace(FULL, running=40.0 - 3 * n, waiting=1.0 + 3 * n, preemptions=0.0)
        for n in range(5)
    ]
    verdict = watched.ramp(loads)
    assert name(verdict) == "memory/kv_capacity"
    assert verdict.confidence > 0.9


def test_a_full_cache_that_gains_nothing_is_no_lack_of_memory() -> None:
    """Each step is all content: a larger cache would hold a longer queue."""
    slow = replace(FULL, running=60.0, step=0.25, prefill=6000.0)
    _, verdict = learnt(slow)
    assert name(verdict) == "compute/prefill"
    assert "memory/kv_capacity" in verdict.candidates


@pytest.mark.parametrize(
    "load",
    [
        replace(LIGHT, running=40.0, step=0.018, kv=0.97),  # full, and nobody waits
        replace(LIGHT, running=40.0, step=0.018, finished=0.0, arrivals=0.0),  # long
        replace(LIGHT, prefill=5.0, arrivals=10.0),  # all from the prefix cache
        replace(LIGHT, running=0.0, arrivals=5.0, finished=0.0),  # all aborted
    ],
    ids=["full but healthy", "long answers", "warm prefix cache", "aborts"],
)
def test_what_looks_like_trouble_and_is_none(load: Load) -> None:
    """None of these is a capacity constraint."""
    _, verdict = learnt(load)
    assert verdict.family is Family.NONE


def test_gpu_figures_alone_never_make_a_verdict() -> None:
    """A spinning GPU, memory activity of a healthy decode, tensor units at work."""
    for gpu in (
        GpuActivity(dram=0.75, tensor=0.1),
        GpuActivity(dram=0.1, tensor=0.8),
        GpuActivity(dram=0.0, tensor=0.0, power_capped=0.9),
    ):
        _, verdict = learnt(replace(LIGHT, running=20.0, step=0.016), gpu=gpu)
        assert verdict.family is Family.NONE


def test_dram_activity_tells_bandwidth_from_arithmetic() -> None:
    """Without it, arithmetic at 0.6 at most, with what is missing."""
    _, blind = learnt(WIDE)
    assert name(blind) == "compute/decode"
    assert blind.confidence <= 0.6
    assert "gpu_dram_active_ratio" in blind.missing
    assert "memory/hbm_bandwidth" in blind.candidates
    _, bound = learnt(WIDE, gpu=GpuActivity(dram=0.72, tensor=0.1))
    assert name(bound) == "memory/hbm_bandwidth"
    _, busy = learnt(WIDE, gpu=GpuActivity(dram=0.2, tensor=0.6))
    assert name(busy) == "compute/decode"
    assert busy.confidence > 0.6
    assert not busy.missing
    _, old = learnt(WIDE, gpu=GpuActivity(dram=0.72, tensor=0.1, age=90.0))
    assert (name(old), old.confidence) == (name(blind), blind.confidence)


def test_sm_activity_is_evidence_and_tells_what_else_it_may_be() -> None:
    """Neither memory nor matrix units at work; it is missing only if not told."""
    _, waiting = learnt(WIDE, gpu=GpuActivity(dram=0.2, tensor=0.1, sm=0.95))
    assert name(waiting) == "compute/decode"
    assert (waiting.confidence, waiting.missing) == (0.6, ())
    assert waiting.candidates == ("communication/collectives",)
    assert "gpu_sm_active_ratio" in {item.signal for item in waiting.evidence}
    _, blind = learnt(WIDE, gpu=GpuActivity(dram=0.2, tensor=0.1))
    assert blind.missing == ("gpu_sm_active_ratio",)
    _, idle = learnt(WIDE, gpu=GpuActivity(dram=0.2, tensor=0.1, sm=0.3))
    assert (idle.missing, idle.candidates) == ((), ("memory/hbm_bandwidth",))


def test_a_mean_over_prefill_and_decode_is_split_by_their_rates() -> None:
    """Half of the work is prompts, which hardly move memory: 0.4 is 0.8 in decode."""
    mixed = replace(WIDE, prefill=0.45 * 2 * 256 / 0.060)
    _, verdict = learnt(mixed, gpu=GpuActivity(dram=0.42, tensor=0.4))
    assert name(verdict) == "memory/hbm_bandwidth"


def test_heat_is_a_fault_and_a_power_cap_is_not() -> None:
    """Clocks held down by heat while there is work."""
    _, hot = learnt(LIGHT, gpu=GpuActivity(throttled=0.5))
    assert name(hot) == "fault/throttled"
    at_limit = GpuActivity(dram=0.2, tensor=0.7, power=0.99, power_capped=0.9)
    for load, cause in ((LONG_PROMPTS, "compute/prefill"), (WIDE, "compute/decode")):
        _, capped = learnt(load, gpu=at_limit)
        assert name(capped) == cause
        told = {item.signal: item.value for item in capped.evidence}
        assert told["gpu_power_ratio"] == 0.99
        assert told["gpu_power_capped_share"] == 0.9
        assert "nvidia-smi -pl" in sentences(capped)
    _, free = learnt(LONG_PROMPTS, gpu=replace(at_limit, power=0.6, power_capped=0.0))
    assert "gpu_power_ratio" not in {item.signal for item in free.evidence}
    assert "nvidia-smi" not in sentences(free)


def test_a_criterion_missed_at_any_batch_is_the_step_and_not_the_queue() -> None:
    """Steps of 80 ms at 2 sequences, 50 ms allowed: nothing but a faster step helps."""
    limits = {"tpot": 0.05}
    late = Load(2.0, 0.08, missed={"tpot": (4.0, 4.0)})
    watched = Watched(limits=limits)
    assert name(watched.play(late, 15)) == "compute/decode"


def test_few_misses_are_a_tail() -> None:
    """One in ten, and misses of long answers at full speed."""
    for missed in ({"tpot": (10.0, 1.0)}, {"e2e": (4.0, 4.0)}):
        load = replace(LIGHT, missed=missed)
        _, verdict = learnt(load, limits={"tpot": 0.05, "e2e": 10.0})
        assert verdict.family is Family.NONE, missed


def test_time_before_the_engine_is_the_api_servers() -> None:
    """TTFT of 2 s, of which the engine knows 0.1 s, and no queue in it."""
    load = replace(LIGHT, ttft=2.0, missed={"ttft": (2.0, 2.0)})
    _, verdict = learnt(load, limits={"ttft": 1.0})
    assert name(verdict) == "queueing/api_server"


def test_declared_limits_tell_the_cap_from_the_budget() -> None:
    """The same queue: at the cap, or below it with full steps."""
    declared = Knobs(max_num_seqs=16.0, max_num_batched_tokens=2048.0)
    _, cap = learnt(CAPPED, knobs=declared)
    assert name(cap) == "queueing/sequence_cap"
    assert cap.confidence >= 0.9
    below = Knobs(max_num_seqs=64.0, max_num_batched_tokens=32.0)
    _, budget = learnt(CAPPED, knobs=below)
    assert name(budget) == "queueing/token_budget"


@pytest.mark.parametrize(
    ("without", "load"),
    [("kv_cache_usage", FULL), ("kv_cache_usage", CAPPED), ("waiting", CAPPED)],
)
def test_a_signal_that_is_not_there_is_named_as_missing(
    without: str, load: Load
) -> None:
    """Abstains, with candidates, rather than guessing."""
    field = {"kv_cache_usage": "kv", "waiting": "waiting"}[without]
    blind = replace(load, **{field: None}, missed={"ttft": (4.0, 4.0)})  # type: ignore[arg-type]
    watched = Watched(signals=SIGNALS - {without})
    watched.play(replace(LIGHT, **{field: None}), 15)  # type: ignore[arg-type]
    verdict = watched.play(blind, 15)
    assert verdict.family is Family.UNKNOWN
    assert without in verdict.missing
    assert verdict.candidates


def test_preemptions_at_the_cap_are_memory() -> None:
    """More sequences than the cache can hold: the cap is not what is short."""
    knobs = Knobs(max_num_seqs=40.0)
    _, verdict = learnt(replace(FULL, preemptions=1.0), knobs=knobs)
    assert name(verdict) == "memory/kv_capacity"
    _, verdict = learnt(replace(FULL, preemptions=0.0), knobs=knobs)
    assert name(verdict) == "queueing/sequence_cap"  # a larger cache would stay idle


def test_bursts_are_traffic_and_a_load_that_stays_is_not() -> None:
    """Three bursts out of calm; then the queue stays."""
    watched = Watched()
    burst = replace(CAPPED, arrivals=60.0, waiting=20.0)
    calm = replace(LIGHT, arrivals=1.0)
    watched.play(calm, 20)
    for _ in range(3):
        watched.play(burst, 1)
        watched.play(replace(burst, arrivals=3.0, waiting=5.0), 2)
        watched.play(calm, 12)
    assert watched.play(burst, 2).family is Family.TRAFFIC
    assert watched.play(replace(CAPPED, waiting=40.0), 20).family is Family.QUEUEING


def sentences(verdict: Verdict) -> str:
    """Returns the advice as one text."""
    return " ".join(verdict.advice)


def test_advice_knows_what_is_on_already() -> None:
    """Neither prefix caching, nor a small KV type, nor a raised cap, twice."""
    off = Knobs(prefix_caching=False, kv_dtype="auto", memory_utilization=0.9)
    on = Knobs(prefix_caching=True, kv_dtype="fp8_e4m3", memory_utilization=0.95)
    _, prompts = learnt(LONG_PROMPTS, knobs=off)
    assert "--enable-prefix-caching" in sentences(prompts)
    _, prompts = learnt(LONG_PROMPTS, knobs=on)
    assert "prefix-caching" not in sentences(prompts)
    _, memory = learnt(FULL, knobs=off)
    assert "--kv-cache-dtype fp8" in sentences(memory)
    assert "from 0.9" in sentences(memory)
    _, memory = learnt(FULL, knobs=on)
    assert "--kv-cache-dtype" not in sentences(memory)
    assert "utilization" not in sentences(memory)


def test_advice_does_not_raise_a_cap_that_would_not_help() -> None:
    """At the cap with prompts as the limit; and at the cap with a cache half full."""
    _, prompts = learnt(LONG_PROMPTS, knobs=Knobs(max_num_seqs=8.0))
    assert "Leave --max-num-seqs as it is" in sentences(prompts)
    _, capped = learnt(replace(CAPPED, kv=0.6), knobs=Knobs(max_num_seqs=16.0))
    assert "from 16 to about 24" in sentences(capped)  # 0.9 of the cache, not twice
    assert "Verify" in sentences(capped)

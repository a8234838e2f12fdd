"""From a situation to a verdict: one rule after another, the first that holds.

Each asks whether turning its knob would help. A queue says that something is short;
what is short follows from where the time goes and what is full.
"""

from __future__ import annotations

from analyzer.diagnosis.gateway_rules import gateway
from analyzer.diagnosis.gpu import SOURCE
from analyzer.diagnosis.names import CAP, PREFILL
from analyzer.diagnosis.queue_rules import cap_limit, queue
from analyzer.diagnosis.situation import Situation, evidence
from analyzer.diagnosis.step_rules import flat, late
from analyzer.diagnosis.thresholds import (
    BURST,
    BURST_QUEUE,
    BUSY,
    CALM_SHARE,
    DISPERSION,
    DISPERSION_SECONDS,
    FLAT,
    FLAT_BATCH,
    GPU_AGE,
    PREEMPTION_RATE,
    SUSTAINED,
    THROTTLED,
    UNDERBATCHED,
)
from analyzer.verdict import Family, Verdict


def judge(s: Situation) -> Verdict:
    """Returns what limits the rank in *s*."""
    for rule in (_throttled, gateway, _burst, queue, _thrash, late, flat):
        verdict = rule(s)
        if verdict is not None:
            return verdict
    return _calm(s)


def _throttled(s: Situation) -> Verdict | None:
    """Heat or hardware holds the clocks of a working GPU down."""
    gpu = s.gpu
    if gpu is None or gpu.throttled is None or gpu.age > GPU_AGE.value:
        return None
    if gpu.throttled < THROTTLED.value or not s.now.busy:
        return None
    return Verdict(
        Family.FAULT,
        "throttled",
        0.9,
        evidence("gpu_throttled_share", gpu.throttled, THROTTLED.value, SOURCE),
    )


def _burst(s: Situation) -> Verdict | None:
    """Bursts press an engine that has room for the mean."""
    burst = s.burst
    if burst is None or not burst.binding or s.queued_seconds > BURST_QUEUE.value:
        return None
    if burst.calm_at is None or s.at - burst.calm_at > BURST.value:
        return None
    growing = (s.now.waiting_last or 0.0) >= (s.now.waiting_first or 0.0)
    if s.queued_seconds >= SUSTAINED.value and growing:
        return None  # the queue of a burst is at its longest soon, then it drains
    if burst.pressed_at is None or s.at - burst.pressed_at > DISPERSION_SECONDS.value:
        return None
    return Verdict(
        Family.TRAFFIC,
        "burst",
        0.8 if burst.known else 0.6,
        (
            *evidence("arrival_dispersion_index", burst.index, DISPERSION.value),
            *evidence("calm_time_share", burst.calm, CALM_SHARE.value),
            *evidence("bursts", float(burst.bursts), 2.0),
        ),
        candidates=(CAP, PREFILL) if s.now.queued else (),
    )


def _thrash(s: Situation) -> Verdict | None:
    """Requests are preempted, though none waits when one looks."""
    now = s.now
    if not now.preemptions or not s.kv_full:
        return None
    rate = now.preemptions / (now.seconds or 1.0)
    if rate < PREEMPTION_RATE.value:
        return None
    return Verdict(
        Family.MEMORY,
        "kv_capacity",
        0.8,
        (
            *evidence("preemptions_per_second", rate, PREEMPTION_RATE.value),
            *evidence("kv_cache_usage", now.kv_most, round(s.kv_floor, 3)),
        ),
    )


def _calm(s: Situation) -> Verdict:
    """Nothing binds; the nearest limit is the evidence."""
    now, fixed = s.now, s.fixed
    if now.running is None:
        return Verdict(Family.UNKNOWN, "", 0.0, missing=s.lacking("running", "waiting"))
    proof = (
        *evidence("waiting_requests", now.waiting, 1.0),
        *evidence("kv_cache_usage", now.kv_most, round(s.kv_floor, 3)),
        *evidence("running_requests", now.running_most, cap_limit(s)),
        *evidence("step_fixed_share", fixed.likely if fixed else None, FLAT.value),
    )
    missing = s.lacking("waiting", "kv_cache_usage", "itl")
    alone = (
        fixed is not None
        and (fixed.estimate is not None or (now.running or 0.0) < FLAT_BATCH.value)
        and fixed.likely >= UNDERBATCHED.value
        and s.longer.busy >= BUSY.value
        and not s.longer.queued
    )
    return Verdict(
        Family.NONE,
        "underbatched" if alone else "headroom",
        0.6 if missing else 0.85,
        proof,
        missing=missing,
    )

"""Of requests that wait: a place is short, memory, tokens of a step, or the step."""

from __future__ import annotations

from analyzer.diagnosis.gpu import UNSURE
from analyzer.diagnosis.names import BUDGET, CAP, DECODE, KV, PREFILL
from analyzer.diagnosis.situation import Situation, evidence
from analyzer.diagnosis.step_rules import compute, compute_name, worst_criterion
from analyzer.diagnosis.thresholds import (
    AT_CAP,
    DEFERRED,
    DRAINED_TO,
    FULL_STEPS,
    MISSED,
    PREEMPTION_RATE,
    QUEUE_MINIMUM,
    QUEUE_SHARE,
    SUSTAINED,
)
from analyzer.histogram import total
from analyzer.verdict import Evidence, Family, Verdict


def queue(s: Situation) -> Verdict | None:
    """Returns what requests wait for that go on waiting, None when there are none."""
    now = s.now
    if now.waiting is None:
        return _queue_unseen(s)
    if not _queue_stands(s):
        return None
    queue = (
        *evidence("waiting_requests", now.waiting, 1.0),
        *evidence("queued_time_share", now.queued, QUEUE_SHARE.value),
    )
    deferred = _deferral(s, queue)
    if deferred is not None:
        return deferred
    if s.kv_full and (not s.at_cap or now.preemptions):
        return _kv(s, queue)
    if s.kv_full is None and not s.at_cap:
        return _kv_unseen(s, queue)
    if s.saturated:
        return compute(s, queue, 0.85)
    return _admission(s, queue)


def _queue_stands(s: Situation) -> bool:
    """Whether a queue is there to stay: long enough, and not going away by itself."""
    now = s.now
    waiting, running = now.waiting or 0.0, now.running or 0.0
    # Preemption shows before its counter does: the batch shrinks while the queue
    # grows with the cache full.
    if s.queued_seconds > 0 and s.kv_full and _shrinking(s):
        return True
    if now.queued < QUEUE_SHARE.value or waiting < QUEUE_MINIMUM.value * running:
        return False
    first, last = now.waiting_first or 0.0, now.waiting_last or 0.0
    if last < DRAINED_TO.value * first and s.queued_seconds < 2 * SUSTAINED.value:
        return False
    return s.queued_seconds >= SUSTAINED.value


def _shrinking(s: Situation) -> bool:
    """Whether the batch fell while the queue rose."""
    first = next((i for i in s.recent if i.waiting and i.running), None)
    last = s.recent[-1]
    if first is None or first is last or last.waiting is None or last.running is None:
        return False
    fell = (first.running or 0.0) - last.running
    return fell >= 1 and last.waiting > (first.waiting or 0.0)


def _deferral(s: Situation, queue: tuple[Evidence, ...]) -> Verdict | None:
    now = s.now
    if not now.deferred or not now.waiting:
        return None
    share = now.deferred / now.waiting
    if share < DEFERRED.value:
        return None
    proof = (*queue, *evidence("deferred_share", share, DEFERRED.value))
    if now.external:
        return Verdict(
            Family.COMMUNICATION,
            "kv_transfer",
            0.7,
            (*proof, *evidence("external_prompt_tokens", now.external, 0.0)),
            candidates=("queueing/deferral",),
        )
    return Verdict(Family.QUEUEING, "deferral", 0.8, proof)


def _kv(s: Situation, queue: tuple[Evidence, ...]) -> Verdict:
    """Requests wait and the cache is full; whether more of it would help."""
    now = s.now
    rate = None
    if now.preemptions is not None and now.seconds:
        rate = now.preemptions / now.seconds
    preempts = bool(rate) or _shrinking(s)
    proof = (
        *evidence("kv_cache_usage", now.kv_most, round(s.kv_floor, 3)),
        *queue,
        *evidence("running_requests", now.running, s.knobs.max_num_seqs),
        *evidence("preemptions_per_second", rate, PREEMPTION_RATE.value),
    )
    if s.saturated and not preempts:
        # More cache would admit more, and each step would take longer by as much.
        return compute(s, proof, 0.7, other=(KV,))
    confidence = 0.95 if preempts else 0.85
    candidates: tuple[str, ...] = ()
    if not preempts and s.at_cap is None and s.pinned:
        confidence, candidates = 0.6, (CAP,)
    return Verdict(
        Family.MEMORY,
        "kv_capacity",
        confidence,
        proof,
        missing=s.lacking("preemptions"),
        candidates=candidates,
    )


def _kv_unseen(s: Situation, queue: tuple[Evidence, ...]) -> Verdict:
    """Requests wait, and nothing tells how full the cache is."""
    now = s.now
    if now.preemptions:
        rate = now.preemptions / (now.seconds or 1.0)
        return Verdict(
            Family.MEMORY,
            "kv_capacity",
            0.7,
            (
                *queue,
                *evidence("preemptions_per_second", rate, PREEMPTION_RATE.value),
            ),
            missing=s.lacking("kv_cache_usage"),
        )
    # A step whose content takes all its time gains nothing from a larger cache.
    if s.saturated:
        return compute(s, queue, 0.6, other=(KV,))
    return Verdict(
        Family.UNKNOWN,
        "",
        0.0,
        queue,
        missing=s.lacking("kv_cache_usage", "preemptions"),
        candidates=(KV, CAP) if s.at_cap is None else (KV, BUDGET),
    )


def _queue_unseen(s: Situation) -> Verdict | None:
    """Nothing tells whether requests wait: only lateness shows."""
    late = worst_criterion(s)
    if late is None:
        return None
    return Verdict(
        Family.UNKNOWN,
        "",
        0.0,
        evidence(f"missed_{late[0]}_share", late[1], MISSED.value),
        missing=("waiting",),
        candidates=(KV, CAP, PREFILL, DECODE),
    )


def _admission(s: Situation, queue: tuple[Evidence, ...]) -> Verdict:
    """Requests wait with room in the cache and time to gain; which setting holds."""
    now, knobs = s.now, s.knobs
    fixed = s.fixed
    proof = (
        *queue,
        *evidence("kv_cache_usage", now.kv_most, round(s.kv_floor, 3)),
        *evidence("step_fixed_share", fixed.likely if fixed else None, s.fixed_limit),
    )
    lacking = () if fixed else s.lacking("itl", "running", "generation_tokens")
    if fixed is None:
        return Verdict(
            Family.UNKNOWN, "", 0.0, proof, lacking, (CAP, BUDGET, compute_name(s))
        )
    unsure = s.saturated is None
    if _budget_full(s):
        return Verdict(
            Family.QUEUEING,
            "token_budget",
            0.8 if knobs.max_num_batched_tokens else 0.6,
            (
                *proof,
                *evidence("tokens_per_step", _tokens_per_step(s), _budget_limit(s)),
            ),
            missing=lacking,
            candidates=() if s.at_cap is False else (CAP,),
        )
    sure = 0.9 if s.at_cap else 0.8 if s.pinned else 0.7
    return Verdict(
        Family.QUEUEING,
        "sequence_cap",
        min(sure, UNSURE) if unsure else sure,
        (*evidence("running_requests", now.running_most, cap_limit(s)), *proof),
        missing=lacking,
        candidates=(compute_name(s),) if unsure else (),
    )


def cap_limit(s: Situation) -> float | None:
    """Returns the batch from which on it counts as full, None without a known cap."""
    cap = s.knobs.max_num_seqs
    return None if cap is None else round(AT_CAP.value * cap, 1)


def _tokens_per_step(s: Situation) -> float | None:
    now = s.now
    if not now.steps or now.prefill is None or now.decode is None:
        return None
    return (now.prefill + now.decode) / now.steps


def _budget_limit(s: Situation) -> float | None:
    budget = s.knobs.max_num_batched_tokens
    return None if budget is None else round(FULL_STEPS.value * budget, 1)


def _budget_full(s: Situation) -> bool:
    """Whether steps carry all the tokens they may, so that prompts wait for the next.

    By the declared settings; without them, by steps that are all alike though prompts
    are in them, in a batch that nothing holds at one size.
    """
    tokens, limit = _tokens_per_step(s), _budget_limit(s)
    if tokens is not None and limit is not None:
        return tokens >= limit
    if s.at_cap is not None:
        return not s.at_cap
    return not s.pinned and _same_steps(s) and not _decode_only(s)


def _same_steps(s: Situation) -> bool:
    """Whether all steps take about as long: each is filled up to the same size."""
    gaps = total(i.itl for i in s.recent if i.itl is not None and i.itl.count)
    if gaps is None:
        return False
    low, high = gaps.quantile_bracket(0.05), gaps.quantile_bracket(0.95)
    return low is not None and low == high


def _decode_only(s: Situation) -> bool:
    """Whether steps hold fewer prompt tokens than sequences."""
    longer = s.longer
    if longer.prefill is None or longer.decode is None:
        return True
    return longer.prefill < 2.0 * longer.decode

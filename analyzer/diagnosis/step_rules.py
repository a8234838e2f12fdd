"""Steps take too long: for prompts, for the tokens of many sequences, or outside."""

from __future__ import annotations

from analyzer.diagnosis.gpu import corroboration, decode_limit
from analyzer.diagnosis.names import BANDWIDTH, DECODE, PREFILL
from analyzer.diagnosis.situation import Situation, evidence
from analyzer.diagnosis.thresholds import (
    API_GAP,
    API_GAP_SECONDS,
    BUSY,
    FLAT,
    FLAT_BATCH,
    FLAT_NEAR_SLO,
    FLAT_PREFILLS,
    FLAT_WITHIN_SLO,
    MISSED,
    PREFILL_NEARLY_ALL,
    PREFILL_TOKENS,
    QUEUE_SHARE,
    RECENT,
    SLO_USED,
    SUSTAINED,
)
from analyzer.verdict import Evidence, Family, Verdict


def compute_name(s: Situation) -> str:
    """Returns the cause that the work speaks for, should the step be the limit."""
    return PREFILL if s.mostly_prefill else DECODE


def compute(
    s: Situation,
    proof: tuple[Evidence, ...],
    confidence: float,
    *,
    other: tuple[str, ...] = (),
) -> Verdict:
    """The step's content takes its time: prompts, or the tokens of many sequences."""
    fixed = s.fixed
    small = fixed is not None and fixed.likely < s.fixed_limit
    proof = (
        *evidence(
            "step_fixed_share", fixed.likely if fixed and small else None, s.fixed_limit
        ),
        *evidence("step_seconds", fixed.step if fixed else None, None),
        *evidence("prefill_work_share", s.prefill_share, PREFILL_TOKENS.value),
        *proof,
    )
    if s.mostly_prefill is None:
        return Verdict(
            Family.COMPUTE,
            "",
            min(confidence, 0.5),
            proof,
            missing=s.lacking("prompt_tokens", "generation_tokens"),
            candidates=(PREFILL, DECODE, BANDWIDTH, *other),
        )
    if s.mostly_prefill:
        more, change = corroboration(s)
        return Verdict(
            Family.COMPUTE,
            "prefill",
            max(0.3, min(0.95, confidence + change)),
            (*proof, *more),
            candidates=other,
        )
    return decode_limit(s, proof, confidence, other)


def worst_criterion(s: Situation) -> tuple[str, float] | None:
    """Returns the criterion that most requests missed, None when few did.

    One burst is late at once and no more: misses must go on for a while.
    """
    shares = {c: s.missed(c) for c in ("ttft", "tpot", "itl", "e2e")}
    found = [
        (share, criterion)
        for criterion, share in shares.items()
        if share is not None and share >= MISSED.value and _goes_on(s, criterion)
    ]
    if not found:
        return None
    share, criterion = max(found)
    return criterion, share


def _goes_on(s: Situation, criterion: str) -> bool:
    """Whether requests were late for some seconds, and lately."""
    times = [i for i in s.lately if i.missed.get(criterion, (0.0, 0.0))[1]]
    if not times or times[-1].end <= s.at - RECENT.value:
        return False
    return times[-1].end - times[0].begin >= SUSTAINED.value


def late(s: Situation) -> Verdict | None:
    """Returns what takes the time of requests that are late though nobody waits."""
    now = s.now
    late = worst_criterion(s)
    if late is None or not now.running:
        return None
    criterion, share = late
    proof = evidence(f"missed_{criterion}_share", share, MISSED.value)
    if criterion in ("ttft", "e2e") and s.longer.queued >= 1 - QUEUE_SHARE.value:
        return None  # late by a queue, which is no more or does not stand
    if criterion == "ttft":
        gap = _api_gap(s)
        if gap is not None:
            return Verdict(
                Family.QUEUEING,
                "api_server",
                0.7,
                (*proof, *evidence("ttft_outside_engine_share", gap, API_GAP.value)),
            )
        if s.mostly_prefill is False:
            return None  # a first token cannot be late for the decoding of others
    if criterion == "e2e" and not _slow_steps(s):
        return None  # long answers at full speed
    if criterion in ("tpot", "itl") and _slow_alone(s, criterion):
        return decode_limit(s, proof, 0.7)
    return compute(s, proof, 0.7)


def _slow_alone(s: Situation, criterion: str) -> bool:
    """Whether even the smallest batch seen has steps longer than the SLO allows."""
    limit, fixed, share = s.limits.get(criterion), s.fixed, s.prefill_share
    if share is None or share >= PREFILL_NEARLY_ALL.value:
        return False  # then no step without a prompt was seen
    if limit is None or fixed is None or fixed.small is None:
        return False
    return fixed.small >= limit


def _slow_steps(s: Situation) -> bool:
    """Whether the batch has slowed its steps down: a smaller one would be faster."""
    fixed = s.fixed
    return fixed is not None and fixed.likely < FLAT.value


def _api_gap(s: Situation) -> float | None:
    """Returns the share of TTFT outside queue and prefill, None when it is small."""
    longer = s.longer
    if longer.queued:
        return None  # means of different requests: no difference while queues move
    ttft, queue, prefill = (
        part.mean for part in (longer.ttft, longer.queue, longer.prefill_time)
    )
    if ttft is None or queue is None or prefill is None:
        return None
    gap = ttft - queue - prefill
    if gap < API_GAP_SECONDS.value or gap < API_GAP.value * ttft:
        return None
    return gap / ttft


def flat(s: Situation) -> Verdict | None:
    """Tokens/s hardly grow with the batch any more, though nobody waits."""
    now, fixed = s.now, s.fixed
    if fixed is None or now.running is None or now.busy < BUSY.value:
        return None
    share = s.prefill_share
    many = now.running >= FLAT_BATCH.value
    rate = share is not None and share >= PREFILL_NEARLY_ALL.value
    if not many and not (rate and now.running >= FLAT_PREFILLS.value):
        return None
    if s.queued_seconds and not rate:
        return None  # a queue says more, once it stands
    limit = s.limits.get("tpot") or s.limits.get("itl")
    at_most = None if limit is None else SLO_USED.value * limit / s.eased(1.0)
    used = at_most is not None and fixed.step >= at_most
    least = FLAT_BATCH if many else FLAT_PREFILLS
    entry = FLAT if limit is None else FLAT_NEAR_SLO if used else FLAT_WITHIN_SLO
    most = s.eased(entry.value)
    proof = (
        *evidence("marginal_tokens_ratio", fixed.likely, round(most, 3)),
        *evidence("running_requests", now.running, least.value),
    )
    if used and at_most is not None:
        proof += evidence("step_seconds", fixed.step, round(at_most, 4))
    if fixed.estimate is None and fixed.upper >= most:
        if not many:
            return None
        return _never_small(s, proof, used=used or limit is None)
    if fixed.likely >= most:
        return None
    return compute(s, proof, 0.75)


def _never_small(
    s: Situation, proof: tuple[Evidence, ...], *, used: bool
) -> Verdict | None:
    """A large batch, and no small one seen: nothing tells what it gains."""
    if not used:
        return None  # the SLO is met with room, so nothing binds it
    return Verdict(
        Family.UNKNOWN,
        "",
        0.0,
        proof,
        missing=("step time of a smaller batch",),
        candidates=(compute_name(s), "none/headroom"),
    )

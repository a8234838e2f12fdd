"""Requests are late by the gateway's clock and not by the engine's."""

from __future__ import annotations

from analyzer.diagnosis.hops import Hops
from analyzer.diagnosis.situation import Situation, evidence
from analyzer.diagnosis.thresholds import (
    API_GAP_SECONDS,
    COVERED,
    MISSED,
    MISSED_EVENTS,
    OWED,
    QUEUE_SHARE,
    RECENT,
    STAGE_PART,
    SUSTAINED,
    UNWATCHED,
)
from analyzer.verdict import Evidence, Family, Verdict

SOURCE = "gateway"
# Stages, and who is to blame for their length.
STAGES = (("gateway", "overhead"), ("delivery", "network"))
OF_THE_ENGINE = ("ttft", "tpot", "itl")


def gateway(s: Situation) -> Verdict | None:
    """Returns what makes requests late outside the engine, None when nothing does.

    Only under pressure, and only when the engine's part met the criterion: faster
    engines or more of them would then make no more requests good.
    """
    hops = s.hops
    if hops is None or not _pressing(s, hops) or not _engine_met(s, hops):
        return None
    criterion = hops.criterion
    proof = (
        *evidence(f"missed_{criterion}_share", hops.share, MISSED.value, SOURCE),
        *_engine_evidence(s, hops),
    )
    for name, cause in STAGES:
        stage = hops.stages.get(name)
        if stage is None or stage.owed < OWED.value * hops.late:
            continue
        owed, threshold = stage.owed / hops.late, round(stage.threshold, 4)
        return Verdict(
            Family.GATEWAY,
            cause,
            0.9,
            (
                *evidence(f"{name}_stage_seconds", stage.seconds, threshold, SOURCE),
                *evidence(f"{name}_stage_owed_share", owed, OWED.value, SOURCE),
                *proof,
            ),
        )
    return _between(hops, proof)


def _pressing(s: Situation, hops: Hops) -> bool:
    """Whether many requests are late, for some seconds already, and lately."""
    return (
        hops.late >= MISSED_EVENTS.value
        and hops.share >= MISSED.value
        and hops.last > s.at - RECENT.value
        and hops.last - hops.first >= SUSTAINED.value
    )


def _engine_met(s: Situation, hops: Hops) -> bool:
    """Whether the engine did its part in time, by its own metrics.

    One that preempts does work twice, and will be late if it is not yet.
    """
    if s.kv_full and (s.now.preemptions or s.now.queued):
        return False
    for criterion in {*OF_THE_ENGINE, hops.criterion}:
        if (s.missed(criterion) or 0.0) >= MISSED.value:
            return False
    ttft = s.longer.ttft.mean
    if hops.criterion == "ttft" and ttft is not None and ttft > hops.limit:
        return False
    if s.missed("ttft") is not None:
        return True
    # Nothing of its own was judged: then nobody may have waited.
    return s.now.waiting is not None and s.longer.queued < 1.0 - QUEUE_SHARE.value


def _engine_evidence(s: Situation, hops: Hops) -> tuple[Evidence, ...]:
    limit = round(hops.limit, 4) if hops.criterion == "ttft" else None
    return (
        *evidence("engine_ttft_seconds", s.longer.ttft.mean, limit),
        *evidence(
            "queued_time_share", s.longer.queued, round(1 - QUEUE_SHARE.value, 3)
        ),
    )


def _between(hops: Hops, proof: tuple[Evidence, ...]) -> Verdict | None:
    """Time to first token that neither the gateway's stage nor the engines have.

    From means, over all engines of the model: only where those watched are the ones
    that answered.
    """
    passed, engines = hops.passed, hops.engines
    seen, answered = passed.mean, engines.mean if engines else None
    if engines is None or seen is None or answered is None:
        return None
    share = passed.number / engines.number
    if engines.number < MISSED_EVENTS.value or share < COVERED.value:
        return None
    gap = seen - answered
    if share > UNWATCHED.value or answered > hops.limit:
        return None
    if gap < API_GAP_SECONDS.value or gap < STAGE_PART.value * seen:
        return None
    owed = sum(beyond <= gap for beyond in hops.beyond) / hops.late
    if owed < OWED.value:
        return None
    proof = (
        *evidence(
            "ttft_between_seconds", gap, round(STAGE_PART.value * seen, 4), SOURCE
        ),
        *evidence("between_owed_share", owed, OWED.value, SOURCE),
        *proof,
    )
    stage = hops.stages["gateway"]
    if stage.told < OWED.value * hops.late:
        return Verdict(
            Family.GATEWAY,
            "",
            0.6,
            proof,
            missing=("gateway stage",),
            candidates=("gateway/overhead", "gateway/network", "queueing/api_server"),
        )
    return Verdict(
        Family.GATEWAY, "network", 0.6, proof, candidates=("queueing/api_server",)
    )

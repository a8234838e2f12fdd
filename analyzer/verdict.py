"""What is said about one stretch of time: a family, a cause, and the evidence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Family(StrEnum):
    """What kind of thing limits an engine."""

    MEMORY = "memory"
    COMPUTE = "compute"
    QUEUEING = "queueing"
    COMMUNICATION = "communication"
    TRAFFIC = "traffic"
    GATEWAY = "gateway"
    FAULT = "fault"
    NONE = "none"
    UNKNOWN = "unknown"


# Every family with its causes; `unknown` has none.
CAUSES: tuple[tuple[Family, tuple[str, ...]], ...] = (
    (Family.MEMORY, ("kv_capacity", "hbm_bandwidth")),
    (Family.COMPUTE, ("prefill", "decode")),
    (
        Family.QUEUEING,
        ("sequence_cap", "token_budget", "deferral", "api_server", "flow_control"),
    ),
    (Family.COMMUNICATION, ("collectives", "kv_transfer")),
    (Family.TRAFFIC, ("burst",)),
    (Family.GATEWAY, ("overhead", "network")),
    (
        Family.FAULT,
        ("down", "stalled", "frozen_gauges", "stats_disabled", "throttled"),
    ),
    (Family.NONE, ("headroom", "underbatched", "idle")),
    (Family.UNKNOWN, ("",)),
)
OUTSIDE = (Family.TRAFFIC, Family.GATEWAY)  # of the engine: it may be idle meanwhile
VERDICTS = tuple((family, cause) for family, causes in CAUSES for cause in causes)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One signal that speaks for a verdict, with the threshold it was held against."""

    signal: str
    value: float
    threshold: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A family and cause with a confidence from 0 to 1; cause "" when unknown.

    `missing` names the signals without which no more can be said, `candidates` what
    it might be instead, `advice` what to do, in sentences.
    """

    family: Family
    cause: str
    confidence: float
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    @property
    def name(self) -> tuple[Family, str]:
        """What makes two verdicts the same: family and cause."""
        return self.family, self.cause


_FAULTS = {
    "down": (
        "down",
        1.0,
        "The engine does not answer. See its log and its pod's events.",
    ),
    "stalled": (
        "stalled",
        0.9,
        (
            "Requests are present and no counter moves: the engine hangs. Take a "
            "stack dump (py-spy) and restart it."
        ),
    ),
    "stats_disabled": (
        "stats_disabled",
        1.0,
        (
            "Start the engine without --disable-log-stats; without statistics nothing "
            "can be judged."
        ),
    ),
}


def engine_verdict(
    state: str,
    *,
    frozen: bool,
    running: float | None,
    waiting: float | None,
    tokens: float,
    diagnosed: Verdict | None,
) -> Verdict:
    """Returns what the engine's state proves, and else what was *diagnosed*.

    *tokens* is what the engine generated in the interval. Bursts press an engine
    that is idle between them, and a gateway that holds requests back leaves it idle.
    """
    evidence = Evidence(f"engine_state={state}", 1.0, None, "engine")
    if state in _FAULTS:
        cause, confidence, advice = _FAULTS[state]
        return Verdict(Family.FAULT, cause, confidence, (evidence,), advice=(advice,))
    if frozen:
        return Verdict(
            Family.FAULT,
            "frozen_gauges",
            0.8,
            (Evidence("running", running or 0.0, 0.0, "engine"),),
            advice=(
                (
                    "The gauges show requests that have gone (vLLM before 0.12 keeps "
                    "them until the next step); judge by counters, and upgrade."
                ),
            ),
        )
    if state == "starting":  # it never answered: a wrong address looks the same
        return Verdict(
            Family.UNKNOWN, "", 0.0, (evidence,), missing=("a page of the engine",)
        )
    if state in ("sleeping", "draining"):
        return Verdict(Family.NONE, "idle", 0.9, (evidence,))
    if diagnosed is not None and diagnosed.family in OUTSIDE:
        return diagnosed
    if running == 0 and waiting == 0 and tokens == 0:
        return Verdict(
            Family.NONE,
            "idle",
            1.0,
            (
                Evidence("running", 0.0, 0.0, "engine"),
                Evidence("waiting", 0.0, 0.0, "engine"),
            ),
        )
    if diagnosed is not None:
        return diagnosed
    return Verdict(Family.UNKNOWN, "", 0.0, missing=("a second page",))

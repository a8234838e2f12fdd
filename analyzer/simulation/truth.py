"""The truth of a simulated site: what became of every request, by its own clock.

Counted from the simulation's outcomes and nothing else, for tests to compare the
exporter's reading of pages and logs with. The rules are those of the documentation,
written down a second time on purpose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from analyzer.capacity.outcome import Outcome, Status

_FAILED = {Status.REJECTED, Status.BROKEN, Status.UNREACHABLE}


@dataclass(frozen=True, slots=True)
class Limits:
    """What a good request meets, in seconds."""

    ttft: float
    tpot: float
    e2e: float


@dataclass(slots=True)
class Truth:
    """Counts by verdict, by missed criterion and by reason of exclusion.

    `at_engine` counts the answers that engines finished, and those of them that meet
    the limits by the engine's own clock, which the gateway's share is not part of.
    """

    limits: Limits
    requests: int = 0
    good: int = 0
    bad: int = 0
    missed: Counter[str] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    good_tokens: int = 0
    at_engine: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Counts a request that is over."""
        self._count_at_engine(outcome)
        if outcome.status is Status.INVALID:
            self.excluded["caller_error"] += 1
            return
        left = outcome.status is Status.LEFT
        missed = self._missed(outcome, left=left)
        if left and not missed:
            self.excluded["client_abort"] += 1
            return
        if outcome.status in _FAILED:
            missed.append("error")
        elif left:
            missed.append("abort")
        self.requests += 1
        tokens = outcome.output_tokens
        self.tokens += tokens
        if missed:
            self.bad += 1
            self.missed.update(missed)
        else:
            self.good += 1
            self.good_tokens += tokens

    def _missed(self, outcome: Outcome, *, left: bool) -> list[str]:
        limits, missed = self.limits, []
        ttft = outcome.ttft
        if ttft is None and left:
            ttft = outcome.e2e  # so long at least
        if ttft is not None and ttft > limits.ttft:
            missed.append("ttft")
        whole = outcome.status is Status.COMPLETE
        if whole and (outcome.tpot or 0.0) > limits.tpot:  # of a whole answer only
            missed.append("tpot")
        if outcome.e2e > limits.e2e:
            missed.append("e2e")
        return missed

    def _count_at_engine(self, outcome: Outcome) -> None:
        ttft, begin = outcome.engine_ttft, outcome.forwarded
        if outcome.status is not Status.COMPLETE or ttft is None or begin is None:
            return
        limits = self.limits
        self.at_engine["finished"] += 1
        self.at_engine["good"] += (
            ttft <= limits.ttft
            and (outcome.tpot or 0.0) <= limits.tpot
            and outcome.ended - begin <= limits.e2e
        )

    def document(self) -> Mapping[str, object]:
        """Returns the counts for JSON."""
        return {
            "requests": self.requests,
            "good": self.good,
            "bad": self.bad,
            "missed": dict(self.missed),
            "excluded": dict(self.excluded),
            "tokens": self.tokens,
            "good_tokens": self.good_tokens,
            "engine": dict(self.at_engine),
        }

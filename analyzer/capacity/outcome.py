"""How a request ended, as the one who asked saw it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from analyzer.capacity.workload import Request


class Status(StrEnum):
    """What became of a request."""

    COMPLETE = "complete"
    LEFT = "left"  # the client closed the connection
    REJECTED = "rejected"  # by a queue limit: HTTP 503
    INVALID = "invalid"  # longer than the model's context: HTTP 400
    BROKEN = "broken"  # the engine died under it
    UNREACHABLE = "unreachable"  # no replica was up: HTTP 503 of the gateway


@dataclass(frozen=True, slots=True)
class Outcome:
    """A request's end, with every moment of its life that there was (else None).

    Times are seconds of the simulation's clock: `request.arrival` at the gateway,
    `forwarded` to the engine's API server, `queued` in its scheduler, `scheduled`
    first, first and last token, and `ended`. `max_gap` is the longest silence between
    two tokens. `reason` is vLLM's finish reason, or the limit that rejected it.
    """

    request: Request
    status: Status
    ended: float
    replica: int | None = None
    forwarded: float | None = None
    queued: float | None = None
    scheduled: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    max_gap: float = 0.0
    output_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    reason: str = ""

    @property
    def ttft(self) -> float | None:
        """Seconds from the gateway's first byte to the first token."""
        return self._since(self.request.arrival)

    @property
    def engine_ttft(self) -> float | None:
        """Seconds to the first token as the engine measures them."""
        return None if self.forwarded is None else self._since(self.forwarded)

    @property
    def tpot(self) -> float | None:
        """Mean seconds between tokens, None with fewer than two."""
        if self.first_token is None or self.last_token is None:
            return None
        if self.output_tokens < 2:
            return None
        return (self.last_token - self.first_token) / (self.output_tokens - 1)

    @property
    def e2e(self) -> float:
        """Seconds from the gateway's first byte to the end, whatever it was."""
        return self.ended - self.request.arrival

    def _since(self, begin: float) -> float | None:
        return None if self.first_token is None else self.first_token - begin

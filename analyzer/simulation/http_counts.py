"""What vLLM's API server counts of HTTP requests, by prometheus-fastapi-instrumentator.

An answer counts when it is over, under the status it began with: a client that left
in the middle is among the 2xx (seen in vLLM 0.32).
"""

from __future__ import annotations

from analyzer.capacity.metrics import Buckets
from analyzer.capacity.outcome import Outcome, Status

# The bounds of prometheus-fastapi-instrumentator 7.
FINE = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5),
    *(4.0, 4.5, 5.0, 7.5, 10.0, 30.0, 60.0),
)
COARSE = (0.1, 0.5, 1.0)
BYTES_PER_TOKEN = 5.0
REQUEST_BYTES = 300.0  # of a question's JSON beside the prompt
_STATUS = {Status.REJECTED: "5xx", Status.INVALID: "4xx"}


class HttpCounts:
    """Answers of one API server, by status and by duration."""

    def __init__(self) -> None:
        self.answers: dict[str, int] = {}
        self.request_bytes = 0.0
        self.fine = Buckets(FINE)
        self.coarse = Buckets(COARSE)

    def count(self, outcome: Outcome) -> None:
        """Counts an answer that is over."""
        status = _STATUS.get(outcome.status, "2xx")
        self.answers[status] = self.answers.get(status, 0) + 1
        self.request_bytes += REQUEST_BYTES
        self.request_bytes += BYTES_PER_TOKEN * outcome.request.prompt_tokens
        begin = outcome.forwarded or outcome.request.arrival
        self.fine.observe(outcome.ended - begin)
        self.coarse.observe(outcome.ended - begin)

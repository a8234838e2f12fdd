"""One request inside an engine: how far it is, what it holds, and when it moved."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from analyzer.capacity.workload import Request

if TYPE_CHECKING:
    from analyzer.capacity.blocks import Copy

NEVER = -math.inf


class Sequence:
    """The mutable state of a request that an engine has accepted.

    Tokens: `total` are known (prompt and generated), `computed` have their keys and
    values in the cache or in a step under way, `pending` are outputs still to come
    from steps under way (asynchronous scheduling), `drafts` are guessed a step.
    Times are in seconds; what has not happened yet is −Inf.
    """

    __slots__ = (
        "arrived",
        "blocks",
        "cached",
        "computed",
        "decoding",
        "drafts",
        "end",
        "first_token",
        "last_token",
        "limit",
        "max_gap",
        "named",
        "pending",
        "preemptions",
        "prefix_blocks",
        "prompt",
        "queued",
        "reported_preemptions",
        "request",
        "scheduled",
        "shared",
        "slots",
        "stop",
        "total",
    )

    def __init__(
        self, request: Request, *, arrived: float, max_model_len: int, block_size: int
    ) -> None:
        """Raises ValueError when the prompt leaves no room for an answer."""
        room = max_model_len - request.prompt_tokens
        if room < 1:
            raise ValueError(
                f"{request.prompt_tokens} prompt tokens of {max_model_len} at most"
            )
        allowed = min(room, request.max_tokens or request.output_tokens)
        wanted = min(allowed, request.output_tokens)
        leaves_after = request.leaves_after or wanted
        self.request = request
        self.prompt = request.prompt_tokens
        self.total = request.prompt_tokens
        # Where the engine surely stops (max_tokens), whatever the model wants.
        self.limit = request.prompt_tokens + allowed
        # Where the answer is complete, and where that or the client's leaving happens.
        self.stop = request.prompt_tokens + wanted
        self.end = request.prompt_tokens + min(wanted, leaves_after)
        self.computed = 0
        self.pending = 0
        self.drafts = 0
        self.decoding = False  # its prompt is computed, or under way to be
        self.named = 0  # tokens that were known when drafts were last computed on
        self.blocks = 0
        self.slots = 0  # tokens that the blocks have room for
        self.prefix_blocks = 0
        if request.prefix is not None:
            self.prefix_blocks = request.prefix_tokens // block_size
        self.shared: list[Copy] = []  # its blocks that belong to the prefix
        self.cached = 0  # prompt tokens found in the cache at the first admission
        self.preemptions = 0
        self.reported_preemptions = 0
        self.arrived = arrived
        self.queued = NEVER  # when the engine took it from the API server
        self.scheduled = NEVER
        self.first_token = NEVER
        self.last_token = NEVER
        self.max_gap = 0.0

    @property
    def generated(self) -> int:
        """The number of tokens that the client was sent."""
        return self.total - self.prompt

    @property
    def finish_reason(self) -> str:
        """Returns vLLM's word for how a complete answer ended: stop or length."""
        return "length" if self.stop >= self.limit else "stop"

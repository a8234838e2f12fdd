"""A replica's settings: vLLM's options that decide about capacity, and the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from analyzer.capacity.costs import StepCosts


@dataclass(frozen=True, slots=True)
class Speculation:
    """Draft tokens a step, and how likely each is accepted if those before were.

    `acceptance` has one probability a position; a single one holds for all.
    """

    draft_tokens: int
    acceptance: Sequence[float]

    def __post_init__(self) -> None:
        if self.draft_tokens < 1 or len(self.acceptance) not in (1, self.draft_tokens):
            raise ValueError(f"one acceptance, or one for each draft token: {self}")

    def accepted(self, rng: Random, drafts: int) -> int:
        """Returns how many of *drafts* tokens the model agrees with."""
        last = len(self.acceptance) - 1
        for position in range(drafts):
            if rng.random() >= self.acceptance[min(position, last)]:
                return position
        return drafts


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """vLLM's settings of the same names, with its defaults where there are any.

    `asynchronous` schedules the next step before the current one has ended, as vLLM
    does by default on GPUs. Raises ValueError for settings vLLM refuses to start with.
    """

    num_blocks: int
    block_size: int = 16
    max_model_len: int = 8192
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    long_prefill_token_threshold: int = 0
    prefix_caching: bool = True
    reserve_full_prompt: bool = True  # scheduler_reserve_full_isl
    watermark: float = 0.0
    asynchronous: bool = False
    speculation: Speculation | None = None

    def __post_init__(self) -> None:
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError("max_num_batched_tokens is less than max_num_seqs")
        drafts = self.speculation.draft_tokens if self.speculation else 0
        if self.max_num_batched_tokens <= drafts:
            # vLLM starts, and then never admits who has one token to compute.
            raise ValueError("max_num_batched_tokens leaves no room for the drafts")
        if (self.num_blocks - 1) * self.block_size < self.max_model_len:
            raise ValueError("the KV cache cannot hold one request of max_model_len")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """A replica's settings; the queue limits are those of vLLM's API server.

    `frontend_seconds` of the API server go to each request, one after the other,
    before the engine can see it (tokenising, passing on). `jitter` is the deviation
    of the logarithm of a step's time.
    """

    scheduler: SchedulerConfig
    costs: StepCosts
    frontend_seconds: float = 0.0
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    jitter: float = 0.0

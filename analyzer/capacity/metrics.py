"""vLLM's own metrics of one replica, counted when and as vLLM 0.32 counts them.

What that means, and where it misleads: TTFT and prompt tokens count at the first
token; everything else about a request only when it is complete, so a client that
leaves is in the tokens and the TTFT but in no other histogram. A preemption counts
when its victim is heard of again. A wait after a preemption is not queue time. The
TPOT of one token is 0.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

from analyzer.capacity.scheduler import Scheduler
from analyzer.capacity.sequence import Sequence
from analyzer.capacity.settings import SchedulerConfig
from analyzer.histogram import Histogram

# The default bounds of vLLM 0.32 (vllm/v1/metrics/buckets.py).
LATENCY = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0),
    *(60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5),
    *(5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
ITL = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0),
    *(7.5, 10.0, 20.0, 40.0, 80.0),
)
ITERATION_TOKENS = (1.0, *(8.0 * 2**n for n in range(12)))
PARAMS_N = (1.0, 2.0, 5.0, 10.0, 20.0)
PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)


def token_bounds(max_model_len: int) -> tuple[float, ...]:
    """Returns the bounds of token counts: 1, 2, 5, 10 … up to the model's length."""
    series = (float(m * 10**e) for e in range(12) for m in (1, 2, 5))
    return tuple(bound for bound in series if bound <= max_model_len)


class Buckets:
    """A histogram that is being filled. Bounds are inclusive, +Inf is implied."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Counts *value* as often as said."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(self.counts)

    def histogram(self) -> Histogram:
        """Returns the state of this moment, with cumulative counts."""
        counts = tuple(map(float, accumulate(self.counts)))
        return Histogram((*self.bounds, math.inf), counts, self.sum)


class EngineMetrics:
    """The values behind a replica's exposition (`analyzer.capacity.families`)."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self.running = 0
        self.waiting = 0
        self.kv_cache_usage = 0.0
        self.prefix_cache_queries = 0
        self.prefix_cache_hits = 0
        self.preemptions = 0
        self.prompt_tokens = 0
        self.prompt_tokens_cached = 0
        self.generation_tokens = 0
        self.drafts = 0
        self.draft_tokens = 0
        self.accepted_tokens = 0
        speculation = config.speculation
        self.accepted_by_position = [0] * (
            speculation.draft_tokens if speculation else 0
        )
        reasons = ("stop", "length", "abort", "error", "repetition")
        self.finish_reasons = dict.fromkeys(reasons, 0)
        self.rejections = {"max_num_queued_reqs": 0, "max_num_queued_tokens": 0}
        tokens = token_bounds(config.max_model_len)
        self.request_prompt_tokens = Buckets(tokens)
        self.request_generation_tokens = Buckets(tokens)
        self.iteration_tokens = Buckets(ITERATION_TOKENS)
        self.request_max_num_generation_tokens = Buckets(tokens)
        self.request_params_n = Buckets(PARAMS_N)
        self.request_params_max_tokens = Buckets(tokens)
        self.time_to_first_token = Buckets(TTFT)
        self.inter_token_latency = Buckets(ITL)
        self.time_per_output_token = Buckets(ITL)
        self.e2e_latency = Buckets(LATENCY)
        self.queue_time = Buckets(LATENCY)
        self.inference_time = Buckets(LATENCY)
        self.prefill_time = Buckets(LATENCY)
        self.decode_time = Buckets(LATENCY)
        self.request_preemptions = Buckets(PREEMPTIONS)
        self.request_prefill_kv_computed_tokens = Buckets(tokens)
        self._prefilled = 0  # prompt tokens of the first outputs of this step

    def first_token(self, sequence: Sequence, now: float) -> None:
        """Counts what is known with the first token of *sequence*."""
        self.prompt_tokens += sequence.prompt
        self.prompt_tokens_cached += sequence.cached
        self._prefilled += sequence.prompt - sequence.cached
        self.time_to_first_token.observe(now - sequence.arrived)

    def speculated(self, drafts: int, accepted: int) -> None:
        """Counts one sequence's *drafts* of a step, of which some were *accepted*."""
        self.drafts += 1
        self.draft_tokens += drafts
        self.accepted_tokens += accepted
        for position in range(accepted):
            self.accepted_by_position[position] += 1

    def finished(self, sequence: Sequence, now: float) -> None:
        """Counts a complete answer, whose last token came *now*."""
        tokens = sequence.generated
        decode = sequence.last_token - sequence.first_token
        self.finish_reasons[sequence.finish_reason] += 1
        self.request_prompt_tokens.observe(sequence.prompt)
        self.request_generation_tokens.observe(tokens)
        self.request_max_num_generation_tokens.observe(tokens)
        self.request_params_n.observe(1)
        asked = sequence.request.max_tokens or sequence.limit - sequence.prompt
        self.request_params_max_tokens.observe(asked)
        self.time_per_output_token.observe(decode / (tokens - 1) if tokens > 1 else 0.0)
        self.e2e_latency.observe(now - sequence.arrived)
        self.queue_time.observe(sequence.scheduled - sequence.queued)
        self.inference_time.observe(sequence.last_token - sequence.scheduled)
        self.prefill_time.observe(sequence.first_token - sequence.scheduled)
        self.decode_time.observe(decode)
        self.request_preemptions.observe(sequence.preemptions)
        computed = sequence.prompt - sequence.cached
        self.request_prefill_kv_computed_tokens.observe(computed)

    def observe_step(self, generated: int) -> None:
        """Counts the end of a step with this many new tokens; one without is silent."""
        if generated:
            self.generation_tokens += generated
            self.iteration_tokens.observe(self._prefilled + generated)
            self._prefilled = 0

    def observe_queues(self, scheduler: Scheduler) -> None:
        """Sets the gauges to the scheduler's state of this moment."""
        self.running = len(scheduler.running)
        self.waiting = len(scheduler.waiting)
        self.kv_cache_usage = scheduler.pool.usage
        self.prefix_cache_queries = scheduler.prefix_queries
        self.prefix_cache_hits = scheduler.prefix_hits

"""One replica: its API server, its scheduler, and the steps that take time.

A discrete-event simulation: `due` says when something happens next, and `step` lets
it happen. As in vLLM, the engine listens to the world only between two steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from analyzer.capacity.frontend import Frontend
from analyzer.capacity.metrics import EngineMetrics
from analyzer.capacity.outcome import Outcome, Status
from analyzer.capacity.scheduler import Batch, Scheduler
from analyzer.capacity.sequence import NEVER, Sequence
from analyzer.capacity.settings import EngineConfig
from analyzer.capacity.workload import Request


@dataclass(slots=True)
class Work:
    """What an engine has done since its start; `busy` is the seconds in steps."""

    steps: int = 0
    busy: float = 0.0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    kv_tokens: int = 0
    prefill_pairs: float = 0.0


class Engine:
    """A running replica. The same seed and the same requests give the same run."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        replica: int = 0,
        seed: int = 0,
        start: float = 0.0,
    ) -> None:
        self.config = config
        self.replica = replica
        self.started = start
        self.frontend = Frontend(config, start=start)
        self.scheduler = Scheduler(config.scheduler)
        self.metrics = EngineMetrics(config.scheduler)
        self.work = Work()
        self.due = math.inf
        self._rng = Random(seed)  # noqa: S311 - simulated chance, no secret
        self._depth = 2 if config.scheduler.asynchronous else 1
        self._step_end = math.inf
        self._last_end = math.nan  # equal to nothing

    def submit(self, request: Request, now: float) -> Outcome | None:
        """Takes a request in at *now*; returns an outcome if it is turned away.

        Raises ValueError when its number is that of a request under way.
        """
        status, reason = Status.REJECTED, self.frontend.full()
        if reason:
            self.metrics.rejections[reason] += 1
        elif request.prompt_tokens >= self.config.scheduler.max_model_len:
            status, reason = Status.INVALID, "max_model_len"
        if reason:
            return Outcome(
                request, status, now, self.replica, forwarded=now, reason=reason
            )
        self.frontend.accept(request, now)
        if not self.scheduler.under_way:
            self.due = self.frontend.next_ready
        return None

    def step(self) -> list[Outcome]:
        """Lets happen what is due at `due`, and returns the requests that ended by it.

        That is the end of a step and the begin of the next one.
        """
        now = self.due
        scheduler = self.scheduler
        outcomes = []
        # vLLM hears of clients that left before it looks at a step's outputs: those
        # are lost.
        for at, sequence in self.frontend.left(now):
            if sequence.queued != NEVER:
                scheduler.abort(sequence)
            outcomes.append(self._outcome(sequence, Status.LEFT, at))
        if scheduler.under_way and self._step_end <= now:
            batch = scheduler.under_way.popleft()
            self._step_end = math.inf
            outcomes += self._deliver(batch, now)
            self._last_end = now
        scheduler.waiting.extend(self.frontend.ready(now))
        while len(scheduler.under_way) < self._depth and scheduler.schedule(now):
            pass
        if not scheduler.under_way:
            self.metrics.observe_queues(scheduler)
            self.due = self.frontend.next_ready
        else:
            if math.isinf(self._step_end):
                self._begin(scheduler.under_way[0], now)
            self.due = self._step_end
        return outcomes

    def _begin(self, batch: Batch, now: float) -> None:
        """Starts the step that computes *batch*."""
        costs = self.config.costs
        seconds = costs.seconds(
            prefill_tokens=batch.prefill_tokens,
            decode_tokens=batch.decode_tokens,
            kv_tokens=batch.kv_tokens,
            prefill_pairs=batch.prefill_pairs,
        )
        if self.config.jitter:
            seconds *= math.exp(self._rng.gauss(0.0, self.config.jitter))
        self._step_end = now + seconds
        work = self.work
        work.steps += 1
        work.busy += seconds
        work.prefill_tokens += batch.prefill_tokens
        work.decode_tokens += batch.decode_tokens
        work.kv_tokens += batch.kv_tokens
        work.prefill_pairs += batch.prefill_pairs

    def _deliver(self, batch: Batch, now: float) -> list[Outcome]:
        """Gives the outputs of *batch* out at *now*, and counts them."""
        if batch.drafts or batch.stale:
            generated, ended = self._deliver_some(batch, now)
        else:
            generated, ended = self._deliver_one_each(batch, now)
        outcomes = []
        finished = []
        for sequence in ended:
            if sequence.total == sequence.stop:
                finished.append(sequence)
                self.frontend.remove(sequence)
                self.metrics.finished(sequence, now)
                outcomes.append(self._outcome(sequence, Status.COMPLETE, now))
            else:
                self.frontend.hang_up(sequence, now)
        if finished:
            self.scheduler.finish(finished)
        self.metrics.observe_step(generated)
        self.metrics.observe_queues(self.scheduler)
        return outcomes

    def _deliver_one_each(self, batch: Batch, now: float) -> tuple[int, list[Sequence]]:
        """Gives each sequence one token; returns their number, and who is through."""
        last_end = self._last_end
        gap = now - last_end
        asynchronous = self.config.scheduler.asynchronous
        ended = []
        on_time = 0
        for sequence in batch.outputs:
            total = sequence.total + 1
            sequence.total = total
            if asynchronous:
                sequence.pending -= 1
            if sequence.last_token == last_end:
                on_time += 1
                if gap > sequence.max_gap:  # noqa: PLR1730 - max() costs a call
                    sequence.max_gap = gap
                sequence.last_token = now
            else:
                self._hear_from(sequence, now)
            if total == sequence.end:
                ended.append(sequence)
        if on_time:
            self.metrics.inter_token_latency.observe(gap, on_time)
        return len(batch.outputs), ended

    def _hear_from(self, sequence: Sequence, now: float) -> None:
        """Counts the first output of *sequence*, or the first after a longer gap."""
        if sequence.first_token == NEVER:
            sequence.first_token = now
            self.frontend.prefilled(sequence)
            self.metrics.first_token(sequence, now)
        else:
            gap = now - sequence.last_token
            sequence.max_gap = max(sequence.max_gap, gap)
            self.metrics.inter_token_latency.observe(gap)
        sequence.last_token = now
        self.metrics.preemptions += sequence.preemptions - sequence.reported_preemptions
        sequence.reported_preemptions = sequence.preemptions

    def _deliver_some(self, batch: Batch, now: float) -> tuple[int, list[Sequence]]:
        """Like `_deliver_one_each`, for drafts and for those preempted meanwhile."""
        speculation = self.config.scheduler.speculation
        asynchronous = self.config.scheduler.asynchronous
        drafts = batch.drafts or [0] * len(batch.outputs)
        entries = [(s, n, False) for s, n in zip(batch.outputs, drafts, strict=True)]
        entries += [(sequence, guessed, True) for sequence, guessed in batch.stale]
        ended = []
        generated = 0
        for sequence, guessed, stale in entries:
            accepted = 0
            if guessed and speculation:
                if sequence not in batch.padded:
                    accepted = speculation.accepted(self._rng, guessed)
                self.metrics.speculated(guessed, accepted)
            if not stale:
                sequence.computed -= guessed - accepted
                if asynchronous:
                    sequence.pending -= 1 + guessed
            tokens = min(1 + accepted, sequence.stop - sequence.total)
            sequence.total += tokens
            generated += tokens
            self._hear_from(sequence, now)
            if sequence.total >= sequence.end:
                ended.append(sequence)
        return generated, ended

    def stop(self, now: float) -> list[Outcome]:
        """Ends the process at *now*: every request under way is broken off."""
        outcomes = [
            self._outcome(sequence, Status.BROKEN, now)
            for sequence in self.frontend.unfinished.values()
        ]
        self.frontend.unfinished.clear()
        self.due = math.inf
        return outcomes

    def _outcome(self, sequence: Sequence, status: Status, ended: float) -> Outcome:
        return Outcome(
            sequence.request,
            status,
            ended,
            self.replica,
            forwarded=sequence.arrived,
            queued=_known(sequence.queued),
            scheduled=_known(sequence.scheduled),
            first_token=_known(sequence.first_token),
            last_token=_known(sequence.last_token),
            max_gap=sequence.max_gap,
            output_tokens=sequence.generated,
            cached_tokens=sequence.cached,
            preemptions=sequence.preemptions,
            reason=sequence.finish_reason if status is Status.COMPLETE else "",
        )


def _known(moment: float) -> float | None:
    return None if moment == NEVER else moment

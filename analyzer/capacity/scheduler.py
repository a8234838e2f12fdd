"""What vLLM's V1 scheduler does in one step: who computes how many tokens, and who not.

The rules are those of `vllm/v1/core/sched/scheduler.py` in 0.32, policy `fcfs`:

- The running requests come first, in the order of their admission; each wants all
  tokens it has not computed, a decode one token (and its drafts), within the budget.
- A running request that finds no free block preempts the newest running one, and in
  the end itself. The victim loses its blocks and goes to the front of the queue; its
  tokens, generated ones included, are computed again later.
- Only in a step without preemption do waiting requests follow, strictly in order,
  while `max_num_seqs`, the budget and the blocks for their whole prompt allow it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Items

from analyzer.capacity.blocks import BlockPool
from analyzer.capacity.sequence import NEVER, Sequence
from analyzer.capacity.settings import SchedulerConfig


class Batch:
    """One step's work.

    `outputs` are the sequences that get tokens at its end, with their `drafts` when
    there is speculation; `stale` ones were preempted meanwhile and get theirs too.
    `padded` ones were admitted with drafts that guess nothing. `resuming` says that a
    request went on with its prompt.
    """

    __slots__ = (
        "decode_tokens",
        "drafts",
        "kv_tokens",
        "outputs",
        "padded",
        "prefill_pairs",
        "prefill_tokens",
        "resuming",
        "stale",
    )

    def __init__(self) -> None:
        self.outputs: list[Sequence] = []
        self.drafts: list[int] = []
        self.stale: list[tuple[Sequence, int]] = []
        self.padded: list[Sequence] = []
        self.resuming = False
        self.prefill_tokens = 0  # of prompts, and of what preemption made forget
        self.decode_tokens = 0  # sequences that go on, and their draft tokens
        self.kv_tokens = 0  # read from the cache
        self.prefill_pairs = 0.0  # of a prefill token and a token it attends to

    @property
    def tokens(self) -> int:
        """The tokens computed, which never exceed the budget."""
        return self.prefill_tokens + self.decode_tokens


class Scheduler:
    """The waiting queue, the running batch, and the blocks they compete for."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self.pool = BlockPool(
            config.num_blocks, config.block_size, caching=config.prefix_caching
        )
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.under_way: deque[Batch] = deque()
        self.preemptions = 0
        self.prefix_queries = 0  # tokens looked up, and found, at first admissions
        self.prefix_hits = 0
        self._watermark = int(config.watermark * config.num_blocks)
        speculation = config.speculation
        self._drafts = speculation.draft_tokens if speculation else 0

    def schedule(self, now: float) -> Batch | None:
        """Returns the next step's work, which is then under way; None if there is none.

        Blocks are taken and preemptions happen here; *now* becomes the time of
        admission.
        """
        batch = Batch()
        preemptions = self.preemptions
        threshold = self._threshold()
        budget = self._schedule_running(batch, threshold)
        if self.preemptions == preemptions:
            self._schedule_waiting(batch, budget, threshold, now)
        if not batch.tokens:
            return None
        self.under_way.append(batch)
        return batch

    def _threshold(self) -> int:
        """The most tokens that one prefill gets in a step."""
        limit = self.config.long_prefill_token_threshold
        if limit and len(self.running) + len(self.waiting) > 1:
            return limit
        return self.config.max_num_batched_tokens

    def _schedule_running(self, batch: Batch, threshold: int) -> int:
        """Fills *batch* from the running requests, returns the budget that is left."""
        budget = self.config.max_num_batched_tokens
        outputs = batch.outputs
        asynchronous = self.config.asynchronous
        one_each = not self._drafts
        context = decodes = 0
        # Preemption removes from the end what was not reached yet, so the iteration
        # stays in step.
        for sequence in self.running:
            computed = sequence.computed
            known = sequence.total + sequence.pending
            if one_each and sequence.decoding and budget:
                # Most of the time; kept short, since this is the hot path.
                if known >= sequence.limit:
                    continue  # the step under way surely ends it
                if known > sequence.slots and not self._make_room(sequence, known):
                    break
                sequence.computed = known
                if asynchronous:
                    sequence.pending += 1
                budget -= 1
                context += known
                decodes += 1
                outputs.append(sequence)
                continue
            wanted = self._wanted(sequence, min(threshold, budget))
            if wanted > 0:
                end = computed + wanted
                if end > sequence.slots and not self._make_room(sequence, end):
                    break
                budget -= wanted
                batch.resuming |= not sequence.decoding
                self._put(batch, sequence, wanted)
            elif not budget:
                break
        batch.decode_tokens += decodes
        batch.kv_tokens += context
        return budget

    def _wanted(self, sequence: Sequence, most: int) -> int:
        """Returns how many tokens a running request computes, *most* allowed."""
        pending, computed = sequence.pending, sequence.computed
        if pending and computed + 2 - pending >= sequence.limit:
            return 0  # the step under way surely ends it
        wanted = sequence.total + pending + sequence.drafts - computed
        if sequence.drafts:
            most = min(most, self.config.max_model_len - computed - 1)
        return min(wanted, most)

    def _make_room(self, sequence: Sequence, tokens: int) -> bool:
        """Gets blocks for *tokens*, at the cost of the newest; False when it fell."""
        pool = self.pool
        needed = -(-tokens // pool.block_size) - sequence.blocks
        while needed > pool.free:
            victim = self.running.pop()
            self._preempt(victim)
            if victim is sequence:
                return False
        pool.grow(sequence, tokens)
        return True

    def _preempt(self, victim: Sequence) -> None:
        for batch in self.under_way:
            _take_out(batch, victim, stale=True)
        self.pool.release(victim, returns=True)
        victim.computed = victim.pending = victim.drafts = 0
        victim.decoding = False
        victim.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(victim)

    def _schedule_waiting(
        self, batch: Batch, budget: int, threshold: int, now: float
    ) -> None:
        config, pool = self.config, self.pool
        block_size = config.block_size
        going_on = bool(batch.outputs) or batch.resuming
        while self.waiting and budget and len(self.running) < config.max_num_seqs:
            sequence = self.waiting[0]
            found, in_use = pool.lookup(sequence)
            cached = found * block_size
            wanted = sequence.total - cached
            padded = (
                wanted == 1
                and self._drafts > 0
                and not batch.resuming
                and (going_on or cached > 0)
                and cached + self._drafts + 2 <= config.max_model_len
            )
            if padded:
                wanted += self._drafts
                if wanted > budget:
                    break
            wanted = min(wanted, threshold, budget)
            tokens = cached + wanted
            reserved = tokens
            if config.reserve_full_prompt:
                reserved = max(reserved, sequence.total)
            spare = self._watermark if self.running else 0
            if -(-reserved // block_size) - in_use + spare > pool.free:
                break
            self._admit(sequence, found, now)
            pool.grow(sequence, tokens)
            budget -= wanted
            if padded:
                batch.padded.append(sequence)
            self._put(batch, sequence, wanted)

    def _admit(self, sequence: Sequence, found: int, now: float) -> None:
        """Makes the first of the waiting requests a running one."""
        self.waiting.popleft()
        self.running.append(sequence)
        self.pool.admit(sequence, found)
        sequence.computed = found * self.config.block_size
        if not sequence.preemptions:
            sequence.cached = sequence.computed
            if self.config.prefix_caching:
                self.prefix_queries += sequence.total
                self.prefix_hits += sequence.computed
        if sequence.scheduled == NEVER:
            sequence.scheduled = now

    def _put(self, batch: Batch, sequence: Sequence, tokens: int) -> None:
        """Adds *tokens* of *sequence* to *batch*."""
        begin = sequence.computed
        end = sequence.computed = begin + tokens
        sequence.named = min(end, sequence.total)
        batch.kv_tokens += end
        known = sequence.total + sequence.pending
        if sequence.decoding:
            batch.decode_tokens += tokens
        else:
            batch.prefill_tokens += tokens
            batch.prefill_pairs += tokens * (begin + tokens / 2)
            if sequence.prefix_blocks:
                self.pool.share(sequence)
        if end < known:
            return
        batch.outputs.append(sequence)
        sequence.decoding = True
        if self.config.asynchronous:
            sequence.pending += 1 + end - known
        if self._drafts:
            batch.drafts.append(end - known)
            sequence.drafts = self._drafts

    def abort(self, sequence: Sequence) -> None:
        """Forgets *sequence*; steps under way give it nothing any more."""
        for batch in self.under_way:
            _take_out(batch, sequence, stale=False)
        if sequence in self.running:
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)
        self.pool.release(sequence)

    def finish(self, sequences: Items[Sequence]) -> None:
        """Takes the blocks of completely answered *sequences* back."""
        gone = set(sequences)
        self.running = [s for s in self.running if s not in gone]
        for sequence in sequences:
            for batch in self.under_way:
                _take_out(batch, sequence, stale=False)
            if not sequence.blocks:  # preempted while its last token was computed
                self.waiting.remove(sequence)
            self.pool.release(sequence)


def _take_out(batch: Batch, sequence: Sequence, *, stale: bool) -> None:
    """Removes the output of *sequence* from *batch*, to its stale ones if wanted."""
    if not stale:
        batch.stale = [entry for entry in batch.stale if entry[0] is not sequence]
    if sequence not in batch.outputs:
        return
    at = batch.outputs.index(sequence)
    del batch.outputs[at]
    drafts = batch.drafts.pop(at) if batch.drafts else 0
    if stale:
        batch.stale.append((sequence, drafts))

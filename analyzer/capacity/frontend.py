"""The API server of a replica: who may come in, who is on the way, who has left."""

from __future__ import annotations

import heapq
import math
from collections import deque
from itertools import count

from analyzer.capacity.sequence import NEVER, Sequence
from analyzer.capacity.settings import EngineConfig
from analyzer.capacity.workload import Request


class Frontend:
    """Takes requests in one after the other, as a single process of Python does."""

    def __init__(self, config: EngineConfig, *, start: float) -> None:
        self.unfinished: dict[int, Sequence] = {}
        self._config = config
        self._free_from = start
        self._on_the_way: deque[tuple[float, Sequence]] = deque()
        self._leaving: list[tuple[float, int, Sequence]] = []
        self._order = count()  # of those that leave at the same moment
        self._prompt_tokens_ahead = 0  # of requests without a first token

    def full(self) -> str:
        """Returns the queue limit that turns a request away now, else nothing.

        The limits are vLLM's: on all requests that are not through, and on the
        prompt tokens of those without a first token.
        """
        most = self._config.max_num_queued_reqs
        if most is not None and len(self.unfinished) + 1 > most:
            return "max_num_queued_reqs"
        tokens = self._config.max_num_queued_tokens
        if tokens is not None and self._prompt_tokens_ahead >= tokens:
            return "max_num_queued_tokens"
        return ""

    def accept(self, request: Request, now: float) -> None:
        """Takes *request* in, so that the engine can see it a little later.

        Raises ValueError for a prompt that the model has no room for, and for the
        number of a request under way.
        """
        if request.number in self.unfinished:
            raise ValueError(f"request {request.number} is under way already")
        scheduler = self._config.scheduler
        sequence = Sequence(
            request,
            arrived=now,
            max_model_len=scheduler.max_model_len,
            block_size=scheduler.block_size,
        )
        self.unfinished[request.number] = sequence
        self._prompt_tokens_ahead += sequence.prompt
        self._free_from = max(now, self._free_from) + self._config.frontend_seconds
        self._on_the_way.append((self._free_from, sequence))
        if math.isfinite(request.patience):
            self.hang_up(sequence, request.arrival + request.patience)

    @property
    def next_ready(self) -> float:
        """When the next request can go to the engine, infinite if there is none."""
        return self._on_the_way[0][0] if self._on_the_way else math.inf

    def ready(self, now: float) -> list[Sequence]:
        """Returns the requests that go to the engine by *now*, in their order."""
        taken = []
        while self.next_ready <= now:
            sequence = self._on_the_way.popleft()[1]
            sequence.queued = now
            taken.append(sequence)
        return taken

    def hang_up(self, sequence: Sequence, at: float) -> None:
        """Notes that the client of *sequence* leaves at *at*, if it is still there."""
        heapq.heappush(self._leaving, (at, next(self._order), sequence))

    def left(self, now: float) -> list[tuple[float, Sequence]]:
        """Returns the requests whose clients have left by *now*, and when they did.

        They are forgotten here; the engine may still work for them.
        """
        gone = []
        while self._leaving and self._leaving[0][0] <= now:
            at, _, sequence = heapq.heappop(self._leaving)
            if self.unfinished.get(sequence.request.number) is not sequence:
                continue
            if sequence.queued == NEVER:
                rest = (entry for entry in self._on_the_way if entry[1] is not sequence)
                self._on_the_way = deque(rest)
            self.remove(sequence)
            gone.append((at, sequence))
        return gone

    def remove(self, sequence: Sequence) -> None:
        """Forgets a request that is through, or whose client is gone."""
        del self.unfinished[sequence.request.number]
        if sequence.first_token == NEVER:
            self._prompt_tokens_ahead -= sequence.prompt

    def prefilled(self, sequence: Sequence) -> None:
        """Notes that *sequence* is about to have its first token."""
        self._prompt_tokens_ahead -= sequence.prompt

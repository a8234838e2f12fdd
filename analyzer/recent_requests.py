"""The latest requests of each model in a log, for what binds now."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from analyzer.gateways.record import RequestRecord
from analyzer.judgement import Judgement
from analyzer.slo import SloClass

MOST_REQUESTS = 512  # of a model, and the rest of the batch with the first of them
MOST_MODELS = 64


class Judged(NamedTuple):
    """A request that counts, with what was said of it under its class."""

    record: RequestRecord
    judgement: Judgement
    slo_class: SloClass


@dataclass(slots=True)
class _Kept:
    """Batches of one class each, oldest first, and how many requests they hold."""

    batches: deque[tuple[list[RequestRecord], list[Judgement], SloClass]]
    number: int = 0


class RecentRequests:
    """Keeps the last requests of each model, bounded in number.

    It holds what the log's reader has at hand and computes nothing: thousands come a
    second, and they are looked at when an engine is diagnosed.
    """

    def __init__(self) -> None:
        self._models: dict[str, _Kept] = {}

    def add(
        self,
        model: str,
        records: list[RequestRecord],
        judgements: list[Judgement],
        slo_class: SloClass,
    ) -> None:
        """Takes over requests of one class that were counted, oldest first.

        The lists are no longer the caller's.
        """
        kept = self._models.get(model)
        if kept is None:
            if len(self._models) >= MOST_MODELS:
                return
            kept = self._models[model] = _Kept(deque())
        kept.batches.append((records, judgements, slo_class))
        kept.number += len(records)
        while kept.number - len(kept.batches[0][0]) >= MOST_REQUESTS:
            kept.number -= len(kept.batches.popleft()[0])

    def ended(self, model: str, begin: float, end: float) -> Iterator[Judged]:
        """Yields the requests of *model* that ended after *begin* and up to *end*.

        One whose log does not tell when it was is left out.
        """
        kept = self._models.get(model)
        for records, judgements, slo_class in kept.batches if kept else ():
            for record, judgement in zip(records, judgements, strict=True):
                if record.start is None or record.e2e is None:
                    continue
                if begin < record.start + record.e2e <= end:
                    yield Judged(record, judgement, slo_class)

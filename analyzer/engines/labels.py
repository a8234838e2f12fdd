"""The label values of an engine's series, each held to a limit of distinct ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from analyzer.config import Limits
from analyzer.engines import vllm
from analyzer.engines.vllm import Metric
from analyzer.labels import LabelCap
from analyzer.snapshot import Group

RANK = "rank"
# label of the engine's metrics → ours
_SHOWN_AS = {"reason": "reason", "finished_reason": "reason", "source": "source"}
COUNTED = (RANK, *dict.fromkeys(_SHOWN_AS.values()))


class EngineLabels:
    """Admits what one engine's pages name: models, ranks, reasons and the like.

    *admit* gives the label value of a model, whose places all engines share. The
    rest has its places here, so that one engine's page cannot take another's.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        admit: Callable[[str], str] = lambda model: model,
    ) -> None:
        known = limits or Limits()
        self.admit = admit
        self._ranks = LabelCap(known.ranks)
        self._own = {
            metric.signal: (metric, LabelCap(known.label_values, metric.values))
            for metric in vllm.METRICS
            if metric.label
        }

    def configure(self, limits: Limits) -> None:
        """Takes over other limits; what is in stays in."""
        self._ranks.reserve((), limits.ranks)
        for metric, cap in self._own.values():
            cap.reserve(metric.values, limits.label_values)

    def group(self, metric: Metric, model: str, rank: str, extra: str) -> Group:
        """Returns the group under which a series of *metric* is kept."""
        return Group(
            metric.signal,
            self.admit(model),
            self._ranks.admit(rank) if rank else "",
            self._own[metric.signal][1].admit(extra) if extra else "",
        )

    def expect(self, signal: str, values: Iterable[str]) -> None:
        """Gives places to *values* of the signal's own label: totals hold them."""
        _, cap = self._own[signal]
        for value in values:
            cap.admit(value)

    def take_dropped(self) -> Mapping[str, int]:
        """Returns, by our label, how many series went to `other` since the last call.

        Without models, which are counted where their places are.
        """
        dropped = Counter({RANK: self._ranks.take_dropped()})
        for metric, cap in self._own.values():
            times = cap.take_dropped()
            if metric.label in _SHOWN_AS:
                dropped[_SHOWN_AS[metric.label]] += times
        return dropped

"""All ranks of one engine under diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from analyzer.config_sources import EngineSource
from analyzer.diagnosis.hops import Hops
from analyzer.diagnosis.observe import interval, knobs
from analyzer.diagnosis.rank import Context, RankDiagnosis
from analyzer.diagnosis.situation import GpuActivity
from analyzer.engines.reading import EngineReading
from analyzer.goodput import Marginal
from analyzer.slo import SloClass
from analyzer.snapshot import Group, Increase, Reset
from analyzer.verdict import Verdict

Rank = tuple[str, str]  # model, data-parallel rank


class Diagnosis:
    """Takes in an engine's pages; `ranks` holds what is known of each rank.

    `gpu` is the activity of the engine's GPUs, None when none is known to be its own,
    `hops` by model what gateways saw of its requests. Both are set from outside.
    """

    def __init__(self) -> None:
        self.ranks: dict[Rank, RankDiagnosis] = {}
        self.gpu: GpuActivity | None = None
        self.hops: Mapping[str, Hops] = {}

    def observe(
        self,
        reading: EngineReading,
        grown: Increase,
        *,
        source: EngineSource,
        marginals: Mapping[str, Mapping[str, Marginal]],
        class_of: Callable[[str], SloClass | None],
    ) -> dict[Rank, Verdict]:
        """Returns the verdict on each rank after *grown*, whose end *reading* shows.

        *marginals* has, by model, the events of each criterion in it.
        """
        if grown.reset is not Reset.NONE:
            self.ranks.clear()
        if grown.seconds <= 0:
            return self.verdicts()
        signals = frozenset(reading.names)
        for gone in self.ranks.keys() - set(reading.ranks):
            del self.ranks[gone]
        for model, rank in reading.ranks:
            told = reading.gauges.get(Group("max_num_seqs", model, rank))
            config = reading.cache_config.get(rank, {})
            context = Context(
                knobs(config, source.declared, told),
                _limits(class_of(model)),
                signals,
                self.gpu,
                self.hops.get(model),
            )
            known = self.ranks.setdefault((model, rank), RankDiagnosis())
            step = interval(reading, grown, model, rank, marginals.get(model, {}))
            known.observe(step, context)
        return self.verdicts()

    def verdicts(self) -> dict[Rank, Verdict]:
        """Returns the verdicts in force; a rank just seen has none yet."""
        found = {}
        for rank, known in self.ranks.items():
            if known.verdict is not None:
                found[rank] = known.verdict
        return found


def _limits(slo_class: SloClass | None) -> dict[str, float]:
    if slo_class is None:
        return {}
    return {name: limit.seconds for name, limit in slo_class.good.items()}

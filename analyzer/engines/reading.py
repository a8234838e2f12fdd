"""What one scrape of an engine says, in canonical names and base units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from analyzer.histogram import Histogram
from analyzer.snapshot import Group, Snapshot

# Signals of the API server's process rather than of one model.
PROCESS_SIGNALS = frozenset({"http_completions"})


# Without slots, which leave no place for what is worked out once: whoever reads a
# page asks for each of its models and ranks in turn, and a page may have many.
@dataclass(frozen=True)
class EngineReading:
    """One scrape: cumulative series, gauges, configuration labels, and gaps.

    *names* maps each canonical signal found to the engine's own metric name; a
    signal that is not in it was not on the page. *prefix* is the spelling of the
    engine's names, None when the page has no engine series. *frontend* says that
    the page is that of a vLLM API server, with or without engine series.
    """

    snapshot: Snapshot
    gauges: Mapping[Group, float] = field(default_factory=dict)
    cache_config: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    prefix: str | None = None
    frontend: bool = False

    @cached_property
    def models(self) -> tuple[str, ...]:
        """The models on the page, sorted."""
        return tuple(self._ranks)

    @cached_property
    def ranks(self) -> tuple[tuple[str, str], ...]:
        """The (model, data-parallel rank) pairs that have series, sorted."""
        return tuple((m, r) for m, ranks in self._ranks.items() for r in ranks)

    def ranks_of(self, model: str) -> tuple[str, ...]:
        """Returns the data-parallel ranks of *model* that have series, sorted."""
        return self._ranks.get(model, ())

    def gauge(self, signal: str, model: str, rank: str | None = None) -> float | None:
        """Returns a gauge, summed over the ranks if none is given; None when absent."""
        return self._gauge_sums.get((signal, model, rank))

    def counter(self, signal: str, model: str) -> float | None:
        """Returns a counter since its process began, over all ranks and labels."""
        return self._counter_sums.get((signal, model))

    def histograms(self, signal: str, model: str) -> Sequence[Histogram]:
        """Returns a histogram since its process began, of each rank and replica."""
        return self._histograms.get((signal, model), ())

    @cached_property
    def _ranks(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, set[str]] = {}
        for group in self._groups():
            if group.signal not in PROCESS_SIGNALS:
                ranks = found.setdefault(group.model, set())
                if group.rank:
                    ranks.add(group.rank)
        return {model: tuple(sorted(found[model])) for model in sorted(found)}

    @cached_property
    def _gauge_sums(self) -> Mapping[tuple[str, str, str | None], float]:
        sums: dict[tuple[str, str, str | None], float] = {}
        for group, value in self.gauges.items():
            for rank in (group.rank, None):
                key = (group.signal, group.model, rank)
                sums[key] = sums.get(key, 0.0) + value
        return sums

    @cached_property
    def _counter_sums(self) -> Mapping[tuple[str, str], float]:
        sums: dict[tuple[str, str], float] = {}
        for key, value in self.snapshot.counters.items():
            name = (key.group.signal, key.group.model)
            sums[name] = sums.get(name, 0.0) + value
        return sums

    @cached_property
    def _histograms(self) -> Mapping[tuple[str, str], Sequence[Histogram]]:
        found: dict[tuple[str, str], list[Histogram]] = {}
        for key, histogram in self.snapshot.histograms.items():
            name = (key.group.signal, key.group.model)
            found.setdefault(name, []).append(histogram)
        return found

    def _groups(self) -> Iterator[Group]:
        yield from self.gauges
        for key in self.snapshot.counters:
            yield key.group
        for key in self.snapshot.histograms:
            yield key.group

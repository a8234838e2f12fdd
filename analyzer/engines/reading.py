"""What one scrape of an engine says, in canonical names and base units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from analyzer.snapshot import Group, Snapshot


@dataclass(frozen=True, slots=True)
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

    @property
    def models(self) -> tuple[str, ...]:
        """The models on the page, sorted."""
        found = {g.model for g in self._groups() if g.signal not in PROCESS_SIGNALS}
        return tuple(sorted(found))

    def ranks(self, model: str) -> tuple[str, ...]:
        """The data-parallel ranks of *model* that have series, sorted."""
        found = {g.rank for g in self._groups() if g.model == model and g.rank}
        return tuple(sorted(found))

    def gauge(
        self, signal: str, model: str, rank: str | None = None, extra: str | None = None
    ) -> float | None:
        """Returns a gauge, summed over what is left open; None when absent."""
        found = [
            value
            for group, value in self.gauges.items()
            if group.signal == signal
            and group.model == model
            and rank in (None, group.rank)
            and extra in (None, group.extra)
        ]
        return sum(found) if found else None

    def _groups(self) -> Iterator[Group]:
        yield from self.gauges
        for key in self.snapshot.counters:
            yield key.group
        for key in self.snapshot.histograms:
            yield key.group


# Signals of the API server's process rather than of one model.
PROCESS_SIGNALS = frozenset({"http_completions"})

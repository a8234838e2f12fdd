"""All engines of a configuration: named or found, sampled, and remembered."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from analyzer.catalogue import DISCOVERY_FAILURES
from analyzer.config import Config
from analyzer.config_sources import EngineSource
from analyzer.flow import EngineFlow, Memory
from analyzer.ledger import Ledger
from exporter.discovery import Discovery
from exporter.sampler import Sampler
from exporter.target import LookAround, Target

FAILURES = "goodput_discovery_failures_total"


class Engines:
    """The engines in service and those that went lately; has `close()`.

    `lock` guards their flows: whoever calls holds it, for all but `start`, `discover`
    and `stop`. *memories* are those of the process before, *admit* gives the label
    value of a model, *look_around* shows an engine's diagnosis GPUs and gateways.
    *changed* is called, under the lock, when engines may have come or gone.
    """

    def __init__(
        self,
        lock: AbstractContextManager[object],
        sampler: Sampler,
        memories: Mapping[str, Memory],
        *,
        admit: Callable[[str], str],
        look_around: LookAround,
        changed: Callable[[], None],
    ) -> None:
        self._lock = lock
        self._sampler = sampler
        self._memories = dict(memories)
        self._admit = admit
        self._look_around = look_around
        self._changed = changed
        self._config = Config()
        self._targets: dict[str, Target] = {}
        self._discovery = Discovery(self._on_discovery)

    def start(self) -> None:
        """Starts discovery, and waits a moment for what it finds at once."""
        self._discovery.start()

    def apply(self, config: Config) -> None:
        """Brings the engines in line with *config*; totals go on."""
        self._config = config
        self._follow()

    def discover(self) -> None:
        """Looks for the engines of the configuration that `apply` took over."""
        self._discovery.configure(self._config.engine_groups)

    def _on_discovery(self) -> None:
        with self._lock:
            self._follow()

    def _follow(self) -> None:
        """Brings the targets in line with the configuration and with discovery."""
        now = time.time()
        sources = (*self._config.engines, *self._discovery.sources)
        wanted = {source.name for source in sources}
        for name, target in self._targets.items():
            if name not in wanted and target.retired_at is None:
                target.retire(now)
                self._sampler.forget(target.key)
        for source in sources:
            self._adopt(source, now)
        self._changed()

    def _adopt(self, source: EngineSource, now: float) -> None:
        target = self._targets.get(source.name)
        if target is None:
            flow = EngineFlow(
                source,
                self._config,
                since=now,
                admit=self._admit,
                memory=self._memories.pop(source.name, None),
            )
            target = Target(flow, self._lock, self._look_around)
            self._targets[source.name] = target
        else:
            target.configure(source, self._config, at=now)
        self._sampler.watch(target)

    def in_service(self) -> list[Target]:
        """Returns the targets that are sampled."""
        return [t for t in self._targets.values() if t.retired_at is None]

    def flows(self) -> list[EngineFlow]:
        """Returns the flows of the engines in service."""
        return [target.flow for target in self.in_service()]

    def retired(self) -> list[EngineFlow]:
        """Returns the flows of engines that went lately."""
        return [t.flow for t in self._targets.values() if t.retired_at is not None]

    def discovered(self) -> Mapping[str, int]:
        """Returns how many engines each entry with discovery stands for."""
        return self._discovery.counts

    def memories(self) -> dict[str, Memory]:
        """Returns what outlives the process."""
        kept = {name: target.flow.memory for name, target in self._targets.items()}
        return {**self._memories, **kept}

    def models(self) -> set[str]:
        """Returns the models of which something is kept."""
        kept = {m for memory in self.memories().values() for m in memory.models}
        shown = {m for t in self._targets.values() for m, _ in t.flow.ranks()}
        return kept | shown

    def aliases(self) -> dict[str, str]:
        """Returns which other names mean which served model, at any engine."""
        found: dict[str, str] = {}
        for target in self._targets.values():
            found.update(target.flow.served.aliases)
            found.update(target.flow.source.aliases)
        return found

    def take_dropped(self) -> Counter[str]:
        """Returns, by label, the series that went to `other` since the last call."""
        dropped: Counter[str] = Counter()
        for target in self._targets.values():
            dropped.update(target.flow.take_dropped())
        return dropped

    def expect_failures(self, ledger: Ledger) -> None:
        """Makes rows at 0 for the configured entries, and ends those of others."""
        entries = {group.name for group in self._config.engine_groups}
        rows = ledger.counters.get(FAILURES, {})
        for labels in [labels for labels in rows if labels[0] not in entries]:
            del rows[labels]
        for entry in entries:
            for reason in DISCOVERY_FAILURES:
                ledger.add(FAILURES, (entry, reason), 0.0)

    def count_failures(self, ledger: Ledger) -> None:
        """Adds the failures of discovery since the last call."""
        entries = {group.name for group in self._config.engine_groups}
        for (entry, reason), times in self._discovery.take_failures().items():
            if entry in entries:
                ledger.add(FAILURES, (entry, reason), times)

    def drop_retired(self, before: float, *, unclaimed: bool) -> bool:
        """Forgets what went before *before*; returns whether anything was forgotten.

        If *unclaimed*, also what is on disk and no entry has named since the start.
        An entry that could not be read yet may still name it.
        """
        gone = [
            name
            for name, target in self._targets.items()
            if target.retired_at is not None and target.retired_at < before
        ]
        for name in gone:
            del self._targets[name]
        lost: list[str] = []
        if unclaimed:
            pending = self._discovery.pending
            lost = [n for n in self._memories if n.partition("/")[0] not in pending]
        for name in lost:
            del self._memories[name]
        return bool(gone or lost)

    def stop(self) -> None:
        """Ends discovery."""
        self._discovery.close()

    def close(self) -> None:
        """Closes the connections."""
        for target in self._targets.values():
            target.close()

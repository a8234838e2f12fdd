"""All GPU exporters of a configuration: sampled, remembered, and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from analyzer.config import Config
from analyzer.config_sources import EngineSource
from analyzer.diagnosis.situation import GpuActivity
from analyzer.gpus.activity import engine_activity
from analyzer.gpus.flow import GpuFlow, GpuMemory
from exporter import gpu_rows
from exporter.gpu_rows import GpuView
from exporter.gpu_target import GpuTarget
from exporter.sampler import Sampler


class Gpus:
    """The GPU exporters in service and those that went lately; has `close()`.

    `lock` guards their flows; *memories* are those of the process before.
    """

    def __init__(
        self,
        lock: AbstractContextManager[object],
        sampler: Sampler,
        memories: Mapping[str, GpuMemory],
    ) -> None:
        self._lock = lock
        self._sampler = sampler
        self._memories = dict(memories)
        self._targets: dict[str, GpuTarget] = {}

    def apply(self, config: Config, now: float) -> None:
        """Brings the exporters in line with *config*; totals go on."""
        wanted = {source.name: source for source in config.gpus}
        for name, target in self._targets.items():
            if name not in wanted and target.retired_at is None:
                target.retire(now)
                self._sampler.forget(target.key)
        for name, source in wanted.items():
            known = self._targets.get(name)
            if known is None:
                flow = GpuFlow(source, memory=self._memories.pop(name, None))
                known = self._targets[name] = GpuTarget(flow, self._lock)
            else:
                known.configure(source)
            self._sampler.watch(known)

    def in_service(self) -> list[GpuTarget]:
        """Returns the exporters that are sampled."""
        return [t for t in self._targets.values() if t.retired_at is None]

    def flows(self) -> list[GpuFlow]:
        """Returns the flows of the exporters in service."""
        return [target.flow for target in self.in_service()]

    def activity(self, engine: EngineSource, at: float) -> GpuActivity | None:
        """Returns what is known of an engine's GPUs; to be asked under the lock."""
        return engine_activity(self.flows(), engine, at)

    def views(self, at: float) -> Sequence[GpuView]:
        """Returns every exporter as a scrape at *at* shows it."""
        gone = [t.flow for t in self._targets.values() if t.retired_at is not None]
        return gpu_rows.views(self.flows(), gone, at)

    def memories(self) -> dict[str, GpuMemory]:
        """Returns what outlives the process; to be read under the lock."""
        kept = {name: target.flow.memory for name, target in self._targets.items()}
        return {**self._memories, **kept}

    def drop_retired(self, before: float, *, unclaimed: bool) -> None:
        """Forgets what went before *before*, and what is on disk if *unclaimed*."""
        self._targets = {
            name: target
            for name, target in self._targets.items()
            if target.retired_at is None or target.retired_at >= before
        }
        if unclaimed:
            self._memories.clear()

    def close(self) -> None:
        """Closes the connections."""
        for target in self._targets.values():
            target.close()

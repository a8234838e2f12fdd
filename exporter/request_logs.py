"""All request logs of a configuration: opened, read together, and shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from analyzer.config import Config
from analyzer.config_gateways import GatewaySource
from analyzer.flow import EngineFlow
from analyzer.labels import LabelCap
from analyzer.logflow import LogFlow
from exporter.datagram import DatagramSource
from exporter.log_state import LogState
from exporter.request_log import LogMemory, RequestLog
from exporter.request_rows import LogView
from exporter.syslog import SyslogSource
from exporter.tail import Tail
from exporter.tail_batch import LineSource
from exporter.tail_position import Position
from exporter.tail_stream import StreamSource

UNFINISHED = ("error", "abort")
COVERAGE_SECONDS = 600.0
STANDARD_INPUT = "-"


class RequestLogs:
    """The logs in service; `lock` guards their totals, *aliases* maps model names."""

    def __init__(
        self,
        lock: AbstractContextManager[object],
        cap: LabelCap,
        aliases: Callable[[], Mapping[str, str]],
        memories: Mapping[str, LogMemory],
    ) -> None:
        self._lock = lock
        self._cap = cap
        self._aliases = aliases
        self._memories = dict(memories)
        self._logs: dict[str, RequestLog] = {}

    def apply(self, config: Config) -> None:
        """Brings the logs in line with *config*; totals of those that stay go on."""
        wanted = {source.name: source for source in config.gateways}
        for name in [name for name in self._logs if name not in wanted]:
            log = self._logs.pop(name)
            log.close()
            self._memories.pop(name, None)
        for source in wanted.values():
            log_known = self._logs.get(source.name)
            if log_known is not None:
                log_known.configure(source, config)
                continue
            memory = self._memories.pop(source.name, None) or LogMemory()
            for model, _ in memory.totals.rows:
                self._cap.admit(model)
            self._logs[source.name] = RequestLog(
                source,
                config,
                self._lock,
                open_source=open_source,
                flow=self._flow,
                memory=memory,
            )

    def _flow(
        self, source: GatewaySource, config: Config, memory: LogMemory
    ) -> LogFlow:
        return LogFlow(
            source,
            config,
            aliases=self._aliases,
            admit=self._cap.admit,
            admit_failed=self._cap.known,
            totals=memory.totals,
            waiting=memory.waiting,
        )

    def all(self) -> Sequence[RequestLog]:
        """Returns the logs in service."""
        return list(self._logs.values())

    def flows(self) -> list[LogFlow]:
        """Returns the flows of the logs in service."""
        return [log.flow for log in self.all()]

    def poll(self, *, seconds: float) -> None:
        """Reads every log, for about *seconds* at most each."""
        for log in self.all():
            log.poll(seconds=seconds)

    def expect(self, flows: Sequence[EngineFlow]) -> None:
        """Makes rows at 0 for the models that the engines serve."""
        models = {model for flow in flows for model, _ in flow.ranks()}
        for log in self.all():
            for model in models:
                log.flow.expect(model)

    def memories(self) -> dict[str, LogMemory]:
        """Returns what outlives the process; to be read under the lock."""
        return {
            **self._memories,
            **{name: log.kept() for name, log in self._logs.items()},
        }

    def models(self) -> set[str]:
        """Returns the models of which something is kept."""
        kept = self.memories().values()
        return {model for memory in kept for model, _ in memory.totals.rows}

    def views(self) -> list[LogView]:
        """Returns every log as a scrape shows it."""
        return [
            LogView(name, log.memory.totals, log.memory.lost, log.stats.lag_bytes)
            for name, log in self._logs.items()
        ]

    def states(self) -> list[LogState]:
        """Returns how every log fares, for the status page."""
        return [log.state() for log in self.all()]

    def close(self) -> None:
        """Closes every log."""
        for log in self._logs.values():
            log.close()


def open_source(source: GatewaySource, position: Position | None) -> LineSource:
    """Returns where a log's lines come from: a file, a socket or syslog."""
    if source.socket:
        return DatagramSource(source.socket.removeprefix("unix://"))
    if source.syslog:
        return SyslogSource(source.syslog)
    if source.path == STANDARD_INPUT:
        return StreamSource(0, framing=source.framing)
    return Tail(source.path, position=position, framing=source.framing)


def coverage(
    logs: Sequence[RequestLog], flows: Sequence[EngineFlow], at: float
) -> dict[tuple[str, ...], float]:
    """Returns, by model, the answers that logs counted over those engines finished.

    Over the last ten minutes; a model that the engines do not show has none. Above 1
    when a log also counts requests of engines that are not watched here. Failed
    requests and clients that left are no answers: engines do not finish them.
    """
    counted: dict[str, float] = {}
    for log in logs:
        for (model, _), counts in log.flow.over(COVERAGE_SECONDS, at).items():
            unfinished = sum(counts.misses.get(miss, 0.0) for miss in UNFINISHED)
            answers = counts.requests - unfinished
            counted[model] = counted.get(model, 0.0) + answers
    finished: dict[str, float] = {}
    for flow in flows:
        for model, history in flow.histories.items():
            stretch = history.over(COVERAGE_SECONDS)
            if stretch is not None:
                finished[model] = finished.get(model, 0.0) + stretch.finished
    if not logs:
        return {}
    return {
        (model,): counted.get(model, 0.0) / requests
        for model, requests in finished.items()
        if requests > 0
    }

"""One GPU exporter's way from pages to signals and totals: live and on recordings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from analyzer.catalogue import GPU_SCRAPE_FAILURES
from analyzer.config_gpus import GpuSource
from analyzer.exposition import LineError
from analyzer.gpus import derive, throttle
from analyzer.gpus.fields import Field
from analyzer.gpus.match import GpuMatch, find, on_host
from analyzer.gpus.page import GpuPage, GpuReader, RawDevice
from analyzer.gpus.reading import Device, GpuReading, Join
from analyzer.gpus.throttle import BoardCounters
from analyzer.gpus.trace import Span, Trace
from analyzer.ledger import Ledger
from analyzer.liveness import Attempt
from analyzer.signals import Signal, State, absent, present, stale

KIND = "gpu"
THROTTLED = "goodput_gpu_throttled_seconds_total"
KEPT_SECONDS = 300.0  # of a GPU that is no longer on the page
MAX_BOARDS = 2048
STALE_AFTER_SECONDS = 10.0
STALE_INTERVALS = 3
MAX_JOINS = 4096  # remembered until the next page


@dataclass(slots=True)
class GpuMemory:
    """What of a flow outlives the process: totals, and the counters behind them."""

    url: str = ""
    ledger: Ledger = field(default_factory=Ledger)
    boards: dict[str, BoardCounters] = field(default_factory=dict)
    last_success: float | None = None


class GpuFlow:
    """Follows one GPU exporter: `observe` a page or `fail`, then take a `reading`."""

    def __init__(self, source: GpuSource, *, memory: GpuMemory | None = None) -> None:
        self.source = source
        self.memory = memory or GpuMemory(source.url)
        self.attempt: Attempt | None = None
        self.gaps = 0
        self.damaged: tuple[LineError, ...] = ()
        self.exporter = ""
        self.base_units = False
        self.fields: frozenset[Field] = frozenset()
        self._devices: tuple[Device, ...] = ()
        self._selected: frozenset[tuple[str, str]] = frozenset()
        self._joins: dict[tuple[str, str, int | None], Join] = {}
        self._traces: dict[str, Trace] = {}
        self._reader = GpuReader()
        self.configure(source)
        for reason in GPU_SCRAPE_FAILURES:
            self._count("scrape_failures", 0.0, reason)
        for name in ("scrapes", "damaged_lines"):
            self._count(name, 0.0)

    @property
    def ledger(self) -> Ledger:
        """The running totals of this exporter."""
        return self.memory.ledger

    def configure(self, source: GpuSource) -> None:
        """Takes over a configuration; totals go on, another address begins anew."""
        if self.memory.url != source.url:
            self.memory.url = source.url
            self._devices = ()
            self._traces.clear()
        self.source = source
        self._selected = _selected(self._devices, source.match)
        self._joins.clear()

    def fail(self, reason: str, at: float, *, seconds: float, detail: str = "") -> None:
        """Records a scrape that gave no page."""
        if self.attempt is None or not self.attempt.reason:
            self.gaps += 1
        self.attempt = Attempt(at, seconds, reason, detail)
        self._count("scrapes", 1.0)
        self._count("scrape_failures", 1.0, reason)

    def read(self, text: str, at: float) -> GpuPage:
        """Returns what a page scraped at *at* says; it changes no totals."""
        return self._reader.read(text, at)

    def observe(self, page: GpuPage, *, seconds: float = 0.0) -> bool:
        """Records a page, read by `read`; whether it is one of our GPUs."""
        failure, detail = page.failure, page.detail
        devices = tuple(map(_identity, page.devices))
        host = on_host(devices, self.source.match)
        if not failure and host.problem:
            failure, detail = "wrong_node", host.problem
        if failure:
            self.fail(failure, page.at, seconds=seconds, detail=detail)
            return False
        self._selected = _selected(devices, self.source.match)
        self._devices = self._derive(page, devices)
        self._joins.clear()
        self.exporter, self.base_units = page.exporter, page.base_units
        self.fields = page.fields
        self.memory.last_success = page.at
        self.attempt = Attempt(page.at, seconds)
        self.damaged = page.errors
        self._count("scrapes", 1.0)
        self._count("damaged_lines", float(page.damaged_lines))
        self._forget(page.at)
        return True

    def _derive(
        self, page: GpuPage, identities: tuple[Device, ...]
    ) -> tuple[Device, ...]:
        """Returns the devices of a page with their signals, and adds up its totals."""
        at = page.at
        figures: dict[str, dict[str, float]] = {}
        for raw in page.devices:
            prefix = f"{raw.gpu_instance}/" if raw.gpu_instance else ""
            board = figures.setdefault(raw.uuid, {})
            board.update((f"{prefix}{name}", v) for name, v in raw.values.items())
        spans: dict[str, Span | None] = {}
        for uuid, values in figures.items():
            trace = self._traces.get(uuid)
            if trace is None:
                self._traces[uuid], spans[uuid] = Trace(values, at), None
            else:
                spans[uuid] = trace.follow(values, at)
        known = {(d.uuid, d.gpu_instance): d.throttled for d in self._devices}
        return tuple(
            replace(
                device,
                signals=derive.signals(raw, page),
                throttled=self._throttled(
                    raw, page, spans[raw.uuid], known.get(_key(device), {})
                ),
            )
            for raw, device in zip(page.devices, identities, strict=True)
        )

    def _throttled(
        self,
        raw: RawDevice,
        page: GpuPage,
        span: Span | None,
        known: Mapping[str, Signal],
    ) -> dict[str, Signal]:
        """Returns the shares of time, and adds what was held down to the totals.

        Those are of boards that the configuration selects.
        """
        if (raw.uuid, raw.gpu_instance) not in self._selected or raw.gpu_instance:
            return derive.throttle_shares(raw, page)
        at, boards = page.at, self.memory.boards
        before, now = boards.get(raw.uuid), throttle.counters(raw, at)
        growth = throttle.grown(before, now)
        boards[raw.uuid] = now
        shares = throttle.shares(raw, page, growth=growth, span=span, known=known)
        told = {r: s for r, s in shares.items() if r not in growth}
        passed = 0.0 if before is None else at - before.at
        if passed > STALE_INTERVALS * self.source.interval:
            passed = 0.0  # nobody looked meanwhile
        for reason, seconds in (growth | throttle.integrated(told, passed)).items():
            self.ledger.add(THROTTLED, (raw.uuid, "", reason), seconds)
        return shares

    def _forget(self, at: float) -> None:
        """Ends what is kept of boards that went a staleness period ago."""
        boards = self.memory.boards
        latest = sorted(boards, key=lambda uuid: boards[uuid].at, reverse=True)
        gone = [uuid for uuid in latest if at - boards[uuid].at > KEPT_SECONDS]
        for uuid in {*gone, *latest[MAX_BOARDS:]}:
            del boards[uuid]
        for uuid in self._traces.keys() - {device.uuid for device in self._devices}:
            del self._traces[uuid]
        rows = self.ledger.counters.get(THROTTLED, {})
        for labels in [labels for labels in rows if labels[0] not in boards]:
            del rows[labels]

    def reading(self, at: float) -> GpuReading:
        """Returns the GPUs as known at *at*: figures too old for that are stale."""
        page = self.stale(at)
        return GpuReading(at, tuple(self._at(d, at, page) for d in self._devices))

    def _at(self, device: Device, at: float, page: str) -> Device:
        trace = self._traces[device.uuid]
        why = page or trace.frozen(at, self.source.interval)
        age = trace.age(at)
        signals: dict[str, Signal] = dict(device.signals)
        throttled = device.throttled
        if why:
            signals = {name: _stale(signal, why) for name, signal in signals.items()}
            throttled = {name: _stale(s, why) for name, s in throttled.items()}
        signals["gpu_data_age_seconds"] = (
            absent(
                "known from the first change of the figures on; the page has no time"
            )
            if age is None
            else present(age)
        )
        return replace(device, signals=signals, throttled=throttled)

    def join(
        self, at: float, *, pod: str = "", node: str = "", expected: int | None = None
    ) -> Join:
        """Returns an engine's own GPUs; *pod* and *node* are what discovery told.

        *expected* is how many it should have.
        """
        page = self.stale(at)
        if not self._devices:
            return Join(problem=page)
        asked = (pod, node, expected)
        found = self._joins.get(asked)
        if found is None:
            if len(self._joins) >= MAX_JOINS:
                self._joins.clear()
            match = self.source.match.of(pod=pod, node=node)
            found = find(self._devices, match, expected=expected)
            self._joins[asked] = found
        return replace(
            found, devices=tuple(self._at(d, at, page) for d in found.devices)
        )

    def shown(self, at: float) -> tuple[Device, ...]:
        """Returns the GPUs that the configuration selects, with their boards.

        Where it does not tell GPUs apart these are all of the page.
        """
        devices = self.reading(at).devices
        return tuple(device for device in devices if _key(device) in self._selected)

    def stale(self, at: float) -> str:
        """Returns why the latest page no longer counts at *at*, "" when it does."""
        success = self.memory.last_success
        if success is None or not self._devices:
            return "no page read yet"
        limit = max(STALE_INTERVALS * self.source.interval, STALE_AFTER_SECONDS)
        if at - success > limit + self.source.timeout:
            return f"last page is {at - success:.0f} s old"
        return ""

    def _count(self, name: str, amount: float, *labels: str) -> None:
        self.ledger.add(f"goodput_target_{name}_total", (KIND, *labels), amount)


def _identity(raw: RawDevice) -> Device:
    return Device(
        raw.uuid,
        raw.gpu_instance,
        raw.index,
        raw.model_name,
        raw.hostname,
        raw.pci_bus_id,
        tuple(sorted(raw.workloads)),
    )


def _selected(
    devices: tuple[Device, ...], match: GpuMatch
) -> frozenset[tuple[str, str]]:
    """Returns the keys of the devices that are selected, and of their boards."""
    if not match.selects:
        return frozenset(map(_key, on_host(devices, match).devices))
    found = find(devices, match).devices
    boards = {(device.uuid, "") for device in found}
    return frozenset({*map(_key, found), *boards})


def _key(device: Device) -> tuple[str, str]:
    return device.uuid, device.gpu_instance


def _stale(signal: Signal, why: str) -> Signal:
    return signal if signal.state is State.ABSENT else stale(signal.value, why)

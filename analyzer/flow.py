"""One engine's way from scrapes to totals and state: live and on recordings alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from analyzer import accrual
from analyzer.catalogue import KV_SAMPLE_BOUNDS, SCRAPE_FAILURES
from analyzer.config import Config
from analyzer.config_sources import EngineSource
from analyzer.diagnosis.target import Diagnosis
from analyzer.engines.labels import EngineLabels
from analyzer.engines.page import EnginePage, PageReader
from analyzer.engines.reading import EngineReading
from analyzer.exposition import LineError
from analyzer.goodput import Marginal, longest_prompt
from analyzer.heartbeat import Pulse
from analyzer.history import History, Peak, Totals, Trail
from analyzer.ledger import Labels, Ledger
from analyzer.liveness import Attempt, Liveness, rank_growth
from analyzer.slo import SloClass
from analyzer.snapshot import Increase, Reset, Snapshot, increase, merge
from analyzer.timeline import Timeline
from analyzer.verdict import VERDICTS, Family, Verdict, engine_verdict

KIND = "engine"
OF_TARGET = "goodput_target_"  # metrics of the target as a whole, without a model
CONSTRAINT = "goodput_constraint_seconds_total"
UNSEEN = ("", "")  # model and rank of an engine before its first page
STALE_AFTER_SECONDS = 10.0
STALE_INTERVALS = 3


@dataclass(frozen=True, slots=True)
class Served:
    """What an engine says of its models beside its metrics.

    `aliases` maps other names to the first served one; `max_model_len` is in tokens.
    """

    aliases: Mapping[str, str] = field(default_factory=dict)
    max_model_len: int | None = None


@dataclass(slots=True)
class Memory:
    """What of a flow outlives the process: totals, last page, and when it began.

    `url` is the address the last page came from: another address is another engine.
    """

    since: float
    url: str = ""
    ledger: Ledger = field(default_factory=Ledger)
    snapshot: Snapshot | None = None
    last_success: float | None = None

    @property
    def models(self) -> set[str]:
        """The models of which the totals hold something."""
        kept: tuple[Mapping[str, Iterable[Labels]], ...] = (
            self.ledger.counters,
            self.ledger.histograms,
        )
        return {
            labels[0]
            for metrics in kept
            for name, rows in metrics.items()
            if not name.startswith(OF_TARGET)
            for labels in rows
        }


class EngineFlow:
    """Follows one engine: `read` and `observe` a page, or `fail`; then ask.

    Whoever shares a flow between threads guards it, all but `read`: that touches
    nothing else of it, and must not run twice at a time.

    *since* (Unix seconds) is when the engine came under watch: what a process that
    began later has counted is all new.
    """

    def __init__(
        self,
        source: EngineSource,
        config: Config,
        *,
        since: float,
        admit: Callable[[str], str] = lambda model: model,
        memory: Memory | None = None,
    ) -> None:
        self.source = source
        self.memory = memory or Memory(since, source.url)
        self.liveness = Liveness(
            startup_grace=source.startup_grace, stall_grace=source.stall_grace
        )
        self.reading: EngineReading | None = None
        self.served = Served()
        self.damaged: tuple[LineError, ...] = ()
        self.classes: dict[str, tuple[SloClass | None, str]] = {}
        self.histories: dict[str, History] = {}
        self.trails: dict[tuple[str, str, str], Trail] = {}
        self.timelines: dict[tuple[str, str], Timeline] = {}
        self.totals: dict[str, Totals] = {}
        self.in_flight_at_begin: dict[str, float] = {}
        self.diagnosis = Diagnosis()
        self._marginals: dict[str, dict[str, Marginal]] = {}
        self._failing = False
        self._peaks: dict[tuple[str, str], Peak] = {}
        self._dropped: Counter[str] = Counter()
        self._labels = EngineLabels(config.limits, admit=admit)
        self._pages = PageReader(self._labels)
        self._keep_places()
        self.configure(source, config, at=since)
        for reason in SCRAPE_FAILURES:
            self._count("scrape_failures", 0.0, reason)
        for reset in Reset:
            if reset is not Reset.NONE:
                self._count("resets", 0.0, reset.value)
        for name in ("scrapes", "damaged_lines", "sum_anomalies"):
            self._count(name, 0.0)

    @property
    def attempt(self) -> Attempt | None:
        """The last scrape, None before the first."""
        return self.liveness.attempt

    @property
    def pulse(self) -> Pulse:
        """What counters and gauges of the latest page say together."""
        return self.liveness.pulse

    @property
    def ledger(self) -> Ledger:
        """The running totals of this target."""
        return self.memory.ledger

    def _keep_places(self) -> None:
        """Lets the label values that the totals hold keep their places."""
        for model in self.memory.models:
            self._labels.admit(model)
        for signal, name in accrual.LABELLED.items():
            rows = self.ledger.rows(name)
            self._labels.expect(signal, (labels[1] for labels, _ in rows))

    def configure(self, source: EngineSource, config: Config, *, at: float) -> None:
        """Takes over a configuration loaded at *at*; totals go on."""
        if self.memory.url != source.url:
            self.memory.url = source.url
            self.memory.snapshot = None
            self.memory.since = at
        self.source = source
        self._config = config
        self._labels.configure(config.limits)
        self.liveness.startup_grace = source.startup_grace
        self.liveness.heartbeat.grace = source.stall_grace
        self.classes.clear()
        accrual.drop_unwanted(self.ledger, config.slo_classes)

    def learn(self, served: Served) -> None:
        """Takes over what the engine says of its models."""
        if served != self.served:
            self.served = served
            self.classes.clear()

    def fail(self, reason: str, at: float, *, seconds: float, detail: str = "") -> None:
        """Records a scrape that gave no page."""
        self.liveness.fail(Attempt(at, seconds, reason, detail))
        self._count("scrapes", 1.0)
        self._count("scrape_failures", 1.0, reason)
        self._judge(at, None)

    def take_dropped(self) -> Mapping[str, int]:
        """Returns, by label, how many series went to `other` since the last call."""
        dropped, self._dropped = self._dropped, Counter()
        return dropped

    def read(self, text: str, at: float) -> EnginePage:
        """Returns the page *text*, scraped at *at*; the flow learns nothing of it."""
        return self._pages.read(text, at)

    def observe(
        self, page: EnginePage, *, seconds: float = 0.0, tick: bool = True
    ) -> Increase | None:
        """Records a page that took *seconds*; None when it is not an engine's page.

        *tick* says that the sample is a timer's: only those enter distributions.
        """
        at, reading = page.at, page.reading
        self._dropped.update(page.dropped)
        if page.failure:
            self.fail(page.failure, at, seconds=seconds, detail=page.detail)
            return None
        for model in reading.models:  # places may have gone since the page was read
            self._labels.admit(model)
        memory = self.memory
        grown = increase(memory.snapshot, reading.snapshot, watched_since=memory.since)
        memory.snapshot = merge(memory.snapshot, reading.snapshot, grown.reset)
        memory.last_success = at
        self.reading = reading
        self.damaged = page.errors
        self._count("scrapes", 1.0)
        self._count("damaged_lines", float(page.damaged_lines))
        self._count("sum_anomalies", float(grown.sum_anomalies))
        if grown.reset is not Reset.NONE:
            self._count("resets", 1.0, grown.reset.value)
        self.liveness.beat(Attempt(at, seconds), reading, grown)
        self._accrue(reading, grown)
        self._watch_gauges(reading, at, tick=tick)
        self._judge(at, grown)
        return grown

    def _judge(self, at: float, grown: Increase | None) -> None:
        """Adds the interval that ends at *at* to the timeline of every rank."""
        state, _ = self.state(at)
        ranks = self.ranks() or (UNSEEN,)
        if grown is not None and self.reading is not None:
            self.diagnosis.observe(
                self.reading,
                grown,
                source=self.source,
                marginals=self._marginals,
                class_of=lambda model: self.class_of(model)[0],
            )
        diagnosed = self.diagnosis.verdicts()
        recovered, self._failing = self._failing and grown is not None, grown is None
        for model, rank in ranks:
            requests, tokens = rank_growth(grown, model, rank)
            verdict = engine_verdict(
                state,
                frozen=self.pulse is Pulse.FROZEN,
                running=self.gauge("running", model, rank),
                waiting=self.gauge("waiting", model, rank),
                tokens=tokens,
                diagnosed=diagnosed.get((model, rank)),
            )
            timeline = self.timelines.setdefault((model, rank), Timeline())
            if recovered:
                # Until this page nobody had seen the engine: that time is the fault's.
                self._pass_time(timeline, at, model)
            seconds = timeline.extend(
                at,
                verdict,
                requests=requests,
                tokens=tokens,
                measured=grown is not None,
            )
            self._count_time(model, verdict, seconds)
        if ranks != (UNSEEN,):
            self.timelines.pop(UNSEEN, None)

    def _pass_time(self, timeline: Timeline, at: float, model: str) -> None:
        """Adds the time until *at* to the verdict in force."""
        latest = timeline.latest
        if latest is not None:
            seconds = timeline.extend(at, latest.verdict, measured=False)
            self._count_time(model, latest.verdict, seconds)

    def _count_time(self, model: str, verdict: Verdict, seconds: float) -> None:
        if not model:
            return
        rows = self.ledger.counters.get(CONSTRAINT, {})
        if (model, Family.NONE.value, "idle") not in rows:
            for family, cause in VERDICTS:
                self.ledger.add(CONSTRAINT, (model, family.value, cause), 0.0)
        cause = verdict.cause
        self.ledger.add(CONSTRAINT, (model, verdict.family.value, cause), seconds)

    def ranks(self) -> tuple[tuple[str, str], ...]:
        """Returns the (model, rank) pairs on the latest page."""
        return () if self.reading is None else self.reading.ranks

    def gauge(self, signal: str, model: str, rank: str) -> float | None:
        """Returns a gauge of the latest page, None when it has none."""
        if self.reading is None:
            return None
        return self.reading.gauge(signal, model, rank)

    def _accrue(self, reading: EngineReading, grown: Increase) -> None:
        for model, growth in accrual.by_model(grown).items():
            accrual.accrue(
                self.ledger, growth, histograms=self._config.engine_histograms
            )
            slo_class, _ = self.class_of(model)
            found: dict[str, Marginal] = {}
            if slo_class is not None:
                found = accrual.accrue_criteria(
                    self.ledger,
                    growth,
                    slo_class,
                    longest_prompt=self._longest_prompt(reading, model),
                )
                accrual.accrue_percentiles(self.ledger, growth, slo_class)
            self._marginals[model] = found
            self._remember(reading, model, growth, found, grown.end)

    def _remember(
        self,
        reading: EngineReading,
        model: str,
        growth: accrual.ModelIncrease,
        found: Mapping[str, Marginal],
        at: float,
    ) -> None:
        past = self.totals.get(model, Totals(at, 0.0, 0.0, 0.0))
        marginals = dict(past.marginals)
        for criterion, marginal in found.items():
            known = marginals.get(criterion)
            marginals[criterion] = marginal if known is None else known + marginal
        in_flight = sum(
            reading.gauge(signal, model) or 0.0 for signal in ("running", "waiting")
        )
        totals = Totals(
            at,
            past.finished + (growth.finished or 0.0),
            past.tokens + (growth.total("generation_tokens") or 0.0),
            in_flight,
            marginals,
        )
        self.totals[model] = totals
        self.in_flight_at_begin.setdefault(model, in_flight)
        self.histories.setdefault(model, History()).append(totals)

    def _longest_prompt(self, reading: EngineReading, model: str) -> float:
        declared = self.source.declared.get("max_model_len")
        # The bounds come from the model's limit, so they are the same at every rank.
        lengths = next(iter(reading.histograms("prompt_length", model)), None)
        return longest_prompt(lengths, declared or self.served.max_model_len)

    def _watch_gauges(self, reading: EngineReading, at: float, *, tick: bool) -> None:
        for group, value in reading.gauges.items():
            if group.signal not in ("running", "waiting", "kv_cache_usage"):
                continue
            key = (group.model, group.rank, group.signal)
            self.trails.setdefault(key, Trail()).append(at, value)
            if group.signal == "kv_cache_usage":
                peak = self._peaks.setdefault((group.model, group.rank), Peak(60.0))
                peak.append(at, value)
                if tick and self.pulse is not Pulse.FROZEN:
                    self.ledger.observe(
                        "goodput_engine_kv_cache_usage_samples",
                        (group.model,),
                        value,
                        KV_SAMPLE_BOUNDS,
                    )

    def class_of(self, model: str) -> tuple[SloClass | None, str]:
        """Returns the class that judges *model* here, or None and why none does."""
        found = self.classes.get(model)
        if found is None:
            aliases = {**self.served.aliases, **self.source.aliases}
            found = accrual.class_of(model, self._config.slo_classes, aliases)
            self.classes[model] = found
        return found

    def kv_peak(self, model: str, rank: str, at: float) -> float | None:
        """Returns the highest KV-cache usage of the last minute."""
        peak = self._peaks.get((model, rank))
        return None if peak is None else peak.value(at)

    def stale(self, at: float) -> str:
        """Returns why the latest gauges no longer count at *at*, "" when they do."""
        success = self.memory.last_success
        if self.reading is None or success is None:
            return "no page read yet"
        if self.state(at)[0] == "down":
            return "the engine does not answer"
        limit = max(STALE_INTERVALS * self.source.interval, STALE_AFTER_SECONDS)
        if at - success > limit + self.source.timeout:
            return f"last page is {at - success:.0f} s old"
        if self.pulse is Pulse.FROZEN:
            return "gauges are frozen: the requests they show have gone"
        return ""

    def state(self, at: float) -> tuple[str, str]:
        """Returns the engine's state at *at* and a sentence that says why."""
        memory = self.memory
        return self.liveness.state(
            at, since=memory.since, last_success=memory.last_success
        )

    def _count(self, name: str, amount: float, *labels: str) -> None:
        self.ledger.add(f"goodput_target_{name}_total", (KIND, *labels), amount)

"""One request log's way from lines to totals: live and on recordings alike."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from analyzer.config import Config
from analyzer.config_sources import GatewaySource
from analyzer.gateways.detect import detect, format_for
from analyzer.gateways.format import Format
from analyzer.gateways.record import LineProblem, RequestRecord
from analyzer.judgement import Verdict, class_for, judge
from analyzer.requests_total import RequestTotals
from analyzer.slo import NO_CLASS, SloClass

DETECTION_LINES = 50
MAX_KNOWN_CLASSES = 10_000
FUTURE_SECONDS = 300.0
KEPT_SECONDS = 3600.0
SPACING_SECONDS = 10.0
NO_MODEL = "unknown"


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests of one model and class, at one time or in one window."""

    requests: float = 0.0
    good: float = 0.0
    bad: float = 0.0
    unevaluable: float = 0.0
    excluded: float = 0.0
    misses: Mapping[str, float] = field(default_factory=dict)

    def __sub__(self, earlier: Counts) -> Counts:
        return Counts(
            self.requests - earlier.requests,
            self.good - earlier.good,
            self.bad - earlier.bad,
            self.unevaluable - earlier.unevaluable,
            self.excluded - earlier.excluded,
            {c: n - earlier.misses.get(c, 0.0) for c, n in self.misses.items()},
        )

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.requests + other.requests,
            self.good + other.good,
            self.bad + other.bad,
            self.unevaluable + other.unevaluable,
            self.excluded + other.excluded,
            {
                c: self.misses.get(c, 0.0) + other.misses.get(c, 0.0)
                for c in self.misses.keys() | other.misses.keys()
            },
        )


class LogFlow:
    """Follows one log: `take` its lines, then read its totals.

    *aliases* gives the names that mean a served model; *admit* the label value of
    a model, and of one whose request failed, which may not claim a place.
    """

    def __init__(
        self,
        source: GatewaySource,
        config: Config,
        *,
        aliases: Callable[[], Mapping[str, str]] = dict,
        admit: Callable[[str], str] = lambda model: model,
        admit_failed: Callable[[str], str] = lambda model: model,
        totals: RequestTotals | None = None,
    ) -> None:
        self.source = source
        self.totals = totals or RequestTotals()
        self.format: Format | None = format_for(source)
        self.problem = ""
        self._aliases = aliases
        self._admit = admit
        self._admit_failed = admit_failed
        self._undetected: list[bytes] = []
        self._served: Mapping[str, str] = {}
        self._known: dict[tuple[str, str, str], SloClass | None] = {}
        self._history: deque[tuple[float, dict[tuple[str, str], Counts]]] = deque()
        self.configure(source, config)

    def configure(self, source: GatewaySource, config: Config) -> None:
        """Takes over a reloaded configuration; totals go on."""
        if source != self.source:
            self.format = format_for(source)
            self._undetected.clear()
        self.source = source
        self._classes = config.slo_classes
        self._policy = frozenset(source.policy_statuses)
        self._cacheable = not any(
            c.match.headers or c.match.prompt_tokens for c in config.slo_classes
        )
        self._known.clear()
        self.totals.configure(config.slo_classes)
        for slo_class in config.slo_classes:
            for model in slo_class.match.models:
                if not any(c in model for c in "*?["):
                    self.totals.row(model, slo_class.name, config.slo_classes)

    @property
    def classes(self) -> tuple[SloClass, ...]:
        """The classes in use."""
        return self._classes

    def take(self, lines: Iterable[bytes], at: float) -> None:
        """Counts *lines* (without newlines) that were read at *at*."""
        log_format = self.format
        if log_format is None:
            self._undetected.extend(lines)
            log_format = self.format = detect(self._undetected)
            if log_format is None:
                if len(self._undetected) > DETECTION_LINES:
                    self._give_up()
                return
            lines, self._undetected = self._undetected, []
            self.problem = ""
        parse, totals = log_format.parse, self.totals
        aliases = self._aliases()
        if aliases != self._served:
            self._served = aliases
            self._known.clear()
        for line in lines:
            totals.lines += 1.0
            try:
                record = parse(line)
            except LineProblem as problem:
                totals.failures[problem.reason] += 1.0
                continue
            if record is not None:
                self._count(record, at)

    def _give_up(self) -> None:
        """Counts lines of no known format, and goes on looking at later ones."""
        self.totals.lines += len(self._undetected)
        self.totals.failures["no_match"] += len(self._undetected)
        self._undetected.clear()
        self.problem = "no known format recognises these lines; set `format`"

    def _count(self, record: RequestRecord, at: float) -> None:
        totals = self.totals
        if record.start is not None:
            end = record.start + (record.e2e or 0.0)
            if end <= at + FUTURE_SECONDS:
                totals.last_record = max(totals.last_record or end, end)
        if not self.source.counts:
            return
        served = self._served.get(record.model, record.model) or NO_MODEL
        slo_class = self._class(record, served)
        judgement = judge(record, slo_class, policy_statuses=self._policy)
        excluded = judgement.verdict is Verdict.EXCLUDED
        failed = excluded or "error" in judgement.misses
        model = self._admit_failed(served) if failed else self._admit(served)
        name = slo_class.name if slo_class else NO_CLASS
        row = totals.row(model, name, self._classes)
        if excluded:
            totals.excluded[judgement.reason] += 1.0
            row.excluded += 1.0
            return
        row.count(record, judgement)
        if judgement.verdict is Verdict.UNEVALUABLE:
            reason = judgement.reason
            totals.unknown[reason] = totals.unknown.get(reason, 0.0) + 1.0

    def _class(self, record: RequestRecord, served: str) -> SloClass | None:
        names = (served,) if served == record.model else (served, record.model)
        if not self._cacheable:
            return class_for(record, self._classes, names)
        key = (record.model, record.route, record.tenant)
        try:
            return self._known[key]
        except KeyError:
            if len(self._known) >= MAX_KNOWN_CLASSES:
                self._known.clear()
            found = self._known[key] = class_for(record, self._classes, names)
            return found

    def expect(self, model: str) -> None:
        """Makes the rows of a model known from elsewhere, at 0 before its requests."""
        for slo_class in self._classes:
            if slo_class.match.takes_model((model,)):
                self.totals.row(model, slo_class.name, self._classes)

    def mark(self, at: float) -> None:
        """Remembers the totals of this moment, for windows."""
        history = self._history
        if history and at - history[-1][0] < SPACING_SECONDS:
            return
        history.append((at, self.counts()))
        while len(history) > 2 and at - history[1][0] >= KEPT_SECONDS:
            history.popleft()

    def counts(self) -> dict[tuple[str, str], Counts]:
        """Returns the counts since the totals began, by (model, class)."""
        return {
            key: Counts(
                row.requests,
                row.good,
                row.bad,
                row.unevaluable,
                row.excluded,
                dict(row.misses),
            )
            for key, row in self.totals.rows.items()
        }

    def over(self, seconds: float, at: float) -> dict[tuple[str, str], Counts]:
        """Returns the counts of the last *seconds*, or of what of them is known."""
        begin: dict[tuple[str, str], Counts] = {}
        for moment, counts in self._history:
            if moment <= at - seconds or not begin:
                begin = counts
        zero = Counts()
        return {key: now - begin.get(key, zero) for key, now in self.counts().items()}

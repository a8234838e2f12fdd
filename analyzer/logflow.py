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
    """Requests of one model and class, at one time or in one window.

    `unstreamed` are the unevaluable ones whose answer was not streamed.
    """

    requests: float = 0.0
    good: float = 0.0
    bad: float = 0.0
    unevaluable: float = 0.0
    excluded: float = 0.0
    unstreamed: float = 0.0
    misses: Mapping[str, float] = field(default_factory=dict)
    excluded_for: Mapping[str, float] = field(default_factory=dict)
    unevaluable_for: Mapping[str, float] = field(default_factory=dict)

    def __sub__(self, earlier: Counts) -> Counts:
        return self._with(earlier, -1.0)

    def __add__(self, other: Counts) -> Counts:
        return self._with(other, 1.0)

    def _with(self, other: Counts, sign: float) -> Counts:
        def by_key(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
            return {k: a.get(k, 0.0) + sign * b.get(k, 0.0) for k in a.keys() | b}

        return Counts(
            self.requests + sign * other.requests,
            self.good + sign * other.good,
            self.bad + sign * other.bad,
            self.unevaluable + sign * other.unevaluable,
            self.excluded + sign * other.excluded,
            self.unstreamed + sign * other.unstreamed,
            by_key(self.misses, other.misses),
            by_key(self.excluded_for, other.excluded_for),
            by_key(self.unevaluable_for, other.unevaluable_for),
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
        self.format: Format | None = None
        self.problem = ""
        self._aliases = aliases
        self._admit = admit
        self._admit_failed = admit_failed
        self._undetected: list[bytes] = []
        self._served: Mapping[str, str] = {}
        self._known: dict[tuple[str, str, str], SloClass | None] = {}
        self._history: deque[tuple[float, dict[tuple[str, str], Counts]]] = deque()
        self._headers: tuple[str, ...] | None = None
        self.configure(source, config)

    def configure(self, source: GatewaySource, config: Config) -> None:
        """Takes over a reloaded configuration; totals go on."""
        headers = tuple(
            sorted({name for c in config.slo_classes for name in c.match.headers})
        )
        if source != self.source or headers != self._headers:
            self._headers = headers
            self.format = format_for(source, headers)
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

    @property
    def undecided(self) -> int:
        """Lines that wait for one by which their format is recognised."""
        return len(self._undetected)

    def take(self, lines: Iterable[bytes], at: float) -> None:
        """Counts *lines* (without newlines) that were read at *at*."""
        log_format = self.format
        if log_format is None:
            self._undetected.extend(lines)
            log_format = self.format = detect(self._undetected, self._headers or ())
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

    def finish(self, at: float) -> None:
        """Counts what waited for later lines: none will come."""
        if self._undetected:
            self._give_up()
        for record in self.format.held() if self.format else ():
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
            row.exclude(judgement.reason)
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
        """Remembers the totals of this moment, for windows.

        What lies in the future, after a clock was set back, is forgotten.
        """
        history = self._history
        while history and history[-1][0] > at:
            history.pop()
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
                row.unstreamed,
                dict(row.misses),
                dict(row.excluded_for),
                dict(row.unevaluable_for),
            )
            for key, row in self.totals.rows.items()
        }

    def over(self, seconds: float, at: float) -> dict[tuple[str, str], Counts]:
        """Returns the counts of the last *seconds*, or of what of them is known."""
        now = self.counts()
        _, begin = self._begin(seconds, at) or (at, now)
        zero = Counts()
        return {key: counts - begin.get(key, zero) for key, counts in now.items()}

    def covered(self, seconds: float, at: float) -> float:
        """Returns the seconds that `over` covers; they grow to *seconds*."""
        begin = self._begin(seconds, at)
        return max(0.0, at - begin[0]) if begin else 0.0

    def _begin(
        self, seconds: float, at: float
    ) -> tuple[float, dict[tuple[str, str], Counts]] | None:
        """Returns the last mark before the window, else the first one there is."""
        found = None
        for mark in self._history:
            if found is not None and mark[0] > at - seconds:
                break
            found = mark
        return found

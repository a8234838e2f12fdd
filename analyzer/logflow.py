"""One request log's way from lines to totals: live and on recordings alike."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from analyzer.config import Config
from analyzer.config_gateways import GatewaySource
from analyzer.counting import RequestCounter
from analyzer.gateways.detect import detect, format_for
from analyzer.gateways.format import Format, FormatMemory, Parse
from analyzer.gateways.record import LineProblem
from analyzer.recent_requests import RecentRequests
from analyzer.requests_total import RequestTotals
from analyzer.slo import SloClass, matched_headers

DETECTION_LINES = 50
DETECTION_BYTES = 256 << 10
LINES_AT_ONCE = 256
KEPT_SECONDS = 3600.0
SPACING_SECONDS = 10.0


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


@dataclass(frozen=True, slots=True)
class Waiting:
    """What was read of a log and waits to be counted: it must outlive the process.

    `lines`, and `errors` of a standard error, wait for a line that tells the format;
    `memory` is what the format of that name knows of lines before. All is bounded.
    """

    lines: tuple[bytes, ...] = ()
    errors: tuple[bytes, ...] = ()
    format: str = ""
    memory: FormatMemory = field(default_factory=FormatMemory)


class LogFlow:
    """Follows one log: `take` its lines, then read its totals.

    *aliases* gives the names that mean a served model; *admit* the label value of
    a model, and of one whose request failed, which may not claim a place. *waiting*
    is what an earlier flow of the log had read and not counted.
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
        waiting: Waiting | None = None,
    ) -> None:
        self.source = source
        self.totals = totals or RequestTotals()
        self.format: Format | None = None
        self.problem = ""
        self._aliases = aliases
        self._counter = RequestCounter(
            self.totals, admit=admit, admit_failed=admit_failed
        )
        # Set while lines wait for a format, or a format has not recalled its memory.
        self._waiting = waiting
        self._history: deque[tuple[float, dict[tuple[str, str], Counts]]] = deque()
        self._headers: tuple[str, ...] | None = None
        self.configure(source, config)

    def configure(self, source: GatewaySource, config: Config) -> None:
        """Takes over a reloaded configuration; totals go on."""
        headers = matched_headers(config.slo_classes)
        if source != self.source or headers != self._headers:
            self._headers = headers
            self._waiting = self.waiting
            self.format = format_for(source, headers)
            self.problem = ""
        self.source = source
        self._classes = config.slo_classes
        self.totals.configure(config.slo_classes)
        self._counter.configure(source, config.slo_classes)
        for slo_class in config.slo_classes:
            for model in slo_class.match.models:
                if not any(c in model for c in "*?["):
                    self.totals.row(model, slo_class.name, config.slo_classes)

    @property
    def recent(self) -> RecentRequests:
        """The latest requests of each model."""
        return self._counter.recent

    @property
    def classes(self) -> tuple[SloClass, ...]:
        """The classes in use."""
        return self._classes

    @property
    def undecided(self) -> int:
        """Lines that wait for one by which their format is recognised."""
        waiting = self._waiting
        return len(waiting.lines) + len(waiting.errors) if waiting else 0

    @property
    def waiting(self) -> Waiting:
        """What was taken and is not counted yet."""
        if self._waiting is not None:
            return self._waiting
        if self.format is None:
            return Waiting()
        return Waiting(format=self.format.name, memory=self.format.memory())

    def take(
        self, lines: Sequence[bytes], at: float, *, errors: Sequence[bytes] = ()
    ) -> None:
        """Counts *lines* (without newlines) that were read at *at*.

        *errors* are those of a container's standard error. What is no request there
        is counted as `stderr`.
        """
        if self.format is None and not lines and not errors:
            return
        waiting = self._waiting
        if waiting is not None:
            lines = [*waiting.lines, *lines]
            errors = [*waiting.errors, *errors]
        if self.format is None:
            self.format = detect([*lines, *errors], self._headers or ())
            if self.format is None:
                self._wait(lines, errors)
                return
            self.problem = ""
        self._counter.know(self._aliases())
        if waiting is not None:
            self._recall(self.format, waiting, at)
        self._count_lines(self.format.parse, lines, at)
        if errors:
            self._count_lines(self.format.parse, errors, at, problem="stderr")

    def _count_lines(
        self, parse: Parse, lines: Sequence[bytes], at: float, *, problem: str = ""
    ) -> None:
        """Counts *lines*; what is no record counts as its reason, or as *problem*."""
        self.totals.lines += len(lines)
        failures = self.totals.failures
        for begin in range(0, len(lines), LINES_AT_ONCE):
            records = []
            for line in lines[begin : begin + LINES_AT_ONCE]:
                try:
                    record = parse(line)
                except LineProblem as found:
                    failures[problem or found.reason] += 1.0
                else:
                    if record is not None:
                        records.append(record)
            self._counter.count(records, at)

    def _recall(self, log_format: Format, waiting: Waiting, at: float) -> None:
        """Gives the format what it knew before; of another one nothing will come."""
        self._waiting = None
        if waiting.format == log_format.name:
            log_format.recall(waiting.memory)
            return
        self._counter.count(waiting.memory.held.values(), at)

    def finish(self, at: float) -> None:
        """Counts what waited for later lines: none will come."""
        if self._waiting is not None:
            self.take((), at)
        waiting, self._waiting = self.waiting, None
        self._give_up(waiting.lines, waiting.errors)
        self._counter.count(waiting.memory.held.values(), at)
        if self.format is not None:
            self.format.held()

    def _wait(self, lines: Sequence[bytes], errors: Sequence[bytes]) -> None:
        """Keeps lines of no known format for a while, then counts them."""
        size = sum(map(len, lines)) + sum(map(len, errors))
        if len(lines) + len(errors) > DETECTION_LINES or size > DETECTION_BYTES:
            self._give_up(lines, errors)
            lines = errors = ()
        before = self.waiting
        self._waiting = replace(before, lines=tuple(lines), errors=tuple(errors))

    def _give_up(self, lines: Sequence[bytes], errors: Sequence[bytes]) -> None:
        """Counts lines of no known format; later ones may yet tell it."""
        if not lines and not errors:
            return
        self.totals.lines += len(lines) + len(errors)
        self.totals.failures["no_match"] += len(lines)
        self.totals.failures["stderr"] += len(errors)
        self.problem = "no known format recognises these lines; set `format`"

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

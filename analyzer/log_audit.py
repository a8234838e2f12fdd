"""What the lines of a request log can tell, held against the SLO classes.

Which criteria can be evaluated, for how many answers, and why not for the others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from analyzer.config_gateways import GatewaySource
from analyzer.gateways.detect import detect, format_for
from analyzer.gateways.format import Format
from analyzer.gateways.framing import (
    MAX_MESSAGE_BYTES,
    Framing,
    FramingState,
    Unframer,
)
from analyzer.gateways.headers import HeaderHabits
from analyzer.gateways.record import (
    LineProblem,
    Outcome,
    RequestRecord,
    TokensKind,
    TtftKind,
)
from analyzer.judgement import (
    DOES_NOT_APPLY,
    Verdict,
    class_for,
    criterion_values,
    is_generation,
    judge,
)
from analyzer.slo import SloClass, matched_headers

AHEAD_SECONDS = 1.0  # what two clocks that are kept may differ by
MAX_NAMES = 1000  # models that are kept apart
MAX_IDS = 50_000
LONGEST_EXAMPLE = 160


@dataclass(frozen=True, slots=True)
class Chunk:
    """The last lines of one file, or those that came by a socket.

    `whole` says that they begin where the file does; `written` is when the file was
    last written, in Unix seconds.
    """

    lines: Sequence[bytes]
    whole: bool = True
    written: float | None = None


@dataclass(slots=True)
class Answers:
    """How many answers have a criterion's value, and why the others have none.

    Answers of one token are not among those of tpot and max_gap: they do not apply.
    """

    known: int = 0
    unknown: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """All answers that ended well."""
        return self.known + self.unknown.total()

    @property
    def reason(self) -> str:
        """The most frequent reason for an unknown value, "" when all are known."""
        return self.unknown.most_common(1)[0][0] if self.unknown else ""


@dataclass(slots=True)
class ClassAudit:
    """Requests of one class by verdict, and its criteria over good or late answers."""

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    criteria: dict[str, Answers] = field(default_factory=dict)

    @property
    def judged(self) -> int:
        """Requests that are not excluded."""
        return self.verdicts.total() - self.verdicts[Verdict.EXCLUDED]


@dataclass(slots=True)
class Clock:
    """Ends of requests, in Unix seconds, beside the clock of this machine.

    `written` is when the file with the last of them was written; `ahead` is by how
    many seconds the latest of the `future` ones lies ahead.
    """

    last: float | None = None
    written: float | None = None
    future: int = 0
    ahead: float = 0.0


@dataclass(slots=True)
class LogAudit:
    """What the lines tell. Streams and answers are those of generation requests.

    `unparsed` counts lines by reason, with the first problem of each in `examples`;
    `other` ones hold no request. Of the streams that ended well `with_usage` have the
    server's token count and `without_usage` have none, as far as the log tells;
    `ttft_kinds` says to what their first output was measured. `unended` answers may
    have been cut: the log does not tell.
    """

    format: Format | None = None
    framing: Framing = Framing.AUTO
    looks_like: str = ""  # another format, when most lines are not of this one
    lines: int = 0
    unparsed: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    other: int = 0
    requests: int = 0
    streamed: int = 0
    unstreamed: int = 0
    unknown_streaming: int = 0
    failed: int = 0
    streams_ended: int = 0
    with_usage: int = 0
    without_usage: int = 0
    unended: int = 0
    ttft_kinds: Counter[TtftKind] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)
    judged: int = 0
    classless: int = 0
    classless_models: Counter[str] = field(default_factory=Counter)
    nameless: int = 0
    classes: dict[str, ClassAudit] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    habits: HeaderHabits = field(default_factory=HeaderHabits)
    ids: set[str] = field(default_factory=set)  # of requests, to compare logs

    @property
    def generation(self) -> int:
        """Requests that ask a model for output."""
        return self.streamed + self.unstreamed + self.unknown_streaming


def audit_log(
    chunks: Sequence[Chunk],
    source: GatewaySource,
    classes: tuple[SloClass, ...],
    *,
    aliases: Mapping[str, str],
    now: float,
) -> LogAudit:
    """Returns what *chunks* of one log tell under *classes*, at *now*.

    *aliases* gives the names that mean a served model.
    """
    headers = matched_headers(classes)
    found = LogAudit(format=format_for(source, headers))
    messages, errors = _unframed(chunks, source, found)
    every = [line for part in (*messages, *errors) for line in part]
    found.lines = len(every) + found.unparsed["too_long"]
    if found.format is None:
        found.format = detect(every, headers)
    for slo_class in classes:
        criteria = {criterion: Answers() for criterion in slo_class.good}
        found.classes[slo_class.name] = ClassAudit(criteria=criteria)
    log_format = found.format
    if log_format is None:
        found.unparsed["no_match"] = len(every)
        return found
    judging = _Judging(found, log_format, source, classes, aliases)
    for chunk, lines, of_stderr in zip(chunks, messages, errors, strict=True):
        for record in _records(log_format, lines, found):
            judging.take(record, chunk.written, now)
        for record in _records(log_format, of_stderr, found, problem="stderr"):
            judging.take(record, chunk.written, now)
    for record in log_format.held():
        judging.take(record, None, now)
    if found.unparsed.total() > found.lines / 2:
        other = detect(every, headers)
        found.looks_like = other.name if other and other.name != log_format.name else ""
    return found


def _unframed(
    chunks: Iterable[Chunk], source: GatewaySource, found: LogAudit
) -> tuple[list[list[bytes]], list[list[bytes]]]:
    """Returns each chunk's messages, and those of the standard error."""
    messages, errors = [], []
    for chunk in chunks:
        unframer = Unframer(FramingState(Framing(source.framing)))
        unframed = unframer.feed(chunk.lines)
        framing = unframer.state.framing
        framed = framing in (Framing.CRI, Framing.DOCKER)
        # The first message of each stream may have begun before the chunk.
        skip = int(framed and not chunk.whole)
        messages.append(_short(unframed.messages[skip:], found))
        errors.append(_short(unframed.errors[skip:], found))
        found.unparsed["too_long"] += unframed.too_long
        if framed or (chunk.lines and found.framing is Framing.AUTO):
            found.framing = framing if framed else Framing.PLAIN
    found.unparsed = +found.unparsed
    return messages, errors


def _short(lines: list[bytes], found: LogAudit) -> list[bytes]:
    """Returns the lines that the exporter would not drop for their length."""
    kept = [line for line in lines if len(line) <= MAX_MESSAGE_BYTES]
    found.unparsed["too_long"] += len(lines) - len(kept)
    return kept


def _records(
    log_format: Format, lines: Iterable[bytes], found: LogAudit, *, problem: str = ""
) -> Iterable[RequestRecord]:
    """Yields the records of lines, and counts the lines that have none."""
    for line in lines:
        try:
            record = log_format.parse(line)
        except LineProblem as error:
            reason = problem or error.reason
            found.unparsed[reason] += 1
            found.examples.setdefault(reason, str(error)[:LONGEST_EXAMPLE])
            continue
        if record is None:
            found.other += 1
        else:
            yield record


class _Judging:
    """Judges records one by one and counts them into an audit."""

    def __init__(
        self,
        found: LogAudit,
        log_format: Format,
        source: GatewaySource,
        classes: tuple[SloClass, ...],
        aliases: Mapping[str, str],
    ) -> None:
        self._found = found
        self._format = log_format
        self._policy = frozenset(source.policy_statuses)
        self._classes = classes
        self._aliases = aliases

    def take(self, record: RequestRecord, written: float | None, now: float) -> None:
        """Counts one request; *written* is when its file was."""
        found = self._found
        found.requests += 1
        _see_clock(found.clock, record, written, now)
        if record.request_id and len(found.ids) < MAX_IDS:
            found.ids.add(record.request_id)
        served = self._aliases.get(record.model, record.model)
        names = tuple({served, record.model})
        slo_class = class_for(record, self._classes, names)
        judgement = judge(record, slo_class, policy_statuses=self._policy)
        if slo_class is not None:
            found.classes[slo_class.name].verdicts[judgement.verdict] += 1
        if not record.route or is_generation(record.route):
            self._see_streaming(record)
        if judgement.verdict is Verdict.EXCLUDED:
            found.excluded[judgement.reason] += 1
            return
        found.judged += 1
        found.nameless += not record.model
        if slo_class is None:
            found.classless += 1
            known = record.model in found.classless_models
            if known or len(found.classless_models) < MAX_NAMES:
                found.classless_models[record.model] += 1
        if not _ended(record):
            found.failed += 1
            return
        self._see_answer(record, slo_class)

    def _see_streaming(self, record: RequestRecord) -> None:
        found = self._found
        if record.stream is None:
            found.unknown_streaming += 1
        elif record.stream:
            found.streamed += 1
        else:
            found.unstreamed += 1
        if (
            record.stream
            and record.header_time is not None
            and record.ttft is not None
            and record.ttft_kind is not TtftKind.HEADERS
        ):
            found.habits.saw(record.route, record.header_time, record.ttft)

    def _see_answer(self, record: RequestRecord, slo_class: SloClass | None) -> None:
        """Counts an answer that ended well, as far as the log tells."""
        found = self._found
        found.unended += record.outcome is Outcome.UNKNOWN
        if record.stream:
            found.streams_ended += 1
            self._see_usage(record)
            found.ttft_kinds[record.ttft_kind] += 1
        if slo_class is None:
            return
        values = criterion_values(record)
        for criterion, answers in found.classes[slo_class.name].criteria.items():
            reason = ""
            if values[criterion] == DOES_NOT_APPLY:
                continue
            if math.isnan(values[criterion]):
                reason = self._why_unknown(criterion, record)
            elif criterion == "tpot" and record.tpot_at_most:
                met = values[criterion] <= slo_class.good[criterion].seconds
                reason = "" if met else "bound"
            if reason:
                answers.unknown[reason] += 1
            else:
                answers.known += 1

    def _see_usage(self, record: RequestRecord) -> None:
        """Counts a stream's usage; a log that reads no bodies knows nothing of it."""
        if record.tokens_kind is TokensKind.USAGE:
            self._found.with_usage += 1
        elif "tpot" in self._format.criteria and record.ttft_kind is not TtftKind.NONE:
            self._found.without_usage += 1

    def _why_unknown(self, criterion: str, record: RequestRecord) -> str:
        """Returns why an answer has no value of a criterion: a key of REASONS."""
        if criterion not in self._format.criteria:
            return "format"
        if criterion == "e2e":
            return "not_logged"
        if record.stream is False:
            return "not_streamed"
        if record.ttft_kind is TtftKind.NONE:
            return "not_logged"
        if record.ttft is None:
            return "no_token"
        if criterion == "tpot" and record.completion_tokens is None:
            return "no_usage"
        return "not_logged"


# Why a value is not known, as a sentence goes on after a number of answers.
REASONS: Mapping[str, str] = {
    "format": "by a format that never tells it",
    "not_logged": "by lines that do not hold it",
    "not_streamed": "not streamed",
    "no_token": "without a token, or with a clock that stepped",
    "no_usage": "without the server's token count",
    "bound": "above the threshold, but known as an upper bound only",
}


def _ended(record: RequestRecord) -> bool:
    """Whether an answer came to its end, as far as the log tells."""
    status = record.status
    if status is not None and status >= 400:
        return False
    return record.outcome in (Outcome.OK, Outcome.UNKNOWN)


def _see_clock(
    clock: Clock, record: RequestRecord, written: float | None, now: float
) -> None:
    if record.start is None:
        return
    end = record.start + (record.e2e or 0.0)
    if clock.last is None or end > clock.last:
        clock.last, clock.written = end, written
    if end > now + AHEAD_SECONDS:
        clock.future += 1
        clock.ahead = max(clock.ahead, end - now)

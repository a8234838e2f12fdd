"""The status page's part on request logs: what each gives, lacks, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exporter.log_state import LogState
from exporter.page_exact import EXCLUSIONS, reasons
from exporter.page_text import (
    Markup,
    absent,
    clock,
    count,
    join,
    name,
    pairs,
    plural,
    seconds,
    series,
    size,
    tag,
)

Row = dict[str, Any]
OPEN_LOGS = 2
NOTED_PROBLEMS = 2
LISTED_PROBLEMS = 20
MANY_LINES = 20  # below them, half of the lines is no finding
UNREADABLE = {
    "not_json": "not a JSON object",
    "no_match": "of another shape than the format's",
    "wrong_value": "with a value that cannot be",
    "too_long": "too long",
    "too_deep": "nested too deep",
    "stderr": "messages of the standard error",
}
LOSSES = {
    "file_gone": "the rest of a file is nowhere to be found",
    "rotated_out": "files may have come and gone between two looks",
    "truncated": "a file was cut before it was read",
    "torn_line": "a file was cut after half of a line",
    "damaged_archive": "a compressed file is damaged",
    "unknown_archive": "a compressed file cannot be read",
    "queue_full": "datagrams came faster than they were taken",
    "kernel_buffer_full": "datagrams came faster than the kernel held them",
}
WHAT_TO_DO = (
    "Set “format” to the gateway's; for lines of your own, set it to “custom” and say "
    "in “fields” which key holds what (for text, with “pattern”)."
)


@dataclass(frozen=True, slots=True)
class Log:
    """A request log: its row among the sources, and how it fares; *number* from 1."""

    number: int
    row: Row
    state: LogState

    @property
    def anchor(self) -> str:
        """The id of its details."""
        return f"log-{self.number}"

    @property
    def unrecognised(self) -> bool:
        """Whether lines came and no format is known for them."""
        return self.row["format"] is None and self.row["lines"] > 0

    @property
    def verdict(self) -> tuple[str, str | None, str]:
        """Glyph, colour and word of its condition."""
        lines, problems = self.row["lines"], self.state.problems
        if self.unrecognised:
            return "■", "bad", "not recognised"
        if problems:
            return ("▲", "warn", "partly read") if lines else ("■", "bad", "not read")
        if lines >= MANY_LINES and self.row["unreadable"] > lines / 2:
            return "▲", "warn", "mostly unreadable"
        return ("●", None, "read") if lines else ("○", "soft", "empty so far")

    @property
    def troubled(self) -> bool:
        """Whether somebody should look at it."""
        return self.verdict[1] in ("bad", "warn")

    @property
    def note(self) -> str:
        """What is wrong with it in one line, "" when all is well."""
        if self.state.problems:
            return "; ".join(_some(self.state.problems, NOTED_PROBLEMS))
        if self.unrecognised:
            return str(self.row["reason"])
        if self.troubled:
            share = f"{count(self.row['unreadable'])} of {count(self.row['lines'])}"
            return f"{share} lines cannot be read"
        return ""


def logs_of(document: Row, states: Iterable[LogState]) -> list[Log]:
    """Returns the request logs of a document, those that need attention first."""
    known = {state.name: state for state in states}
    rows = [row for row in document["sources"] if row["source"] == "gateway"]
    found = [
        Log(number, row, known.get(row["name"]) or LogState(row["name"]))
        for number, row in enumerate(rows, 1)
    ]
    return sorted(found, key=lambda log: (not log.troubled, log.number))


def condition(log: Log) -> Markup:
    """Returns a log's condition as glyph and word."""
    glyph, colour, word = log.verdict
    mark = tag("span", glyph, class_="glyph", aria_hidden="true")
    return tag("span", mark, word, class_=colour)


def section(logs: Sequence[Log], at: float) -> Markup:
    """Returns the part of the page about request logs, nothing when there are none."""
    if not logs:
        return Markup()
    few = len(logs) <= OPEN_LOGS
    return tag(
        "section",
        tag("h2", f"Request logs ({len(logs)})", id="logs"),
        *(_details(log, at, opened=few or log.troubled) for log in logs),
        aria_labelledby="logs",
    )


def _details(log: Log, at: float, *, opened: bool) -> Markup:
    row = log.row
    said = [tag("strong", name(row["name"])), " ", condition(log)]
    if row["format"]:
        said.append(f" · {row['format']}")
    if row["lines"]:
        said.append(f" · {plural(row['lines'], 'line')}")
    if row["last_record"] is not None:
        said += [" · last record ", _age(row["last_record"], at)]
    summary = tag("summary", *said)
    body = tag("div", pairs(_facts(log, at)), id=log.anchor)
    return tag("details", summary, body, class_="target", open="" if opened else None)


def _facts(log: Log, at: float) -> list[tuple[str, str]]:
    row, state = log.row, log.state
    facts: list[tuple[str, str]] = []
    # Of lines that nobody recognises the format says it, and what to do.
    problems = [p for p in state.problems if p != row["reason"]]
    if problems:
        said = join(tag("div", text) for text in _some(problems, LISTED_PROBLEMS))
        facts.append(("Problems", tag("div", said, class_="bad")))
    facts.append(("From", name(state.place) if state.place else absent("a recording")))
    facts.append(("Format", _format(log)))
    facts.append(("Lines so far", _lines(row)))
    last = absent("no record with a time yet")
    if row["last_record"] is not None:
        age = _age(row["last_record"], at)
        last = join([age, ", ended ", clock(row["last_record"])])
    facts.append(("Last record", last))
    facts.append(("Not read yet", size(state.lag_bytes)))
    if any(state.lost.values()):
        facts.append(("Lost so far", _by_name(state.lost, LOSSES)))
    if not state.counts:
        facts.append(
            ("Counts", "no (counts: false): another log has the same requests")
        )
    excluded = {reason: number for reason, number in row["excluded"].items() if number}
    if excluded:
        facts.append(("Not counted so far", reasons(excluded, EXCLUSIONS)))
    if row["unevaluable_for"]:
        facts.append(("Not judged so far", _unjudged(row["unevaluable_for"])))
    if state.never:
        never = f"{series(state.never)}, which a class of the configuration asks for"
        facts.append(("Cannot evaluate", tag("span", never, class_="warn")))
    if state.blind:
        facts.append(("Never tells", join(tag("div", said) for said in state.blind)))
    return facts


def _some(texts: Sequence[str], number: int) -> list[str]:
    """Returns the first of *texts*, and how many more there are."""
    more = len(texts) - number
    return [*texts[:number], *([f"{count(more)} more"] if more > 0 else [])]


def _age(then: float, at: float) -> str:
    """Returns how long ago something was; clocks of two machines may differ."""
    if then > at:
        return "now" if then - at < 1 else f"{seconds(then - at)} ahead of our clock"
    return f"{seconds(at - then)} ago"


def _format(log: Log) -> Markup:
    row, state = log.row, log.state
    if row["format"]:
        how = "recognised by its lines" if state.detected else "as configured"
        return join([str(row["format"]), f", {how}"])
    if log.unrecognised:
        return tag("span", f"not recognised. {WHAT_TO_DO}", class_="bad")
    if state.undecided:
        waiting = plural(state.undecided, "line")
        return join([f"{waiting} read, and no format recognises one of them yet"])
    return absent("it is recognised by the first lines")


def _lines(row: Row) -> Markup:
    said = [count(row["lines"])]
    failures = dict(row["parse_failures"])
    messages = failures.pop("stderr", 0)
    if row["unreadable"]:
        said.append(f", {count(row['unreadable'])} unreadable: ")
        said.append(_by_name(failures, UNREADABLE))
    if messages:
        said.append(f", {count(messages)} {UNREADABLE['stderr']}")
    return join(said)


def _by_name(counts: Mapping[str, float], glosses: Mapping[str, str]) -> Markup:
    """Returns counts with the label that the metrics give them, and what it means."""
    parts = []
    for label, number in counts.items():
        if number:
            gloss = glosses.get(label)
            said = [f"{count(number)} ", tag("code", label)]
            parts.append(join([*said, f" ({gloss})" if gloss else ""]))
    return join(parts, ", ")


def _unjudged(unknown: Mapping[str, float]) -> str:
    """Returns how many requests could not be judged since which value was unknown."""
    return ", ".join(
        f"{count(number)} without {series(reason.split(', '), 'or')}"
        if reason != "outcome"
        else f"{count(number)} perhaps incomplete"
        for reason, number in sorted(unknown.items())
    )

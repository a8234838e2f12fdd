"""Reads Prometheus text and OpenMetrics expositions into samples.

A running engine prints the same series at every scrape with other values, so
`Parser` remembers each series by the text before its value and only the value is
parsed again. A line that cannot be read costs that line and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

# Possessive quantifiers (`*+`) never give back what they took, so that a line of
# garbage costs time in proportion to its length.
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*+\Z")
_LABEL_START = re.compile(r",([a-zA-Z_][a-zA-Z0-9_]*+)=\Z")
_LABEL = re.compile(
    r'\s*+([a-zA-Z_][a-zA-Z0-9_]*+)\s*+=\s*+"((?:[^"\\]|\\.)*+)"\s*+(?:,|\Z)',
    re.DOTALL,
)
_UNUSUAL = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*+)"
    r'(?:\s*+\{((?:[^"}]|"(?:[^"\\]|\\.)*+")*+)\}\s*+|\s++)'
    r"(\S++)(.*+)\Z",
    re.DOTALL,
)
# No possessive group here: Python before 3.11.5 gets them wrong (gh-106052).
_AFTER_VALUE = re.compile(
    r"(?:\s++-?[0-9][0-9.eE+-]*+)?(?:\s++\#\s*+\{.*+)?\Z", re.DOTALL
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_NO_LABELS: Mapping[str, str] = MappingProxyType({})
_ESCAPES = {"n": "\n", "\\": "\\", '"': '"'}

MAX_LINE_CHARACTERS = 65_536
MAX_SAMPLES = 200_000
MAX_UNKNOWN_LINES = 50_000
MAX_UNKNOWN_CHARACTERS = 32_000_000
MAX_ERRORS_KEPT = 5
EXCERPT_CHARACTERS = 80


# Structs rather than dataclasses: a page makes hundreds of these two. They hold
# texts and numbers only, so the garbage collector need not follow them.
class Series(Struct, frozen=True, eq=False, gc=False):
    """One time series: a metric name with its labels. Equal only to itself.

    A `Parser` hands out the same object for the same series at every scrape, so
    that readers can keep what they worked out about it in a plain dict.
    """

    name: str
    labels: Mapping[str, str]


class Sample(Struct, frozen=True, gc=False):
    """One line of an exposition; the value is as printed, in the metric's unit."""

    name: str
    labels: Mapping[str, str]
    value: float


class LineError(NamedTuple):
    """A line that could not be read: its number from 1, why, and its beginning."""

    line: int
    reason: str
    excerpt: str


@dataclass(frozen=True, slots=True)
class Exposition:
    """The samples of one scrape, column by column, in the order printed.

    `errors` keeps the first few lines that were lost, `damaged_lines` counts them
    all: unreadable ones, and those past the limit of samples.
    """

    series: list[Series]
    values: list[float]
    errors: tuple[LineError, ...] = ()
    damaged_lines: int = 0

    def samples(self) -> Iterator[Sample]:
        """Yields the samples as rows."""
        for series, value in zip(self.series, self.values, strict=True):
            yield Sample(series.name, series.labels, value)


class Parser:
    """Parses expositions of one target and remembers its series between scrapes.

    The memory is bounded: it starts afresh after *max_unknown* lines that it had not
    seen before, or after `MAX_UNKNOWN_CHARACTERS` of pages with such lines.
    """

    def __init__(
        self,
        *,
        max_unknown: int = MAX_UNKNOWN_LINES,
        max_samples: int = MAX_SAMPLES,
    ) -> None:
        self._max_unknown = max_unknown
        self._max_samples = max_samples
        self._forget()

    def _forget(self) -> None:
        self._known: dict[str, Series] = {}
        self._reader = _LineReader()
        self._unknown_lines = 0
        self._unknown_characters = 0

    def parse(self, text: str) -> Exposition:
        """Returns the samples of *text*, text format or OpenMetrics alike."""
        if (
            self._unknown_lines > self._max_unknown
            or self._unknown_characters > MAX_UNKNOWN_CHARACTERS
        ):
            self._forget()
        known, read = self._known, self._reader.read
        find = known.get
        series: list[Series] = []
        values: list[float] = []
        add_series, add_value = series.append, values.append
        damage = _Damage()
        ascii_only = text.isascii()
        unknown = 0
        lines = text.split("\n")
        for number, line in enumerate(lines, 1):
            if not line or line[0] == "#":
                continue
            head, _, tail = line.rpartition(" ")
            found = find(head)
            try:
                if found is None:
                    unknown += 1
                    sample = read(head, tail)
                    value = sample.value
                    found = known[head] = Series(sample.name, sample.labels)
                else:
                    plain = ascii_only and "_" not in tail
                    value = float(tail) if plain else _number(tail)
            except ValueError:
                again = self._read_unusual(line, number, damage)
                if again is None:
                    continue
                found, value = again
            if len(values) >= self._max_samples:
                reason = f"past the limit of {len(values)} samples"
                damage.cut(number, lines[number - 1 :], reason)
                break
            add_series(found)
            add_value(value)
        if unknown:
            self._unknown_lines += unknown
            self._unknown_characters += len(text)
        return Exposition(series, values, tuple(damage.errors), damage.lines)

    def _read_unusual(
        self, line: str, number: int, damage: _Damage
    ) -> tuple[Series, float] | None:
        """Returns series and value of a line, None if it has none or is damaged."""
        try:
            found = _read_unusual(line)
        except ValueError as error:
            damage.add(number, line, str(error))
            return None
        if found is None:
            return None
        head, sample = found
        series = self._known.get(head)
        if series is None:
            series = self._known[head] = Series(sample.name, sample.labels)
        return series, sample.value


@dataclass(slots=True)
class _Damage:
    """The lines of one exposition that could not be read."""

    lines: int = 0
    errors: list[LineError] = field(default_factory=list)

    def add(self, number: int, line: str, reason: str) -> None:
        self.lines += 1
        if len(self.errors) < MAX_ERRORS_KEPT:
            self.errors.append(LineError(number, reason, line[:EXCERPT_CHARACTERS]))

    def cut(self, number: int, lines: list[str], reason: str) -> None:
        """Counts the samples among *lines*, which are left out from *number* on.

        That is told before any error in a line: it is the larger loss.
        """
        error = LineError(number, reason, lines[0][:EXCERPT_CHARACTERS])
        self.errors = [error, *self.errors[: MAX_ERRORS_KEPT - 1]]
        self.lines += sum(bool(line) and line[0] != "#" for line in lines)


def parse_text(text: str) -> list[Sample]:
    """Returns the samples of one exposition; unreadable lines are left out."""
    read = _LineReader().read
    samples: list[Sample] = []
    for line in text.split("\n"):
        if not line or line[0] == "#":
            continue
        head, _, tail = line.rpartition(" ")
        try:
            samples.append(read(head, tail))
        except ValueError:
            with suppress(ValueError):
                found = _read_unusual(line)
                if found is not None:
                    samples.append(found[1])
    return samples


class _LineReader:
    """Reads lines of the usual form: name{label="value",…} number.

    It remembers names and label texts, since a page repeats them on many lines.
    """

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._labels: dict[str, Mapping[str, str]] = {}
        self._label_names: dict[tuple[str, ...], tuple[str, ...]] = {}

    def read(self, head: str, tail: str) -> Sample:
        """Returns the sample of a line split at its last space.

        Raises ValueError when the line is damaged, very long or of another form.
        """
        name, brace, inside = head.partition("{")
        if name not in self._names:
            if len(name) > MAX_LINE_CHARACTERS or not _NAME.match(name):
                raise ValueError
            self._names.add(name)
        labels = self._labels.get(inside) if brace else _NO_LABELS
        if labels is None:
            labels = self._labels[inside] = self._read_labels(inside)
        plain = tail.isascii() and "_" not in tail
        return Sample(name, labels, float(tail) if plain else _number(tail))

    def _read_labels(self, text: str) -> Mapping[str, str]:
        """Returns the labels of *text*, which begins after the opening brace."""
        if "\\" in text or len(text) > MAX_LINE_CHARACTERS:
            raise ValueError
        # With a comma before it, each label is `,name=` and its value between quotes.
        parts = f",{text}".split('"')
        around = tuple(parts[::2])
        names = self._label_names.get(around)
        if names is None:
            names = self._label_names[around] = _label_names(around)
        return dict(zip(names, parts[1::2], strict=True))


def _label_names(around: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names in the texts around label values: `,name=` … and `}`."""
    *starts, end = around
    matches = map(_LABEL_START.match, starts)
    names = tuple(match[1] for match in matches if match is not None)
    if end not in ("}", ",}") or len(set(names)) != len(starts):
        raise ValueError
    return names


def _read_unusual(line: str) -> tuple[str, Sample] | None:
    """Returns series text and sample of a line of any form, None when it has none.

    Reads escapes, timestamps, exemplars, tabs and other spacing, and passes over
    blanks and indented comments. Raises ValueError with the reason for the rest.
    """
    if len(line) > MAX_LINE_CHARACTERS:
        raise ValueError(f"line longer than {MAX_LINE_CHARACTERS} characters")
    stripped = line.strip()
    if not stripped or stripped[0] == "#":
        return None
    match = _UNUSUAL.match(stripped)
    if match is None:
        raise ValueError("not a sample")
    name, inside, number, rest = match.groups()
    head = name if inside is None else f"{name}{{{inside}}}"
    sample = Sample(name, _read_any_labels(inside or ""), _number(number))
    if not _AFTER_VALUE.match(rest):
        excerpt = rest.strip()[:EXCERPT_CHARACTERS]
        raise ValueError(f"neither a time stamp nor an exemplar: {excerpt}")
    return head, sample


def _read_any_labels(text: str) -> dict[str, str]:
    """Returns the labels of the *text* between two braces."""
    labels: dict[str, str] = {}
    text = text.rstrip()
    position = 0
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None:
            raise ValueError('labels are not name="value" pairs')
        name, value = match.groups()
        if name in labels:
            raise ValueError(f"label {name[:EXCERPT_CHARACTERS]} given twice")
        labels[name] = _ESCAPE.sub(_unescape, value) if "\\" in value else value
        position = match.end()
    return labels


def _unescape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[1], match[0])


def _number(text: str) -> float:
    """Returns a sample's value, without the spellings that only Python reads.

    Those are 1_000 and digits that are not ASCII.
    """
    if "_" not in text and text.isascii():
        with suppress(ValueError):
            return float(text)
    raise ValueError(f"not a number: {text[:EXCERPT_CHARACTERS]}")

"""Reads Prometheus text and OpenMetrics expositions into samples.

A running engine prints the same series at every scrape with other values, so
`Parser` remembers each series by the text before its value and only the value is
parsed again. A line that cannot be read costs that line and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
_LABEL = re.compile(
    r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|\Z)', re.DOTALL
)
_PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="([^"\\]*)",?')
_UNUSUAL = re.compile(
    r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*"
    r'(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?'
    r"\s*(\S+)(?:\s+(-?[0-9.eE+-]+))?\s*(?:\#\s*\{.*)?\Z"
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "\\": "\\", '"': '"'}

MAX_LINE_CHARACTERS = 65_536
MAX_SAMPLES = 200_000
MAX_ERRORS_KEPT = 5
EXCERPT_CHARACTERS = 80


class Series:
    """One time series: a metric name with its labels. Equal only to itself.

    A `Parser` hands out the same object for the same series at every scrape, so
    that readers can keep what they worked out about it in a plain dict.
    """

    __slots__ = ("labels", "name")

    def __init__(self, name: str, labels: Mapping[str, str]) -> None:
        self.name = name
        self.labels = labels

    def __repr__(self) -> str:
        return f"Series({self.name!r}, {dict(self.labels)!r})"


class Sample(NamedTuple):
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

    `errors` keeps the first few unreadable lines, `damaged_lines` counts them all.
    `truncated` says that samples past the limit were left out.
    """

    series: list[Series]
    values: list[float]
    errors: tuple[LineError, ...] = ()
    damaged_lines: int = 0
    truncated: bool = False

    def samples(self) -> Iterator[Sample]:
        """Yields the samples as rows."""
        for series, value in zip(self.series, self.values, strict=True):
            yield Sample(series.name, series.labels, value)


class Parser:
    """Parses expositions of one target and remembers its series between scrapes.

    The memory is bounded: past `max_series` remembered texts it starts afresh.
    """

    def __init__(
        self, *, max_series: int = 50_000, max_samples: int = MAX_SAMPLES
    ) -> None:
        self._known: dict[str, Series] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        self._names: set[str] = set()
        self._max_series = max_series
        self._max_samples = max_samples

    def parse(self, text: str) -> Exposition:
        """Returns the samples of *text*, text format or OpenMetrics alike."""
        known = self._known
        if len(known) > self._max_series:
            known.clear()
            self._labels.clear()
            self._names.clear()
        find = known.get
        series: list[Series] = []
        values: list[float] = []
        add_series, add_value = series.append, values.append
        errors: list[LineError] = []
        damaged = 0
        limit = self._max_samples
        for number, line in enumerate(text.split("\n"), 1):
            if not line or line[0] == "#":
                continue
            head, _, tail = line.rpartition(" ")
            found = find(head)
            try:
                if found is None:
                    found, tail = self._read(line, head, tail)
                    if found is None:
                        continue
                value = _number(tail) if "_" in tail else float(tail)
            except ValueError as error:
                damaged += 1
                if len(errors) < MAX_ERRORS_KEPT:
                    excerpt = line[:EXCERPT_CHARACTERS]
                    errors.append(LineError(number, str(error), excerpt))
                continue
            if len(values) >= limit:
                return Exposition(series, values, tuple(errors), damaged, True)
            add_series(found)
            add_value(value)
        return Exposition(series, values, tuple(errors), damaged)

    def _read(self, line: str, head: str, tail: str) -> tuple[Series | None, str]:
        """Returns the series and the value's text of a line not seen before.

        The series is None for blanks and indented comments.
        """
        if len(line) > MAX_LINE_CHARACTERS:
            raise ValueError(f"line longer than {MAX_LINE_CHARACTERS} characters")
        name, brace, inside = head.partition("{")
        if name in self._names or NAME.match(name):
            if not brace:
                return self._remember(head, name, {}, tail)
            if inside[-1:] == "}":
                labels = self._labels.get(inside)
                if labels is None:
                    labels = self._labels[inside] = parse_labels(inside[:-1])
                return self._remember(head, name, labels, tail)
        return self._read_unusual(line)

    def _read_unusual(self, line: str) -> tuple[Series | None, str]:
        """Reads timestamps, exemplars, tabs and other spacing."""
        stripped = line.strip()
        if not stripped or stripped[0] == "#":
            return None, ""
        match = _UNUSUAL.match(stripped)
        if match is None:
            raise ValueError("not a sample")
        name, inside, number, _ = match.groups()
        head = name if inside is None else f"{name}{{{inside}}}"
        series = self._known.get(head)
        if series is not None:
            return series, number
        return self._remember(head, name, parse_labels(inside or ""), number)

    def _remember(
        self, head: str, name: str, labels: Mapping[str, str], number: str
    ) -> tuple[Series, str]:
        _number(number)  # a damaged line must not be remembered as a series
        self._names.add(name)
        series = self._known[head] = Series(name, labels)
        return series, number


def parse_text(text: str) -> list[Sample]:
    """Returns the samples of one exposition; unreadable lines are left out."""
    return list(Parser().parse(text).samples())


def parse_labels(text: str) -> Mapping[str, str]:
    """Returns the labels between the braces of a sample line.

    Raises ValueError when the text is not a list of name="value" pairs.
    """
    pairs = _PAIR.findall(text)
    # Nothing was skipped between the pairs when their lengths add up to the text:
    # `="",` is four characters a pair, the last comma may be missing.
    spare = sum(map(len, chain.from_iterable(pairs))) + 4 * len(pairs) - len(text)
    labels = dict(pairs)
    if spare in (0, 1) and len(labels) == len(pairs):
        return labels
    return _parse_labels_slowly(text)


def _parse_labels_slowly(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None:
            if not text[position:].strip():
                break
            raise ValueError("labels are not name=\"value\" pairs")
        name, value = match.groups()
        if name in labels:
            raise ValueError(f"label {name} given twice")
        labels[name] = _ESCAPE.sub(_unescape, value) if "\\" in value else value
        position = match.end()
    return labels


def _unescape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[1], match[0])


def _number(text: str) -> float:
    """Returns a sample's value; Python alone would also read 1_000."""
    if "_" in text:
        raise ValueError(f"not a number: {text[:EXCERPT_CHARACTERS]}")
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"not a number: {text[:EXCERPT_CHARACTERS]}") from None

"""CSV files of any house, by a map from our fields to their columns.

A row is a request, or, when the map has `requests_per_second`, a load point.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from analyzer.benchmarks.run import (
    LATENCIES,
    BenchmarkError,
    Knob,
    Problem,
    Requests,
    Run,
)
from analyzer.strict import UNITS, Node

_LOAD = ("concurrency", "request_rate", "model", "label")
_REQUEST = ("start", "ttft", "tpot", "max_gap", "e2e", "prompt_tokens")
_MORE = ("output_tokens", "failed", "duration")
_POINT = ("requests_per_second", "requests", "output_tokens_per_second", "failures")
_QUANTILES = {
    f"{latency}_p{level}": (latency, float(level) / 100)
    for latency in LATENCIES
    for level in ("50", "90", "95", "99")
}
FIELDS = (*_LOAD, *_REQUEST, *_MORE, *_POINT, *_QUANTILES)
_TIMES = {"start", "ttft", "tpot", "max_gap", "e2e", "duration", *_QUANTILES}
_TRUE = {"1", "true", "yes", "failed", "error"}
_FALSE = {"", "0", "false", "no", "ok", "success"}
_FAULTS = 20  # rows told one by one; what follows is counted


@dataclass(frozen=True, slots=True)
class Column:
    """The column of one field, and what its numbers are multiplied with."""

    key: str
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class FieldMap:
    """Which column holds which field; `config` maps knobs to columns."""

    columns: Mapping[str, Column]
    config: Mapping[str, str] = field(default_factory=dict)


def read_field_map(node: Node) -> FieldMap:
    """Returns the map that a YAML document holds. Raises ConfigError."""
    columns, config = {}, {}
    members = node.mapping(optional=(*FIELDS, "config"))
    for name, child in members.items():
        if name == "config":
            config = {knob: column.text() for knob, column in child.members().items()}
        elif isinstance(child.value, dict):
            parts = child.mapping(required=("key",), optional=("unit",))
            unit = parts["unit"].choice(tuple(UNITS)) if "unit" in parts else "s"
            if unit != "s" and name not in _TIMES:
                raise child.error("only times have a unit")
            columns[name] = Column(parts["key"].text(), UNITS[unit])
        else:
            columns[name] = Column(child.text())
    if not {"ttft", "tpot", "e2e", "requests_per_second"} & set(columns):
        raise node.error("needs one of ttft, tpot, e2e or requests_per_second")
    return FieldMap(columns, config)


def read(data: bytes, file: str, fields: FieldMap) -> Iterator[Run | Problem]:
    """Yields the runs of a CSV file, and what is wrong with rows of it.

    Raises BenchmarkError when it has not the columns of the map.
    """
    text = io.StringIO(data.decode("utf-8-sig", errors="replace"), newline="")
    reader = csv.DictReader(text)
    header = reader.fieldnames or ()
    wanted = (*(c.key for c in fields.columns.values()), *fields.config.values())
    missing = [name for name in wanted if name not in header]
    if missing:
        raise BenchmarkError(f"has no column {', '.join(map(repr, missing[:5]))}")
    groups: dict[tuple[object, ...], _Group] = {}
    faults = 0
    for row in _rows(reader):
        place = f"line {reader.line_num}"
        try:
            values = _values(row, fields)
            if "requests_per_second" in fields.columns:
                yield _point(values, file, place, _config(row, fields))
                continue
            key = (*(values.get(n) for n in _LOAD), *_config(row, fields).items())
            group = groups.setdefault(key, _Group(values, _config(row, fields), place))
            group.add(values)
        except (BenchmarkError, csv.Error) as error:
            faults += 1
            if faults <= _FAULTS:
                yield Problem(file, place, str(error))
    if faults > _FAULTS:
        yield Problem(file, "", f"{faults - _FAULTS} more rows that cannot be read")
    for group in groups.values():
        try:
            yield group.run(file)
        except BenchmarkError as error:
            yield Problem(file, group.place, str(error))


def _rows(reader: csv.DictReader[str]) -> Iterator[dict[str, str]]:
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise BenchmarkError(f"line {reader.line_num}: {error}") from None


Values = Mapping[str, float | str | None]


def _values(row: Mapping[str, str | None], fields: FieldMap) -> Values:
    found: dict[str, float | str | None] = {}
    for name, column in fields.columns.items():
        text = row[column.key]
        if text is None:
            raise BenchmarkError("has fewer columns than the header")
        if name in {"model", "label"}:
            found[name] = text
        elif name == "failed":
            found[name] = _failed(text)
        else:
            found[name] = _number(text, column)
    return found


def _failed(text: str) -> float:
    """Returns 1 for a failure: a word for it, a status of 400 or more, an error."""
    word = text.strip().lower()
    if word in _TRUE:
        return 1.0
    if word in _FALSE:
        return 0.0
    return float(not word.isdigit() or int(word) >= 400)


def _number(text: str, column: Column) -> float | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        raise BenchmarkError(f"{column.key}: not a number: {text[:40]!r}") from None
    return value * column.factor if math.isfinite(value) else None


def _config(row: Mapping[str, str | None], fields: FieldMap) -> dict[str, Knob]:
    return {knob: row[column] or "" for knob, column in fields.config.items()}


def _at(values: Values, name: str) -> float | None:
    value = values.get(name)
    return value if isinstance(value, float) else None


class _Group:
    """The requests of one load point."""

    def __init__(self, values: Values, config: dict[str, Knob], place: str) -> None:
        self.place = place
        self._first = values
        self._config = config
        self._requests = Requests()

    def add(self, values: Values) -> None:
        """Adds a row."""
        self._requests.add(
            failed=bool(_at(values, "failed")),
            start=_at(values, "start"),
            ttft=_at(values, "ttft"),
            tpot=_at(values, "tpot"),
            max_gap=_at(values, "max_gap"),
            e2e=_at(values, "e2e"),
            prompt_tokens=_at(values, "prompt_tokens"),
            output_tokens=_at(values, "output_tokens"),
        )

    def run(self, file: str) -> Run:
        """Returns the run. Raises BenchmarkError when its duration is not known."""
        requests, first = self._requests, self._first
        duration = _at(first, "duration")
        if duration is None:
            ends = [s + e for s, e in zip(requests.start, requests.e2e, strict=True)]
            known = [end for end in ends if end == end]
            if not known:
                raise BenchmarkError("needs duration, or start and e2e, for any rate")
            duration = max(known) - min(s for s in requests.start if s == s)
        if duration <= 0:
            raise BenchmarkError("its duration is not more than 0 s")
        failed = sum(requests.failed)
        label = {"label": str(first["label"])} if first.get("label") else {}
        return Run(
            file=file,
            place=self.place,
            tool="csv",
            duration=duration,
            completed=len(requests) - failed,
            failed=failed,
            model=str(first.get("model") or ""),
            concurrency=_at(first, "concurrency"),
            request_rate=_at(first, "request_rate"),
            config={**label, **self._config},
            output_tokens=_sum(requests),
            requests=requests,
        )


def _sum(requests: Requests) -> float | None:
    known = [
        tokens
        for tokens, failed in zip(requests.output_tokens, requests.failed, strict=True)
        if not failed and tokens == tokens
    ]
    return math.fsum(known) if known else None


def _point(values: Values, file: str, place: str, config: dict[str, Knob]) -> Run:
    rate, duration = _at(values, "requests_per_second"), _at(values, "duration")
    requests = _at(values, "requests")
    if rate is None or (duration is None and requests is None):
        raise BenchmarkError("a load point needs its rate, and duration or requests")
    if duration is None:
        duration = (requests or 0.0) / rate if rate > 0 else 0.0
    if duration <= 0:
        raise BenchmarkError("its duration is not more than 0 s")
    tokens = _at(values, "output_tokens_per_second")
    quantiles: dict[str, dict[float, float]] = {}
    for name, (latency, level) in _QUANTILES.items():
        value = _at(values, name)
        if value is not None:
            quantiles.setdefault(latency, {})[level] = value
    label = {"label": str(values["label"])} if values.get("label") else {}
    return Run(
        file=file,
        place=place,
        tool="csv",
        duration=duration,
        completed=round(rate * duration),
        failed=round(_at(values, "failures") or 0.0),
        model=str(values.get("model") or ""),
        concurrency=_at(values, "concurrency"),
        request_rate=_at(values, "request_rate"),
        config={**label, **config},
        output_tokens=None if tokens is None else tokens * duration,
        quantiles=quantiles,
    )

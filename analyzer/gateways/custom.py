"""A log of the user's own: where it keeps our fields, and in which units.

JSON lines name a member for each field, nested ones by a dotted path; a pattern names a
group. Nothing is derived but the time per output token, from the first token, the total
and the server's count of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from analyzer.config_gateways import RECORD_FIELDS, TIME_FIELDS, LogField
from analyzer.gateways.format import Format
from analyzer.gateways.json_line import UNREADABLE, LineDecoder
from analyzer.gateways.pattern import compile_pattern
from analyzer.gateways.record import (
    E2eKind,
    LineProblem,
    Outcome,
    RequestRecord,
    TokensKind,
    TtftKind,
)
from analyzer.gateways.values import (
    LONGEST_LABEL,
    SENTINELS,
    clf_time,
    count,
    duration,
    failed_status,
    number,
    path_of,
    plausible,
    rfc3339,
    status_code,
)

UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
BLIND = (
    "Whatever its fields do not hold: see `fields` of the configuration.",
    (
        "Whether an answer was complete, without an `outcome` and without the server's "
        "count of tokens, which comes last."
    ),
)
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")
_OUTCOMES = frozenset(Outcome)

Value = str | float | bool | None
Values = dict[str, Value]
Read = Callable[[bytes], Values]


def custom(fields: Mapping[str, LogField], pattern: str = "") -> Format:
    """Returns the format of a log with these *fields*, in JSON or by *pattern*.

    Groups of the pattern that have the name of a field need no entry. Raises
    PatternError.
    """
    read: Read
    if pattern:
        match, groups = compile_pattern(pattern)
        named = {name: LogField(name) for name in groups if name in RECORD_FIELDS}
        fields = {**named, **fields}
        places = {name: groups.index(given.key) for name, given in fields.items()}

        def read(line: bytes) -> Values:
            found = match(line)
            return {name: found[place] for name, place in places.items()}
    else:
        read = _JsonFields(fields).read
    units = {name: UNITS[given.unit] for name, given in fields.items()}
    criteria = frozenset(("ttft", "tpot", "max_gap", "e2e")) & fields.keys()
    if {"ttft", "e2e", "completion_tokens"} <= fields.keys():
        criteria |= {"tpot"}
    return Format(
        name="custom",
        parse=lambda line: _record(read(line), units),
        criteria=criteria,
        blind=BLIND,
        recognises=lambda _: False,
    )


class _JsonFields:
    """Decodes only the members that are asked for, nested ones too.

    A dot may stand in a flat key as well, so both readings of it are looked for.
    """

    def __init__(self, fields: Mapping[str, LogField]) -> None:
        paths = {
            name: sorted({(given.key,), tuple(given.key.split("."))}, key=len)
            for name, given in fields.items()
        }
        tree: dict[str, Any] = {}
        for path in (path for ways in paths.values() for path in ways):
            _plant(tree, path)
        self._places = [
            (name, tuple(_attributes(tree, path) for path in ways))
            for name, ways in paths.items()
        ]
        decoder = LineDecoder(_shape(tree))
        self._decode, self._recover = decoder.decode, decoder.recover

    def read(self, raw: bytes) -> Values:
        """Returns the value of each field, None where it is missing."""
        try:
            line = self._decode(raw)
        except UNREADABLE as error:
            line = self._recover(raw, error)
        return {name: _first_of(line, ways) for name, ways in self._places}


def _first_of(line: msgspec.Struct, ways: tuple[tuple[str, ...], ...]) -> Value:
    """Returns the first value that one of the *ways* leads to."""
    for way in ways:
        found: Any = line
        for attribute in way:
            found = getattr(found, attribute, None)
        if found is not None:
            value: Value = found
            return value
    return None


def _plant(tree: dict[str, Any], path: tuple[str, ...]) -> None:
    """Adds a path to *tree*, where an empty mapping is a leaf."""
    *inner, last = path
    for key in inner:
        tree = tree.setdefault(key, {})
    tree.setdefault(last, {})


def _attributes(tree: dict[str, Any], path: tuple[str, ...]) -> tuple[str, ...]:
    names = []
    for key in path:
        names.append(f"m{list(tree).index(key)}")
        tree = tree[key]
    return tuple(names)


def _shape(tree: dict[str, Any]) -> type[msgspec.Struct]:
    """Returns the struct of a level, whose attributes are m0, m1 and so on."""
    scalar = str | float | bool | None
    return msgspec.defstruct(
        "Part",
        [
            (
                f"m{i}",
                (_shape(inner) | None) if inner else scalar,
                msgspec.field(default=None, name=key),
            )
            for i, (key, inner) in enumerate(tree.items())
        ],
        gc=False,
    )


def _record(values: Values, units: Mapping[str, float]) -> RequestRecord:
    if not any(value is not None for value in values.values()):
        raise LineProblem("no_match", "none of the fields is there")
    get = values.get
    times = {name: _duration(get(name), units.get(name, 1.0)) for name in _DURATIONS}
    status = status_code(_scalar(get("status")))
    tokens = count(_scalar(get("completion_tokens")))
    outcome = _outcome(get("outcome"), status, usage=tokens is not None)
    stream = _flag(get("stream"))
    if stream is False:
        times["ttft"] = times["tpot"] = times["max_gap"] = None
    ttft, e2e = times["ttft"], times["e2e"]
    if outcome is Outcome.OK and "tpot" not in values and tokens is not None:
        times["tpot"] = _per_token(ttft, e2e, tokens)
    looked = "ttft" in values and stream is not False
    return RequestRecord(
        request_id=_text(get("request_id")),
        start=_stamp(get("start"), units.get("start", 1.0)),
        route=path_of(_text(get("route"))),
        backend=_text(get("backend"))[:LONGEST_LABEL],
        tenant=_text(get("tenant")),
        model=_text(get("model"))[:LONGEST_LABEL],
        stream=stream,
        status=status,
        outcome=outcome,
        ttft=ttft,
        ttft_kind=TtftKind.TOKEN if looked else TtftKind.NONE,
        tpot=times["tpot"],
        max_gap=times["max_gap"],
        e2e=e2e,
        e2e_kind=E2eKind.NONE if e2e is None else E2eKind.HANDOVER,
        prompt_tokens=count(_scalar(get("prompt_tokens"))),
        completion_tokens=tokens,
        cached_tokens=count(_scalar(get("cached_tokens"))),
        tokens_kind=TokensKind.NONE if tokens is None else TokensKind.USAGE,
    )


def _per_token(ttft: float | None, e2e: float | None, tokens: int) -> float | None:
    """Returns the time per output token after the first, with the total as its end."""
    if ttft is None or e2e is None or e2e < ttft or tokens < 2:
        return None
    return (e2e - ttft) / (tokens - 1)


_DURATIONS = tuple(name for name in TIME_FIELDS if name != "start")


def _scalar(value: Value) -> str | float | None:
    if isinstance(value, bool):
        raise LineProblem("wrong_value", "a truth value where a number belongs")
    return value


def _duration(value: Value, unit: float) -> float | None:
    return duration(_scalar(value), unit)


def _text(value: Value) -> str:
    if value is None or value in SENTINELS:
        return ""
    return value if isinstance(value, str) else f"{value:g}"


def _flag(value: Value) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    text = value.lower() if isinstance(value, str) else f"{value:g}"
    return True if text in _TRUE else False if text in _FALSE else None


def _stamp(value: Value, unit: float) -> float | None:
    """Returns a Unix time: a number, an RFC 3339 stamp or one as in common logs."""
    if isinstance(value, str):
        found = rfc3339(value)
        found = clf_time(value) if found is None else found
        if found is not None or not value[:1].isdecimal():
            return found
    stamp = number(_scalar(value))
    return None if stamp is None else plausible(stamp * unit)


def _outcome(value: Value, status: int | None, *, usage: bool) -> Outcome:
    """Returns the log's word for it when that is one of ours, else what else tells."""
    if isinstance(value, str) and value in _OUTCOMES:
        return Outcome(value)
    failed = failed_status(status)
    if failed is not None:
        return failed
    return Outcome.OK if usage and value is None else Outcome.UNKNOWN

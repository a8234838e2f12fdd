"""Typed access to members of decoded JSON that a tool may have left out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from analyzer.benchmarks.run import BenchmarkError

T = TypeVar("T")
Document = Mapping[str, msgspec.Raw]


def member(document: Document, name: str, wanted: type[T]) -> T | None:
    """Returns a member decoded as *wanted*, None when it is absent or null.

    Raises BenchmarkError when it is something else.
    """
    raw = document.get(name)
    if raw is None or bytes(raw) == b"null":
        return None
    try:
        return msgspec.json.decode(raw, type=wanted)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BenchmarkError(f"{name}: {error}") from None


def part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Returns a member that is an object, an empty one for anything else."""
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def number(value: Any) -> float | None:  # noqa: ANN401
    """Returns a finite number, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def figure(document: Document, name: str) -> float | None:
    """Returns a member that is a finite number, None when absent or not finite.

    Raises BenchmarkError when it is no number.
    """
    return number(member(document, name, float))


def count(document: Document, name: str) -> int | None:
    """Returns a member that is a count. Raises BenchmarkError when it cannot be one."""
    value = figure(document, name)
    if value is None:
        return None
    if value < 0 or value != int(value):
        raise BenchmarkError(f"{name}: must be a count, got {value:g}")
    return int(value)


def load(document: Document, name: str) -> float | None:
    """Returns a rate or concurrency, None for "inf", "trace" and the like."""
    raw = document.get(name)
    if raw is None:
        return None
    try:
        value = number(msgspec.json.decode(raw))
    except msgspec.DecodeError as error:
        raise BenchmarkError(f"{name}: {error}") from None
    if value is not None and value <= 0:
        raise BenchmarkError(f"{name}: must be more than 0, got {value:g}")
    return value


def span(value: float | None, name: str) -> float:
    """Returns a duration that can be divided by. Raises BenchmarkError."""
    if value is None:
        raise BenchmarkError(f"{name}: is missing")
    if value <= 0:
        raise BenchmarkError(f"{name}: must be more than 0 s, got {value:g}")
    return value


def whole(data: bytes, wanted: type[T]) -> T:
    """Returns *data* decoded. Raises BenchmarkError with the place in it."""
    try:
        return msgspec.json.decode(data, type=wanted)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BenchmarkError(f"not what it should be: {error}") from None

"""What every log format gives: a parser of lines, and what it can and cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from analyzer.gateways.record import RequestRecord

Parse = Callable[[bytes], RequestRecord | None]


@dataclass(frozen=True, slots=True)
class FormatMemory:
    """What a format knows of lines before; with it a restart costs no verdict.

    `held` are records that wait for a later line, by the request's id; `seen` the
    last attempts, whose lines may come twice; `habits` what HeaderHabits learnt.
    """

    held: Mapping[str, RequestRecord] = field(default_factory=dict)
    seen: tuple[tuple[str, float | None], ...] = ()
    habits: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def _nothing() -> tuple[RequestRecord, ...]:
    return ()


def _forget(_: FormatMemory) -> None:
    """Takes over nothing: most formats remember no lines."""


@dataclass(frozen=True, slots=True)
class Format:
    """One gateway's log format, for one log: it may remember what it read before.

    `parse` returns the record of one line without its newline, None for a line that
    is no request (a comment, another program's line, the second line of a request),
    and raises LineProblem for one it cannot read. `criteria` are those it can
    evaluate for a streamed answer at best; `blind` says in sentences what it can
    never tell. `recognises` says whether a line is of this format, for `format:
    auto`. `held` takes the records that still wait for a later line: at the end of a
    log none will come. `memory` returns what a restart needs, `recall` takes it over.
    """

    name: str
    parse: Parse
    criteria: frozenset[str]
    blind: tuple[str, ...]
    recognises: Callable[[bytes], bool]
    held: Callable[[], tuple[RequestRecord, ...]] = _nothing
    memory: Callable[[], FormatMemory] = FormatMemory
    recall: Callable[[FormatMemory], None] = _forget

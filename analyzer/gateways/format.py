"""What every log format gives: a parser of lines, and what it can and cannot tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from analyzer.gateways.record import RequestRecord

Parse = Callable[[bytes], RequestRecord | None]


def _nothing() -> tuple[RequestRecord, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Format:
    """One gateway's log format, for one log: it may remember what it read before.

    `parse` returns the record of one line without its newline, None for a line that
    is no request (a comment, another program's line, the second line of a request),
    and raises LineProblem for one it cannot read. `criteria` are those it can
    evaluate for a streamed answer at best; `blind` says in sentences what it can
    never tell. `recognises` says whether a line is of this format, for `format:
    auto`. `held` takes the records that still wait for a later line: at the end of a
    log none will come.
    """

    name: str
    parse: Parse
    criteria: frozenset[str]
    blind: tuple[str, ...]
    recognises: Callable[[bytes], bool]
    held: Callable[[], tuple[RequestRecord, ...]] = _nothing

"""What every log format gives: a parser of lines, and what it can and cannot tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from analyzer.gateways.record import RequestRecord

Parse = Callable[[bytes], RequestRecord | None]


@dataclass(frozen=True, slots=True)
class Format:
    """One gateway's log format.

    `parse` returns the record of one line without its newline, None for a line that
    is no request (a comment, another program's line, the second line of a request),
    and raises LineProblem for one it cannot read. `criteria` are those it can
    evaluate for a streamed answer; `blind` says in sentences what it can never tell.
    `recognises` says whether a line is of this format, for `format: auto`.
    """

    name: str
    parse: Parse
    criteria: frozenset[str]
    blind: tuple[str, ...]
    recognises: Callable[[bytes], bool]

"""Envoy's default text format, Istio's variant, and what response flags mean."""

from __future__ import annotations

import re

from analyzer.gateways.record import E2eKind, LineProblem, Outcome, RequestRecord
from analyzer.gateways.values import (
    LONGEST_LABEL,
    duration,
    failed_status,
    path_of,
    rfc3339,
    status_code,
    text,
)

# Response flags, by what they say of an answer that had begun.
_LEFT = frozenset(("DC", "DR"))
_TIMEOUTS = frozenset(("SI", "UT", "DT", "UMSDR"))
_CUTS = frozenset(
    ("UC", "UF", "UR", "UPE", "UH", "UO", "URX", "LR", "OM", "IH", "DPE", "LH")
)
_HARMLESS = frozenset(("DI", "RFCF", "NFCF"))  # delay injected, no filter config

# Agents and forwarded addresses are as the client sent them, quotes and all: what
# stands behind them is found from the end.
_LINE = re.compile(
    r"\[(?P<start>\d{4}-\d\d-\d\dT[^\]\s]{1,40})\] "
    r'"(?P<method>\S+) (?P<path>\S*) (?P<protocol>[^"\s]*)" '
    r"(?P<code>\d{1,3}) (?P<flags>\S+) "
    r'(?:\S+ \S+ "[^"]*" )?'  # Istio: details and the transport's failure
    r"\d+ \d+ (?P<duration>\d+|-) (?P<service>\d+|-) "
    r'".*" "(?P<request_id>[^"]*)" "[^"]*" "(?P<host>[^"]*)"(?P<rest> [^"]*)?\Z'
)
# Envoy's own messages, which share standard output with the access log.
_MESSAGE = re.compile(rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+\]\[\d+\]\[")


def outcome_of(
    code: int | None, flags: str | None, *, error: bool, complete: bool
) -> Outcome:
    """Returns how an answer ended; *complete* when its last event had been seen."""
    found = frozenset(flags.split(",")) if flags and flags != "-" else frozenset()
    if found & _TIMEOUTS:
        return Outcome.TIMEOUT
    failed = failed_status(code)
    if failed is not None:
        return failed
    if error:
        return Outcome.STREAM_ERROR
    if found & _LEFT:
        return Outcome.OK if complete and code else Outcome.CLIENT_ABORT
    if found & _CUTS:
        return Outcome.UPSTREAM_CUT
    return Outcome.OK if code and found <= _HARMLESS else Outcome.UNKNOWN


def parse_text(raw: bytes) -> RequestRecord | None:
    """Returns the record of a line of text, None for a message of Envoy's own.

    Raises LineProblem.
    """
    match = _LINE.match(raw.decode("utf-8", "replace"))
    if match is None:
        if _MESSAGE.match(raw):
            return None
        raise LineProblem("no_match", "not Envoy's default text format")
    code, e2e = status_code(match["code"]), duration(match["duration"], 1e-3)
    return RequestRecord(
        request_id=text(match["request_id"]),
        start=rfc3339(match["start"]),
        route=path_of(text(match["path"])),
        backend=text(match["host"])[:LONGEST_LABEL],
        status=code,
        outcome=outcome_of(code, match["flags"], error=False, complete=False),
        header_time=duration(match["service"], 1e-3),
        e2e=e2e,
        e2e_kind=E2eKind.NONE if e2e is None else E2eKind.HANDOVER,
    )


def recognises_text(raw: bytes) -> bool:
    """Whether a line is of the default text format."""
    return _LINE.match(raw.decode("utf-8", "replace")) is not None

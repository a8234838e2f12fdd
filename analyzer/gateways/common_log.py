"""The combined log format of nginx and others, and Traefik's extension of it."""

from __future__ import annotations

import re

from analyzer.gateways.record import E2eKind, LineProblem, Outcome, RequestRecord
from analyzer.gateways.values import (
    LONGEST_LABEL,
    clf_time,
    duration,
    failed_status,
    path_of,
    status_code,
)

_COMBINED = (
    r"(?P<address>\S+) \S+ (?P<user>[^\[]*) \[(?P<time>[^\]]{20,40})\] "
    r'"(?P<request>[^"]*)" (?P<status>\d{1,3}) (?P<bytes>\d+|-) '
    r'"(?P<referer>[^"]*)" "(?P<agent>.*)"'
)
_PLAIN = re.compile(_COMBINED + r"\s*\Z")
_TRAEFIK = re.compile(
    _COMBINED + r' (?P<count>\d+|-) "(?P<router>[^"]*)" "(?P<server>[^"]*)" '
    r"(?P<duration>\d{1,12})ms\s*\Z"
)


def parse_combined(raw: bytes) -> RequestRecord:
    """Returns what a combined line tells: path, status, and when it was written.

    It holds no duration, so `start` is the end, cut to a second. Raises LineProblem.
    """
    match = _PLAIN.match(raw.decode("utf-8", "replace"))
    if match is None:
        raise LineProblem("no_match", "not the combined log format")
    return _record(match)


def parse_traefik(raw: bytes) -> RequestRecord:
    """Returns the record of a line of Traefik's common format; raises LineProblem."""
    match = _TRAEFIK.match(raw.decode("utf-8", "replace"))
    if match is None:
        raise LineProblem("no_match", "not Traefik's common log format")
    return _record(match, match["server"], duration(match["duration"], 1e-3))


def _record(
    match: re.Match[str], backend: str = "-", e2e: float | None = None
) -> RequestRecord:
    status = status_code(match["status"])
    parts = match["request"].split(" ")
    return RequestRecord(
        start=clf_time(match["time"]),
        route=path_of(parts[1]) if len(parts) > 1 else "",
        backend="" if backend == "-" else backend[:LONGEST_LABEL],
        status=status,
        outcome=failed_status(status) or Outcome.UNKNOWN,
        e2e=e2e,
        e2e_kind=E2eKind.NONE if e2e is None else E2eKind.HANDOVER,
    )


def recognises_combined(raw: bytes) -> bool:
    """Whether a line is of the combined format."""
    return _PLAIN.match(raw.decode("utf-8", "replace")) is not None


def recognises_traefik(raw: bytes) -> bool:
    """Whether a line is of Traefik's common format."""
    return _TRAEFIK.match(raw.decode("utf-8", "replace")) is not None

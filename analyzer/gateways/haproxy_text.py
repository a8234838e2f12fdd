"""HAProxy's `option httplog`, and what its timers and termination states mean."""

from __future__ import annotations

import re

from analyzer.gateways.record import E2eKind, LineProblem, Outcome, RequestRecord
from analyzer.gateways.values import (
    DAY,
    LONGEST_LABEL,
    clf_time,
    count,
    duration,
    failed_status,
    path_of,
    status_code,
)

# The line may be cut anywhere in the request, by default at 1024 bytes.
_LINE = re.compile(
    r"\[(?P<start>\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d\.\d{1,6})\] "
    r"(?P<frontend>\S+) (?P<backend>[^\s/]+)/(?P<server>\S+) "
    r"(?P<TR>[+-]?\d+)/(?P<Tw>[+-]?\d+)/(?P<Tc>[+-]?\d+)/(?P<Tr>[+-]?\d+)/"
    r"(?P<Ta>[+-]?\d+) (?P<status>-?\d+) [+-]?\d+ \S+ \S+ (?P<term>[A-Za-z-]{4}) "
    r"\d+/\d+/\d+/\d+/(?P<retries>\+?\d+) \d+/\d+"
    r"(?: \{(?P<captured>[^}]*)\})?(?: \{[^}]*\})?"
    r' "(?P<request>[^"]*)"?'
)
# What HAProxy says beside its requests, in the same log.
_MESSAGE = re.compile(
    r"(?:Server|Backup Server|Proxy|Backend|backend|Health check for) .{1,200}"
    r"|Connect from \S+ to |SSL handshake failure|Connection closed during"
)


def timer(value: str | float | None) -> float | None:
    """Returns the seconds of a timer, None for −1; raises LineProblem."""
    if isinstance(value, float) and 0.0 <= value <= DAY:  # most last for seconds
        return value * 1e-3
    if value in (-1, "-1"):
        return None
    return duration(value, 1e-3)


def total(value: str | float | None) -> tuple[float | None, bool]:
    """Returns the total time, and whether the line was written at the end."""
    if isinstance(value, str) and value.startswith("+"):
        return None, False
    return timer(value), True


def attempts_of(retries: str | float | None) -> int | None:
    """Returns the number of attempts; a "+" says that another server was tried."""
    if isinstance(retries, str):
        retries = retries.removeprefix("+")
    tried = count(retries)
    return None if tried is None else tried + 1


def outcome_of(term: str, status: int | None, *, ended: bool) -> Outcome:
    """Returns what a termination state says: its first letter names who ended it."""
    if not ended or not term:
        return failed_status(status) or Outcome.UNKNOWN
    by = term[0]
    if by in "Cc":
        return Outcome.CLIENT_ABORT
    if by == "s":
        return Outcome.TIMEOUT
    if by in "-L":
        whole = Outcome.OK if status else Outcome.UNKNOWN
        return failed_status(status) or whole
    return failed_status(status) or Outcome.UPSTREAM_CUT


def stages_of(
    before: tuple[str | float | None, ...],
    response: str | float | None,
    e2e: float | None,
) -> tuple[float | None, float | None, float | None]:
    """Returns the time before the server that answered, to its headers, and there.

    The kernel takes the last byte as it comes: delivery is in the serving time.
    """
    gateway = 0.0
    for value in before:
        phase = timer(value)
        if phase is None:
            return None, None, None
        gateway += phase
    responded = timer(response)
    if responded is None:
        return gateway, None, None
    serving = None if e2e is None or e2e < gateway else e2e - gateway
    return gateway, gateway + responded, serving


def parse_text(raw: bytes) -> RequestRecord | None:
    """Returns the record of an httplog line, None for a message of HAProxy's own.

    The first captured header is taken for the request id. Raises LineProblem.
    """
    line = raw.decode("utf-8", "replace")
    match = _LINE.search(line)
    if match is None:
        if _MESSAGE.search(line):
            return None
        raise LineProblem("no_match", "neither JSON nor HAProxy's httplog")
    e2e, ended = total(match["Ta"])
    status = status_code("-" if match["status"] == "-1" else match["status"])
    before = (match["TR"], match["Tw"], match["Tc"])
    gateway, header, serving = stages_of(before, match["Tr"], e2e)
    parts = match["request"].split(" ")
    return RequestRecord(
        request_id=(match["captured"] or "").partition("|")[0],
        start=clf_time(match["start"]),
        route=path_of(parts[1] if len(parts) > 1 else parts[0]),
        backend=f"{match['backend']}/{match['server']}"[:LONGEST_LABEL],
        status=status,
        outcome=outcome_of(match["term"], status, ended=ended),
        header_time=header,
        e2e=e2e,
        e2e_kind=E2eKind.NONE if e2e is None else E2eKind.HANDOVER,
        attempts=attempts_of(match["retries"]),
        gateway_time=gateway,
        serving_time=serving,
    )


def recognises_text(raw: bytes) -> bool:
    """Whether a line is one of `option httplog`."""
    return _LINE.search(raw.decode("utf-8", "replace")) is not None

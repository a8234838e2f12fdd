"""Values as gateways write them: paths, stamps, durations, statuses."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Annotated

from msgspec import Meta

from analyzer.gateways.record import LineProblem, Outcome

# Nothing we time lasts longer than a day: beyond it a unit or a clock is wrong.
DAY = 86_400.0
EARLIEST, LATEST = 946_684_800.0, 4_102_444_800.0  # the years 2000 and 2100
LONGEST_LABEL = 256
MOST_TOKENS = 1 << 40

# A value outside its range fails the line: the log is not what its fields say.
Seconds = Annotated[float, Meta(ge=0.0, le=DAY)]
Milliseconds = Annotated[float, Meta(ge=0.0, le=DAY * 1e3)]
Microseconds = Annotated[float, Meta(ge=0.0, le=DAY * 1e6)]
Nanoseconds = Annotated[float, Meta(ge=0.0, le=DAY * 1e9)]
Tokens = Annotated[int, Meta(ge=0, le=MOST_TOKENS)]
Attempts = Annotated[int, Meta(ge=0, le=1 << 20)]
Status = Annotated[int, Meta(ge=0, le=999)]

EVENT_STREAM = "text/event-stream"
SENTINELS = ("", "-")

_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_CLF = re.compile(
    r"(\d\d)/([A-Z][a-z][a-z])/(\d{4}):(\d\d):(\d\d):(\d\d)(\.\d{1,9})?"
    r"(?: ([+-])(\d\d)(\d\d))?\Z"
)
_GO_DURATION = re.compile(r"(?:\d{1,18}(?:\.\d{0,18})?(?:h|ms|m|s|us|µs|μs|ns))+\Z")
_GO_PART = re.compile(r"(\d+(?:\.\d*)?)(h|ms|m|s|us|µs|μs|ns)")
_GO_UNITS = {
    "h": 3600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ns": 1e-9,
}


def text(value: str | None) -> str:
    """Returns *value*, "" for a sentinel."""
    return "" if value is None or value == "-" else value


def path_of(target: str) -> str:
    """Returns a request's path without its query string, which may hold secrets."""
    return target.partition("?")[0] if "?" in target else target


def plausible(stamp: float) -> float | None:
    """Returns a Unix time between the years 2000 and 2100, else None."""
    return stamp if EARLIEST <= stamp <= LATEST else None


def number(value: str | float | None) -> float | None:
    """Returns a number that may be written as text; None for a sentinel and for NaN.

    Raises LineProblem for other text.
    """
    if value is None or value in SENTINELS:
        return None
    try:
        found = float(value)
    except ValueError:
        raise LineProblem("wrong_value", f"no number: {value[:40]!r}") from None  # type: ignore[index]
    return None if found != found else found


def duration(value: str | float | None, unit: float = 1.0) -> float | None:
    """Returns the seconds that a number in *unit* means, None for a sentinel.

    Raises LineProblem for what is no number, negative, NaN or longer than a day.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        found = value * unit
    elif value in SENTINELS:
        return None
    else:
        try:
            found = float(value) * unit
        except ValueError:
            found = -1.0
    if not 0.0 <= found <= DAY:
        raise LineProblem("wrong_value", f"no possible duration: {str(value)[:40]!r}")
    return found


def count(value: str | float | None) -> int | None:
    """Returns a count, None for a sentinel; raises LineProblem."""
    if value is None:
        return None
    if isinstance(value, int):
        found = value
    elif value in SENTINELS:
        return None
    else:
        try:
            found = int(value)
        except (ValueError, OverflowError):
            found = -1
    if not 0 <= found <= MOST_TOKENS:
        raise LineProblem("wrong_value", f"no possible count: {str(value)[:40]!r}")
    return found


def status_code(value: str | float | None) -> int | None:
    """Returns a status, None for a sentinel or 0 (no answer); raises LineProblem."""
    found = count(value)
    if found is not None and found > 999:
        raise LineProblem("wrong_value", f"no status: {str(value)[:40]!r}")
    return found or None


def go_duration(text: str) -> float:
    """Returns the seconds of a duration as Go prints it; raises LineProblem."""
    if not _GO_DURATION.match(text):
        raise LineProblem("wrong_value", f"no duration: {text[:40]!r}")
    value = sum(float(n) * _GO_UNITS[unit] for n, unit in _GO_PART.findall(text))
    if value > DAY:
        raise LineProblem("wrong_value", f"no possible duration: {text[:40]!r}")
    return value


def rfc3339(text: str) -> float | None:
    """Returns the Unix time of an RFC 3339 stamp with a zone, None if it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is None else plausible(moment.timestamp())


def clf_time(text: str) -> float | None:
    """Returns the Unix time of a stamp like 29/Nov/2026:14:02:18.123 +0000.

    Without a zone it is read as UTC. None when it is no such stamp.
    """
    seconds, dot, rest = text.partition(".")
    if not dot:
        return _clf_time(text)
    fraction, space, zone = rest.partition(" ")
    whole = _clf_time(seconds + space + zone)
    if whole is None or not fraction.isdecimal():
        return None
    return whole + float("0." + fraction[:9])


@lru_cache(maxsize=64)  # most lines of a log share their second with the one before
def _clf_time(text: str) -> float | None:
    match = _CLF.match(text)
    if match is None:
        return None
    month, left = divmod(_MONTHS.find(match[2]), 3)
    if left:
        return None
    zone = UTC
    if match[8]:
        offset = timedelta(hours=int(match[9]), minutes=int(match[10]))
        if offset >= timedelta(days=1):
            return None
        zone = timezone(-offset if match[8] == "-" else offset)
    try:
        moment = datetime(
            int(match[3]),
            month + 1,
            int(match[1]),
            int(match[4]),
            int(match[5]),
            int(match[6]),
            tzinfo=zone,
        )
    except ValueError:
        return None
    return plausible(moment.timestamp())


def streamed(content_type: str | None) -> bool | None:
    """Returns whether an answer of that type is a stream of events, None unknown."""
    if not content_type or content_type == "-":
        return None
    return content_type[:17].lower() == EVENT_STREAM


def failed_status(status: int | None) -> Outcome | None:
    """Returns the outcome that a status alone decides, else None.

    499 is how nginx, Traefik and Caddy note that the client left before the headers.
    """
    if status is None or status < 400:
        return None
    if status == 499:
        return Outcome.CLIENT_ABORT
    return Outcome.TIMEOUT if status == 504 else Outcome.HTTP_ERROR

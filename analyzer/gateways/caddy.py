"""Caddy's access log (JSON), with the placeholders of deploy/gateways/caddy if there.

`duration` is float seconds, Caddy's default, or a Go duration such as "402.008912ms";
`ts` is the end. A status below 400 with a duration of 0 means that the answer was cut
or that the client left, which of the two is not told: 0 is then no time, and `start` is
the end. Header values are lists, and keys may come twice: the last one counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from analyzer.gateways.format import Format
from analyzer.gateways.json_line import (
    UNREADABLE,
    Headers,
    LineDecoder,
    has_members,
    with_member,
)
from analyzer.gateways.record import E2eKind, LineProblem, Outcome, RequestRecord
from analyzer.gateways.values import (
    LONGEST_LABEL,
    Attempts,
    Milliseconds,
    Status,
    clf_time,
    duration,
    failed_status,
    go_duration,
    path_of,
    plausible,
    streamed,
    text,
)

CRITERIA = frozenset(("e2e",))
BLIND = (
    "First token, tokens and the time between them: TTFT, TPOT and the largest gap.",
    "Whether a client left or the server's answer was cut; and an error in a stream.",
    "How long a request that was cut took: its duration is logged as 0.",
    "Requests that it answers itself with 400, which have no line.",
    "A client that reads slowly.",
    "The time zone of a `ts` without one, which is read as UTC.",
)
_NO_HEADERS: dict[str, str] = {}
# A member of an enumeration costs two look-ups, a name of the module one.
_HANDOVER = E2eKind.HANDOVER
_NO_E2E = E2eKind.NONE
_OK = Outcome.OK
_UNKNOWN = Outcome.UNKNOWN
ACCESS = "http.log.access"
_Values = list[str] | None


class _RequestHeaders(msgspec.Struct, gc=False):
    request_id: _Values = msgspec.field(default=None, name="X-Request-Id")
    tenant: _Values = msgspec.field(default=None, name="X-Tenant-Id")
    model: _Values = msgspec.field(default=None, name="X-Model")


class _ResponseHeaders(msgspec.Struct, gc=False):
    content_type: _Values = msgspec.field(default=None, name="Content-Type")


class _Request(msgspec.Struct, gc=False):
    uri: str | None = None


class _Line(msgspec.Struct, gc=False):
    logger: str | None = None
    ts: str | float | None = None
    duration: str | float | None = None
    status: Status | None = None
    resp_headers: _ResponseHeaders | None = None
    upstream: str | None = None
    up_latency_ms: Milliseconds | None = None
    up_duration_ms: Milliseconds | None = None
    retries: Attempts | None = None


class _Caddy:
    __slots__ = ("_decode", "_headers", "_recover")

    def __init__(self, headers: Iterable[str]) -> None:
        found = Headers({name: name.title() for name in headers}, kind=_Values)
        self._headers = found or None
        request = with_member(_Request, "headers", found.extended(_RequestHeaders))
        decoder = LineDecoder(with_member(_Line, "request", request))
        self._decode, self._recover = decoder.decode, decoder.recover

    def parse(self, raw: bytes) -> RequestRecord | None:
        """Returns the record of a line, None for one that is of no request.

        Raises LineProblem.
        """
        try:
            line = self._decode(raw)
        except UNREADABLE as error:
            line = self._recover(raw, error)
        if line.logger is not None and not line.logger.startswith(ACCESS):
            return None
        taken, status = line.duration, line.status or None
        if taken is None or status is None:
            raise LineProblem("no_match", "no duration and status")
        e2e: float | None = (
            go_duration(taken) if isinstance(taken, str) else duration(taken)
        )
        failed = failed_status(status)
        if not e2e:
            e2e = None
        whole = _UNKNOWN if e2e is None else _OK
        end = _stamp(line.ts)
        return self._record(line, status, failed or whole, end, e2e)

    def _record(
        self,
        line: Any,  # noqa: ANN401 - its shape is made above
        status: int,
        outcome: Outcome,
        end: float | None,
        e2e: float | None,
    ) -> RequestRecord:
        request = line.request
        sent = request.headers if request is not None else None
        answered = line.resp_headers
        latency, serving = line.up_latency_ms, line.up_duration_ms
        kind = _first(answered.content_type) if answered is not None else ""
        return RequestRecord(
            request_id=_first(sent.request_id) if sent is not None else "",
            start=None if end is None else end - (e2e or 0.0),
            route=path_of(request.uri or "") if request is not None else "",
            backend=text(line.upstream)[:LONGEST_LABEL],
            tenant=_first(sent.tenant) if sent is not None else "",
            model=_first(sent.model)[:LONGEST_LABEL] if sent is not None else "",
            headers=self._headers.of(sent) if self._headers and sent else _NO_HEADERS,
            stream=streamed(kind),
            status=status,
            outcome=outcome,
            header_time=None if latency is None else latency * 1e-3,
            e2e=e2e,
            e2e_kind=_NO_E2E if e2e is None else _HANDOVER,
            attempts=None if line.retries is None else line.retries + 1,
            serving_time=None if serving is None else serving * 1e-3,
        )


def _first(values: _Values) -> str:
    return values[0] if values else ""


def _stamp(value: str | float | None) -> float | None:
    """Returns the Unix time of `ts` in any of Caddy's time formats."""
    if value is None:
        return None
    if not isinstance(value, str):
        for unit in (1.0, 1e-3, 1e-9):
            if (found := plausible(value * unit)) is not None:
                return found
        return None
    if (found := clf_time(value)) is not None:
        return found
    try:
        moment = datetime.fromisoformat(value.replace("/", "-"))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return plausible(moment.timestamp())


def _recognises(raw: bytes) -> bool:
    return has_members(raw, ("logger", "duration", "status", "request"))


def caddy(headers: Iterable[str] = ()) -> Format:
    """Returns Caddy's format; *headers* are those that the SLO classes match on."""
    return Format(
        name="caddy",
        parse=_Caddy(headers).parse,
        criteria=CRITERIA,
        blind=BLIND,
        recognises=_recognises,
    )

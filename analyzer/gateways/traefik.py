"""Traefik's access log: JSON, and the common format that is its default.

Durations are nanoseconds in JSON and whole milliseconds in text. Neither shows the
response's headers or its first byte. An OriginStatus of 0 under a status below 400
means that the answer was cut or that the client left: which of the two is not told, and
OriginDuration is then 0 and no time.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from analyzer.gateways.common_log import parse_traefik, recognises_traefik
from analyzer.gateways.format import Format
from analyzer.gateways.json_line import UNREADABLE, Headers, LineDecoder, has_members
from analyzer.gateways.record import E2eKind, LineProblem, Outcome, RequestRecord
from analyzer.gateways.values import (
    LONGEST_LABEL,
    Attempts,
    Nanoseconds,
    Status,
    failed_status,
    path_of,
    rfc3339,
    streamed,
    text,
)

CRITERIA = frozenset(("e2e",))
BLIND = (
    "First token, tokens and the time between them: TTFT, TPOT and the largest gap.",
    "Whether a client left or the server's answer was cut; and an error in a stream.",
    "Requests that it answers itself with 400, which have no line.",
    "A client that reads slowly; and in the common format whether an answer was whole.",
)
_NO_HEADERS: dict[str, str] = {}
# A member of an enumeration costs two look-ups, a name of the module one.
_HANDOVER, _OK, _UNKNOWN = E2eKind.HANDOVER, Outcome.OK, Outcome.UNKNOWN


class _Line(msgspec.Struct, gc=False):
    # Sorted, as Traefik writes them: the next one is then found at once.
    DownstreamStatus: Status | None = None
    Duration: Nanoseconds | None = None
    OriginDuration: Nanoseconds | None = None
    OriginStatus: Status | None = None
    RequestPath: str | None = None
    RetryAttempts: Attempts | None = None
    ServiceAddr: str | None = None
    StartUTC: str | None = None
    content_type: str | None = msgspec.field(
        default=None, name="downstream_Content-Type"
    )
    model: str | None = msgspec.field(default=None, name="request_X-Model")
    request_id: str | None = msgspec.field(default=None, name="request_X-Request-Id")
    tenant: str | None = msgspec.field(default=None, name="request_X-Tenant-Id")


class _Traefik:
    __slots__ = ("_decode", "_headers", "_recover")

    def __init__(self, headers: Iterable[str]) -> None:
        found = Headers({name: f"request_{name.title()}" for name in headers})
        self._headers = found or None
        decoder = LineDecoder(found.extended(_Line))
        self._decode, self._recover = decoder.decode, decoder.recover

    def parse(self, raw: bytes) -> RequestRecord | None:
        """Returns the record of a line; raises LineProblem."""
        if raw[:1] != b"{":
            return parse_traefik(raw)
        try:
            line = self._decode(raw)
        except UNREADABLE as error:
            line = self._recover(raw, error)
        if line.Duration is None or line.DownstreamStatus is None:
            raise LineProblem("no_match", "no Duration and DownstreamStatus")
        status = line.DownstreamStatus or None
        outcome = failed_status(status)
        if outcome is None:
            outcome = _OK if line.OriginStatus else _UNKNOWN
        headers = self._headers
        return RequestRecord(
            request_id=text(line.request_id),
            start=rfc3339(line.StartUTC) if line.StartUTC else None,
            route=path_of(text(line.RequestPath)),
            backend=text(line.ServiceAddr)[:LONGEST_LABEL],
            tenant=text(line.tenant),
            model=text(line.model)[:LONGEST_LABEL],
            headers=headers.of(line) if headers is not None else _NO_HEADERS,
            stream=streamed(line.content_type),
            status=status,
            outcome=outcome,
            e2e=line.Duration * 1e-9,
            e2e_kind=_HANDOVER,
            attempts=None if line.RetryAttempts is None else line.RetryAttempts + 1,
            serving_time=line.OriginDuration * 1e-9 if line.OriginDuration else None,
        )


def _recognises(raw: bytes) -> bool:
    if raw[:1] == b"{":
        return has_members(raw, ("DownstreamStatus", "Duration"))
    return recognises_traefik(raw)


def traefik(headers: Iterable[str] = ()) -> Format:
    """Returns Traefik's format; *headers* are those that the SLO classes match on.

    Traefik logs a header as `request_X-Priority`, when it is told to keep it.
    """
    return Format(
        name="traefik",
        parse=_Traefik(headers).parse,
        criteria=CRITERIA,
        blind=BLIND,
        recognises=_recognises,
    )

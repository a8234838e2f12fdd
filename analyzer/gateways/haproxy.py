"""HAProxy's log: JSON as in deploy/gateways/haproxy, and the text of `option httplog`.

Timers are whole milliseconds, −1 for a phase that was not reached: TR reads the
request's headers, Tw is the queue and all that failed attempts took, Tc connects, Tr
runs to the response's headers (with the client's upload in it), Ta from the request's
first byte to when the last of the answer was given to the kernel. A "+" marks a line
written before the end (`option logasap`). Stamps `t0_us`, `th_us` and `tb_us` are Unix
microseconds of the request, of the response's headers and of its first body byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from analyzer.gateways.format import Format
from analyzer.gateways.haproxy_text import (
    attempts_of,
    outcome_of,
    parse_text,
    recognises_text,
    stages_of,
    timer,
    total,
)
from analyzer.gateways.headers import HeaderHabits
from analyzer.gateways.json_line import UNREADABLE, Headers, LineDecoder, has_members
from analyzer.gateways.record import E2eKind, LineProblem, RequestRecord, TtftKind
from analyzer.gateways.values import (
    DAY,
    LONGEST_LABEL,
    clf_time,
    number,
    path_of,
    plausible,
    status_code,
    streamed,
    text,
)

CRITERIA = frozenset(("ttft", "e2e"))
BLIND = (
    "Tokens and the time between them: TPOT and the largest gap.",
    "The first token without the wait-for-body stamp, and behind server-sent comments.",
    "An error inside a stream.",
    (
        "Tokens held back by HAProxy itself without `option http-no-delay`: about "
        "200 ms each that no field shows."
    ),
    "A client that reads slowly: the end is when the kernel had the last byte.",
    "The time zone of its dates, which are read as UTC; t0_us needs none.",
)

# A body this much after its headers (seconds) is a stream's, should the log not tell.
BEHIND_HEADERS = 0.01
_NO_HEADERS: dict[str, str] = {}
# A member of an enumeration costs two look-ups, a name of the module one.
_HANDOVER = E2eKind.HANDOVER
_NO_E2E = E2eKind.NONE
_FIRST_BODY_BYTE = TtftKind.FIRST_BODY_BYTE
_NO_TTFT = TtftKind.NONE
_Value = str | float | None
_Timer = Annotated[float, Meta(ge=-1.0, le=DAY * 1e3)] | None


class _Line(msgspec.Struct, gc=False):
    # In the order of deploy/gateways/haproxy: the next one is then found at once.
    t0_us: float | None = None
    th_us: _Value = None
    tb_us: _Value | UnsetType = UNSET
    x_request_id: str | None = None
    tenant: str | None = None
    model: str | None = None
    res_ct: str | UnsetType | None = UNSET
    be: str | None = None
    server: str | None = None
    path: str | None = None
    status: _Value = None
    term: str | None = None
    retries: _Value = None
    Th: _Timer = None
    Ti: _Timer = None
    TR: _Timer = None
    Tw: _Timer = None
    Tc: _Timer = None
    Tr: _Timer = None
    Ta: _Value = None
    epoch_s: _Value = None
    ms: _Value = None
    t_request: str | None = None


class _Haproxy:
    __slots__ = ("_decode", "_headers", "_recover", "habits")

    def __init__(self, headers: Iterable[str]) -> None:
        found = Headers({name: name.replace("-", "_") for name in headers})
        self._headers = found or None
        decoder = LineDecoder(found.extended(_Line))
        self._decode, self._recover = decoder.decode, decoder.recover
        self.habits = HeaderHabits()

    def parse(self, raw: bytes) -> RequestRecord | None:
        """Returns the record of a line; raises LineProblem."""
        if raw[:1] != b"{":
            return parse_text(raw)
        try:
            line = self._decode(raw)
        except UNREADABLE as error:
            line = self._recover(raw, error)
        if line.term is None or line.Ta is None:
            raise LineProblem("no_match", "no term and Ta")
        e2e, ended = total(line.Ta)
        status = status_code(None if line.status == -1 else line.status)
        gateway, header, serving = stages_of((line.TR, line.Tw, line.Tc), line.Tr, e2e)
        path = path_of(text(line.path))
        ttft, ttft_kind, stream = self._first_output(line, path, header)
        headers = self._headers
        return RequestRecord(
            request_id=text(line.x_request_id),
            start=_start(line),
            route=path,
            backend="/".join(filter(None, (line.be, line.server)))[:LONGEST_LABEL],
            tenant=text(line.tenant),
            model=text(line.model)[:LONGEST_LABEL],
            headers=headers.of(line) if headers is not None else _NO_HEADERS,
            stream=stream,
            status=status,
            outcome=outcome_of(line.term, status, ended=ended),
            header_time=header,
            ttft=ttft,
            ttft_kind=ttft_kind,
            e2e=e2e,
            e2e_kind=_NO_E2E if e2e is None else _HANDOVER,
            attempts=attempts_of(line.retries),
            gateway_time=gateway,
            serving_time=serving,
        )

    def _first_output(
        self, line: _Line, path: str, header: float | None
    ) -> tuple[float | None, TtftKind, bool | None]:
        """Returns the time to the first output, its kind, and whether it streams."""
        stream = None if line.res_ct is UNSET else streamed(line.res_ct)
        if line.tb_us is UNSET:
            if stream and header is not None and self.habits.late(path):
                return header, TtftKind.HEADERS, stream
            return None, _NO_TTFT, stream
        began, responded = line.t0_us, number(line.th_us)
        body = number(line.tb_us)
        if body is not None and responded is not None and line.res_ct is UNSET:
            stream = True if (body - responded) * 1e-6 > BEHIND_HEADERS else None
        if not stream:
            return None, _NO_TTFT, stream
        if body is None or began is None:
            return None, _FIRST_BODY_BYTE, stream
        # Stamps are of the wall clock: one before the other shows a step of it.
        ttft = (body - began) * 1e-6 + (timer(line.TR) or 0.0)
        if not 0.0 <= body - began <= DAY * 1e6:
            return None, _FIRST_BODY_BYTE, stream
        if responded is not None:
            self.habits.saw(path, (responded - began) * 1e-6, ttft)
        return ttft, _FIRST_BODY_BYTE, stream


def _start(line: _Line) -> float | None:
    """Returns when the request began, by the best of the stamps a line has."""
    stamp = line.t0_us
    if stamp is not None:
        return plausible(stamp * 1e-6 - (timer(line.TR) or 0.0))
    accepted, part = number(line.epoch_s), number(line.ms)
    if accepted is not None and part is not None:
        idle = (timer(line.Th) or 0.0) + (timer(line.Ti) or 0.0)
        return plausible(accepted + part * 1e-3 + idle)
    return clf_time(line.t_request) if line.t_request else None


def _recognises(raw: bytes) -> bool:
    if raw[:1] == b"{":
        return has_members(raw, ("term", "Ta", "status"))
    return recognises_text(raw)


def haproxy(headers: Iterable[str] = ()) -> Format:
    """Returns HAProxy's format; *headers* are those that the SLO classes match on.

    A header's member has its name with underscores: `x_priority`.
    """
    reader = _Haproxy(headers)
    return Format(
        name="haproxy",
        parse=reader.parse,
        criteria=CRITERIA,
        blind=BLIND,
        recognises=_recognises,
        memory=reader.habits.memory,
        recall=reader.habits.recall,
    )

"""Envoy's access log: JSON with duration points, and the default text (Istio's too).

The JSON members are those of deploy/gateways/envoy; those of the default JSON formats
of Istio and Envoy Gateway are known as well. Times named `us_*` are microseconds since
the request's first byte (COMMON_DURATION), the others milliseconds. Null is what the
request had not, and a member that is missing is what the log does not tell.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, UnsetType

from analyzer.gateways.envoy_text import outcome_of, parse_text, recognises_text
from analyzer.gateways.format import Format
from analyzer.gateways.headers import HeaderHabits
from analyzer.gateways.json_line import (
    UNREADABLE,
    Headers,
    LineDecoder,
    has_members,
    usual,
)
from analyzer.gateways.record import (
    E2eKind,
    LineProblem,
    Outcome,
    RequestRecord,
    TokensKind,
    TtftKind,
)
from analyzer.gateways.values import (
    DAY,
    EARLIEST,
    EVENT_STREAM,
    LATEST,
    LONGEST_LABEL,
    Attempts,
    Microseconds,
    Milliseconds,
    Status,
    Tokens,
    path_of,
    rfc3339,
)

BLIND = (
    "A client that reads slowly: the end is when Envoy handed over the last byte.",
    (
        "The largest gap, and the first token behind server-sent comments, without the "
        "Lua filter: the first body byte is then the first comment."
    ),
    (
        "Tokens and errors in a stream, without the sse_to_metadata filter: clients "
        "that close right after [DONE] then look like clients that left."
    ),
    (
        "A client that left from one that had all, without the Lua filter, when the "
        "server sends usage with every chunk (continuous_usage_stats)."
    ),
    (
        "Anything but the total and how it ended, in the default text format, and the "
        "first body byte before Envoy 1.37."
    ),
)
CRITERIA = frozenset(("ttft", "tpot", "max_gap", "e2e"))
# Each of so many streams teaches how late headers come, then each 16th.
WELL_LEARNT = 512
LEARN_FROM_EACH = 16

# Times of a stream: ttft, tpot, largest gap, output tokens, their kind.
_Times = tuple[float | None, float | None, float | None, int | None, TokensKind]
_NO_HEADERS: dict[str, str] = {}
# A member of an enumeration costs two look-ups, a name of the module one.
_OK, _STREAM_ERROR = Outcome.OK, Outcome.STREAM_ERROR
_USAGE, _NO_TOKENS = TokensKind.USAGE, TokensKind.NONE
_COUNTED = TokensKind.COUNTED
_HANDOVER, _NO_E2E = E2eKind.HANDOVER, E2eKind.NONE
_FIRST_BODY_BYTE, _NO_TTFT = TtftKind.FIRST_BODY_BYTE, TtftKind.NONE


class _Line(msgspec.Struct, gc=False):
    # Sorted, as Envoy writes them: the next one is then found at once. Those named
    # tok_* are the Lua filter's, in microseconds; the first two are Unix times.
    attempts: Attempts | None = None
    cached_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    content_type: str | None = None
    duration: Milliseconds | None = None
    llm_model: str | None = None
    model_hdr: str | None = None
    path: str | None = None
    prompt_tokens: Tokens | None = None
    request_id: str | None = None
    response_code: Status | None = None
    response_flags: str | None = None
    sse_error: str | None = None
    start_epoch: float | None = None
    start_time: str | None = None
    tenant: str | None = None
    tok_done: bool | None = None
    tok_events: Tokens | None = None
    tok_first_us: float | UnsetType | None = UNSET
    tok_last_us: float | None = None
    tok_max_gap_us: Microseconds | None = None
    upstream_host: str | None = None
    upstream_service_time: Milliseconds | None = None
    us_ds_rx_end: Microseconds | None = None
    us_ds_tx_end: Microseconds | None = None
    us_us_rx_beg: Microseconds | None = None
    us_us_rx_body_beg: Microseconds | UnsetType | None = UNSET
    us_us_rx_end: Microseconds | None = None
    us_us_tx_end: Microseconds | None = None
    eg_path: str | None = msgspec.field(default=None, name="x-envoy-origin-path")
    eg_service_time: Milliseconds | None = msgspec.field(
        default=None, name="x-envoy-upstream-service-time"
    )
    eg_request_id: str | None = msgspec.field(default=None, name="x-request-id")
    x_request_id: str | None = None


# Members of default formats and of the Lua filter. A log may have those when it lacks
# one of the telling members, and these when it has tok_first_us.
_SELDOM = (
    "eg_path",
    "eg_request_id",
    "eg_service_time",
    "request_id",
    "start_time",
    "tok_done",
    "tok_events",
    "tok_last_us",
    "tok_max_gap_us",
    "upstream_service_time",
)
_TELLING = ("path", "start_epoch", "us_us_rx_beg", "x_request_id")


class _Envoy:
    __slots__ = (
        "_decode",
        "_decode_all",
        "_headers",
        "_learnt",
        "_recover",
        "_unlearnt",
        "_usual",
        "habits",
    )

    def __init__(self, headers: Iterable[str]) -> None:
        found = Headers({name: name.replace("-", "_") for name in headers})
        self._headers = found or None
        shape = found.extended(_Line)
        decoder = LineDecoder(shape)
        self._decode_all, self._recover = decoder.decode, decoder.recover
        seldom = [name for name in _SELDOM if name not in found.attributes]
        self._decode = LineDecoder(usual(shape, seldom, _TELLING)).decode
        self._usual = True
        self.habits = HeaderHabits()
        self._learnt = 0  # streams
        self._unlearnt = 0  # streams until the next one to learn from

    def parse(self, raw: bytes) -> RequestRecord | None:
        """Returns the record of a line; raises LineProblem."""
        if raw[:1] != b"{":
            return parse_text(raw)
        try:
            line = self._decode(raw)
            if self._usual and (
                line.start_epoch is UNSET
                or line.us_us_rx_beg is UNSET
                or line.x_request_id is UNSET
                or line.path is UNSET
                or line.tok_first_us is not UNSET
            ):
                self._usual, self._decode = False, self._decode_all
                line = self._decode(raw)
        except UNREADABLE as error:
            line = self._recover(raw, error)
        code = line.response_code
        if line.response_flags == "-" and code is not None and 0 < code < 400:
            outcome = _OK if line.sse_error is None else _STREAM_ERROR
        else:
            outcome = _ended(line)
        path = line.path or line.eg_path or ""
        if "?" in path:
            path = path_of(path)
        start = line.start_epoch
        if start is None or not EARLIEST <= start <= LATEST:
            start = rfc3339(line.start_time) if line.start_time else None
        return self._record(line, outcome, path, start)

    def _record(
        self, line: _Line, outcome: Outcome, path: str, start: float | None
    ) -> RequestRecord:
        gateway = serving = delivery = None
        sent, end, e2e = line.us_us_tx_end, line.us_us_rx_end, line.us_ds_tx_end
        uploaded = line.us_ds_rx_end
        if sent is not None and uploaded is not None:
            gateway = (sent - uploaded) * 1e-6 if sent > uploaded else 0.0
        if sent is not None and end is not None and end >= sent:
            serving = (end - sent) * 1e-6
        if e2e is not None:
            if end is not None and e2e >= end:
                delivery = (e2e - end) * 1e-6
            e2e *= 1e-6
        elif line.duration is not None:
            e2e = line.duration * 1e-3
        header = line.us_us_rx_beg
        header = _service_time(line) if header is None else header * 1e-6
        content_type, tokens = line.content_type, line.completion_tokens
        stream = None if content_type is None else content_type.startswith(EVENT_STREAM)
        ttft_kind, tokens_kind = _NO_TTFT, _NO_TOKENS if tokens is None else _USAGE
        ttft = tpot = max_gap = None
        if stream and line.tok_first_us is not UNSET:
            ttft_kind = TtftKind.TOKEN
            ttft, tpot, max_gap, tokens, tokens_kind = _read_tokens(line, start)
        elif stream:
            first, ttft_kind = line.us_us_rx_body_beg, _FIRST_BODY_BYTE
            if first is UNSET:
                ttft, ttft_kind = self._by_headers(path, header)
            elif first is not None:
                ttft = first * 1e-6
                self._unlearnt -= 1
                if self._unlearnt < 0:
                    self._learn(path, header, ttft)
            # A client that closed after [DONE] leaves the end to the total.
            last = e2e if end is None else end * 1e-6
            if (tokens and tokens > 1 and ttft is not None) and (
                last is not None and last >= ttft
            ):
                tpot = (last - ttft) / (tokens - 1)
        return RequestRecord(
            line.x_request_id or line.request_id or line.eg_request_id or "",
            start,
            path,
            (line.upstream_host or "")[:LONGEST_LABEL],
            line.tenant or "",
            (line.llm_model or line.model_hdr or "")[:LONGEST_LABEL],
            self._headers.of(line) if self._headers is not None else _NO_HEADERS,
            stream,
            line.response_code or None,
            outcome,
            header,
            ttft,
            ttft_kind,
            tpot,
            max_gap,
            e2e,
            _NO_E2E if e2e is None else _HANDOVER,
            line.prompt_tokens,
            tokens,
            line.cached_tokens,
            tokens_kind,
            line.attempts,
            gateway,
            serving,
            delivery,
            tokens_kind is _COUNTED,
        )

    def _by_headers(
        self, path: str, header: float | None
    ) -> tuple[float | None, TtftKind]:
        """Returns a stream's first output if its headers are known to come with it."""
        if header is not None and self.habits.late(path):
            return header, TtftKind.HEADERS
        return None, _NO_TTFT

    def _learn(self, path: str, header: float | None, first: float) -> None:
        """Takes one of the streams that are learnt from, at first each of them."""
        self._learnt += 1
        self._unlearnt = 0 if self._learnt < WELL_LEARNT else LEARN_FROM_EACH - 1
        if header is not None:
            self.habits.saw(path, header, first)


def _ended(line: _Line) -> Outcome:
    """Returns how a request ended that did not simply end well."""
    code, flags = line.response_code, line.response_flags
    if code is None and flags is None:
        raise LineProblem("no_match", "no response_code and no response_flags")
    # Usage comes just before [DONE]: who leaves after it has the answer.
    seen = line.completion_tokens is not None
    complete = seen if line.tok_first_us is UNSET else line.tok_done is True
    return outcome_of(code, flags, error=line.sse_error is not None, complete=complete)


def _read_tokens(line: _Line, start: float | None) -> _Times:
    """Returns what the Lua filter saw of a stream; without a token it saw none."""
    first, last = line.tok_first_us, line.tok_last_us
    events, tokens, kind = line.tok_events, line.completion_tokens, _USAGE
    if tokens is None:
        tokens, kind = events, _NO_TOKENS if events is None else _COUNTED
    ttft = tpot = max_gap = None
    if first is not None and first is not UNSET and start is not None:
        # Both are wall-clock times: a step of the clock between them shows only here.
        ttft = first * 1e-6 - start
        if not 0.0 <= ttft <= DAY:
            ttft = None
    if ttft is not None and first is not UNSET and first is not None:
        output = -1.0 if last is None else (last - first) * 1e-6
        if tokens is not None and tokens > 1 and 0.0 <= output <= DAY:
            tpot = output / (tokens - 1)
        if line.tok_max_gap_us is not None and events is not None and events > 1:
            max_gap = line.tok_max_gap_us * 1e-6
    return ttft, tpot, max_gap, tokens, kind


def _service_time(line: _Line) -> float | None:
    """Returns the time to the headers as the default formats give it."""
    found = line.upstream_service_time
    if found is None:
        found = line.eg_service_time
    return None if found is None else found * 1e-3


def _recognises(raw: bytes) -> bool:
    if raw[:1] == b"{":
        return has_members(raw, ("response_code", "response_flags"))
    return recognises_text(raw)


def envoy(headers: Iterable[str] = ()) -> Format:
    """Returns Envoy's format; *headers* are those that the SLO classes match on.

    A header's member has its name with underscores: `x_priority`.
    """
    reader = _Envoy(headers)
    return Format(
        name="envoy",
        parse=reader.parse,
        criteria=CRITERIA,
        blind=BLIND,
        recognises=_recognises,
        memory=reader.habits.memory,
        recall=reader.habits.recall,
    )

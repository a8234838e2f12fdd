"""Records of our own ASGI middleware, one JSON object each (docs/middleware.md).

It reads every chunk at the engine, so it knows the first and the last token, the
largest gap and who left. Times are seconds since the request's start; null is what did
not happen or could not be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from analyzer.gateways.format import Format
from analyzer.gateways.json_line import UNREADABLE, LineDecoder, has_members
from analyzer.gateways.record import (
    E2eKind,
    LineProblem,
    Outcome,
    RequestRecord,
    TokensKind,
    TtftKind,
)
from analyzer.gateways.values import (
    EARLIEST,
    LATEST,
    LONGEST_LABEL,
    Seconds,
    Status,
    Tokens,
)

FORMAT = "goodput-request"
VERSION = 1
CRITERIA = frozenset(("ttft", "tpot", "max_gap", "e2e"))
BLIND = (
    "What happens before the request reaches the engine and after its bytes left it.",
    (
        "Tokens, when the client asks for no usage and the server does not add it: "
        "chunks are counted then, and one may hold several tokens."
    ),
    "The time per token of a request with several choices.",
    "What a compressed answer holds.",
)

OUTCOMES = {
    "ok": Outcome.OK,
    "http_error": Outcome.HTTP_ERROR,
    "client_abort": Outcome.CLIENT_ABORT,
    "stream_error": Outcome.STREAM_ERROR,
    "upstream_cut": Outcome.UPSTREAM_CUT,
    "exception": Outcome.UPSTREAM_CUT,
}
TOKENS = {"usage": TokensKind.USAGE, "counted": TokensKind.COUNTED}
_NO_HEADERS: dict[str, str] = {}
_OK, _NO_TOKENS = Outcome.OK, TokensKind.NONE
_TOKEN, _NO_TTFT = TtftKind.TOKEN, TtftKind.NONE
_HANDOVER, _NO_E2E = E2eKind.HANDOVER, E2eKind.NONE


class _Line(msgspec.Struct, gc=False):
    format: str | None = None
    version: Annotated[int, Meta(ge=0)] | None = None
    request_id: str | None = None
    tenant: str | None = None
    headers: dict[str, str] | None = None
    route: str | None = None
    model: str | None = None
    response_model: str | None = None
    start: float | None = None
    request_body_s: Seconds | None = None
    header_s: Seconds | None = None
    ttft_s: Seconds | None = None
    last_content_s: Seconds | None = None
    max_gap_s: Seconds | None = None
    done_s: Seconds | None = None
    end_s: Seconds | None = None
    disconnect_s: Seconds | None = None
    elapsed_s: Seconds | None = None
    status: Status | None = None
    outcome: str | None = None
    streamed: bool | None = None
    stream: bool | None = None
    choices: Tokens | None = None
    prompt_tokens: Tokens | None = None
    cached_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    tokens_kind: str | None = None
    unread: str | None = None


class _Middleware:
    __slots__ = ("_decode", "_recover")

    def __init__(self) -> None:
        decoder = LineDecoder(_Line)
        self._decode, self._recover = decoder.decode, decoder.recover

    def parse(self, raw: bytes) -> RequestRecord | None:
        """Returns the record of a line; raises LineProblem."""
        try:
            line = self._decode(raw)
        except UNREADABLE as error:
            line = self._recover(raw, error)
        if line.format != FORMAT:
            raise LineProblem("no_match", f"no {FORMAT} record")
        if line.version != VERSION:
            raise LineProblem("wrong_value", f"version {line.version} is unknown")
        start = line.start
        if start is not None and not EARLIEST <= start <= LATEST:
            start = None
        outcome = OUTCOMES.get(line.outcome or "", Outcome.UNKNOWN)
        e2e = _end(line, outcome)
        tokens, uploaded = line.completion_tokens, line.request_body_s
        ttft, last, end = line.ttft_s, line.last_content_s, line.end_s
        if not line.streamed:
            ttft = None
        tpot = max_gap = serving = None
        if ttft is not None and last is not None and tokens is not None and tokens > 1:
            max_gap = line.max_gap_s
            if last >= ttft and (line.choices or 1) == 1:
                tpot = (last - ttft) / (tokens - 1)
        if end is not None and uploaded is not None and end >= uploaded:
            serving = end - uploaded
        tokens_kind = TOKENS.get(line.tokens_kind or "", _NO_TOKENS)
        looked = line.streamed and (line.unread is None or ttft is not None)
        return RequestRecord(
            line.request_id or "",
            start,
            line.route or "",
            "",
            line.tenant or "",
            (line.model or line.response_model or "")[:LONGEST_LABEL],
            line.headers or _NO_HEADERS,
            line.stream if line.streamed is None else line.streamed,
            line.status or None,
            outcome,
            line.header_s,
            ttft,
            _TOKEN if looked else _NO_TTFT,
            tpot,
            max_gap,
            e2e,
            _NO_E2E if e2e is None else _HANDOVER,
            line.prompt_tokens,
            tokens,
            line.cached_tokens,
            tokens_kind,
            None,
            None,
            serving,
            None,
            tokens_kind is TokensKind.COUNTED,
        )


def _end(line: _Line, outcome: Outcome) -> float | None:
    """Returns when the request ended, as that depends on how it did."""
    if outcome is _OK:
        # A client that closes after the end mark is not waited for.
        at_mark = line.disconnect_s is not None and line.done_s is not None
        return line.done_s if at_mark or line.end_s is None else line.end_s
    if outcome is Outcome.CLIENT_ABORT and line.disconnect_s is not None:
        return line.disconnect_s
    return line.elapsed_s if line.end_s is None else line.end_s


def _recognises(raw: bytes) -> bool:
    return FORMAT.encode() in raw and has_members(raw, ("format", "version", "seq"))


def middleware(_headers: Iterable[str] = ()) -> Format:
    """Returns the format of our own middleware's records.

    Which request headers they hold is the middleware's own configuration.
    """
    return Format(
        name="middleware",
        parse=_Middleware().parse,
        criteria=CRITERIA,
        blind=BLIND,
        recognises=_recognises,
    )

"""LiteLLM: JSON lines of a callback, as deploy/gateways/litellm writes them.

A line has an `event` and LiteLLM's standard logging payload under `slo`. Times are Unix
seconds. A client that left is a *success* with the error code 499. A failed attempt is
a `failure` line; what became of the request is told by a later line with the same call
id: a `success`, or a `proxy_failure_hook` when the client got an error. Until then the
failure is held, and the latencies of a retried request begin with its first attempt.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from analyzer.gateways.format import Format, FormatMemory
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
    DAY,
    LONGEST_LABEL,
    SENTINELS,
    Tokens,
    failed_status,
    plausible,
    status_code,
)

CRITERIA = frozenset(("ttft", "tpot", "e2e"))
BLIND = (
    (
        "What the proxy did before it called the model: about 15 ms (95 %: 50 ms) that "
        "are missing in TTFT and in the total."
    ),
    "The largest gap between tokens.",
    (
        "Whether tokens are the server's count or LiteLLM's own estimate; set "
        "always_include_stream_usage so that they are the server's."
    ),
    (
        "When the last token came: the total ends when the stream was assembled, about "
        "40 ms later, so the time per token is an upper bound."
    ),
)
# How long a failed attempt waits for what became of its request; and how many do.
HOLD = 600.0
MOST_HELD = 1024
MOST_SEEN = 1024

_ROUTES = {
    "acompletion": "/v1/chat/completions",
    "completion": "/v1/chat/completions",
    "atext_completion": "/v1/completions",
    "text_completion": "/v1/completions",
    "aresponses": "/v1/responses",
    "responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
}


class _Error(msgspec.Struct, gc=False):
    error_code: str | float | None = None
    error_class: str | None = None


class _Parameters(msgspec.Struct, gc=False):
    stream: bool | None = None


class _Metadata(msgspec.Struct, gc=False):
    requester_custom_headers: dict[str, str] | None = None


class _Payload(msgspec.Struct, gc=False):
    call_type: str | None = None
    stream: bool | None = None
    start: float | None = msgspec.field(default=None, name="startTime")
    end: float | None = msgspec.field(default=None, name="endTime")
    first: float | None = msgspec.field(default=None, name="completionStartTime")
    model_group: str | None = None
    model: str | None = None
    api_base: str | None = None
    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    cached_tokens: Tokens | None = None
    end_user: str | None = None
    error_information: _Error | None = None
    model_parameters: _Parameters | None = None
    metadata: _Metadata | None = None


class _Line(msgspec.Struct, gc=False):
    event: str | None = None
    litellm_call_id: str | None = None
    slo: _Payload | None = None
    written_at: float | None = None
    status: str | float | None = None  # what the client got, of a hook's line


class _Litellm:
    """Remembers failed attempts and the last requests, both bounded."""

    __slots__ = ("_decode", "_failed", "_headers", "_recover", "_seen")

    def __init__(self, headers: Iterable[str]) -> None:
        decoder = LineDecoder(_Line)
        self._decode, self._recover = decoder.decode, decoder.recover
        self._headers = tuple(headers)
        self._failed: OrderedDict[str, RequestRecord] = OrderedDict()
        self._seen: OrderedDict[tuple[str, float | None], None] = OrderedDict()

    def parse(self, raw: bytes) -> RequestRecord | None:
        """Returns the record of a request whose end a line tells.

        None for an attempt that may be retried, for a line that came twice and for
        what the proxy prints itself. Raises LineProblem.
        """
        try:
            line = self._decode(raw)
        except UNREADABLE as error:
            line = self._recover(raw, error)
        call, payload = (line.litellm_call_id or "")[:LONGEST_LABEL], line.slo
        if line.event == "proxy_failure_hook":
            return _refused(call, self._failed.pop(call, None), line)
        if payload is not None and line.event in ("success", "failure"):
            record = _record(call, payload, self._headers)
            if self._is_repeated(call, payload.start):
                return None
            if line.event == "success":
                return _after(self._failed.pop(call, None), record)
            return self._hold(call, record)
        if line.event is None and has_members(raw, ("message", "level")):
            return None
        raise LineProblem("no_match", "no event of the callback")

    def held(self) -> tuple[RequestRecord, ...]:
        """Takes the failed attempts of which nothing more was heard."""
        found = tuple(self._failed.values())
        self._failed.clear()
        return found

    def memory(self) -> FormatMemory:
        """Returns what waits and what was told, for `recall` after a restart."""
        return FormatMemory(held=dict(self._failed), seen=tuple(self._seen))

    def recall(self, memory: FormatMemory) -> None:
        """Goes on from what waited and was told before."""
        self._failed = OrderedDict(memory.held)
        self._seen = OrderedDict.fromkeys(memory.seen)

    def _is_repeated(self, call: str, start: float | None) -> bool:
        """Whether the same attempt was told before, among the last of them."""
        key = (call, start)
        if not call or key in self._seen:
            return bool(call)
        self._seen[key] = None
        if len(self._seen) > MOST_SEEN:
            self._seen.popitem(last=False)
        return False

    def _hold(self, call: str, record: RequestRecord) -> RequestRecord | None:
        """Keeps a failed attempt; returns the one that has waited too long, if any."""
        if not call:
            return record
        self._failed[call] = _after(self._failed.pop(call, None), record)
        oldest = next(iter(self._failed.values()))
        waited = _between(oldest.start, record.start)
        if len(self._failed) > MOST_HELD or (waited is not None and waited > HOLD):
            return self._failed.popitem(last=False)[1]
        return None


def _between(earlier: float | None, later: float | None) -> float | None:
    """Returns the seconds between two stamps, None when they are in no such order."""
    if earlier is None or later is None or not 0.0 <= later - earlier <= DAY:
        return None
    return later - earlier


def _record(call: str, payload: _Payload, headers: tuple[str, ...]) -> RequestRecord:
    start = None if payload.start is None else plausible(payload.start)
    e2e = _between(start, payload.end)
    parameters, metadata = payload.model_parameters, payload.metadata
    stream = payload.stream
    if stream is None and parameters is not None:
        stream = bool(parameters.stream)
    outcome, status = _ended(payload)
    sent = metadata.requester_custom_headers if metadata is not None else None
    given = {} if sent is None else {k.lower(): v for k, v in sent.items()}
    ttft = None
    # Where no chunk came, the time of the first one is that of the end.
    if stream and payload.first is not None and payload.first != payload.end:
        ttft = _between(start, payload.first)
    tokens, tokens_kind = payload.completion_tokens, TokensKind.ESTIMATED
    if outcome is Outcome.OK and tokens is not None:
        tokens_kind = TokensKind.USAGE
    elif not tokens:
        tokens, tokens_kind = None, TokensKind.NONE
    tpot = None
    if outcome is Outcome.OK and tokens is not None and tokens > 1 and ttft is not None:
        output = _between(payload.first, payload.end)
        tpot = None if output is None else output / (tokens - 1)
    call_type = payload.call_type
    return RequestRecord(
        request_id=call,
        start=start,
        route=_ROUTES.get(call_type, f"/{call_type}"[:LONGEST_LABEL])
        if call_type
        else "",
        backend=(payload.api_base or "")[:LONGEST_LABEL],
        tenant=(payload.end_user or given.get("x-tenant-id", ""))[:LONGEST_LABEL],
        model=(payload.model_group or payload.model or "")[:LONGEST_LABEL],
        headers={n: given[n][:LONGEST_LABEL] for n in headers if n in given},
        stream=stream,
        status=status,
        outcome=outcome,
        ttft=ttft,
        ttft_kind=TtftKind.TOKEN if stream else TtftKind.NONE,
        tpot=tpot,
        e2e=e2e,
        e2e_kind=E2eKind.NONE if e2e is None else E2eKind.UPSTREAM,
        prompt_tokens=payload.prompt_tokens or None,
        completion_tokens=tokens,
        cached_tokens=payload.cached_tokens,
        tokens_kind=tokens_kind,
        attempts=1,
        tpot_at_most=True,  # the stream was assembled some time after its last token
    )


def _ended(payload: _Payload) -> tuple[Outcome, int | None]:
    """Returns how an attempt ended, and its status; an error may have none."""
    error = payload.error_information
    code = error.error_code if error is not None else None
    if code in SENTINELS:
        code = None
    failed = error is not None and bool(code or error.error_class)
    status = status_code(code) if failed else 200
    if not failed:
        return Outcome.OK, status
    if status == 499:
        return Outcome.CLIENT_ABORT, status
    if status == 408 or (error is not None and error.error_class == "Timeout"):
        return Outcome.TIMEOUT, status
    if payload.first is not None and payload.first != payload.end:
        return Outcome.STREAM_ERROR, status
    return failed_status(status) or Outcome.UPSTREAM_CUT, status


def _after(failed: RequestRecord | None, record: RequestRecord) -> RequestRecord:
    """Returns *record* as its user saw it, beginning with a failed attempt before."""
    if failed is None:
        return record
    attempts = (failed.attempts or 1) + 1
    lost = _between(failed.start, record.start)
    if lost is None:
        return msgspec.structs.replace(record, attempts=attempts)
    return msgspec.structs.replace(
        record,
        attempts=attempts,
        start=failed.start,
        ttft=None if record.ttft is None else record.ttft + lost,
        e2e=None if record.e2e is None else record.e2e + lost,
    )


def _refused(call: str, failed: RequestRecord | None, line: _Line) -> RequestRecord:
    """Returns the record of a request whose client got an error."""
    status = status_code(line.status)
    if failed is None:  # it never got as far as a server
        outcome = failed_status(status) or Outcome.UNKNOWN
        return RequestRecord(request_id=call, status=status, outcome=outcome)
    e2e = _between(failed.start, line.written_at)
    timed_out = status in (408, 504)
    return msgspec.structs.replace(
        failed,
        status=status or failed.status,
        outcome=Outcome.TIMEOUT if timed_out else failed.outcome,
        e2e=failed.e2e if e2e is None else e2e,
        e2e_kind=failed.e2e_kind if e2e is None else E2eKind.UPSTREAM,
    )


def _recognises(raw: bytes) -> bool:
    return has_members(raw, ("event", "litellm_call_id"))


def litellm(headers: Iterable[str] = ()) -> Format:
    """Returns LiteLLM's format; *headers* are those that the SLO classes match on.

    LiteLLM passes on request headers whose name begins with `x-`.
    """
    reader = _Litellm(headers)
    return Format(
        name="litellm",
        parse=reader.parse,
        criteria=CRITERIA,
        blind=BLIND,
        recognises=_recognises,
        held=reader.held,
        memory=reader.memory,
        recall=reader.recall,
    )

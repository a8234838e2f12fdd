"""nginx's access log: JSON as in deploy/gateways/nginx, and the combined format.

One JSON format for three ways to run it: as shipped, with njs and with Lua. Times are
seconds, the filters' are milliseconds. $msec is the end. An upstream variable is a list
with a value per attempt; each attempt's times start at that attempt, and a phase that
was not reached is "-".
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
from msgspec import UNSET, UnsetType

from analyzer.gateways.common_log import parse_combined, recognises_combined
from analyzer.gateways.format import Format
from analyzer.gateways.headers import HeaderHabits
from analyzer.gateways.json_line import UNREADABLE, Headers, LineDecoder, has_members
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
    EVENT_STREAM,
    LATEST,
    LONGEST_LABEL,
    SENTINELS,
    Seconds,
    count,
    duration,
    failed_status,
    number,
    path_of,
    status_code,
    text,
)

CRITERIA = frozenset(("ttft", "tpot", "max_gap", "e2e"))
BLIND = (
    (
        "First token, tokens, and whether the server's answer was complete, without "
        "the njs or Lua filter: a cut stream looks like a whole one; nothing is good."
    ),
    "An error inside a stream, with a filter that does not log sse_error.",
    "How long an upload took beside how slowly the client read, in the total.",
    "Anything but the status, in the combined format.",
)

# The upload and a slow reader are both between the total and the upstream's time:
# with more than this between them the time to the headers may lack the upload.
UNEXPLAINED = 0.01
CLOCK_GRAIN = 0.003  # seconds by which nginx's clocks may disagree
_LIST = re.compile(r", | : ")
# Streams of these end in [DONE], so that one without it was cut.
_ENDS_IN_DONE = ("/v1/chat/completions", "/v1/completions")

_Number = str | float | None
_NO_HEADERS: dict[str, str] = {}
_CLIENT, _COUNTED = E2eKind.CLIENT, TokensKind.COUNTED
_USAGE, _NO_TOKENS, _NO_TTFT = TokensKind.USAGE, TokensKind.NONE, TtftKind.NONE


class Line(msgspec.Struct, gc=False):
    """The members of a line."""

    # In the order of deploy/gateways/nginx: the next one is then found at once.
    msec: float | None = None
    request_time: Seconds | None = None
    request_completion: str | None = None
    x_request_id: str | None = None
    request_id: str | None = None
    tenant: str | None = None
    model_hdr: str | None = None
    uri: str | None = None
    status: _Number = None
    upstream_addr: str | None = None
    upstream_header_time: _Number = None
    upstream_response_time: _Number = None
    up_content_type: str | None = None
    # Unix milliseconds (njs), or milliseconds since the request began (Lua).
    t_first_chunk: _Number = None
    t_last_chunk: _Number = None
    t_end: _Number = None
    max_gap_ms: _Number = None
    sse_events: _Number = None
    model: str | None = None
    prompt_tokens: _Number = None
    cached_tokens: _Number = None
    completion_tokens: _Number = None
    # Of both filters; missing members mean that no filter reads the answers.
    saw_done: _Number | UnsetType = UNSET
    sse_error: _Number | UnsetType = UNSET
    # Of other filters: milliseconds since the request began.
    ttft_ms: _Number = None
    last_token_ms: _Number = None
    end_ms: _Number = None


_NOTHING = ("", "-", "0", 0, None)


class _Nginx:
    __slots__ = ("_decode", "_headers", "_recover", "habits")

    def __init__(self, headers: Iterable[str]) -> None:
        names = {name: "http_" + name.replace("-", "_") for name in headers}
        found = Headers(names)
        self._headers = found or None
        decoder = LineDecoder(found.extended(Line))
        self._decode, self._recover = decoder.decode, decoder.recover
        self.habits = HeaderHabits()

    def parse(self, raw: bytes) -> RequestRecord | None:
        """Returns the record of a line; raises LineProblem."""
        if raw[:1] != b"{":
            return parse_combined(raw)
        try:
            line = self._decode(raw)
        except UNREADABLE as error:
            line = self._recover(raw, error)
        e2e = line.request_time
        if e2e is None:
            raise LineProblem("no_match", "no request_time")
        start = None
        end = line.msec
        if end is not None and EARLIEST <= end <= LATEST:
            start = end - e2e
        path = line.uri or ""
        if "?" in path:
            path = path_of(path)
        kind = line.up_content_type
        stream = kind.startswith(EVENT_STREAM) if kind and kind != "-" else None
        return self._record(line, path, start, e2e, stream=stream)

    def _record(
        self,
        line: Line,
        path: str,
        start: float | None,
        e2e: float,
        *,
        stream: bool | None,
    ) -> RequestRecord:
        header, serving, attempts, backend, explained = _upstream(line, e2e)
        status = status_code(line.status)
        tokens = count(line.completion_tokens)
        usage = tokens is not None
        tokens_kind = _USAGE if usage else _NO_TOKENS
        ttft = tpot = last = None
        ttft_kind = _NO_TTFT
        reads = line.saw_done is not UNSET
        if stream and reads:
            if tokens is None and (tokens := count(line.sse_events)) is not None:
                tokens_kind = _COUNTED
            ttft, last = _outputs(line, start, e2e)
            ttft_kind = TtftKind.TOKEN
            if ttft is not None and last is not None:
                if tokens is not None and tokens > 1:
                    tpot = (last - ttft) / (tokens - 1)
                if header is not None:
                    self.habits.saw(path, header, ttft)
        elif stream and explained and self.habits.late(path):
            ttft, ttft_kind = header, TtftKind.HEADERS
        gateway, delivery = _around(line, start, e2e, serving)
        headers = self._headers
        return RequestRecord(
            text(line.x_request_id) or line.request_id or "",
            start,
            path,
            backend[:LONGEST_LABEL],
            text(line.tenant),
            (text(line.model) or text(line.model_hdr))[:LONGEST_LABEL],
            headers.of(line) if headers is not None else _NO_HEADERS,
            stream,
            status,
            outcome_of(line, status, path, stream=stream, usage=usage),
            header,
            ttft,
            ttft_kind,
            tpot,
            duration(line.max_gap_ms, 1e-3) if tokens and tokens > 1 else None,
            e2e,
            _CLIENT,
            count(line.prompt_tokens),
            tokens,
            count(line.cached_tokens),
            tokens_kind,
            attempts,
            gateway,
            serving,
            delivery,
            tokens_kind is _COUNTED,
        )


def _outputs(
    line: Line, start: float | None, e2e: float
) -> tuple[float | None, float | None]:
    """Returns when the first and the last token came, in seconds since the start.

    njs writes wall-clock times. What lies outside the request, by more than its
    clocks' grain, shows a step of the clock and is not known.
    """
    first = duration(line.ttft_ms, 1e-3)
    if first is not None:
        last = duration(line.last_token_ms, 1e-3)
        return first, None if last is None or last < first else last
    first, last = number(line.t_first_chunk), number(line.t_last_chunk)
    if first is None or last is None or start is None:
        return None, None
    first, last = first * 1e-3 - start, last * 1e-3 - start
    if -CLOCK_GRAIN <= first <= last <= e2e + CLOCK_GRAIN:
        return max(first, 0.0), max(last, 0.0)
    return None, None


# What the upstream variables say: time to the headers since the request began,
# serving time, attempts, backend, and whether they account for all of the total, so
# that nothing else, such as an upload, lies before the headers.
_Upstream = tuple[float | None, float | None, int | None, str, bool]
_NO_UPSTREAM: _Upstream = (None, None, None, "", False)


def _upstream(line: Line, e2e: float) -> _Upstream:
    addresses = line.upstream_addr
    headers, responses = line.upstream_header_time, line.upstream_response_time
    if addresses is None or addresses in SENTINELS:
        return _NO_UPSTREAM
    if ", " in addresses or " : " in addresses:
        return _several(addresses, str(headers), str(responses), e2e)
    serving = duration(responses)
    explained = serving is not None and e2e - serving <= UNEXPLAINED
    return duration(headers), serving, 1, addresses, explained


def _several(addresses: str, headers: str, responses: str, e2e: float) -> _Upstream:
    """Reads lists. After all servers failed one more entry has the group's name."""
    entries = list(
        zip(
            _LIST.split(addresses),
            _LIST.split(headers),
            _LIST.split(responses),
            strict=False,
        )
    )
    tried = [entry for entry in entries if ":" in entry[0] or "/" in entry[0]]
    if not tried:
        return _NO_UPSTREAM
    lost = 0.0
    for _, _, response in tried[:-1]:
        lost += duration(response) or 0.0
    backend, header_text, response = tried[-1]
    header, serving = duration(header_text), duration(response)
    explained = serving is not None and e2e - lost - serving <= UNEXPLAINED
    if header is not None:
        header += lost
    return header, serving, len(tried), backend, explained


def _around(
    line: Line, start: float | None, e2e: float, serving: float | None
) -> tuple[float | None, float | None]:
    """Returns the time before the server that answered, and that after its last byte.

    Only a filter sees the end of the answer; without it the two cannot be told apart.
    """
    end = duration(line.end_ms, 1e-3)
    if end is None and start is not None:
        stamp = number(line.t_end)
        end = None if stamp is None else stamp * 1e-3 - start
    if (
        end is None
        or serving is None
        or not serving - CLOCK_GRAIN <= end <= e2e + CLOCK_GRAIN
    ):
        return None, None
    return max(end - serving, 0.0), max(e2e - end, 0.0)


def outcome_of(
    line: Line, status: int | None, path: str, *, stream: bool | None, usage: bool
) -> Outcome:
    """Returns how the answer ended, as far as nginx and its filter can tell."""
    failed = failed_status(status)
    if failed is not None:
        return failed
    errors, done = line.sse_error, line.saw_done
    if errors is not UNSET and errors not in _NOTHING:
        return Outcome.STREAM_ERROR
    marked = stream and path.endswith(_ENDS_IN_DONE)
    whole = done is not UNSET and done not in _NOTHING
    if not marked:  # other interfaces, and whole answers, end with their usage
        whole = whole or usage
    if line.request_completion in SENTINELS and not whole:
        return Outcome.CLIENT_ABORT
    if whole:
        # Usage is sent only after all output; [DONE] follows errors as well.
        return Outcome.OK if usage or errors is not UNSET else Outcome.UNKNOWN
    if marked and done is not UNSET:
        return Outcome.UPSTREAM_CUT
    return Outcome.UNKNOWN


def _recognises(raw: bytes) -> bool:
    if raw[:1] == b"{":
        return has_members(raw, ("request_time", "status", "upstream_response_time"))
    return recognises_combined(raw)


def nginx(headers: Iterable[str] = ()) -> Format:
    """Returns nginx's format; *headers* are those that the SLO classes match on.

    A header's member has the name of nginx's variable: `http_x_priority`.
    """
    reader = _Nginx(headers)
    return Format(
        name="nginx",
        parse=reader.parse,
        criteria=CRITERIA,
        blind=BLIND,
        recognises=_recognises,
        memory=reader.habits.memory,
        recall=reader.habits.recall,
    )

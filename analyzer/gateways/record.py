"""One request as a log tells it: canonical names, seconds, and how each was known."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    """How the answer ended."""

    OK = "ok"
    HTTP_ERROR = "http_error"  # a status of 400 or more
    CLIENT_ABORT = "client_abort"  # the client left before the end
    UPSTREAM_CUT = "upstream_cut"  # reset or ended early by the server
    TIMEOUT = "timeout"  # the gateway gave up waiting
    STREAM_ERROR = "stream_error"  # an error object inside a 200 stream
    UNKNOWN = "unknown"  # the log cannot tell a complete answer from a cut one


class TtftKind(StrEnum):
    """What the time to first token was measured to."""

    TOKEN = "token"  # noqa: S105  the first content, by somebody who reads the body
    FIRST_BODY_BYTE = "first_body_byte"  # fooled by SSE comments
    HEADERS = "headers"  # true only for servers that hold headers back
    NONE = "none"


class TokensKind(StrEnum):
    """Where the number of output tokens is from."""

    USAGE = "usage"  # the server's own count
    COUNTED = "counted"  # content chunks; one may hold several tokens
    ESTIMATED = "estimated"
    NONE = "none"


class E2eKind(StrEnum):
    """Where the end of the answer was seen."""

    CLIENT = "client"  # the client took the last byte
    HANDOVER = "handover"  # the last byte was given to the client's socket
    UPSTREAM = "upstream"  # the last byte came from the server
    NONE = "none"


class RequestRecord(msgspec.Struct, frozen=True, gc=False):
    """One request; times in seconds, `start` in Unix seconds, None for unknown.

    None is never 0: a value that the log does not hold is None. A `ttft` of None
    under a `ttft_kind` other than none means that no token came; under none, nobody
    looked. `tpot` is (last − first token)/(tokens − 1); with `tpot_at_most` the true
    value may be less, as of counted chunks, which may hold several tokens. `max_gap`
    is the longest wait between two outputs. `e2e` of a request that did not end well
    is the time until it ended.
    `gateway_time` is spent before the request reached the server that answered (a
    slow upload is not in it where the log tells it apart), `serving_time` there until
    its last byte, `delivery_time` after it. `attempts` counts tries at servers;
    `headers` holds the request headers that the format knows, names in lower case.

    A struct, since a daemon makes thousands a second. The formats of the busiest
    gateways fill it by position, in a fifth of the time that keywords take.
    """

    request_id: str = ""
    start: float | None = None
    route: str = ""
    backend: str = ""
    tenant: str = ""
    model: str = ""
    headers: Mapping[str, str] = {}
    stream: bool | None = None
    status: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    header_time: float | None = None
    ttft: float | None = None
    ttft_kind: TtftKind = TtftKind.NONE
    tpot: float | None = None
    max_gap: float | None = None
    e2e: float | None = None
    e2e_kind: E2eKind = E2eKind.NONE
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    tokens_kind: TokensKind = TokensKind.NONE
    attempts: int | None = None
    gateway_time: float | None = None
    serving_time: float | None = None
    delivery_time: float | None = None
    tpot_at_most: bool = False


class LineProblem(ValueError):  # noqa: N818  a line may be of no use and yet no error
    """A log line that gives no record; `reason` is the failure counter's label."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


# Labels of goodput_log_parse_failures_total{reason}.
LINE_PROBLEMS = (
    "not_json",  # a JSON format's line that is not a JSON object
    "no_match",  # a text format's line of another shape
    "wrong_value",  # a field whose value cannot be what the field says
    "too_long",  # longer than the limit
    "too_deep",  # JSON nested beyond the limit
    "stderr",  # of a container's standard error, and no request
)

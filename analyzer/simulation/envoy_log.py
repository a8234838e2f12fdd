"""What a simulated gateway logs: Envoy's access log in the JSON of deploy/gateways.

Points in time are microseconds since the request's first byte, as Envoy rounds them.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from analyzer.capacity.outcome import Outcome, Status
from analyzer.simulation.vllm_page import HANDLER

_encode = msgspec.json.Encoder().encode


def log_line(outcome: Outcome, *, model: str, host: str, ended: float) -> bytes:
    """Returns the line that Envoy writes when a request is over, without a newline.

    *host* is the replica's address, "" when none was up; *ended* is the Unix time of
    the request's end.
    """
    request = outcome.request
    start = ended - outcome.e2e
    first, last = outcome.first_token, outcome.last_token
    headers = _headers(outcome)
    complete = outcome.status is Status.COMPLETE
    code, flags, details = _end(outcome)
    answered = complete or outcome.status in {Status.REJECTED, Status.INVALID}
    end = round(outcome.e2e * 1e6)
    stream = complete or (headers is not None and not answered)
    begin = datetime.fromtimestamp(start, UTC)
    line = {
        "start_time": begin.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
        "start_epoch": f"{start:.6f}",
        "x_request_id": f"sim-{request.number:08d}",
        "tenant": request.tenant,
        "model_hdr": model,
        "method": "POST",
        "path": HANDLER,
        "route_name": "llm",
        "response_code": code,
        "response_code_details": details,
        "response_flags": flags,
        "content_type": "text/event-stream; charset=utf-8" if stream else None,
        "upstream_host": host or None,
        "attempts": 1,
        "duration": end // 1000,
        "us_ds_rx_end": 0,
        "us_us_tx_end": _us(outcome, outcome.forwarded),
        "us_us_rx_beg": end if answered and not complete else _us(outcome, headers),
        "us_us_rx_body_beg": _us(outcome, first),
        "us_us_rx_end": end if answered else None,
        "us_ds_tx_end": None if outcome.status is Status.LEFT else end,
        "llm_model": model if first is not None else None,
        "prompt_tokens": request.prompt_tokens if complete else None,
        "completion_tokens": outcome.output_tokens if complete else None,
        "cached_tokens": outcome.cached_tokens if complete else None,
        "sse_error": None,
        "tok_first_us": _stamp(start, outcome, first),
        "tok_last_us": _stamp(start, outcome, last),
        "tok_max_gap_us": round(outcome.max_gap * 1e6) or None,
        "tok_events": outcome.output_tokens or None,
        "tok_done": True if complete else None,
    }
    return _encode(line)


def _headers(outcome: Outcome) -> float | None:
    """Returns when the answer's headers came: vLLM sends them before the first token.

    That is when the prompt has been tokenised and the engine has heard of it.
    """
    moments = [m for m in (outcome.queued, outcome.first_token) if m is not None]
    return min(moments, default=None)


def _end(outcome: Outcome) -> tuple[int, str, str]:
    """Returns status, response flags and details of how an answer ended."""
    begun = _headers(outcome) is not None
    match outcome.status:
        case Status.COMPLETE:
            return 200, "-", "via_upstream"
        case Status.LEFT:
            return (200 if begun else 0), "DC", "downstream_remote_disconnect"
        case Status.REJECTED:
            return 503, "-", "via_upstream"
        case Status.INVALID:
            return 400, "-", "via_upstream"
        case Status.BROKEN:
            reason = "upstream_reset_before_response_started{connection_termination}"
            if begun:
                reason = "upstream_reset_after_response_started{connection_termination}"
            return (200 if begun else 503), "UC", reason
        case Status.UNREACHABLE:
            return 503, "UH", "no_healthy_upstream"


def _us(outcome: Outcome, moment: float | None) -> int | None:
    """Returns a moment in microseconds since the request's first byte."""
    if moment is None:
        return None
    return round((moment - outcome.request.arrival) * 1e6)


def _stamp(start: float, outcome: Outcome, moment: float | None) -> str | None:
    """Returns a moment as a Unix time in microseconds, as the Lua filter writes it."""
    since = _us(outcome, moment)
    return None if since is None else f"{round(start * 1e6) + since}"

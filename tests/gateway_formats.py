"""Every log format with some of its lines, and what becomes of any line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import msgspec
from gateway_truth import LOGS, unpacked

from analyzer.config_gateways import LogField
from analyzer.gateways.caddy import caddy
from analyzer.gateways.custom import custom
from analyzer.gateways.envoy import envoy
from analyzer.gateways.format import Format
from analyzer.gateways.haproxy import haproxy
from analyzer.gateways.litellm import litellm
from analyzer.gateways.middleware import middleware
from analyzer.gateways.nginx import nginx
from analyzer.gateways.record import (
    LINE_PROBLEMS,
    E2eKind,
    LineProblem,
    Outcome,
    RequestRecord,
    TokensKind,
    TtftKind,
)
from analyzer.gateways.traefik import traefik
from analyzer.gateways.values import DAY

FIELDS = {
    "request_id": LogField("rid"),
    "start": LogField("time", "ms"),
    "status": LogField("status"),
    "stream": LogField("stream"),
    "outcome": LogField("end"),
    "ttft": LogField("ttft", "ms"),
    "e2e": LogField("took", "ms"),
    "completion_tokens": LogField("usage.completion_tokens"),
}
CUSTOM_LINE = (
    b'{"rid":"r","time":1795960938217,"status":200,"stream":true,"end":"ok",'
    b'"ttft":120.5,"took":900,"usage":{"completion_tokens":12}}'
)
PATTERN = (
    r"(?P<start>\d+\.\d+) (?P<route>/\S*) (?P<status>\d+) (?P<e2e>[\d.]+)"
    r"(?: (?P<ttft>[\d.]+))?"
)
PATTERN_LINE = b"1795960938.217 /v1/completions 200 1.25 0.3"
MIDDLEWARE_LINE = json.dumps(
    {
        "format": "goodput-request",
        "version": 1,
        "seq": 1,
        "request_id": "r",
        "headers": {"x-priority": "high"},
        "route": "/v1/completions",
        "model": "m",
        "start": 1795960938.2,
        "request_body_s": 0.001,
        "header_s": 0.002,
        "ttft_s": 0.1,
        "last_content_s": 0.4,
        "max_gap_s": 0.05,
        "done_s": 0.41,
        "end_s": 0.42,
        "disconnect_s": None,
        "elapsed_s": 0.43,
        "status": 200,
        "outcome": "ok",
        "streamed": True,
        "completion_tokens": 11,
        "tokens_kind": "usage",
    },
    separators=(",", ":"),
).encode()
MAKE: dict[str, Callable[[], Format]] = {
    "envoy": envoy,
    "nginx": nginx,
    "haproxy": haproxy,
    "traefik": traefik,
    "caddy": caddy,
    "litellm": litellm,
    "middleware": middleware,
    "custom": lambda: custom(FIELDS),
    "pattern": lambda: custom({}, PATTERN),
}


def samples(name: str) -> list[bytes]:
    """Returns some real lines of a format, of every variant recorded."""
    own = {
        "middleware": [MIDDLEWARE_LINE],
        "custom": [CUSTOM_LINE],
        "pattern": [PATTERN_LINE],
    }
    if name in own:
        return own[name]
    found: list[bytes] = []
    for log in LOGS:
        if log.partition("-")[0] == name:
            found += unpacked(log)[::20]
    return found


def assert_sane(record: RequestRecord) -> None:
    """Nothing in a record may break what counts it: finite, in range, of its type."""
    durations = (
        record.header_time,
        record.ttft,
        record.tpot,
        record.max_gap,
        record.e2e,
        record.gateway_time,
        record.serving_time,
        record.delivery_time,
    )
    for value in durations:
        assert value is None or (math.isfinite(value) and 0 <= value <= 4 * DAY), record
    assert record.start is None or 9e8 < record.start < 4.2e9
    assert record.status is None or 0 < record.status <= 999
    counts = (record.prompt_tokens, record.completion_tokens, record.cached_tokens)
    for number in (*counts, record.attempts):
        assert number is None or 0 <= number <= 1 << 41
    texts = (record.request_id, record.route, record.tenant)
    for text in (*texts, record.backend, record.model):
        assert isinstance(text, str)
    assert len(record.model) <= 256
    assert len(record.backend) <= 256
    assert record.stream in (True, False, None)
    assert isinstance(record.outcome, Outcome)
    assert isinstance(record.ttft_kind, TtftKind)
    assert isinstance(record.tokens_kind, TokensKind)
    assert isinstance(record.e2e_kind, E2eKind)
    assert (record.e2e is None) == (record.e2e_kind is E2eKind.NONE)
    assert record.ttft is None or record.ttft_kind is not TtftKind.NONE
    if record.stream is False:
        assert record.ttft is None
        assert record.tpot is None
    assert msgspec.convert(msgspec.to_builtins(record), RequestRecord) == record


def outcome_of(log_format: Format, line: bytes) -> str:
    """Returns what became of a line: record, none, or the reason of its failure."""
    try:
        record = log_format.parse(line)
    except LineProblem as problem:
        return LINE_PROBLEMS[LINE_PROBLEMS.index(problem.reason)]
    if record is None:
        return "none"
    assert_sane(record)
    return "record"

from __future__ import annotations

import json

import pytest
from gateway_lines import parsed, problem_of, rounded
from hypothesis import given
from hypothesis import strategies as st

from analyzer.gateways.envoy import BLIND, envoy
from analyzer.gateways.format import Format
from analyzer.gateways.record import (
    E2eKind,
    LineProblem,
    Outcome,
    RequestRecord,
    TokensKind,
    TtftKind,
)

LINE: dict[str, object] = {
    "start_epoch": "1795961597.500000",
    "start_time": "2026-11-29T14:13:17.500Z",
    "x_request_id": "r1",
    "tenant": "acme",
    "model_hdr": "hint",
    "llm_model": "m",
    "path": "/v1/chat/completions?key=secret",
    "response_code": 200,
    "response_flags": "-",
    "content_type": "text/event-stream; charset=utf-8",
    "duration": 1000,
    "upstream_host": "10.0.0.1:8000",
    "attempts": 1,
    "us_ds_rx_end": 2_000,
    "us_us_tx_end": 12_000,
    "us_us_rx_beg": 20_000,
    "us_us_rx_body_beg": 200_000,
    "us_us_rx_end": 990_000,
    "us_ds_tx_end": 1_000_000,
    "prompt_tokens": 100,
    "completion_tokens": 80,
    "cached_tokens": 64,
    "sse_error": None,
}
LUA: dict[str, object] = {
    "tok_first_us": "1795961597800000",
    "tok_last_us": "1795961598400000",
    "tok_max_gap_us": 90_000,
    "tok_events": 61,
    "tok_done": True,
}


def told(**members: object) -> RequestRecord:
    """Returns the record of the usual line with some members replaced."""
    return parsed(envoy(), {**LINE, **members})


def without(name: str) -> RequestRecord:
    """Returns the record of the usual line without a member."""
    return parsed(envoy(), {k: v for k, v in LINE.items() if k != name})


def test_all_fields_of_a_stream() -> None:
    """Every point has its place, in seconds, and the query string is left out."""
    assert rounded(told()) == RequestRecord(
        request_id="r1",
        start=1795961597.5,
        route="/v1/chat/completions",
        backend="10.0.0.1:8000",
        tenant="acme",
        model="m",
        stream=True,
        status=200,
        outcome=Outcome.OK,
        header_time=0.02,
        ttft=0.2,
        ttft_kind=TtftKind.FIRST_BODY_BYTE,
        tpot=0.01,
        e2e=1.0,
        e2e_kind=E2eKind.HANDOVER,
        prompt_tokens=100,
        completion_tokens=80,
        cached_tokens=64,
        tokens_kind=TokensKind.USAGE,
        attempts=1,
        gateway_time=0.01,
        serving_time=0.978,
        delivery_time=0.01,
    )


def test_stages_and_upload_make_the_total() -> None:
    """Upload, gateway, serving and delivery follow each other without a hole."""
    record = told()
    assert record.gateway_time is not None
    assert record.serving_time is not None
    assert record.delivery_time is not None
    stages = record.gateway_time + record.serving_time + record.delivery_time
    assert stages + 0.002 == pytest.approx(record.e2e)


@pytest.mark.parametrize(
    ("code", "flags", "tokens", "error", "outcome"),
    [
        (200, "-", 80, None, Outcome.OK),
        (200, "-", None, "out of memory", Outcome.STREAM_ERROR),
        (200, "DC", None, None, Outcome.CLIENT_ABORT),
        (200, "DR", None, None, Outcome.CLIENT_ABORT),
        (200, "DC", 80, None, Outcome.OK),
        (0, "DC", None, None, Outcome.CLIENT_ABORT),
        (200, "UPE", None, None, Outcome.UPSTREAM_CUT),
        (200, "UC", None, None, Outcome.UPSTREAM_CUT),
        (200, "UR", None, None, Outcome.UPSTREAM_CUT),
        (200, "SI", None, None, Outcome.TIMEOUT),
        (200, "DT", None, None, Outcome.TIMEOUT),
        (504, "UT", None, None, Outcome.TIMEOUT),
        (503, "URX,UC", None, None, Outcome.HTTP_ERROR),
        (503, "UO", None, None, Outcome.HTTP_ERROR),
        (429, "RL", None, None, Outcome.HTTP_ERROR),
        (400, "DPE", None, None, Outcome.HTTP_ERROR),
        (429, "-", None, "slow down", Outcome.HTTP_ERROR),
        (0, "-", None, None, Outcome.UNKNOWN),
        (200, "NEW", None, None, Outcome.UNKNOWN),
        (200, "DI", 80, None, Outcome.OK),
    ],
)
def test_response_flags_tell_how_it_ended(
    code: int, flags: str, tokens: int | None, error: str | None, outcome: Outcome
) -> None:
    """A status of 200 says nothing: flags, usage and the error object do."""
    record = told(
        response_code=code,
        response_flags=flags,
        completion_tokens=tokens,
        sse_error=error,
    )
    assert record.outcome is outcome
    assert record.status == (code or None)


def test_a_complete_answer_whose_client_closed_has_the_total_as_its_end() -> None:
    """The last points are null then; the duration is in milliseconds."""
    record = told(
        response_flags="DC", us_us_rx_end=None, us_ds_tx_end=None, duration=990
    )
    assert record.outcome is Outcome.OK
    assert record.e2e == pytest.approx(0.99)
    assert record.tpot == pytest.approx((0.99 - 0.2) / 79)
    assert record.delivery_time is None


def test_who_left_before_the_first_byte_had_no_token() -> None:
    """No time, but of a kind: the log would have had one."""
    record = told(
        response_flags="DC",
        us_us_rx_body_beg=None,
        us_us_rx_end=None,
        us_ds_tx_end=None,
        completion_tokens=None,
    )
    assert (record.ttft, record.ttft_kind) == (None, TtftKind.FIRST_BODY_BYTE)
    assert record.e2e == pytest.approx(1.0)


def test_null_is_not_missing() -> None:
    """A log without the point of the first body byte has no TTFT of any kind."""
    record = without("us_us_rx_body_beg")
    assert (record.ttft, record.ttft_kind) == (None, TtftKind.NONE)
    assert record.tpot is None
    assert record.completion_tokens == 80
    assert without("completion_tokens").tokens_kind is TokensKind.NONE


def test_a_single_token_has_no_time_per_token() -> None:
    """Nor have none: the divisor would be nothing."""
    for tokens in (0, 1):
        record = told(completion_tokens=tokens)
        assert record.tpot is None
        assert record.completion_tokens == tokens
        assert record.ttft == pytest.approx(0.2)


def test_the_lua_filter_reads_tokens() -> None:
    """First and last token, and the gap, are its own, whatever the first body byte."""
    record = told(**LUA)
    assert record.ttft == pytest.approx(0.3)
    assert record.ttft_kind is TtftKind.TOKEN
    assert record.tpot == pytest.approx(0.6 / 79)
    assert record.max_gap == pytest.approx(0.09)
    assert not record.tpot_at_most


def test_events_are_counted_without_usage() -> None:
    """An event holds at least a token, so the time per token is a bound."""
    record = told(**LUA, completion_tokens=None)
    assert record.completion_tokens == 61
    assert record.tokens_kind is TokensKind.COUNTED
    assert record.tpot == pytest.approx(0.01)
    assert record.tpot_at_most


def test_a_filter_that_saw_no_token() -> None:
    """The first body byte was a comment then; the end mark makes it complete."""
    nothing = dict.fromkeys(LUA)
    record = told(**nothing, completion_tokens=None)
    assert (record.ttft, record.ttft_kind) == (None, TtftKind.TOKEN)
    closed = told(**LUA, completion_tokens=None, response_flags="DC")
    assert closed.outcome is Outcome.OK


def test_usage_in_every_chunk_completes_nothing() -> None:
    """With the Lua filter only the end mark does, since usage may come early."""
    early = {**LUA, "tok_done": None}
    record = told(**early, completion_tokens=12, response_flags="DC")
    assert record.outcome is Outcome.CLIENT_ABORT


def test_numbers_may_be_texts() -> None:
    """Envoy writes header values as strings, and other fields in formats by hand."""
    record = told(
        us_us_rx_beg=None,
        upstream_service_time="20",
        duration="1000",
        response_code="200",
        completion_tokens="80",
        us_ds_tx_end="-",
    )
    assert record.header_time == pytest.approx(0.02)
    assert record.e2e == pytest.approx(1.0)
    assert record.completion_tokens == 80


def test_default_json_of_istio_and_of_envoy_gateway() -> None:
    """Their members tell the total, the status and how it ended."""
    istio = {
        "start_time": "2026-11-29T14:13:17.500Z",
        "path": "/v1/completions",
        "request_id": "i1",
        "response_code": 200,
        "response_flags": "-",
        "duration": 1500,
        "upstream_service_time": "30",
        "upstream_host": "10.0.0.1:8000",
    }
    gateway = {
        "start_time": "2026-11-29T14:13:17.500Z",
        "x-envoy-origin-path": "/v1/completions",
        "x-request-id": "i1",
        "response_code": 200,
        "response_flags": "-",
        "duration": 1500,
        "x-envoy-upstream-service-time": "30",
        "upstream_host": "10.0.0.1:8000",
    }
    for line in (istio, gateway):
        assert rounded(parsed(envoy(), line)) == RequestRecord(
            request_id="i1",
            start=1795961597.5,
            route="/v1/completions",
            backend="10.0.0.1:8000",
            status=200,
            outcome=Outcome.OK,
            header_time=0.03,
            e2e=1.5,
            e2e_kind=E2eKind.HANDOVER,
        )


DEFAULT = (
    '[2026-11-29T14:13:17.500Z] "POST /v1/completions HTTP/1.1" 200 {flags} 328 7643 '
    '521 2 "-" "agent" "r1" "llm.example.test" "127.0.0.1:18102"'
)
ISTIO = (
    '[2026-11-29T14:13:17.500Z] "POST /v1/completions HTTP/1.1" 200 {flags} '
    'via_upstream - "-" 328 7643 521 2 "-" "agent" "r1" "llm.example.test" '
    '"127.0.0.1:18102" outbound|80||llm.svc 10.1.0.7:41 10.1.0.9:80 10.1.0.3:5 - r'
)


@pytest.mark.parametrize("line", [DEFAULT, ISTIO])
def test_default_text(line: str) -> None:
    """Total, headers and how it ended; no first token and so no kind of one."""
    assert rounded(parsed(envoy(), line.format(flags="-").encode())) == RequestRecord(
        request_id="r1",
        start=1795961597.5,
        route="/v1/completions",
        backend="127.0.0.1:18102",
        status=200,
        outcome=Outcome.OK,
        header_time=0.002,
        e2e=0.521,
        e2e_kind=E2eKind.HANDOVER,
    )
    left = parsed(envoy(), line.format(flags="DC").encode())
    assert left.outcome is Outcome.CLIENT_ABORT


def test_envoys_own_messages_are_no_requests() -> None:
    """They share standard output with the log; other text is a problem."""
    message = b"[2026-11-29 14:13:17.469][1][info][main] starting main dispatch loop"
    assert envoy().parse(message) is None
    assert problem_of(envoy(), b"hello") == "no_match"


def test_headers_that_classes_match_on() -> None:
    """Only those asked for are read, under the name that the classes use."""
    log_format = envoy(["x-priority", "x-absent"])
    record = parsed(log_format, {**LINE, "x_priority": "high", "x_other": "y"})
    assert record.headers == {"x-priority": "high"}
    assert told(x_priority="high").headers == {}


def test_what_it_can_never_tell_is_said() -> None:
    """Each limit is a sentence."""
    assert all(sentence[0].isupper() and sentence.endswith(".") for sentence in BLIND)


ISTIO_LINE: dict[str, object] = {
    "start_time": "2026-11-29T14:13:17.500Z",
    "request_id": "r2",
    "path": "/v1/completions",
    "response_code": 200,
    "response_flags": "-",
    "duration": 1000,
    "upstream_service_time": "20",
    "upstream_host": "10.0.0.1:8000",
}
MEMBERS = {
    "x_request_id": ("request_id", "x-request-id"),
    "path": ("x-envoy-origin-path",),
    "us_us_rx_beg": ("upstream_service_time", "x-envoy-upstream-service-time"),
    "start_epoch": ("start_time",),
}


@given(st.lists(st.sampled_from(range(12)), max_size=8))
def test_lines_of_any_kind_are_read_as_if_they_stood_alone(order: list[int]) -> None:
    """A configuration may change under a log, or hold members of several formats."""
    kinds = [LINE, {**LINE, **LUA}, ISTIO_LINE, {**LINE, "us_us_rx_beg": None}]
    kinds += [{"level": "info", "msg": "no request"}, {**LINE, "us_ds_tx_end": None}]
    for lacking, others in MEMBERS.items():
        less = {k: v for k, v in LINE.items() if k not in (lacking, *others)}
        kinds += [{**less, other: ISTIO_LINE.get(other, "30")} for other in others]
    reader = envoy(("request-id",))
    lines = [json.dumps(kinds[number]).encode() for number in order]
    assert [_read(reader, line) for line in lines] == [
        _read(envoy(("request-id",)), line) for line in lines
    ]


def _read(reader: Format, line: bytes) -> RequestRecord | str | None:
    try:
        return reader.parse(line)
    except LineProblem as problem:
        return problem.reason


def test_a_header_that_is_a_member_already_is_matched_by_it() -> None:
    """Also where that member is one which few logs have."""
    line = json.dumps({**LINE, "request_id": "r2"}).encode()
    record = envoy(("request-id",)).parse(line)
    assert record is not None
    assert record.headers == {"request-id": "r2"}

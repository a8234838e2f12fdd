from __future__ import annotations

import json

import pytest
from gateway_lines import parsed, problem_of, rounded

from analyzer.gateways.nginx import nginx
from analyzer.gateways.record import (
    E2eKind,
    Outcome,
    RequestRecord,
    TokensKind,
    TtftKind,
)

STOCK: dict[str, object] = {
    "msec": "1795960938.500",
    "request_id": "nginx-made",
    "x_request_id": "r1",
    "tenant": "acme",
    "model_hdr": "m",
    "uri": "/v1/chat/completions?key=secret",
    "status": "200",
    "request_completion": "OK",
    "request_time": "1.000",
    "upstream_addr": "10.0.0.1:8000",
    "upstream_status": "200",
    "upstream_header_time": "0.010",
    "upstream_response_time": "0.990",
    "up_content_type": "text/event-stream; charset=utf-8",
}
NJS: dict[str, object] = {
    **STOCK,
    "t_first_chunk": "1795960937700",
    "t_last_chunk": "1795960938490",
    "t_end": "1795960938492",
    "max_gap_ms": "90",
    "prompt_tokens": "100",
    "completion_tokens": "80",
    "cached_tokens": "64",
    "saw_done": "1",
    "sse_error": "",
    "model": "served",
}
LUA: dict[str, object] = {
    **STOCK,
    "model": "served",
    "stream": "true",
    "ttft_ms": "200",
    "last_token_ms": "990",
    "end_ms": "992",
    "max_gap_ms": "90",
    "sse_events": "61",
    "prompt_tokens": "100",
    "completion_tokens": "80",
    "cached_tokens": "",
    "saw_done": "1",
    "sse_error": "",
}


def told(base: dict[str, object] = STOCK, **members: object) -> RequestRecord:
    """Returns the record of a line with some members replaced."""
    return parsed(nginx(), {**base, **members})


def test_nginx_as_shipped() -> None:
    """It knows the total and when headers came; not the token, and not the end."""
    assert rounded(told()) == RequestRecord(
        request_id="r1",
        start=1795960937.5,
        route="/v1/chat/completions",
        backend="10.0.0.1:8000",
        tenant="acme",
        model="m",
        stream=True,
        status=200,
        outcome=Outcome.UNKNOWN,
        header_time=0.01,
        e2e=1.0,
        e2e_kind=E2eKind.CLIENT,
        attempts=1,
        serving_time=0.99,
    )


@pytest.mark.parametrize("base", [NJS, LUA], ids=["njs", "lua"])
def test_a_filter_reads_the_tokens(base: dict[str, object]) -> None:
    """First and last token, gap, tokens, end mark, model, and where the time went."""
    expected = RequestRecord(
        request_id="r1",
        start=1795960937.5,
        route="/v1/chat/completions",
        backend="10.0.0.1:8000",
        tenant="acme",
        model="served",
        stream=True,
        status=200,
        outcome=Outcome.OK,
        header_time=0.01,
        ttft=0.2,
        ttft_kind=TtftKind.TOKEN,
        tpot=0.01,
        max_gap=0.09,
        e2e=1.0,
        e2e_kind=E2eKind.CLIENT,
        prompt_tokens=100,
        completion_tokens=80,
        cached_tokens=64 if base is NJS else None,
        tokens_kind=TokensKind.USAGE,
        attempts=1,
        gateway_time=0.002,
        serving_time=0.99,
        delivery_time=0.008,
    )
    assert rounded(told(base)) == expected


@pytest.mark.parametrize(
    ("status", "completion", "filtered", "outcome"),
    [
        ("200", "OK", {}, Outcome.OK),
        ("200", "OK", {"sse_error": "1"}, Outcome.STREAM_ERROR),
        ("200", "", {"saw_done": "", "completion_tokens": ""}, Outcome.CLIENT_ABORT),
        ("200", "", {}, Outcome.OK),
        ("200", "", {"saw_done": "1", "completion_tokens": ""}, Outcome.OK),
        ("200", "OK", {"saw_done": "", "completion_tokens": ""}, Outcome.UPSTREAM_CUT),
        ("200", "OK", {"saw_done": ""}, Outcome.UPSTREAM_CUT),
        ("499", "", {"saw_done": ""}, Outcome.CLIENT_ABORT),
        ("504", "OK", {"saw_done": ""}, Outcome.TIMEOUT),
        ("502", "OK", {"saw_done": ""}, Outcome.HTTP_ERROR),
        ("429", "OK", {"sse_error": "1"}, Outcome.HTTP_ERROR),
    ],
)
def test_how_it_ended_with_a_filter(
    status: str, completion: str, filtered: dict[str, str], outcome: Outcome
) -> None:
    """The end mark makes a stream whole, whoever closed first; usage may come early."""
    members = {"status": status, "request_completion": completion, **filtered}
    assert told(NJS, **members).outcome is outcome


@pytest.mark.parametrize(
    ("status", "completion", "outcome"),
    [
        ("200", "OK", Outcome.UNKNOWN),
        ("200", "", Outcome.CLIENT_ABORT),
        ("200", "-", Outcome.CLIENT_ABORT),
        ("499", "", Outcome.CLIENT_ABORT),
        ("504", "OK", Outcome.TIMEOUT),
        ("503", "OK", Outcome.HTTP_ERROR),
        ("000", "", Outcome.CLIENT_ABORT),
    ],
)
def test_how_it_ended_without_a_filter(
    status: str, completion: str, outcome: Outcome
) -> None:
    """Cut answers are called OK as well, so that word means nothing."""
    assert told(status=status, request_completion=completion).outcome is outcome


def test_a_header_that_is_no_utf8_changes_nothing_else() -> None:
    """An empty word still tells the abort in a line that is read with patience."""
    members = {**STOCK, "request_completion": "", "tenant": "cafE"}
    line = json.dumps(members).encode().replace(b"cafE", b"caf\xe9")
    record = parsed(nginx(), line)
    assert (record.tenant, record.outcome) == ("caf\ufffd", Outcome.CLIENT_ABORT)


def test_a_stream_without_end_mark_by_design_is_not_cut() -> None:
    """Other interfaces have no [DONE]: without usage nothing is known."""
    ended = told(NJS, uri="/generate", saw_done="", completion_tokens="")
    assert ended.outcome is Outcome.UNKNOWN
    assert told(NJS, uri="/v1/messages", saw_done="").outcome is Outcome.OK


def test_an_end_mark_follows_errors_too() -> None:
    """A filter that looks for no error knows only from usage that all is well."""
    silent = {k: v for k, v in NJS.items() if k != "sse_error"}
    assert told(silent).outcome is Outcome.OK
    assert told(silent, completion_tokens="").outcome is Outcome.UNKNOWN


def test_lists_take_the_last_attempt_and_the_time_lost_before() -> None:
    """Each attempt's times begin with it; the user waited for all of them."""
    retried = told(
        NJS,
        upstream_addr="10.0.0.1:8000, 10.0.0.2:8000",
        upstream_status="503, 200",
        upstream_header_time="0.300, 0.010",
        upstream_response_time="0.300, 0.690",
    )
    assert retried.backend == "10.0.0.2:8000"
    assert retried.attempts == 2
    assert retried.header_time == pytest.approx(0.31)
    assert retried.serving_time == pytest.approx(0.69)
    assert retried.gateway_time == pytest.approx(0.302)
    assert retried.ttft == pytest.approx(0.2)  # of the wall clock, so all is in it


def test_lists_of_internal_redirects_and_unreached_phases() -> None:
    """A colon between groups of servers; a dash where there were no headers."""
    redirected = told(
        upstream_addr="10.0.0.1:8000, 10.0.0.2:8000 : 10.1.0.1:8000",
        upstream_header_time="-, - : 0.020",
        upstream_response_time="0.100, 0.200 : 0.690",
    )
    assert redirected.attempts == 3
    assert redirected.backend == "10.1.0.1:8000"
    assert redirected.header_time == pytest.approx(0.32)
    assert redirected.serving_time == pytest.approx(0.69)


def test_a_group_whose_servers_all_failed_adds_its_name() -> None:
    """The name is no server, and its 0.000 no time."""
    failed = told(
        status="502",
        upstream_addr="10.0.0.1:8000, 10.0.0.2:8000, vllm",
        upstream_status="502, 502, 502",
        upstream_header_time="-, -, -",
        upstream_response_time="0.010, 0.020, 0.000",
    )
    assert failed.attempts == 2
    assert failed.backend == "10.0.0.2:8000"
    assert failed.header_time is None
    alone = told(upstream_addr="vllm, vllm", upstream_response_time="0.000, 0.000")
    assert (alone.attempts, alone.backend) == (None, "")


@pytest.mark.parametrize("sentinel", ["", "-"])
def test_missing_values_are_not_known(sentinel: str) -> None:
    """Both are how nginx writes what is not there; none is 0."""
    names = (
        "x_request_id",
        "tenant",
        "model_hdr",
        "model",
        "upstream_addr",
        "upstream_header_time",
        "upstream_response_time",
        "up_content_type",
        "t_first_chunk",
        "t_last_chunk",
        "t_end",
        "max_gap_ms",
        "prompt_tokens",
        "completion_tokens",
        "cached_tokens",
        "saw_done",
        "sse_error",
    )
    record = told(NJS, **dict.fromkeys(names, sentinel), request_id="made")
    assert record == RequestRecord(
        request_id="made",
        start=record.start,
        route="/v1/chat/completions",
        status=200,
        outcome=Outcome.UNKNOWN,
        e2e=1.0,
        e2e_kind=E2eKind.CLIENT,
    )


def test_numbers_need_no_quotes() -> None:
    """A format by hand may write them bare."""
    assert told(request_time=1.0, status=200, msec=1795960938.5) == told()


def test_events_are_counted_without_usage() -> None:
    """An event holds a token at least, so the time per token is a bound."""
    record = told(LUA, completion_tokens="")
    assert record.completion_tokens == 61
    assert record.tokens_kind is TokensKind.COUNTED
    assert record.tpot_at_most
    assert record.outcome is Outcome.OK


def test_a_whole_answer_has_no_tokens_in_time() -> None:
    """JSON comes at once; usage says that it is complete."""
    record = told(NJS, up_content_type="application/json", saw_done="")
    assert record.stream is False
    assert (record.ttft, record.tpot, record.ttft_kind) == (None, None, TtftKind.NONE)
    assert record.outcome is Outcome.OK


def test_combined_tells_status_and_time_of_writing() -> None:
    """No duration, no answer's end: nothing but errors can be judged."""
    line = (
        b'10.0.0.9 - bob [29/Nov/2026:14:02:18 +0100] "POST /v1/completions?a=b '
        b'HTTP/1.1" 200 5317 "-" "agent \\x22quoted\\x22"'
    )
    assert parsed(nginx(), line) == RequestRecord(
        start=1795957338.0,
        route="/v1/completions",
        status=200,
        outcome=Outcome.UNKNOWN,
    )
    failed = parsed(nginx(), line.replace(b" 200 ", b" 502 "))
    assert failed.outcome is Outcome.HTTP_ERROR
    assert problem_of(nginx(), b"2026/11/29 14:02:18 [error] 7#7: *1 upstream") == (
        "no_match"
    )


def test_headers_have_the_names_of_nginxs_variables() -> None:
    """`http_x_priority`, like $http_x_priority."""
    record = parsed(nginx(["x-priority"]), {**STOCK, "http_x_priority": "high"})
    assert record.headers == {"x-priority": "high"}
    assert parsed(nginx(["x-priority"]), {**STOCK, "http_x_priority": ""}).headers == {}


def test_another_json_log_is_a_problem() -> None:
    """Without a total it is not this format."""
    assert problem_of(nginx(), {"level": "info", "message": "hello"}) == "no_match"

from __future__ import annotations

import json

import pytest
from gateway_lines import parsed, problem_of, rounded
from gateway_truth import records, unpacked

from analyzer.gateways.format import Format
from analyzer.gateways.litellm import HOLD, MOST_HELD, MOST_SEEN, litellm
from analyzer.gateways.record import (
    E2eKind,
    Outcome,
    RequestRecord,
    TokensKind,
    TtftKind,
)

BEGUN = 1795961935.0


def line(
    event: str = "success",
    call: str = "c1",
    *,
    begin: float = 0.0,
    first: float = 0.2,
    end: float = 1.0,
    code: str = "",
    **payload: object,
) -> dict[str, object]:
    """Returns a line of the callback; times are seconds after the beginning."""
    return {
        "event": event,
        "litellm_call_id": call,
        "written_at": BEGUN + end + 0.01,
        "slo": {
            "call_type": "acompletion",
            "stream": True,
            "startTime": BEGUN + begin,
            "completionStartTime": BEGUN + first,
            "endTime": BEGUN + end,
            "model_group": "m",
            "model": "openai/m",
            "api_base": "http://10.0.0.1:8000/v1",
            "prompt_tokens": 100,
            "completion_tokens": 81,
            "cached_tokens": 64,
            "end_user": "acme",
            "error_information": {"error_code": code, "error_class": code and "E"},
            "model_parameters": {"stream": True},
            **payload,
        },
    }


def hook(call: str = "c1", status: object = 500, at: float = 3.0) -> dict[str, object]:
    """Returns the line that tells which error the client got."""
    return {
        "event": "proxy_failure_hook",
        "litellm_call_id": call,
        "written_at": BEGUN + at,
        "status": status,
    }


def taken(log_format: Format, *lines: dict[str, object]) -> list[RequestRecord]:
    """Returns the records of lines, without those still held."""
    found = [log_format.parse(json.dumps(each).encode()) for each in lines]
    return [record for record in found if record is not None]


def test_all_fields_of_a_stream() -> None:
    """The chunk is the first token's; the end is the assembled stream's."""
    assert rounded(parsed(litellm(), line())) == RequestRecord(
        request_id="c1",
        start=BEGUN,
        route="/v1/chat/completions",
        backend="http://10.0.0.1:8000/v1",
        tenant="acme",
        model="m",
        stream=True,
        status=200,
        outcome=Outcome.OK,
        ttft=0.2,
        ttft_kind=TtftKind.TOKEN,
        tpot=0.01,
        tpot_at_most=True,
        e2e=1.0,
        e2e_kind=E2eKind.UPSTREAM,
        prompt_tokens=100,
        completion_tokens=81,
        cached_tokens=64,
        tokens_kind=TokensKind.USAGE,
        attempts=1,
    )


def test_a_success_with_499_is_a_client_that_left() -> None:
    """LiteLLM calls it a success; its tokens are an estimate."""
    record = parsed(litellm(), line(code="499"))
    assert record.outcome is Outcome.CLIENT_ABORT
    assert record.tokens_kind is TokensKind.ESTIMATED
    assert record.tpot is None


def test_without_a_chunk_there_is_no_first_token() -> None:
    """Its time is that of the end then; of a whole answer there is none ever."""
    left = parsed(litellm(), line(code="499", first=1.0))
    assert (left.ttft, left.ttft_kind) == (None, TtftKind.TOKEN)
    whole = parsed(litellm(), line(stream=None, model_parameters={}, first=1.0))
    assert (whole.stream, whole.ttft, whole.ttft_kind) == (False, None, TtftKind.NONE)
    assert whole.outcome is Outcome.OK


def test_a_failure_waits_for_what_became_of_its_request() -> None:
    """Then the success has both attempts' time, from the user's side."""
    log_format = litellm()
    failed = line("failure", code="503", first=0.5, end=0.5, completion_tokens=0)
    assert taken(log_format, failed) == []
    (record,) = taken(log_format, line(begin=2.0, first=2.3, end=3.1))
    assert record.outcome is Outcome.OK
    assert record.attempts == 2
    assert record.start == BEGUN
    assert record.ttft == pytest.approx(2.3)
    assert record.e2e == pytest.approx(3.1)
    assert record.tpot == pytest.approx(0.01)
    assert log_format.held() == ()


def test_a_failure_that_the_client_got() -> None:
    """The hook's line has the status, and the time at which it was over."""
    log_format = litellm()
    failed = line("failure", code="429", first=0.5, end=0.5, completion_tokens=0)
    (record,) = taken(log_format, failed, hook(status=429))
    assert record.outcome is Outcome.HTTP_ERROR
    assert record.status == 429
    assert record.e2e == pytest.approx(3.0)
    assert record.completion_tokens is None


@pytest.mark.parametrize(
    ("code", "first", "status", "outcome"),
    [
        ("", 0.2, 500, Outcome.STREAM_ERROR),
        ("500", 0.2, 500, Outcome.STREAM_ERROR),
        ("500", 1.0, 500, Outcome.HTTP_ERROR),
        ("408", 1.0, 408, Outcome.TIMEOUT),
        ("", 1.0, 408, Outcome.TIMEOUT),
        ("", 1.0, 500, Outcome.UPSTREAM_CUT),
    ],
)
def test_how_a_failure_ended(
    code: str, first: float, status: int, outcome: Outcome
) -> None:
    """After the first chunk it was an error in the stream, whatever its code."""
    error = {"error_code": code, "error_class": "APIConnectionError"}
    failed = line("failure", first=first, error_information=error)
    (record,) = taken(litellm(), failed, hook(status=status))
    assert record.outcome is outcome


def test_a_request_that_reached_no_server() -> None:
    """An error before any attempt has only the hook's line."""
    (record,) = taken(litellm(), hook(status=401))
    assert record == RequestRecord(
        request_id="c1", status=401, outcome=Outcome.HTTP_ERROR
    )


def test_a_line_that_comes_twice_counts_once() -> None:
    """The same call and start is the same attempt; another start is another one."""
    log_format = litellm()
    assert len(taken(log_format, line(), line())) == 1
    assert len(taken(log_format, line(begin=5.0, first=5.2, end=6.0))) == 1
    no_id = line(call="")
    assert len(taken(log_format, no_id, no_id)) == 2


def test_failures_without_an_end_are_let_go_in_time() -> None:
    """Ten minutes later, by the log's own clock, nothing more will be heard."""
    log_format = litellm()
    first, later = line("failure", "a", code="500"), HOLD + 1
    second = line("failure", "b", code="500", begin=later, first=later, end=later)
    (record,) = taken(log_format, first, second)
    assert record.request_id == "a"
    assert [r.request_id for r in log_format.held()] == ["b"]
    assert log_format.held() == ()


def test_what_is_remembered_is_bounded() -> None:
    """A log of nothing but failures, or of a million calls, keeps the memory flat."""
    log_format = litellm()
    failures = [line("failure", f"c{n}", code="500") for n in range(MOST_HELD + 500)]
    let_go = taken(log_format, *failures)
    assert [r.request_id for r in let_go] == [f"c{n}" for n in range(500)]
    taken(log_format, *(line(call=f"s{n}") for n in range(2 * MOST_SEEN)))
    reader = log_format.parse.__self__  # type: ignore[attr-defined]
    assert len(reader._seen) == MOST_SEEN
    assert len(log_format.held()) == MOST_HELD


def test_other_calls_have_other_routes() -> None:
    """Embeddings are no generation, and their route says so."""
    assert parsed(litellm(), line(call_type="aembedding")).route == "/aembedding"
    assert parsed(litellm(), line(call_type="atext_completion")).route == (
        "/v1/completions"
    )


def test_headers_that_litellm_passes_on() -> None:
    """Those beginning with x-; the tenant is one of them without an end user."""
    sent = {"X-Priority": "high", "x-tenant-id": "globex"}
    metadata = {"requester_custom_headers": sent}
    log_format = litellm(["x-priority"])
    record = parsed(log_format, line(end_user=None, metadata=metadata))
    assert record.headers == {"x-priority": "high"}
    assert record.tenant == "globex"


def test_whole_payloads_are_read() -> None:
    """Lines of 13 KB with the complete logging payload give the same fields."""
    lines = unpacked("litellm", "full-sample.jsonl")
    found = list(records(litellm(), lines))
    assert len(found) >= 8
    finished = [r for r in found if r.outcome is Outcome.OK and r.stream]
    assert finished
    assert all(r.ttft is not None and r.completion_tokens for r in finished)


def test_what_the_proxy_prints_is_no_request() -> None:
    """Its JSON messages are none, its banner is no JSON."""
    told = []
    log_format = litellm()
    for raw in unpacked("litellm", "uvicorn.log"):
        if raw.startswith(b"{"):
            assert log_format.parse(raw) is None
        else:
            told.append(problem_of(log_format, raw))
    assert set(told) == {"not_json"}
    assert problem_of(log_format, {"event": "other"}) == "no_match"

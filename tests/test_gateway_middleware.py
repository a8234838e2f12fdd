from __future__ import annotations

import json

import pytest
from gateway_lines import parsed, problem_of, rounded
from gateway_truth import slo

from analyzer.gateways.middleware import middleware
from analyzer.gateways.record import (
    E2eKind,
    Outcome,
    RequestRecord,
    TokensKind,
    TtftKind,
)
from analyzer.judgement import Verdict, judge
from exporter.goodput_middleware import FORMAT, VERSION

LINE: dict[str, object] = {
    "format": FORMAT,
    "version": VERSION,
    "pid": 7,
    "writer": "ab12",
    "seq": 3,
    "dropped": 0,
    "failed": 0,
    "request_id": "r1",
    "request_id_kind": "header",
    "tenant": "acme",
    "headers": {"x-priority": "high"},
    "route": "/v1/chat/completions",
    "model": "m",
    "stream": True,
    "response_model": "served",
    "start": 1795960938.25,
    "request_body_s": 0.01,
    "header_s": 0.02,
    "first_body_s": 0.19,
    "ttft_s": 0.2,
    "last_content_s": 0.99,
    "max_gap_s": 0.09,
    "done_s": 0.995,
    "end_s": 1.0,
    "disconnect_s": None,
    "elapsed_s": 1.1,
    "status": 200,
    "outcome": "ok",
    "streamed": True,
    "choices": 1,
    "content_chunks": 61,
    "prompt_tokens": 100,
    "cached_tokens": 64,
    "completion_tokens": 80,
    "tokens_kind": "usage",
    "unread": None,
}


def told(**members: object) -> RequestRecord:
    """Returns the record of the usual line with some members replaced."""
    return parsed(middleware(), {**LINE, **members})


def test_all_fields_of_a_stream() -> None:
    """Everything is known but what happens around the engine."""
    assert rounded(told()) == RequestRecord(
        request_id="r1",
        start=1795960938.25,
        route="/v1/chat/completions",
        tenant="acme",
        model="m",
        headers={"x-priority": "high"},
        stream=True,
        status=200,
        outcome=Outcome.OK,
        header_time=0.02,
        ttft=0.2,
        ttft_kind=TtftKind.TOKEN,
        tpot=0.01,
        max_gap=0.09,
        e2e=1.0,
        e2e_kind=E2eKind.HANDOVER,
        prompt_tokens=100,
        completion_tokens=80,
        cached_tokens=64,
        tokens_kind=TokensKind.USAGE,
        serving_time=0.99,
    )


@pytest.mark.parametrize(
    ("outcome", "expected", "e2e"),
    [
        ("ok", Outcome.OK, 1.0),
        ("http_error", Outcome.HTTP_ERROR, 1.0),
        ("stream_error", Outcome.STREAM_ERROR, 1.0),
        ("upstream_cut", Outcome.UPSTREAM_CUT, 1.0),
        ("exception", Outcome.UPSTREAM_CUT, 1.0),
        ("client_abort", Outcome.CLIENT_ABORT, 1.0),
        ("invented", Outcome.UNKNOWN, 1.0),
    ],
)
def test_outcomes(outcome: str, expected: Outcome, e2e: float) -> None:
    """The middleware knows how it ended; an exception is an answer that was cut."""
    record = told(outcome=outcome)
    assert record.outcome is expected
    assert record.e2e == pytest.approx(e2e)


def test_when_it_ended() -> None:
    """At the end mark for who closed then, at the disconnect for who left before."""
    closed = told(end_s=None, disconnect_s=0.998)
    assert closed.e2e == pytest.approx(0.995)
    left = told(outcome="client_abort", disconnect_s=0.5, end_s=None, done_s=None)
    assert left.e2e == pytest.approx(0.5)
    cut = told(outcome="upstream_cut", end_s=None, done_s=None)
    assert cut.e2e == pytest.approx(1.1)


def test_chunks_are_counted_without_usage() -> None:
    """A chunk holds a token at least: the bound is enough for good, not for bad."""
    record = told(completion_tokens=61, tokens_kind="counted")
    assert record.tokens_kind is TokensKind.COUNTED
    assert record.tpot_at_most
    assert judge(record, slo(ttft=1.0, tpot=0.02)).verdict is Verdict.GOOD
    unsure = judge(record, slo(ttft=1.0, tpot=0.01))
    assert (unsure.verdict, unsure.reason) == (Verdict.UNEVALUABLE, "tpot")


def test_several_choices_have_no_time_per_token() -> None:
    """Their tokens come side by side, so the quotient would be that of none."""
    assert told(choices=2).tpot is None
    assert told(choices=2).completion_tokens == 80


def test_what_could_not_be_read_is_not_known() -> None:
    """A compressed stream has no tokens, of no kind."""
    record = told(
        unread="compressed",
        ttft_s=None,
        last_content_s=None,
        max_gap_s=None,
        done_s=None,
        completion_tokens=None,
        tokens_kind="none",
    )
    assert (record.ttft, record.ttft_kind) == (None, TtftKind.NONE)
    assert record.tokens_kind is TokensKind.NONE
    none_came = told(ttft_s=None, last_content_s=None, completion_tokens=0)
    assert (none_came.ttft, none_came.ttft_kind) == (None, TtftKind.TOKEN)


def test_a_whole_answer_has_no_first_token() -> None:
    """Whether the client asked for a stream does not matter, the answer does."""
    record = told(streamed=False)
    assert (record.stream, record.ttft_kind) == (False, TtftKind.NONE)
    assert (record.ttft, record.tpot, record.max_gap) == (None, None, None)
    assert told(streamed=None, stream=False).stream is False


def test_records_of_another_kind_or_version() -> None:
    """They are refused by name, so that a reader that is too old shows."""
    assert problem_of(middleware(), {**LINE, "version": 2}) == "wrong_value"
    assert problem_of(middleware(), {**LINE, "format": "other"}) == "no_match"
    assert middleware().recognises(json.dumps(LINE).encode())
    assert not middleware().recognises(b'{"format":"other","version":1,"seq":1}')

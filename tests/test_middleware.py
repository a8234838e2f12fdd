from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from asgi_driving import (
    EVENT_STREAM,
    JSON,
    Clock,
    Receiver,
    Record,
    answering,
    chat,
    drive,
    scope,
    sse,
)

from exporter.goodput_middleware import BUFFER_BYTES, GoodputMiddleware, Message

USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Returns the clock that the middleware reads."""
    return Clock(monkeypatch)


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    """Yields where the records arrive."""
    with Receiver(tmp_path / "requests.sock") as opened:
        yield opened


def observed(
    receiver: Receiver,
    *parts: tuple[float, bytes],
    clock: Clock | None = None,
    request: Message | None = None,
    body: bytes = b"{}",
    status: int = 200,
    headers: tuple[tuple[bytes, bytes], ...] = EVENT_STREAM,
    finished: bool = True,
    **options: str,
) -> Record:
    """Returns the record of one request, after checking that all its bytes passed."""
    app = answering(
        parts, clock=clock, status=status, headers=headers, finished=finished
    )
    path = str(receiver.path)
    middleware = GoodputMiddleware(app, socket_path=path, **options)  # type: ignore[arg-type]
    sent = drive(middleware, request=request, body=[body])
    passed = b"".join(m.get("body", b"") for m in sent)
    assert passed == b"".join(body for _, body in parts)
    return receiver.record()


def test_times_are_of_the_first_and_last_content(
    clock: Clock, receiver: Receiver
) -> None:
    """Role, comment, finish, usage and end mark have times, but are no content."""
    record = observed(
        receiver,
        (0.1, sse(chat({"role": "assistant", "content": ""}))),
        (0.1, b": keep-alive\n\n"),
        (0.2, sse(chat({"content": "one"}))),
        (0.05, sse(chat({"content": "two and three"}))),
        (0.25, sse(chat({"content": "four"}))),
        (0.1, sse(chat({"content": ""}))),
        (0.1, sse(chat(usage=USAGE))),
        (0.1, sse("[DONE]")),
        clock=clock,
    )
    assert record["start"] == clock.epoch
    assert record["header_s"] == 0.0
    assert record["first_body_s"] == 0.1
    assert record["ttft_s"] == 0.4
    assert record["last_content_s"] == 0.7
    assert record["max_gap_s"] == 0.25
    assert record["done_s"] == 1.0
    assert record["end_s"] == 1.0
    assert record["elapsed_s"] == 1.0
    assert record["content_chunks"] == 3
    assert record["completion_tokens"] == 5
    assert record["prompt_tokens"] == 7
    assert record["tokens_kind"] == "usage"
    assert record["outcome"] == "ok"
    assert record["streamed"] is True
    assert record["model"] is None
    assert record["response_model"] == "demo-small"
    assert record["response_id"] == "chatcmpl-1"


def test_events_of_one_message_have_its_time(clock: Clock, receiver: Receiver) -> None:
    """Several events in one message are counted one by one, at the same moment."""
    both = sse(chat({"content": "a"}), chat({"content": "b"}))
    record = observed(receiver, (0.5, both), clock=clock)
    assert record["content_chunks"] == 2
    assert record["ttft_s"] == record["last_content_s"] == 0.5
    assert record["max_gap_s"] == 0.0


def test_an_event_counts_when_it_is_complete(clock: Clock, receiver: Receiver) -> None:
    """An event cut in two is content at the time of its second half."""
    event = sse(chat({"content": "a"}))
    record = observed(receiver, (0.5, event[:9]), (0.5, event[9:]), clock=clock)
    assert record["first_body_s"] == 0.5
    assert record["ttft_s"] == 1.0


def test_without_usage_content_is_counted(receiver: Receiver) -> None:
    """A stream without usage has its content chunks as tokens, and says so."""
    record = observed(receiver, (0, sse(chat({"content": "a b"}), "[DONE]")))
    assert (record["completion_tokens"], record["tokens_kind"]) == (1, "counted")
    assert record["prompt_tokens"] is None


def test_a_middleware_that_is_there_twice_records_once(receiver: Receiver) -> None:
    """As when `--middleware` was added to the arguments a second time."""
    inner = GoodputMiddleware(
        answering([(0.0, sse(chat({"content": "a"}), "[DONE]"))]),
        socket_path=str(receiver.path),
    )
    drive(GoodputMiddleware(inner, socket_path=str(receiver.path)))
    inner.close()
    assert receiver.record()["seq"] == 1
    assert receiver.is_empty()


def test_usage_is_the_latest(receiver: Receiver) -> None:
    """With usage in each chunk, a stream that was cut has what the last one told."""
    for_one = {"prompt_tokens": 7, "completion_tokens": 1}
    for_two = {"prompt_tokens": 7, "completion_tokens": 4}
    record = observed(
        receiver,
        (0, sse(chat({"content": "a"}, usage=for_one))),
        (0, sse(chat({"content": "b"}, usage=for_two))),
        finished=False,
    )
    assert (record["completion_tokens"], record["tokens_kind"]) == (4, "usage")
    assert (record["outcome"], record["end_s"]) == ("upstream_cut", None)


def test_several_choices_have_no_usage_before_the_last_chunk(
    receiver: Receiver,
) -> None:
    """Usage in a chunk of one of several choices is that choice's, and left out."""
    one = chat({"content": "a"}, usage={"prompt_tokens": 7, "completion_tokens": 1})
    two = json.loads(json.dumps(one))
    two["choices"][0]["index"] = 1
    cut = observed(receiver, (0, sse(one, two)), finished=False)
    assert (cut["choices"], cut["completion_tokens"]) == (2, 2)
    assert cut["tokens_kind"] == "counted"
    whole = observed(receiver, (0, sse(one, two, chat(usage=USAGE), "[DONE]")))
    assert (whole["completion_tokens"], whole["tokens_kind"]) == (5, "usage")


def test_an_answer_that_is_no_stream_has_no_token_times(
    clock: Clock, receiver: Receiver
) -> None:
    """A JSON answer gives usage and finish reason; absent times are null."""
    body = {
        "id": "cmpl-1",
        "model": "demo-small",
        "choices": [{"index": 0, "text": "hi", "finish_reason": "length"}],
        "usage": {**USAGE, "prompt_tokens_details": {"cached_tokens": 4}},
    }
    text = json.dumps(body).encode()
    record = observed(
        receiver, (0.5, text[:20]), (0.25, text[20:]), clock=clock, headers=JSON
    )
    assert record["streamed"] is False
    assert (record["ttft_s"], record["last_content_s"]) == (None, None)
    assert (record["max_gap_s"], record["content_chunks"]) == (None, None)
    assert (record["first_body_s"], record["end_s"]) == (0.5, 0.75)
    assert (record["completion_tokens"], record["cached_tokens"]) == (5, 4)
    assert (record["tokens_kind"], record["finish_reason"]) == ("usage", "length")
    assert record["outcome"] == "ok"


def test_no_usage_and_no_stream_is_no_tokens(receiver: Receiver) -> None:
    """Tokens that nobody counted are null, not 0."""
    record = observed(receiver, (0, b'{"choices": []}'), headers=JSON)
    assert (record["completion_tokens"], record["tokens_kind"]) == (None, "none")


def test_an_error_object_in_a_stream_is_an_error(receiver: Receiver) -> None:
    """A 200 with an error object is a stream error, also when [DONE] follows."""
    error = {"message": "PROMPT", "type": "InternalServerError", "code": 500}
    record = observed(
        receiver, (0, sse(chat({"content": "a"}), {"error": error}, "[DONE]"))
    )
    assert (record["status"], record["outcome"]) == (200, "stream_error")
    assert record["error"] == {"type": "InternalServerError", "code": "500"}


@pytest.mark.parametrize("status", [400, 404, 429, 503])
def test_an_error_status_keeps_type_and_code(status: int, receiver: Receiver) -> None:
    """An error answer has its status, and of its body only type and code."""
    error = {"error": {"message": "PROMPT", "type": "BadRequestError", "code": status}}
    body = json.dumps(error).encode()
    record = observed(receiver, (0, body), status=status, headers=JSON)
    assert (record["status"], record["outcome"]) == (status, "http_error")
    assert record["error"] == {"type": "BadRequestError", "code": str(status)}


def test_no_text_of_prompt_answer_or_key_is_recorded(receiver: Receiver) -> None:
    """Neither bodies nor secret headers are in a record, even if they are listed."""
    request = scope(
        headers=[
            (b"authorization", b"Bearer SECRET"),
            (b"x-api-key", b"SECRET"),
            (b"x-team", b"blue"),
        ]
    )
    body = {"model": "m", "messages": [{"role": "user", "content": "PROMPT"}]}
    record = observed(
        receiver,
        (0, sse(chat({"content": "ANSWER"}), {"error": {"message": "PROMPT"}})),
        request=request,
        body=json.dumps(body).encode(),
        headers=EVENT_STREAM,
        tenant_header="Authorization",
    )
    assert record["tenant"] is None
    listed = GoodputMiddleware(
        answering([]),
        socket_path=str(receiver.path),
        headers=["X-API-Key", "X-Team", "Cookie"],
    )
    drive(listed, request=request)
    more = receiver.record()
    assert more["headers"] == {"x-team": "blue"}
    text = json.dumps([record, more])
    assert not [word for word in ("PROMPT", "ANSWER", "SECRET") if word in text]


def test_what_cannot_be_read_is_said(receiver: Receiver) -> None:
    """A compressed answer, or one of another type, has times but no content."""
    stream = sse(chat({"content": "a"}), chat(usage=USAGE), "[DONE]")
    compressed = (*EVENT_STREAM, (b"content-encoding", b"gzip"))
    record = observed(receiver, (0, gzip.compress(stream)), headers=compressed)
    assert (record["unread"], record["streamed"]) == ("compressed", True)
    assert (record["ttft_s"], record["content_chunks"]) == (None, None)
    assert (record["completion_tokens"], record["tokens_kind"]) == (None, "none")
    assert record["outcome"] == "ok"
    text = ((b"content-type", b"text/plain"),)
    assert observed(receiver, (0, stream), headers=text)["unread"] == "content_type"


def test_an_event_without_end_is_given_up(receiver: Receiver) -> None:
    """A huge event or body passes, its memory stays bounded, and the record says so."""
    chunk = b"x" * 65_536
    parts = [(0.0, sse(chat({"content": "a"}, usage=USAGE)))]
    parts += [(0.0, chunk) for _ in range(800)]
    app = answering(parts)
    middleware = GoodputMiddleware(app, socket_path=str(receiver.path))
    passed = 0

    def accept(message: Message) -> None:
        nonlocal passed
        passed += len(message.get("body", b""))

    tracemalloc.start()
    drive(middleware, accept=accept)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    record = receiver.record()
    assert passed == sum(len(body) for _, body in parts)
    assert peak < 6 * BUFFER_BYTES
    assert record["unread"] == "too_large"
    assert record["ttft_s"] is not None
    assert (record["last_content_s"], record["content_chunks"]) == (None, None)
    assert (record["tokens_kind"], record["prompt_tokens"]) == ("none", None)
    body = json.dumps({"usage": USAGE, "x": "x" * BUFFER_BYTES}).encode()
    large = observed(receiver, (0, body), headers=JSON)
    assert (large["unread"], large["completion_tokens"]) == ("too_large", None)


def test_unreadable_events_are_counted_and_passed_over(receiver: Receiver) -> None:
    """Broken and too deep JSON is counted; invalid UTF-8 in a text is still content."""
    broken = b'data: {"choices": \n\ndata: [1]\n\ndata: ' + b"[" * 100_000 + b"\n\n"
    invalid = b'data: {"choices": [{"text": "\xff\xfe"}]}\n\n'
    record = observed(receiver, (0, broken), (0, invalid), (0, sse("[DONE]")))
    assert record["unreadable_events"] == 3
    assert record["content_chunks"] == 1
    assert record["outcome"] == "ok"


def test_the_engines_own_times_are_kept(receiver: Receiver) -> None:
    """Numbers of a `metrics` object are recorded as the engine gave them."""
    metrics = {"queue_time_ms": 1.5, "mean_itl_ms": None, "speculative": {"a": 1}}
    record = observed(receiver, (0, sse(chat(usage=USAGE, metrics=metrics), "[DONE]")))
    assert record["engine"] == {"queue_time_ms": 1.5}


def test_a_fault_of_ours_is_counted_and_reaches_nobody(receiver: Receiver) -> None:
    """A message that cannot be looked at passes; the next record counts the fault."""
    # A lenient server takes header names as text, which the middleware does not expect.
    headers = (("content-type", "text/event-stream"),)
    app = answering([(0, sse(chat({"content": "a"}), "[DONE]"))], headers=headers)  # type: ignore[arg-type]
    middleware = GoodputMiddleware(app, socket_path=str(receiver.path))
    for expected in (1, 2):
        sent = drive(middleware)
        assert [m["type"] for m in sent].count("http.response.body") == 2
        record = receiver.record()
        assert (record["failed"], record["unread"]) == (expected, "failed")
        assert (record["status"], record["ttft_s"]) == (200, None)


def test_other_requests_pass_untouched(receiver: Receiver) -> None:
    """What does not generate gets the server's own functions, and has no record."""
    seen: list[object] = []

    async def app(_scope: object, receive: object, send: object) -> None:
        seen.extend((receive, send))

    middleware = GoodputMiddleware(app, socket_path=str(receiver.path))
    for request in (
        scope("/v1/models", method="GET"),
        scope("/v1/chat/completions", method="HEAD"),
        scope("/v1/embeddings"),
        {"type": "websocket", "path": "/v1/chat/completions"},
        {"type": "lifespan"},
    ):
        drive(middleware, request=request)
    assert len(seen) == 10
    assert {getattr(f, "__qualname__", "") for f in seen} == {
        "exchange.<locals>.receive",
        "exchange.<locals>.send",
    }
    assert receiver.is_empty()


def test_paths_and_headers_come_from_the_environment_or_options(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every option has its variable; a bad cap there is the default."""
    monkeypatch.setenv("GOODPUT_SOCKET", str(receiver.path))
    monkeypatch.setenv("GOODPUT_TENANT_HEADER", "X-Org")
    monkeypatch.setenv("GOODPUT_HEADERS", "X-Team, traceparent")
    monkeypatch.setenv("GOODPUT_PATHS", "/invocations")
    monkeypatch.setenv("GOODPUT_FILE_MAX_BYTES", "many")
    middleware = GoodputMiddleware(answering([]))
    request = scope(
        "/engine/invocations/",
        root_path="/engine",
        headers=[(b"x-org", b"acme"), (b"x-team", b"blue"), (b"x-request-id", b"r1")],
    )
    drive(middleware, request=request)
    record = receiver.record()
    assert record["route"] == "/invocations"
    assert record["tenant"] == "acme"
    assert record["headers"] == {"x-team": "blue"}
    assert (record["request_id"], record["request_id_kind"]) == ("r1", "header")
    drive(middleware)
    assert receiver.is_empty()


def test_request_ids_come_from_the_answer_or_are_made(receiver: Receiver) -> None:
    """Without the client's request id the server's is taken, else one is made up."""
    named = (*EVENT_STREAM, (b"X-Request-Id", b"from-server"))
    record = observed(receiver, headers=named)
    assert (record["request_id"], record["request_id_kind"]) == (
        "from-server",
        "header",
    )
    record = observed(receiver)
    assert len(record["request_id"]) == 32
    assert record["request_id_kind"] == "generated"

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from asgi_driving import JSON, Receiver, Record, answering, drive, exchange
from hypothesis import given
from hypothesis import strategies as st
from llm_streams import STREAMS, event_bytes, native, text_chunk

from exporter import goodput_middleware
from exporter.goodput_middleware import GoodputMiddleware, Message, Receive, Send


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """Yields where the records arrive."""
    with Receiver(tmp_path_factory.mktemp("run") / "requests.sock") as opened:
        yield opened


def records_of(receiver: Receiver, streams: Iterable[list[bytes]]) -> list[Record]:
    """Returns the record of each stream, all sent in pieces through one middleware."""
    pieces: list[bytes] = []

    async def app(inner: Message, receive: Receive, send: Send) -> None:
        await answering([(0, piece) for piece in pieces])(inner, receive, send)

    async def run() -> list[Record]:
        records = []
        for stream in streams:
            pieces[:] = stream
            sent = await exchange(middleware)
            assert [m["body"] for m in sent[1:]] == [*stream, b""]
            records.append(receiver.record())
        return records

    middleware = GoodputMiddleware(app, socket_path=str(receiver.path))
    try:
        return asyncio.run(run())
    finally:
        middleware.close()


def record_of(receiver: Receiver, pieces: list[bytes]) -> Record:
    """Returns the record of one stream that is sent in *pieces*."""
    return records_of(receiver, [pieces])[0]


def facts(record: Record) -> dict[str, Any]:
    """Returns what does not depend on the clock or on earlier records."""
    own = {"seq", "writer", "request_id", "start"}
    return {k: v for k, v in record.items() if k not in own and not k.endswith("_s")}


@pytest.mark.parametrize("name", STREAMS)
def test_each_event_is_content_or_not(name: str, receiver: Receiver) -> None:
    """Reading, event by event, grows the count exactly at output that a user sees."""
    stream = STREAMS[name]
    bodies = [event_bytes(event, "\n") for event in stream.events]
    records = records_of(receiver, (bodies[:n] for n in range(len(bodies) + 1)))
    counts = [record["content_chunks"] for record in records]
    grew = tuple(n for n in range(len(bodies)) if counts[n + 1] > counts[n])
    assert grew == stream.content
    assert counts[-1] == len(stream.content)


@pytest.mark.parametrize("name", STREAMS)
def test_a_streams_facts(name: str, receiver: Receiver) -> None:
    """Tokens, ids, finish reason and the end mark are found in each interface."""
    record = record_of(receiver, [STREAMS[name].body()])
    found = {key: record[key] for key in STREAMS[name].says}
    assert found == STREAMS[name].says
    assert record["outcome"] == "ok"
    assert record["done_s"] is not None
    assert record["unreadable_events"] == 0


@pytest.mark.parametrize(
    "events",
    [
        [{"type": "error", "error": {"type": "overloaded_error", "message": "x"}}],
        [{"type": "error", "code": "server_error", "message": "x"}],
        [
            {"type": "response.output_text.delta", "delta": "a"},
            {
                "type": "response.failed",
                "response": {"status": "failed", "error": {"code": "server_error"}},
            },
        ],
        [{"error": "out of memory"}],
    ],
)
def test_each_interfaces_error_is_one(events: list[object], receiver: Receiver) -> None:
    """An error event of any interface makes a stream error, without its message."""
    record = record_of(receiver, [event_bytes(event, "\n") for event in events])
    assert record["outcome"] == "stream_error"
    assert set(record["error"]) == {"type", "code"}
    assert "memory" not in json.dumps(record)


@pytest.mark.parametrize(
    ("body", "tokens", "finish"),
    [
        ({"choices": [text_chunk("a")["choices"]]}, None, None),
        (
            {
                "object": "response",
                "status": "completed",
                "error": None,
                "usage": {"input_tokens": 9, "output_tokens": 6},
            },
            6,
            "completed",
        ),
        (
            {
                "type": "message",
                "stop_reason": "max_tokens",
                "usage": {"input_tokens": 9, "output_tokens": 6},
            },
            6,
            "max_tokens",
        ),
        (native("a b c", 6, {"type": "stop"}), 6, "stop"),
        (
            {
                "choices": [
                    {"index": n, "message": {}, "finish_reason": "stop"}
                    for n in range(3)
                ],
                "usage": {"completion_tokens": 6},
            },
            6,
            "stop",
        ),
    ],
)
def test_answers_that_are_no_stream(
    body: object, tokens: int | None, finish: str | None, receiver: Receiver
) -> None:
    """Usage and finish reason of a whole body are found in each interface."""
    app = answering([(0, json.dumps(body).encode())], headers=JSON)
    drive(GoodputMiddleware(app, socket_path=str(receiver.path)))
    record = receiver.record()
    assert (record["completion_tokens"], record["finish_reason"]) == (tokens, finish)
    assert record["outcome"] == "ok"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_may_be_cut_at_any_byte(
    name: str, end: str, receiver: Receiver
) -> None:
    """Two messages, wherever the second begins, give the facts of one."""
    body = STREAMS[name].body(end)
    whole = facts(record_of(receiver, [STREAMS[name].body()]))
    cut = records_of(receiver, ([body[:at], body[at:]] for at in range(len(body))))
    assert [at for at, record in enumerate(cut) if facts(record) != whole] == []


@given(
    name=st.sampled_from(sorted(STREAMS)),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    data=st.data(),
)
def test_a_stream_may_be_cut_into_any_pieces(
    receiver: Receiver, name: str, end: str, data: st.DataObject
) -> None:
    """Messages of any sizes, empty ones too, give the facts of one."""
    body = STREAMS[name].body(end)
    places = data.draw(st.lists(st.integers(0, len(body))).map(sorted))
    pieces = [
        body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)
    ]
    whole = facts(record_of(receiver, [STREAMS[name].body()]))
    assert facts(record_of(receiver, pieces)) == whole


@given(junk=st.lists(st.binary(max_size=40), max_size=8))
def test_any_bytes_pass_and_give_a_record(
    receiver: Receiver, junk: list[bytes]
) -> None:
    """Whatever a stream holds, it passes, and nothing fails in the middleware."""
    record = record_of(receiver, [b"data: ", *junk, b"\n\n"])
    assert record["failed"] == 0
    assert record["outcome"] in {"ok", "stream_error"}


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
)


@given(
    event=st.dictionaries(
        st.sampled_from(["choices", "usage", "error", "type", "delta", "response"])
        | st.sampled_from(["meta_info", "message", "metrics", "index", "model", "id"])
        | st.sampled_from(["text", "content_block", "object", "item", "finish_reason"]),
        JSON_VALUES
        | st.sampled_from(["message_start", "response.failed", "response.x.delta"])
        | st.lists(st.dictionaries(st.sampled_from(["delta", "index"]), JSON_VALUES)),
    )
)
def test_any_shape_of_an_event_gives_a_record(
    receiver: Receiver, event: dict[str, object]
) -> None:
    """Values of types that no interface has are passed over, without a fault."""
    record = record_of(receiver, [f"data: {json.dumps(event)}\n\n".encode()])
    assert record["failed"] == 0
    json.dumps(record, allow_nan=False)


@given(
    body=st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=5),
    indent=st.sampled_from([None, 2]),
    data=st.data(),
)
def test_the_head_of_a_cut_body_gives_its_whole_members(
    body: dict[str, object], indent: int | None, data: st.DataObject
) -> None:
    """Members before the cut are those of the whole body; half a one is left out."""
    text = json.dumps(body, indent=indent)
    cut = data.draw(st.integers(0, len(text)))
    whole = list(goodput_middleware._members(text))
    assert json.dumps(whole) == json.dumps(list(body.items()))
    head = list(goodput_middleware._members(text[:cut]))
    assert json.dumps(head) == json.dumps(whole[: len(head)])


def _told(receiver: Receiver, *pieces: bytes) -> Record:
    drive(GoodputMiddleware(answering([]), socket_path=str(receiver.path)), body=pieces)
    return receiver.record()


def test_the_page_lists_the_records_fields(receiver: Receiver) -> None:
    """docs/middleware.md explains each field of a record."""
    page = Path(__file__).parent.parent / "docs" / "middleware.md"
    text = page.read_text(encoding="utf-8").partition("## The record")[2]
    table = text.partition("| field |")[2].partition("\n\n")[0]
    fields = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(fields) == sorted(_told(receiver, b"{}"))


def test_a_request_tells_model_and_options(receiver: Receiver) -> None:
    """Options are the top-level ones, not a tool's parameters of the same name."""
    tool = {"function": {"parameters": {"model": {"type": "string"}, "stream": False}}}
    body = {
        "messages": [{"role": "user", "content": '"model": "x"'}],
        "tools": [tool],
        "model": "demo-small",
        "max_tokens": 48,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    text = json.dumps(body).encode()
    for record in (
        _told(receiver, text),
        _told(receiver, *(text[n : n + 1] for n in range(len(text)))),
    ):
        assert record["model"] == "demo-small"
        assert (record["stream"], record["include_usage"]) == (True, True)
        assert (record["max_tokens"], record["request_read"]) == (48, "whole")
        assert record["request_body_s"] is not None


def test_a_long_request_tells_what_its_head_holds(receiver: Receiver) -> None:
    """Of a long body the first 64 KiB are read, and the record says so."""
    long = "x" * 100_000
    before = json.dumps({"model": "m", "prompt": long}).encode()
    record = _told(receiver, before[:50_000], before[50_000:])
    assert (record["model"], record["request_read"]) == ("m", "head")
    after = json.dumps({"prompt": long, "model": "m"}).encode()
    record = _told(receiver, after)
    assert (record["model"], record["request_read"]) == (None, "head")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"model": 3, "stream": "yes", "max_tokens": true}']
)
def test_a_request_of_another_shape_tells_nothing(
    body: bytes, receiver: Receiver
) -> None:
    """Options of other types, or no object at all, are null."""
    record = _told(receiver, body)
    assert record["failed"] == 0
    assert {record[k] for k in ("model", "stream", "max_tokens")} == {None}

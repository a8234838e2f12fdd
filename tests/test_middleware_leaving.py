from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from asgi_driving import (
    EVENT_STREAM,
    Clock,
    Receiver,
    answering,
    chat,
    drive,
    scope,
    sse,
)

from exporter.goodput_middleware import App, GoodputMiddleware, Message, Receive, Send

START = {"type": "http.response.start", "status": 200, "headers": EVENT_STREAM}
ONE, TWO = sse(chat({"content": "one"})), sse(chat({"content": "two"}))
DONE = sse("[DONE]")
LEFT = "the client leaves here"


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    """Yields where the records arrive."""
    with Receiver(tmp_path / "requests.sock") as opened:
        yield opened


def ignoring(*steps: Message | bytes | str) -> App:
    """Returns an application that learns of the disconnect, and goes on sending."""

    async def app(_scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        for step in steps:
            if isinstance(step, str):
                assert (await receive())["type"] == "http.disconnect"
            elif isinstance(step, bytes):
                more = {"more_body": True}
                await send({"type": "http.response.body", "body": step, **more})
            else:
                await send(step)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


@pytest.mark.parametrize(
    ("steps", "outcome", "chunks"),
    [
        ([LEFT, START, ONE, DONE], "client_abort", 0),
        ([LEFT, {**START, "status": 503}], "client_abort", 0),
        ([{**START, "status": 503}, LEFT, DONE], "http_error", 0),
        ([START, LEFT, ONE, DONE], "client_abort", 0),
        ([START, ONE, LEFT, TWO, DONE], "client_abort", 1),
        ([START, ONE, TWO, DONE, LEFT], "ok", 2),
        ([START, ONE, TWO, LEFT], "client_abort", 2),
    ],
)
def test_what_is_sent_after_the_client_left_is_not_counted(
    steps: list[Message | bytes | str],
    outcome: str,
    chunks: int,
    receiver: Receiver,
) -> None:
    """An application that does not stop is no reason to call an abort complete."""
    drive(GoodputMiddleware(ignoring(*steps), socket_path=str(receiver.path)))
    record = receiver.record()
    assert (record["outcome"], record["content_chunks"]) == (outcome, chunks)
    assert (record["ttft_s"] is None) == (chunks == 0)
    assert record["disconnect_s"] is not None


def test_a_disconnect_after_the_last_message_is_the_servers_way_to_end(
    receiver: Receiver,
) -> None:
    """Servers say so to who listens, some even before the last send returns."""
    last_given = asyncio.Event()

    async def server_receive() -> Message:
        await last_given.wait()
        return {"type": "http.disconnect"}

    async def server_send(message: Message) -> None:
        if not message.get("more_body", True):
            last_given.set()
            for _ in range(5):
                await asyncio.sleep(0)

    async def app(_scope: Message, receive: Receive, send: Send) -> None:
        listening = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        await send(START)
        await send({"type": "http.response.body", "body": ONE, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        assert listening.done()

    middleware = GoodputMiddleware(app, socket_path=str(receiver.path))

    async def run() -> None:
        await middleware(scope(), server_receive, server_send)

    asyncio.run(run())
    middleware.close()
    record = receiver.record()
    assert (record["outcome"], record["disconnect_s"]) == ("ok", None)


def test_times_are_of_the_handing_over(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content is timed as it is given, the end when the server took it."""
    clock = Clock(monkeypatch)
    app = answering([(0.1, ONE), (0.1, TWO)], clock=clock)
    middleware = GoodputMiddleware(app, socket_path=str(receiver.path))
    drive(middleware, accept=lambda _message: clock.advance(1.0))
    record = receiver.record()
    assert record["header_s"] == 0.0
    assert (record["first_body_s"], record["ttft_s"]) == (1.1, 1.1)
    assert (record["last_content_s"], record["max_gap_s"]) == (2.2, 1.1)
    assert (record["end_s"], record["send_wait_s"]) == (4.2, 4.0)


def test_a_cut_message_has_no_count_of_the_servers(receiver: Receiver) -> None:
    """The usage at a message's start counts no output, so its content is counted."""
    usage = {"input_tokens": 9, "output_tokens": 1}
    start = {"type": "message_start", "message": {"id": "msg-1", "usage": usage}}
    block = {"type": "content_block_delta", "delta": {"text": "a"}}
    pieces = [(0.0, sse(start)), (0.0, sse(block)), (0.0, sse(block))]
    app = answering(pieces, finished=False)
    drive(GoodputMiddleware(app, socket_path=str(receiver.path)))
    record = receiver.record()
    assert (record["completion_tokens"], record["tokens_kind"]) == (2, "counted")
    assert record["prompt_tokens"] == 9


def test_a_server_that_refuses_a_message_means_that_the_client_left(
    receiver: Receiver,
) -> None:
    """An OSError of the server's send passes on, and is the client's abort."""
    events = [(0.0, sse(chat({"content": letter}))) for letter in "abc"]
    middleware = GoodputMiddleware(answering(events), socket_path=str(receiver.path))

    def accept(message: Message) -> None:
        if b'"b"' in message.get("body", b""):
            raise OSError

    with pytest.raises(OSError, match=r"^$"):
        drive(middleware, accept=accept)
    record = receiver.record()
    assert (record["outcome"], record["content_chunks"]) == ("client_abort", 1)
    assert record["disconnect_s"] is not None
    assert record["exception"] == "OSError"


def test_a_server_that_shuts_down_cuts_an_answer(receiver: Receiver) -> None:
    """A request that is cancelled without a disconnect was cut, and is no fault."""

    async def app(_scope: object, _receive: object, _send: object) -> None:
        raise asyncio.CancelledError

    middleware = GoodputMiddleware(app, socket_path=str(receiver.path))
    with pytest.raises(asyncio.CancelledError):
        drive(middleware)
    record = receiver.record()
    assert (record["outcome"], record["status"]) == ("upstream_cut", None)
    assert record["exception"] == "CancelledError"

"""What the middleware costs: a chunk of each kind, a request, and a whole server."""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from asgi_driving import Receiver, chat, scope, sse
from generating_server import GeneratingServer
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from exporter.goodput_middleware import App, GoodputMiddleware, Message

pytestmark = pytest.mark.benchmark

CHUNKS = 5_000
ROUNDS = 9
TOP = [{"token": f"t{n}", "logprob": -1.5, "bytes": [65, 66]} for n in range(20)]
LOGPROBS = {"content": [{"token": "t", "logprob": -0.1, "top_logprobs": TOP}]}


def _logprobs() -> bytes:
    event = chat({"content": "word"})
    choices = event["choices"]
    assert isinstance(choices, list)
    choices[0]["logprobs"] = LOGPROBS
    return sse(event)


KINDS: Mapping[str, bytes] = {
    "a chat chunk": sse(chat({"content": "word"})),
    "a tool call's chunk": sse(
        chat({"tool_calls": [{"index": 0, "function": {"arguments": '{"q"'}}]})
    ),
    "a keep-alive": b": keep-alive\n\n",
    "8 chat chunks at once": sse(chat({"content": "word"})) * 8,
    "a chunk with 20 logprobs": _logprobs(),
}


def streaming(piece: bytes, count: int) -> App:
    """Returns an application that reads its request and streams *piece*."""

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(count):
            yield piece

    async def app(inner: Scope, receive: Receive, send: Send) -> None:
        await Request(inner, receive).body()
        answer = StreamingResponse(pieces(), media_type="text/event-stream")
        await answer(inner, receive, send)

    return app


def seconds(app: App, body: bytes, requests: int) -> float:
    """Returns the processor time of *requests* to *app*, with a server that is free."""

    async def run() -> float:
        async def send(_message: Message) -> None:
            pass

        begun = time.thread_time()
        for _ in range(requests):
            given = iter([{"type": "http.request", "body": body, "more_body": False}])

            async def receive(messages: object = given) -> Message:
                return next(messages)  # type: ignore[call-overload, no-any-return]

            # Since 2.4 a response does not listen for the disconnect beside.
            await app(scope(asgi={"spec_version": "2.4"}), receive, send)
        return time.thread_time() - begun

    gc.collect()
    return asyncio.run(run())


def cost(
    piece: bytes, path: Path, *, count: int, requests: int = 1, body: bytes = b"{}"
) -> tuple[float, float]:
    """Returns the median seconds without and with the middleware, in turns."""
    plain = streaming(piece, count)
    with Receiver(path) as receiver:
        observed = GoodputMiddleware(plain, socket_path=str(path))
        without, with_it = [], []
        for _ in range(ROUNDS):
            without.append(seconds(plain, body, requests))
            with_it.append(seconds(observed, body, requests))
            for _ in range(requests):
                assert receiver.record()["failed"] == 0
        observed.close()
    return statistics.median(without), statistics.median(with_it)


def test_cost_of_a_chunk(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Prints the microseconds that a chunk of each kind costs."""
    lines = []
    for name, piece in KINDS.items():
        without, with_it = cost(piece, tmp_path / "requests.sock", count=CHUNKS)
        added = 1e6 * (with_it - without) / CHUNKS
        lines.append(
            f"{name:<26} {len(piece):>6} bytes {added:8.2f} µs added, "
            f"{with_it / without:6.2f} × of {1e6 * without / CHUNKS:.2f} µs without"
        )
    with capsys.disabled():
        print("\nper chunk, beside Starlette's StreamingResponse without a server")
        print("\n".join(lines))


def test_cost_of_a_request(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Prints the microseconds that a request costs beside its chunks."""
    lines = []
    for size in (500, 8_000, 60_000, 1_000_000):
        message = {"role": "user", "content": "word " * (size // 5)}
        body = json.dumps({"messages": [message], "model": "m"}).encode()
        without, with_it = cost(
            b"", tmp_path / "requests.sock", count=0, requests=200, body=body
        )
        lines.append(f"{len(body):>9} bytes {1e6 * (with_it - without) / 200:8.1f} µs")
    with capsys.disabled():
        print("\nper request, by the length of its body")
        print("\n".join(lines))


def test_cost_in_a_server(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Prints the processor time of a chat chunk in uvicorn's thread."""
    steps = [KINDS["a chat chunk"]] * CHUNKS
    taken: dict[bool, list[float]] = {False: [], True: []}
    path = tmp_path / "requests.sock"
    with (
        Receiver(path) as receiver,
        GeneratingServer(None, steps=steps) as plain,
        GeneratingServer(path, steps=steps) as observed,
    ):
        for _ in range(ROUNDS):
            for server in (plain, observed):
                begun = server.processor_time()
                answer = server.raw_answer()
                taken[server is observed].append(server.processor_time() - begun)
                assert answer.count(b"data: ") == CHUNKS
            assert receiver.record()["content_chunks"] == CHUNKS
    without, with_it = (1e6 * statistics.median(taken[k]) / CHUNKS for k in taken)
    with capsys.disabled():
        print(
            f"\nin uvicorn: {without:.1f} µs a chunk, with the middleware "
            f"{with_it:.1f} µs: {with_it / without:.2f} ×"
        )

"""Runs an application behind the middleware without a server, on a clock of its own."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import pytest

from exporter import goodput_middleware
from exporter.goodput_middleware import App, GoodputMiddleware, Message, Receive, Send

PATIENCE = 20.0
EVENT_STREAM = ((b"content-type", b"text/event-stream; charset=utf-8"),)
JSON = ((b"content-type", b"application/json"),)

Record = dict[str, Any]
# Seconds that pass before it, and the bytes of one message.
Timed = tuple[float, bytes]


class Receiver:
    """A unix datagram socket, as the exporter's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends it, leaving nobody at the path."""
        self._socket.close()
        self.path.unlink(missing_ok=True)

    def line(self) -> bytes:
        """Returns the next datagram; fails when none comes."""
        return self._socket.recv(1 << 20)

    def record(self) -> Record:
        """Returns the next record."""
        found = json.loads(self.line())
        assert isinstance(found, dict)
        return found

    def is_empty(self) -> bool:
        """Returns whether nothing waits to be read."""
        self._socket.setblocking(False)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            self._socket.settimeout(PATIENCE)


class Clock:
    """Stands still, but for what a test lets pass; the middleware reads it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        self.epoch = 1_800_000_000.0
        fake = SimpleNamespace(
            monotonic=lambda: self.now,
            time=lambda: self.epoch + self.now - 1_000.0,
            sleep=time.sleep,
        )
        monkeypatch.setattr(goodput_middleware, "time", fake)

    def advance(self, seconds: float) -> None:
        """Lets *seconds* pass."""
        self.now += seconds


def scope(
    path: str = "/v1/chat/completions",
    *,
    method: str = "POST",
    headers: Iterable[tuple[bytes, bytes]] = (),
    **more: object,
) -> Message:
    """Returns a request's connection scope."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "headers": list(headers),
        **more,
    }


def answering(
    parts: Iterable[Timed],
    *,
    clock: Clock | None = None,
    status: int = 200,
    headers: Iterable[tuple[bytes, bytes]] = EVENT_STREAM,
    finished: bool = True,
) -> App:
    """Returns an application that sends *parts*, each as a message of its own."""

    async def app(_scope: Message, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        start = {"type": "http.response.start", "status": status}
        await send({**start, "headers": list(headers)})
        for seconds, body in parts:
            if clock is not None:
                clock.advance(seconds)
            await send({"type": "http.response.body", "body": body, "more_body": True})
        if finished:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


async def exchange(
    middleware: GoodputMiddleware,
    *,
    request: Message | None = None,
    body: Iterable[bytes] = (b"{}",),
    accept: Callable[[Message], None] = lambda _message: None,
) -> list[Message]:
    """Returns what the client is sent; *accept* may raise, as a server's send may."""
    pieces = list(body)
    messages: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": n < len(pieces)}
        for n, piece in enumerate(pieces, 1)
    ]
    messages.append({"type": "http.disconnect"})
    sent: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        accept(message)
        sent.append(message)

    await middleware({**(request or scope())}, receive, send)  # a server makes it anew
    return sent


def drive(
    middleware: GoodputMiddleware,
    *,
    request: Message | None = None,
    body: Iterable[bytes] = (b"{}",),
    accept: Callable[[Message], None] = lambda _message: None,
) -> list[Message]:
    """Runs one exchange, closes the middleware, and returns what the client is sent."""
    try:
        return asyncio.run(
            exchange(middleware, request=request, body=body, accept=accept)
        )
    finally:
        middleware.close()


def sse(*payloads: object, end: str = "\n") -> bytes:
    """Returns *payloads* as events; text is sent as it is, the rest as JSON."""
    return b"".join(
        f"data: {p if isinstance(p, str) else json.dumps(p)}{end}{end}".encode()
        for p in payloads
    )


def chat(delta: dict[str, object] | None = None, **more: object) -> dict[str, object]:
    """Returns a chunk of a chat completion, as vLLM sends it."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_800_000_000,
        "model": "demo-small",
        "choices": [] if delta is None else [choice],
        **more,
    }

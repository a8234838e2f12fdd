"""A real uvicorn with routes that generate as a test says, with or without records."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import uvicorn
from running_exporter import wait_for
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from exporter.goodput_middleware import GoodputMiddleware

Implementation = Literal["h11", "httptools"]


class Gate:
    """A step at which a stream waits until the test lets it pass."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.left = threading.Event()

    async def wait(self) -> None:
        """Waits for the test; notes when the stream is cancelled meanwhile."""
        self.reached.set()
        try:
            while not self.opened.is_set():  # noqa: ASYNC110 - another thread's
                await asyncio.sleep(0.002)
        finally:
            self.left.set()


Step = bytes | Gate | Exception
Before = Callable[[], Coroutine[Any, Any, Response | None]]


async def _steps(steps: Iterable[Step]) -> AsyncIterator[bytes]:
    for step in steps:
        if isinstance(step, Gate):
            await step.wait()
        elif isinstance(step, Exception):
            raise step
        else:
            yield step


async def _or_disconnect(request: Request, work: Before) -> Response | None:
    """Returns what *work* gives, or `null` when the client left, as vLLM does."""

    async def until_left() -> Response | None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        return JSONResponse(None)

    tasks = [asyncio.create_task(work()), asyncio.create_task(until_left())]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    return done.pop().result()


class GeneratingServer:
    """Serves the interfaces of an LLM server; `before` and `steps` say how."""

    def __init__(
        self,
        records_to: Path | None,
        *,
        http: Implementation = "httptools",
        before: Before | None = None,
        steps: Iterable[Step] = (),
    ) -> None:
        self.before = before
        self.steps = steps
        observed = Middleware(
            GoodputMiddleware, socket_path=str(records_to), headers=["x-team"]
        )
        app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._generate, methods=["POST", "GET"]),
                Route("/v1/models", self._models),
            ],
            middleware=[observed] if records_to else [],
        )
        config = uvicorn.Config(
            app,
            port=0,
            http=http,
            log_level="critical",
            date_header=False,
            server_header=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)

    async def _models(self, _request: Request) -> Response:
        return JSONResponse({"data": []})

    async def _generate(self, request: Request) -> Response:
        await request.body()
        if self.before is not None:
            response = await _or_disconnect(request, self.before)
            if response is not None:
                return response
        return StreamingResponse(_steps(self.steps), media_type="text/event-stream")

    def __enter__(self) -> Self:
        self._thread.start()
        wait_for(lambda: self._server.started)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()

    @property
    def port(self) -> int:
        """The port that the kernel chose."""
        return int(self._server.servers[0].sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """The address of the chat route."""
        return f"http://127.0.0.1:{self.port}/v1/chat/completions"

    def processor_time(self) -> float:
        """Returns the seconds that the server's thread has computed."""
        assert self._thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))

    def connect(self) -> socket.socket:
        """Returns a connection on which a request was sent."""
        body = b'{"model": "demo-small", "stream": true}'
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\n"
            "content-type: application/json\r\nx-request-id: raw-1\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        opened = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        opened.sendall(head.encode() + body)
        return opened

    def raw_answer(self) -> bytes:
        """Returns every byte of the answer to one request."""
        return read_to_end(self.connect())


def read_to_end(connection: socket.socket) -> bytes:
    """Returns what *connection* still brings, and closes it."""
    with closing(connection):
        return b"".join(iter(lambda: connection.recv(1 << 20), b""))

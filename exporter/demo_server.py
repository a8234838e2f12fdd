"""Small HTTP servers for pages that a function makes, all on one event loop.

A page needs no more than GET, so that a demonstration of hundreds of engines costs
little beside what is demonstrated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus

LONGEST_REQUEST = 16 << 10

# Content type and body; None closes the connection without an answer.
Answer = tuple[str, bytes] | None
Pages = Mapping[str, Callable[[], Answer]]


class PageServer:
    """Answers GET on a port of 127.0.0.1 from *pages*, by path; has `close()`."""

    def __init__(self, pages: Pages) -> None:
        self.port = 0
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Transport] = set()

    async def start(self, port: int = 0) -> None:
        """Listens on *port*, or on a free one. Raises OSError when it is taken."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self._pages, self._open), "127.0.0.1", port
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Stops listening, and breaks off every connection, as a process that died."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for transport in list(self._open):
            transport.abort()


class _Connection(asyncio.Protocol):
    """One connection: requests without a body, one after the other."""

    def __init__(self, pages: Pages, connections: set[asyncio.Transport]) -> None:
        self._pages = pages
        self._open = connections
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the way back."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
            self._open.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets it."""
        del exc
        self._open.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        """Answers every request that has come whole."""
        self._heard += data
        while b"\r\n\r\n" in self._heard:
            request, _, self._heard = self._heard.partition(b"\r\n\r\n")
            self._answer(request.partition(b"\r\n")[0].decode("latin-1").split(" "))
        if len(self._heard) > LONGEST_REQUEST:
            self._transport.abort()

    def _answer(self, request_line: list[str]) -> None:
        path = request_line[1] if len(request_line) == 3 else ""
        make = self._pages.get(path)
        if make is None:
            status, kind, body = HTTPStatus.NOT_FOUND, "text/plain", b""
        else:
            answer = make()
            if answer is None:
                self._transport.abort()
                return
            status, (kind, body) = HTTPStatus.OK, answer
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._transport.write(head.encode("latin-1") + body)

"""Many engines in a process of its own: a recording's pages on as many ports.

Each port is at its own place in the recording, which it plays in real time. It costs
little, so that what a test measures is the exporter.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from episodes import DIRECTORY

from analyzer.sources.recording import read_scrapes

MODELS = b'{"data":[{"id":"demo-small","root":"/m"}]}'


class RecordedFleet:
    """Serves *count* engines on free ports of 127.0.0.1 until `close()`."""

    def __init__(self, count: int, *, episode: str = "ramp-a") -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, episode, str(count)],
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(Path(__file__).parent)},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the fleet did not start"
        self.addresses = [f"127.0.0.1:{port}" for port in json.loads(line)]

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.wait(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Engine(asyncio.Protocol):
    """One connection to one engine; requests without a body, one after the other."""

    def __init__(self, pages: list[bytes], begin: float) -> None:
        self._pages = pages
        self._begin = begin
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the way back."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answers every request that has come whole."""
        self._heard += data
        while b"\r\n\r\n" in self._heard:
            request, _, self._heard = self._heard.partition(b"\r\n\r\n")
            if request.startswith(b"GET /metrics "):
                second = int(time.monotonic() - self._begin) % len(self._pages)
                self._transport.write(self._pages[second])
            elif request.startswith(b"GET /v1/models "):
                self._transport.write(_answer(MODELS))
            else:
                self._transport.write(b"HTTP/1.1 404 N\r\nContent-Length: 0\r\n\r\n")


def _answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def _serve(episode: str, count: int) -> None:
    """Serves for ever, after a line with the ports."""
    scrapes = read_scrapes(DIRECTORY / episode)
    pages = [_answer(s.text.encode()) for s in scrapes if s.text is not None]
    loop = asyncio.get_running_loop()
    ports = []
    for number in range(count):
        begin = time.monotonic() - number * len(pages) / count
        server = await loop.create_server(
            partial(_Engine, pages, begin), "127.0.0.1", 0
        )
        ports.append(server.sockets[0].getsockname()[1])
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))

"""A web server of the exporter on a free port, and ways to ask it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from exporter.web import App, Handlers, WebServer
from exporter.web_front import Limits

PAGE = b"# a page of metrics\n" * 200
PATIENCE_SECONDS = 20.0  # for what must come; nothing is said about how fast


def handlers(
    *,
    metrics: Callable[[float | None, str], tuple[str, bytes]] | None = None,
    status: Callable[[], bytes] = lambda: b'{"windows": []}',
    healthy: tuple[bool, str] = (True, "healthy\n"),
    ready: tuple[bool, str] = (True, "ready\n"),
    reload: Callable[[], tuple[bool, str]] | None = lambda: (True, "reloaded\n"),
) -> Handlers:
    """Returns handlers that are content, but for those given."""
    return Handlers(
        metrics=metrics or (lambda _deadline, _accept: ("text/plain", PAGE)),
        page=lambda _: b"<!doctype html>",
        status=status,
        healthy=lambda: healthy,
        ready=lambda: ready,
        reload=reload,
    )


@contextmanager
def serving(
    app: App | Handlers | None = None,
    *,
    address: str = "127.0.0.1:0",
    web_config: Path | None = None,
    limits: Limits | None = None,
) -> Iterator[WebServer]:
    """Serves the handlers or the application until the block ends."""
    if not isinstance(app, App):
        app = App(app or handlers())
    server = WebServer(address, app, web_config=web_config, limits=limits)
    server.start()
    try:
        yield server
    finally:
        server.close()


def ask(
    server: WebServer,
    path: str,
    *,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    data: bytes | Iterator[bytes] | None = None,
    auth: tuple[str, str] | None = None,
    verify: Path | None = None,
    cert: tuple[Path, Path] | None = None,
) -> requests.Response:
    """Returns the server's answer to one request on a connection of its own."""
    with requests.Session() as session:
        session.trust_env = False
        return session.request(
            method,
            server.url + path,
            headers=headers,
            data=data,
            auth=auth,
            verify=True if verify is None else str(verify),
            cert=None if cert is None else (str(cert[0]), str(cert[1])),
            timeout=PATIENCE_SECONDS,
        )


def connect(server: WebServer) -> socket.socket:
    """Returns a new connection."""
    return socket.create_connection(server.address, timeout=PATIENCE_SECONDS)


def read_all(sock: socket.socket) -> bytes:
    """Returns all bytes until the server closes the connection."""
    return b"".join(iter(lambda: sock.recv(65536), b""))


def wait_until(condition: Callable[[], bool]) -> None:
    """Returns when the condition holds; fails when it never does."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)

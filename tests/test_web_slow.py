from __future__ import annotations

import logging
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from web_serving import (
    PATIENCE_SECONDS,
    ask,
    connect,
    handlers,
    read_all,
    serving,
    wait_until,
)

from exporter.web import WebServer
from exporter.web_front import Limits


@pytest.fixture
def server() -> Iterator[WebServer]:
    """A server with default handlers and limits."""
    with serving() as running:
        yield running


def test_requests_beyond_the_queue_are_503() -> None:
    """A bounded queue refuses instead of growing."""
    gate, arrived = threading.Event(), threading.Event()

    def slow(_: float | None, __: str) -> tuple[str, bytes]:
        arrived.set()
        gate.wait(PATIENCE_SECONDS)
        return "text/plain", b"late\n"

    limits = Limits(threads=1, queued=1)
    with (
        serving(handlers(metrics=slow), limits=limits) as server,
        connect(server) as busy,
        connect(server) as queued,
    ):
        busy.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert arrived.wait(PATIENCE_SECONDS)
        # One thread accepts in order, so this one is queued before the next is seen.
        queued.sendall(b"GET /-/ready HTTP/1.0\r\n\r\n")
        wait_until(lambda: server._server.requests.qsize == 1)
        refused = ask(server, "/-/healthy")
        assert refused.status_code == 503
        assert refused.text == "too many requests are waiting\n"
        gate.set()
        assert read_all(queued).endswith(b"ready\n")


@pytest.mark.parametrize(
    "sent", [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nX-Slow: "]
)
def test_half_open_clients_do_not_keep_others_out(
    server: WebServer, sent: bytes
) -> None:
    """More half-sent requests than threads and places leave the rest served."""
    limits = Limits()
    with ExitStack() as stack:
        for _ in range(2 * limits.connections):
            sock = stack.enter_context(connect(server))
            sock.sendall(sent)
        for path in ("/metrics", "/-/healthy"):
            assert ask(server, path).status_code == 200
        assert len(server._server._open) <= limits.connections


def test_clients_that_drip_do_not_keep_others_out(server: WebServer) -> None:
    """A byte now and then buys no thread."""
    with ExitStack() as stack:
        socks = [
            stack.enter_context(connect(server)) for _ in range(2 * Limits().threads)
        ]
        for byte in b"GET /metrics":
            for sock in socks:
                sock.sendall(bytes([byte]))
            assert ask(server, "/metrics").status_code == 200


def test_clients_that_do_not_read_do_not_keep_others_out() -> None:
    """Answers that nobody takes hold no thread, only their place."""
    body = b"x" * 8_000_000  # more than the kernel buffers

    def metrics(_: float | None, accept: str) -> tuple[str, bytes]:
        return "text/plain", body if accept == "large" else b"small\n"

    limits = Limits(threads=2, connections=16)
    with serving(handlers(metrics=metrics), limits=limits) as server:
        with ExitStack() as stack:
            for _ in range(2 * limits.connections):
                sock = stack.enter_context(connect(server))
                sock.sendall(b"GET /metrics HTTP/1.1\r\nAccept: large\r\n\r\n")
                sock.recv(1)
            assert ask(server, "/metrics").content == b"small\n"
        assert ask(server, "/metrics", headers={"Accept": "large"}).content == body


def drip(sock: socket.socket) -> None:
    """Sends a byte now and then, without end."""
    while True:
        sock.sendall(b"x")
        time.sleep(0.02)


def test_a_head_must_be_whole_in_time() -> None:
    """The time counts from the first byte to the last, not between bytes."""
    with serving(limits=Limits(head_seconds=0.3)) as server, connect(server) as sock:
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            drip(sock)
        assert ask(server, "/-/healthy").status_code == 200


def test_a_kept_connection_ends_after_its_idle_time() -> None:
    """A connection that asks nothing more is closed by the server."""
    limits = Limits(idle_seconds=0.2)
    with serving(limits=limits) as server, connect(server) as sock:
        sock.sendall(b"GET /-/ready HTTP/1.1\r\n\r\n")
        assert read_all(sock).endswith(b"ready\n")  # and then the end


def test_an_answer_must_be_taken_in_time() -> None:
    """A client that does not read loses its connection."""
    body = b"x" * 8_000_000

    def metrics(_: float | None, __: str) -> tuple[str, bytes]:
        return "text/plain", body

    limits = Limits(send_seconds=0.2)
    with (
        serving(handlers(metrics=metrics), limits=limits) as server,
        connect(server) as sock,
    ):
        sock.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        sock.recv(1)
        wait_until(lambda: not server._server._open)
        assert len(read_all(sock)) < len(body)


def test_idle_connections_make_room_for_new_ones() -> None:
    """When every place is taken, the longest idle connection goes."""
    with serving(limits=Limits(connections=2)) as server, ExitStack() as stack:
        socks = []
        for _ in range(3):
            sock = stack.enter_context(connect(server))
            sock.sendall(b"GET /-/ready HTTP/1.1\r\n\r\n")
            assert b"ready\n" in sock.recv(4096)
            socks.append(sock)
        assert socks[0].recv(1) == b""
        socks[1].sendall(b"GET /-/ready HTTP/1.1\r\n\r\n")
        assert b"ready\n" in socks[1].recv(4096)


def test_accepting_goes_on_after_file_descriptors_ran_out(
    server: WebServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Without file descriptors new clients wait, and the log says why."""
    said = threading.Event()
    note = logging.Handler()
    note.emit = lambda record: (  # type: ignore[method-assign]
        said.set() if "cannot accept" in record.getMessage() else None
    )
    logging.getLogger("exporter.web_front").addHandler(note)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as client:
        client.settimeout(PATIENCE_SECONDS)
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
        try:
            client.connect(server.address)
            client.sendall(b"GET /-/ready HTTP/1.0\r\n\r\n")
            assert said.wait(PATIENCE_SECONDS)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            logging.getLogger("exporter.web_front").removeHandler(note)
        assert read_all(client).endswith(b"ready\n")
    assert "Too many open files" in caplog.text

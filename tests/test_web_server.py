from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from web_serving import (
    PAGE,
    PATIENCE_SECONDS,
    ask,
    connect,
    handlers,
    read_all,
    serving,
    wait_until,
)

from exporter.web import App, WebError, WebServer
from exporter.web_connection import Phase
from exporter.web_server import listen


@pytest.fixture
def server() -> Iterator[WebServer]:
    """A server with default handlers and limits."""
    with serving() as running:
        yield running


# Addresses.


def has_ipv6() -> bool:
    """Whether the loopback interface has its IPv6 address."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def test_port_0_is_reported_as_the_port_taken(server: WebServer) -> None:
    """The address and URL are those that answer."""
    host, port = server.address
    assert (host, server.url) == ("127.0.0.1", f"http://127.0.0.1:{port}")
    assert port > 0
    assert ask(server, "/-/ready").status_code == 200


@needs_ipv6
@pytest.mark.parametrize("address", [":0", "[::]:0"])
def test_no_host_means_all_interfaces_v4_and_v6(address: str) -> None:
    """One port answers on both loopback addresses; the URL is one for this machine."""
    with serving(address=address) as server:
        port = server.address[1]
        assert server.url == f"http://localhost:{port}"
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), timeout=PATIENCE_SECONDS).close()
        assert ask(server, "/-/ready").status_code == 200


@needs_ipv6
def test_an_ipv6_address_is_served_on_ipv6_only() -> None:
    """Brackets hold an IPv6 address, in the URL too."""
    with serving(address="[::1]:0") as server:
        assert server.url == f"http://[::1]:{server.address[1]}"
        assert ask(server, "/-/ready").status_code == 200
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.address[1]))


def test_a_host_name_means_its_ipv4_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with several addresses takes IPv4, as Go's listeners do."""
    v4 = socket.getaddrinfo("127.0.0.1", 0, type=socket.SOCK_STREAM)
    v6 = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: v6 + v4)
    with serving(address="localhost:0") as server:
        assert server.address[0] == "127.0.0.1"


def test_a_taken_port_is_a_clean_error(server: WebServer) -> None:
    """The error names the address and the reason, before anything starts."""
    taken = f"127.0.0.1:{server.address[1]}"
    with pytest.raises(WebError) as caught:
        WebServer(taken, App(handlers()))
    assert str(caught.value) == f"cannot listen on {taken}: Address already in use"
    with pytest.raises(WebError, match="Address already in use"):
        WebServer(f":{server.address[1]}", App(handlers()))


@pytest.mark.parametrize(
    "address",
    [
        "",
        "10555",
        "localhost",
        "::1:80",
        "1.2.3.4:http",
        ":65536",
        ":-1",
        "[::1]",
        "a:",
    ],
)
def test_an_address_must_have_host_and_port(address: str) -> None:
    """What is no address is refused as it was written."""
    with pytest.raises(WebError) as caught:
        listen(address)
    assert str(caught.value) == (
        f"listen address {address!r} must be host:port, :port or [IPv6]:port"
    )


@pytest.mark.parametrize("address", ["203.0.113.1:0", "no-such-host.invalid:0"])
def test_an_address_of_others_is_a_clean_error(address: str) -> None:
    """Addresses that are not this machine's, or unknown, are named."""
    with pytest.raises(WebError, match=f"cannot listen on {address}: "):
        listen(address)


# Limits of what clients may send.


def test_a_long_header_is_413_and_a_long_url_414(server: WebServer) -> None:
    """Heads end at 64 KiB, whatever part of them is long."""
    long_header = ask(server, "/", headers={"X-Long": "a" * 70_000})
    long_url = ask(server, "/" + "a" * 70_000)
    assert (long_header.status_code, long_url.status_code) == (413, 414)
    assert ask(server, "/", headers={"X-Long": "a" * 60_000}).status_code == 200


def test_a_long_body_is_413(server: WebServer) -> None:
    """Bodies end at 64 KiB by their declared length."""
    got = ask(server, "/-/reload", method="POST", data=b"x" * 70_000)
    assert got.status_code == 413


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_is_not_needed_and_ends_the_connection(
    server: WebServer, *, chunked: bool
) -> None:
    """A body is answered without being read; what follows it is no request."""
    data = iter([b"GET / HTTP/1.1\r\n\r\n"]) if chunked else b"GET / HTTP/1.1\r\n\r\n"
    got = ask(server, "/-/reload", method="POST", data=data)
    assert (got.status_code, got.headers["Connection"]) == (200, "close")
    with connect(server) as sock:
        sock.sendall(
            b"POST /-/reload HTTP/1.1\r\nContent-Length: 18\r\n\r\n"
            b"GET / HTTP/1.1\r\n\r\n",
        )
        assert read_all(sock).count(b"HTTP/1.1 ") == 1


def test_a_body_that_never_comes_is_not_waited_for(server: WebServer) -> None:
    """A declared body holds nothing up."""
    with connect(server) as sock:
        sock.sendall(b"POST /-/reload HTTP/1.1\r\nContent-Length: 1000\r\n\r\n")
        assert b"reloaded" in read_all(sock)


def test_a_request_in_pieces_is_one_request(server: WebServer) -> None:
    """How the network cuts a head does not matter."""
    request = b"GET /-/ready HTTP/1.0\r\nX: y\r\n\r\n"
    with connect(server) as sock:
        for sent, byte in enumerate(request):
            wait_until(partial(has_received, server, sent))
            sock.sendall(bytes([byte]))
        assert read_all(sock).endswith(b"ready\n")


def has_received(server: WebServer, count: int) -> bool:
    """Whether the server has *count* bytes of heads."""
    return count == sum(len(conn._inbox) for conn in tuple(server._server._open))


def test_a_head_without_end_is_413(server: WebServer) -> None:
    """A head that is too large already is not waited for."""
    with connect(server) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nX-Long: " + b"a" * 70_000)
        assert read_all(sock).startswith(b"HTTP/1.1 413 ")


def test_an_answer_is_not_lost_to_bytes_that_nobody_reads(server: WebServer) -> None:
    """A client that still sends when it is answered sees an orderly end."""
    with connect(server) as sock:
        sock.sendall(b"POST /-/reload HTTP/1.1\r\nContent-Length: 60000\r\n\r\n")
        for _ in range(3):
            wait_until(lambda: is_lingering(server))
            sock.sendall(b"x" * 20_000)
        assert b"reloaded" in read_all(sock)


def is_lingering(server: WebServer) -> bool:
    """Whether the server has answered, and waits for the client's end."""
    return any(conn.phase is Phase.LINGER for conn in tuple(server._server._open))


def test_an_application_that_raises_is_500(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is served, an error in it ends one answer only, and is logged."""

    def broken(_: object, __: object) -> list[bytes]:
        raise RuntimeError("broken")

    server = WebServer("127.0.0.1:0", broken)
    server.start()
    try:
        for _ in range(2):
            assert ask(server, "/").status_code == 500
    finally:
        server.close()
    assert "RuntimeError: broken" in caplog.text


def test_requests_behind_each_other_are_answered_in_order(server: WebServer) -> None:
    """A kept connection serves one request after the other, sent at once or not."""
    with connect(server) as sock:
        sock.sendall(
            b"GET /-/ready HTTP/1.1\r\n\r\nGET /-/healthy HTTP/1.1\r\n\r\n"
            b"GET /nope HTTP/1.1\r\nConnection: close\r\n\r\n",
        )
        answers = read_all(sock)
    found = [answers.index(text) for text in (b"ready\n", b"healthy\n", b"404 Not")]
    assert found == sorted(found)


def test_bare_line_feeds_are_400(server: WebServer) -> None:
    """A head without carriage returns is answered, not waited for."""
    with connect(server) as sock:
        sock.sendall(b"GET / HTTP/1.0\n\n")
        assert read_all(sock).startswith(b"HTTP/1.1 400 ")


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.one_of(
        st.binary(max_size=300),
        st.lists(
            st.sampled_from(
                [
                    b"GET ",
                    b"POST ",
                    b"/",
                    b"/metrics",
                    b" HTTP/1.1",
                    b" HTTP/9.9",
                    b"\r\n",
                    b"\n",
                    b"Content-Length: ",
                    b"-1",
                    b"Transfer-Encoding: chunked",
                    b"Expect: 100-continue",
                    b"\x00",
                    b"\xff",
                    b":",
                    b" ",
                ]
            ),
            max_size=20,
        ).map(b"".join),
    )
)
def test_no_bytes_bring_the_server_down(server: WebServer, sent: bytes) -> None:
    """Whatever a client sends, the next one is served."""
    with connect(server) as sock:
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):  # on bytes nobody wanted
            read_all(sock)
    assert ask(server, "/-/healthy").status_code == 200


# The end.


def web_threads() -> set[threading.Thread]:
    """Returns the threads of web servers."""
    return {
        t for t in threading.enumerate() if t.name == "web" or "CP Server" in t.name
    }


def test_close_ends_threads_connections_and_the_port() -> None:
    """After close nothing is left, and the port can be taken again."""
    before = web_threads()
    with serving() as server, connect(server) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n")
        ask(server, "/metrics")
        assert web_threads() > before
        server.close()
        assert read_all(sock) == b""
        assert web_threads() == before
        listen(f"127.0.0.1:{server.address[1]}").close()


def test_close_lets_an_answer_in_the_making_go_out() -> None:
    """A scrape that is being answered still gets its answer."""
    arrived, gate = threading.Event(), threading.Event()

    def slow(_: float | None, __: str) -> tuple[str, bytes]:
        arrived.set()
        gate.wait(PATIENCE_SECONDS)
        return "text/plain", PAGE

    with serving(handlers(metrics=slow)) as server, connect(server) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert arrived.wait(PATIENCE_SECONDS)
        server._server.stop()
        wait_until(lambda: server._server._listener.fileno() < 0)
        gate.set()
        answer = read_all(sock)
    assert answer.endswith(PAGE)
    assert b"Connection: close" in answer


def test_close_does_not_wait_for_a_handler_that_hangs() -> None:
    """A handler that never returns cannot keep the daemon from ending."""
    arrived, gate = threading.Event(), threading.Event()

    def hangs(_: float | None, __: str) -> tuple[str, bytes]:
        arrived.set()
        gate.wait()
        return "text/plain", PAGE

    before = web_threads()
    with serving(handlers(metrics=hangs)) as server, connect(server) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert arrived.wait(PATIENCE_SECONDS)
        server.close()
        assert read_all(sock) == b""
        left = web_threads() - before
        assert left
        assert all(thread.daemon for thread in left)
        gate.set()
        for thread in left:
            thread.join(PATIENCE_SECONDS)
        assert web_threads() == before


def test_close_without_start_frees_the_port() -> None:
    """A server that never started holds nothing after close; close may come twice."""
    server = WebServer("127.0.0.1:0", App(handlers()))
    server.close()
    server.close()
    with listen(f"127.0.0.1:{server.address[1]}") as again:
        assert again.getsockname() == ("127.0.0.1", server.address[1])

"""How the fetcher finds its target, and what it does with a kept connection."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from raw_server import (
    Peer,
    RawServer,
    Script,
    answer,
    chunk,
    dripping,
    head,
    pouring,
    saying,
    serving,
    stalling,
)
from running_exporter import wait_for
from scraping import (
    CA,
    CHUNKED,
    DEADLINE,
    PAGE,
    PATIENCE,
    SIZED,
    context,
    failure,
    fetching,
    nothing_is_left,  # noqa: F401  pytest holds every test here to it
)
from synthetic_engine import free_port

from analyzer.config_sources import Tls


def test_nobody_listening_is_refused() -> None:
    """The engine is not there, its machine is."""
    with fetching() as fetcher:
        url = f"http://127.0.0.1:{free_port()}/metrics"
        assert failure(fetcher, url).reason == "refused"


@pytest.mark.parametrize(
    "host", ["no-such-host.invalid", f"{'a' * 64}.invalid", "a..invalid"]
)
def test_a_name_without_an_address_is_dns(host: str) -> None:
    """The name is unknown, or nobody could even ask for it."""
    with fetching() as fetcher:
        failed = failure(fetcher, f"http://{host}:1/metrics", timeout=3.0)
        assert failed.reason == "dns"


Addresses = list[tuple[Any, ...]]


def resolve(monkeypatch: pytest.MonkeyPatch, answer: Callable[[], Addresses]) -> None:
    """Lets the system's resolver answer like this for names, not for numbers."""
    real = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, **options: int) -> Addresses:
        if options.get("flags"):
            return list(real(host, port, **options))
        return answer()

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_a_resolver_that_hangs_is_dns_and_is_not_asked_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system's resolver knows no deadline; ours holds, with one thread."""
    released, asked = threading.Event(), []

    def answer() -> Addresses:
        asked.append(1)
        released.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "gave up")

    resolve(monkeypatch, answer)
    try:
        with fetching() as fetcher:
            for _ in range(3):
                failed = failure(fetcher, "http://engine:8000/metrics", timeout=0.2)
                assert failed.reason == "dns"
                assert "engine" in failed.detail
            assert len(asked) == 1
    finally:
        released.set()


@contextmanager
def black_hole() -> Iterator[int]:
    """Gives a local port at which connections are neither taken nor refused."""
    with ExitStack() as stack:
        listener = stack.enter_context(
            socket.create_server(("127.0.0.1", 0), backlog=0)
        )
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def at(port: int) -> tuple[Any, ...]:
    """Returns a local port as the resolver would."""
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))


def test_a_host_that_swallows_packets_is_a_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many addresses the name has, they share one deadline."""
    with black_hole() as port, fetching() as fetcher:
        url = f"http://127.0.0.1:{port}/metrics"
        assert failure(fetcher, url, timeout=DEADLINE).reason == "timeout"
        resolve(monkeypatch, lambda: [at(port)] * 6)
        url = "http://engine:8000/metrics"
        assert failure(fetcher, url, timeout=DEADLINE).reason == "timeout"


def test_the_next_address_is_tried_when_one_swallows_packets_or_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One dead address of a name costs its share of the time and not the scrape."""
    with (
        black_hole() as port,
        RawServer(serving(answer(PAGE))) as server,
        fetching() as fetcher,
    ):
        found = [at(port), at(free_port()), at(server.port)]
        resolve(monkeypatch, lambda: found)
        assert fetcher.get("http://engine:8000/metrics", timeout=1.5).body == PAGE


def test_the_name_is_sent_as_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking names up ourselves must not change what the server sees."""
    with RawServer(serving(answer(PAGE))) as server, fetching() as fetcher:
        resolve(monkeypatch, lambda: [at(server.port)])
        fetcher.get("http://engine.example.:8000/metrics?a=b", timeout=PATIENCE)
        request = server.requests[0].decode()
        assert request.startswith("GET /metrics?a=b HTTP/1.1\r\n")
        assert "Host: engine.example" in request


def test_an_ipv6_target_is_scraped() -> None:
    """Numbers in brackets, as URLs have them."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    with RawServer(serving(answer(PAGE)), address="::1") as server:
        assert "[::1]" in server.url
        with fetching() as fetcher:
            assert fetcher.get(server.url, timeout=PATIENCE).body == PAGE


def test_the_request_asks_for_plain_text() -> None:
    """No compression, the text format first, and no cookie that the server set."""
    with (
        RawServer(serving(answer(PAGE, "Set-Cookie: id=7; Path=/"))) as server,
        fetching() as fetcher,
    ):
        fetcher.get(server.url, timeout=PATIENCE)
        fetcher.get(server.url, timeout=PATIENCE)
        first, second = (request.decode() for request in server.requests)
        assert first == second
        assert "\r\nAccept-Encoding: identity\r\n" in first
        assert "\r\nAccept: text/plain;version=0.0.4;q=1," in first
        assert "Cookie" not in second
        assert "Authorization" not in first


def test_one_connection_serves_many_scrapes() -> None:
    """An engine need not shake hands at every scrape."""
    with RawServer(serving(answer(PAGE))) as server, fetching() as fetcher:
        for _ in range(20):
            assert fetcher.get(server.url, timeout=PATIENCE).body == PAGE
        assert len(server.requests) == 20
        assert server.connections == 1


def test_a_fetcher_works_on_after_failures() -> None:
    """Each failure costs its own connection, and the next scrape is a fresh one."""
    scripts = [
        saying(CHUNKED, chunk(PAGE)),
        stalling(SIZED),
        pouring(head(), PAGE),
        serving(answer(PAGE)),
    ]

    def script(peer: Peer) -> None:
        scripts[peer.number](peer)

    with RawServer(script) as server, fetching() as fetcher:
        assert failure(fetcher, server.url).reason == "connection"
        assert failure(fetcher, server.url, timeout=DEADLINE).reason == "timeout"
        assert failure(fetcher, server.url).reason == "too_large"
        assert fetcher.get(server.url, timeout=PATIENCE).body == PAGE


def tls_options(scheme: str) -> tuple[ssl.SSLContext | None, Tls]:
    """Returns a server's and a client's side of a scheme."""
    return (None, Tls()) if scheme == "http" else (context(), Tls(ca_file=CA))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_closes_idle_connections_costs_no_scrape(scheme: str) -> None:
    """It closed long before the next scrape: that one connects anew."""
    server_side, client_side = tls_options(scheme)
    with (
        RawServer(saying(answer(PAGE)), tls=server_side) as server,
        fetching(tls=client_side) as fetcher,
    ):
        for number in range(1, 4):
            assert fetcher.get(server.url, timeout=PATIENCE).body == PAGE
            wait_for(lambda: server.peers[-1].socket.fileno() < 0)
            assert server.connections == number


def hang_up(peer: Peer) -> None:
    """Takes one request more and closes without an answer."""
    peer.request()


def reset_on_request(peer: Peer) -> None:
    """Takes one request more and resets the connection."""
    peer.request()
    peer.reset()


CLOSINGS = {"closes": hang_up, "resets": reset_on_request}


@pytest.mark.parametrize("closing", CLOSINGS.values(), ids=CLOSINGS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_kept_connection_closed_as_it_is_used_again_costs_no_scrape(
    scheme: str, closing: Script
) -> None:
    """The server's idle time ran out as our request was on its way: asked once more."""

    def script(peer: Peer) -> None:
        saying(answer(PAGE))(peer)
        closing(peer)

    server_side, client_side = tls_options(scheme)
    with (
        RawServer(script, tls=server_side) as server,
        fetching(tls=client_side) as fetcher,
    ):
        for _ in range(4):
            assert fetcher.get(server.url, timeout=PATIENCE).body == PAGE
        assert [len(peer.requests) for peer in server.peers] == [2, 2, 2, 1]


def test_a_request_is_sent_a_second_time_at_most() -> None:
    """A server that closes the new connection as well is failing."""

    def script(peer: Peer) -> None:
        if peer.number == 0:
            saying(answer(PAGE))(peer)
        peer.request()

    with RawServer(script) as server, fetching() as fetcher:
        fetcher.get(server.url, timeout=PATIENCE)
        assert failure(fetcher, server.url).reason == "connection"
        assert [len(peer.requests) for peer in server.peers] == [2, 1]


BEGUN = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na"


@pytest.mark.parametrize(
    ("second", "reason"),
    [(stalling(), "timeout"), (saying(BEGUN), "connection")],
    ids=["hangs", "begins to answer"],
)
def test_a_kept_connection_that_was_not_closed_is_not_tried_anew(
    second: Script, reason: str
) -> None:
    """Only a connection that ended before any answer had gone stale."""

    def script(peer: Peer) -> None:
        saying(answer(PAGE))(peer)
        second(peer)

    with RawServer(script) as server, fetching() as fetcher:
        fetcher.get(server.url, timeout=PATIENCE)
        timeout = DEADLINE if reason == "timeout" else PATIENCE
        assert failure(fetcher, server.url, timeout=timeout).reason == reason
        assert server.connections == 1


def test_the_deadline_holds_over_the_second_try() -> None:
    """Stale connection and new one share the time of one scrape."""

    def script(peer: Peer) -> None:
        if peer.number == 0:
            saying(answer(PAGE))(peer)
            peer.request()
        else:
            dripping(head(), b"a 1\n")(peer)

    with RawServer(script) as server, fetching() as fetcher:
        fetcher.get(server.url, timeout=PATIENCE)
        assert failure(fetcher, server.url, timeout=DEADLINE).reason == "timeout"
        assert server.connections == 2


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\n\r\na 1\n"])
def test_another_thread_can_abort_a_get(begun: bytes) -> None:
    """It fails long before its deadline, and the fetcher works on.

    Also when a body without a length, which ends as its connection does, has begun.
    """
    script = saying(answer(PAGE))

    def stall_once(peer: Peer) -> None:
        (stalling(begun) if len(server.peers) == 1 else script)(peer)

    with RawServer(stall_once) as server, fetching() as fetcher:
        threading.Timer(0.3, fetcher.abort).start()
        since = time.monotonic()
        failure(fetcher, server.url, timeout=3600.0)
        assert time.monotonic() - since < PATIENCE
        assert fetcher.get(server.url, timeout=PATIENCE).body == PAGE


def test_closing_ends_the_kept_connection() -> None:
    """The server sees its end; a late scrape works and leaves nothing open."""
    with RawServer(serving(answer(PAGE))) as server, fetching() as fetcher:
        fetcher.get(server.url, timeout=PATIENCE)
        fetcher.close()
        wait_for(lambda: server.peers[0].socket.fileno() < 0)
        assert fetcher.get(server.url, timeout=PATIENCE).body == PAGE
        wait_for(lambda: server.peers[1].socket.fileno() < 0)

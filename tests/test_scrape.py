"""The fetcher against servers that misbehave in every way, on real sockets."""

from __future__ import annotations

import base64
import gzip
import random
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
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
    resetting,
    saying,
    serving,
    stalling,
)
from running_exporter import wait_for
from synthetic_engine import free_port

from analyzer.catalogue import SCRAPE_FAILURES
from analyzer.config_sources import Credentials, Tls
from analyzer.sources.scrape import Fetcher, Page, ScrapeError

PAGE = b"# TYPE a gauge\na 1\n"
MAX_BYTES = 1 << 20
BUFFERED = 64 << 20  # more than the kernel takes from a sender that nobody reads
PATIENCE = 20.0  # a deadline that is not meant to pass
DEADLINE = 0.3
SLACK = 1.0
CERTIFICATES = Path(__file__).parent / "fixtures" / "tls"
CA = str(CERTIFICATES / "ca.pem")


def open_files() -> set[str]:
    """Returns the open sockets, pipes and files of this process."""
    found = set()
    for number in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{number.name} {number.readlink()}")
        except FileNotFoundError:
            continue  # the one that listed the folder
    return found


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Every test leaves as many sockets and threads as there were before it."""
    files, threads = open_files(), set(threading.enumerate())
    yield
    wait_for(lambda: set(threading.enumerate()) <= threads)
    assert open_files() <= files


@contextmanager
def fetching(
    *, tls: Tls | None = None, credentials: Credentials | None = None
) -> Iterator[Fetcher]:
    """Gives a fetcher and closes it."""
    fetcher = Fetcher(
        tls=tls or Tls(), credentials=credentials or Credentials(), max_bytes=MAX_BYTES
    )
    try:
        yield fetcher
    finally:
        fetcher.close()


def failure(fetcher: Fetcher, url: str, *, timeout: float = PATIENCE) -> ScrapeError:
    """Returns how a scrape failed; it must have ended within its deadline."""
    begun = time.monotonic()
    with pytest.raises(ScrapeError) as caught:
        fetcher.get(url, timeout=timeout)
    assert time.monotonic() - begun < timeout + SLACK
    assert caught.value.reason in SCRAPE_FAILURES
    return caught.value


def context(**options: str) -> ssl.SSLContext:
    """Returns a TLS server's context; `clients` is the CA that it wants."""
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    if "clients" in options:
        made.load_verify_locations(options["clients"])
        made.verify_mode = ssl.CERT_REQUIRED
    return made


CHUNKED = head("Transfer-Encoding: chunked")
SIZED = head(f"Content-Length: {MAX_BYTES // 2}")
NEVER_ENDING: dict[str, Script] = {
    "silent": stalling(),
    "deaf": lambda peer: peer.hang(),
    "dripping status line": dripping(b"", b"HTTP/1.1 2000"),
    "dripping header": dripping(b"HTTP/1.1 200 OK\r\nX: ", b"a"),
    "dripping headers": dripping(b"HTTP/1.1 200 OK\r\n", b"X: a\r\n"),
    "dripping body with a length": dripping(SIZED, b"a 1\n"),
    "dripping body without a length": dripping(head(), b"a 1\n"),
    "dripping chunked body": dripping(CHUNKED, chunk(b"a 1\n")),
    "dripping chunk size": dripping(CHUNKED, b"0"),
    "dripping trailers": dripping(CHUNKED + b"0\r\n", b"X: a\r\n"),
    "continuing": dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "half a body": stalling(SIZED, b"a 1\n"),
    "half a chunked body": stalling(CHUNKED, chunk(b"a 1\n")),
}


@pytest.mark.parametrize("script", NEVER_ENDING.values(), ids=NEVER_ENDING)
def test_an_answer_that_never_ends_is_a_timeout_at_the_deadline(script: Script) -> None:
    """However the bytes come in, the deadline holds for the whole exchange."""
    with RawServer(script) as server, fetching() as fetcher:
        assert failure(fetcher, server.url, timeout=DEADLINE).reason == "timeout"


HUGE_CHUNK = chunk(b"a 1\n" * 4096)
FAILING: dict[str, tuple[Script, str]] = {
    "endless": (pouring(head(), b"a 1\n" * 4096), "too_large"),
    "endless chunks": (pouring(CHUNKED, HUGE_CHUNK), "too_large"),
    "huge": (saying(answer(b"a 1\n" * (MAX_BYTES // 4 + 1))), "too_large"),
    "huge by its own word": (
        pouring(head("Content-Length: 99999999999999"), b"a 1\n" * 4096),
        "too_large",
    ),
    "endless status line": (pouring(b"", b"HTTP/1.1 200 " * 99), "connection"),
    "endless header": (pouring(b"HTTP/1.1 200 OK\r\nX: ", b"a" * 999), "connection"),
    "endless headers": (
        pouring(b"HTTP/1.1 200 OK\r\n", b"X: a\r\n" * 99),
        "connection",
    ),
    "endless chunk size": (pouring(CHUNKED, b"0" * 999), "connection"),
    "garbage": (saying(b"\x00\xff\x7fELF garbage\r\n\r\n"), "connection"),
    "another protocol": (saying(b"220 mail.example ESMTP\r\n"), "connection"),
    "no chunk size": (saying(CHUNKED, b"zz\r\na 1\n\r\n"), "connection"),
    "negative chunk": (saying(CHUNKED, b"-5\r\na 1\n\r\n"), "connection"),
    "closes at once": (lambda _: None, "connection"),
    "closes after the request": (saying(), "connection"),
    "closes in the status line": (saying(b"HTTP/1.1 2"), "connection"),
    "resets": (resetting, "connection"),
    "cut": (saying(answer(PAGE, length=len(PAGE) + 1)), "connection"),
    "cut before the body": (saying(head("Content-Length: 9")), "connection"),
    "chunked, cut between chunks": (saying(CHUNKED, chunk(PAGE)), "connection"),
    "chunked, cut in a chunk": (saying(CHUNKED, b"99\r\na 1\n"), "connection"),
    "chunked, cut in a size": (saying(CHUNKED, chunk(PAGE), b"1"), "connection"),
    "huge chunk": (pouring(CHUNKED + b"f" * 99 + b"\r\n", PAGE), "too_large"),
    "two lengths": (
        saying(head("Content-Length: 1", "Content-Length: 2"), b"a 1\n"),
        "connection",
    ),
    "compressed": (
        saying(answer(gzip.compress(PAGE), "Content-Encoding: gzip")),
        "not_an_exposition",
    ),
    "unknown encoding": (
        saying(answer(PAGE, "Content-Encoding: \xe9vil")),
        "not_an_exposition",
    ),
    "no content": (saying(head(status="204 No Content")), "http_status"),
    "part of it": (saying(answer(PAGE, status="206 Partial")), "http_status"),
    "unauthorized": (saying(answer(b"", status="401 No")), "http_status"),
    "not found": (saying(answer(b"", status="404 Not Found")), "http_status"),
    "internal error": (saying(answer(PAGE, status="500 Oops")), "http_status"),
    "unavailable": (saying(head(status="503 Busy")), "http_status"),
    "endless error page": (pouring(head(status="500 Oops"), PAGE), "http_status"),
    "status of its own": (saying(answer(b"", status="999 What")), "http_status"),
}


@pytest.mark.parametrize(("script", "reason"), FAILING.values(), ids=FAILING)
def test_a_broken_answer_fails_by_its_reason(script: Script, reason: str) -> None:
    """The reason is the failure counter's label; the deadline need not pass."""
    with RawServer(script) as server, fetching() as fetcher:
        failed = failure(fetcher, server.url)
        assert failed.reason == reason, failed
        assert failed.detail
        assert [peer.sent < BUFFERED for peer in server.peers] == [True]


WHOLE: dict[str, tuple[Script, bytes]] = {
    "with a length": (saying(answer(PAGE)), PAGE),
    "closed at its end": (saying(head(), PAGE), PAGE),
    "HTTP/1.0": (saying(b"HTTP/1.0 200 OK\r\n\r\n", PAGE), PAGE),
    "chunked": (saying(CHUNKED, chunk(PAGE), chunk(PAGE), b"0\r\n\r\n"), PAGE * 2),
    "chunked with extensions and trailers": (
        saying(CHUNKED, b'4;x="y"\r\na 1\n\r\n0\r\nX: y\r\n\r\n'),
        b"a 1\n",
    ),
    "identity": (saying(answer(PAGE, "Content-Encoding: Identity")), PAGE),
    "continued": (saying(b"HTTP/1.1 100 Go\r\n\r\n", answer(PAGE)), PAGE),
    "empty": (saying(answer(b"")), b""),
    "of the largest size": (saying(answer(b"a" * MAX_BYTES)), b"a" * MAX_BYTES),
    "a length that is no number": (saying(head("Content-Length: x"), PAGE), PAGE),
    "a length that is none": (saying(head("Content-Length: -9"), PAGE), PAGE),
    "a length of 5000 digits": (
        saying(head("Content-Length: " + "9" * 5000), PAGE),
        PAGE,
    ),
}


@pytest.mark.parametrize(("script", "body"), WHOLE.values(), ids=WHOLE)
def test_a_whole_answer_is_given_byte_by_byte(script: Script, body: bytes) -> None:
    """Whatever the framing, the body is what the server meant."""
    with RawServer(script) as server, fetching() as fetcher:
        page = fetcher.get(server.url, timeout=PATIENCE)
        assert page.body == body
        assert 0 < page.seconds < PATIENCE


def mangled(rng: random.Random) -> bytes:
    """Returns a good answer with a few bytes replaced, doubled or left out."""
    chunks = CHUNKED + chunk(PAGE) + b"0\r\n\r\n"
    data = bytearray(rng.choice([answer(PAGE), chunks]))
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data))
        data[place : place + rng.randint(0, 3)] = rng.choice(
            [b"", b"\r\n", b"-", b"9", b"\x00", b"\xff", b":", data[place : place + 9]]
        )
    return bytes(data)


def test_a_mangled_answer_is_a_page_or_a_failure_with_a_reason() -> None:
    """No bytes that a server may send end in any other error."""
    rng = random.Random(20261129)
    answers = [mangled(rng) for _ in range(300)]

    def script(peer: Peer) -> None:
        if peer.request():
            peer.send(answers[peer.number])

    outcomes = set()
    with RawServer(script) as server:
        for _ in answers:
            with fetching() as fetcher:
                try:
                    fetcher.get(server.url, timeout=PATIENCE)
                    outcomes.add("page")
                except ScrapeError as error:
                    outcomes.add(error.reason)
    assert outcomes == {"page", "connection", "http_status"}


def test_text_of_a_page_is_utf8_and_damage_is_replaced() -> None:
    """Bytes that are no UTF-8 cost themselves and not the page."""
    assert Page("é 1\n".encode() + b"\xff 2\n", 0.0).text == "é 1\n\ufffd 2\n"


def test_status_is_named_in_the_detail() -> None:
    """Somebody reading the status page wants to know which."""
    with (
        RawServer(saying(answer(b"", status="503 x"))) as server,
        fetching() as fetcher,
    ):
        assert failure(fetcher, server.url).detail == "HTTP 503"


LOCATIONS = ("http://127.0.0.1:{port}/other", "/other", "http://[::1", "\x00", "")


@pytest.mark.parametrize("location", LOCATIONS)
def test_a_redirect_is_not_followed(location: str) -> None:
    """It may lead anywhere; it counts as a status, wherever it points."""

    def script(peer: Peer) -> None:
        while peer.request():
            where = location.format(port=server.port)
            peer.send(answer(b"", f"Location: {where}", status="302 Found"))

    with RawServer(script) as server, fetching() as fetcher:
        failed = failure(fetcher, server.url)
        assert (failed.reason, failed.detail) == ("http_status", "HTTP 302")
        assert len(server.requests) == 1


def test_the_body_of_a_redirect_is_not_read() -> None:
    """It may be endless, and the limit on bodies holds for pages only."""
    moved = head("Location: /other", status="301 Moved")
    with RawServer(pouring(moved, PAGE)) as server, fetching() as fetcher:
        assert failure(fetcher, server.url).detail == "HTTP 301"
        assert [peer.sent < BUFFERED for peer in server.peers] == [True]


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


def test_closing_ends_the_kept_connection() -> None:
    """The server sees its end; a late scrape works and leaves nothing open."""
    with RawServer(serving(answer(PAGE))) as server, fetching() as fetcher:
        fetcher.get(server.url, timeout=PATIENCE)
        fetcher.close()
        wait_for(lambda: server.peers[0].socket.fileno() < 0)
        assert fetcher.get(server.url, timeout=PATIENCE).body == PAGE
        wait_for(lambda: server.peers[1].socket.fileno() < 0)


TLS_FAILING: dict[str, Tls] = {
    "unknown CA": Tls(),
    "wrong CA": Tls(ca_file=str(CERTIFICATES / "stranger.pem")),
    "no CA in the file": Tls(ca_file=str(CERTIFICATES / "server.key")),
    "CA file missing": Tls(ca_file=str(CERTIFICATES / "missing.pem")),
    "client certificate missing": Tls(
        ca_file=CA, cert_file="missing.pem", key_file=str(CERTIFICATES / "client.key")
    ),
    "key of another certificate": Tls(
        ca_file=CA,
        cert_file=str(CERTIFICATES / "client.pem"),
        key_file=str(CERTIFICATES / "server.key"),
    ),
    "encrypted key": Tls(
        ca_file=CA,
        cert_file=str(CERTIFICATES / "server.pem"),
        key_file=str(CERTIFICATES / "encrypted.key"),
    ),
}


@pytest.mark.parametrize("tls", TLS_FAILING.values(), ids=TLS_FAILING)
def test_a_certificate_that_does_not_hold_is_tls(tls: Tls) -> None:
    """No page is taken over a connection that is not what was configured."""
    with (
        RawServer(serving(answer(PAGE)), tls=context()) as server,
        fetching(tls=tls) as fetcher,
    ):
        assert failure(fetcher, server.url).reason == "tls"
        assert server.requests == []


def test_a_certificate_of_a_known_authority_is_taken() -> None:
    """The CA file is read at each new connection, so that it can be renewed."""
    with (
        RawServer(serving(answer(PAGE)), tls=context()) as server,
        fetching(tls=Tls(ca_file=CA)) as fetcher,
    ):
        for _ in range(3):
            assert fetcher.get(server.url, timeout=PATIENCE).body == PAGE
        assert server.connections == 1


def test_a_certificate_for_another_host_is_tls() -> None:
    """It is good, but not for this address."""
    with (
        RawServer(serving(answer(PAGE)), tls=context(), address="127.0.0.2") as server,
        fetching(tls=Tls(ca_file=CA)) as fetcher,
    ):
        assert failure(fetcher, server.url).reason == "tls"


def test_a_renewed_ca_file_is_picked_up(tmp_path: Path) -> None:
    """Certificates are rotated while we run."""
    file = tmp_path / "ca.pem"
    file.write_bytes((CERTIFICATES / "stranger.pem").read_bytes())
    with (
        RawServer(serving(answer(PAGE)), tls=context()) as server,
        fetching(tls=Tls(ca_file=str(file))) as fetcher,
    ):
        assert failure(fetcher, server.url).reason == "tls"
        file.write_bytes(Path(CA).read_bytes())
        assert fetcher.get(server.url, timeout=PATIENCE).body == PAGE


def test_without_verification_any_certificate_is_taken_in_silence() -> None:
    """Whoever configured insecure_skip_verify needs no warning at every scrape."""
    with (
        RawServer(serving(answer(PAGE)), tls=context(), address="127.0.0.2") as server,
        fetching(tls=Tls(insecure_skip_verify=True)) as fetcher,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        assert fetcher.get(server.url, timeout=PATIENCE).body == PAGE


def test_a_client_certificate_is_shown_where_one_is_wanted() -> None:
    """With it the page comes, without it the failure is tls."""
    shown = Tls(
        ca_file=CA,
        cert_file=str(CERTIFICATES / "client.pem"),
        key_file=str(CERTIFICATES / "client.key"),
    )
    server_side = context(clients=CA)
    with RawServer(serving(answer(PAGE)), tls=server_side) as server:
        with fetching(tls=shown) as fetcher:
            assert fetcher.get(server.url, timeout=PATIENCE).body == PAGE
        with fetching(tls=Tls(ca_file=CA)) as fetcher:
            assert failure(fetcher, server.url).reason == "tls"


def test_an_answer_without_encryption_is_tls() -> None:
    """The URL says https and the server speaks HTTP."""

    def script(peer: Peer) -> None:
        peer.socket.recv(1)
        peer.send(answer(b"what?", status="400 Bad Request"))

    with RawServer(script) as server, fetching(tls=Tls(ca_file=CA)) as fetcher:
        url = server.url.replace("http:", "https:")
        assert failure(fetcher, url).reason == "tls"


HANDSHAKES: dict[str, Script] = {
    "silent": lambda peer: peer.hang(),
    "dripping": lambda peer: peer.drip(b"\x16\x03\x03\x40\x00" + bytes(0x4000)),
}


@pytest.mark.parametrize("script", HANDSHAKES.values(), ids=HANDSHAKES)
def test_a_handshake_that_never_ends_is_a_timeout(script: Script) -> None:
    """TLS has the same deadline, and a slow peer is no bad certificate."""
    with RawServer(script) as server, fetching(tls=Tls(ca_file=CA)) as fetcher:
        url = server.url.replace("http:", "https:")
        assert failure(fetcher, url, timeout=DEADLINE).reason == "timeout"


def test_a_body_dripping_through_tls_is_a_timeout() -> None:
    """The deadline reaches through the encryption."""
    with (
        RawServer(dripping(SIZED, b"a 1\n"), tls=context()) as server,
        fetching(tls=Tls(ca_file=CA)) as fetcher,
    ):
        assert failure(fetcher, server.url, timeout=DEADLINE).reason == "timeout"


def authorization(server: RawServer) -> str:
    """Returns what the latest request showed."""
    lines = server.requests[-1].decode().split("\r\n")
    return next(line for line in lines if line.startswith("Authorization: "))


def test_a_bearer_token_is_read_anew_at_each_scrape(tmp_path: Path) -> None:
    """A rotated file needs no reload; white space around the token is none of it."""
    file = tmp_path / "token"
    file.write_text("first\n")
    with (
        RawServer(serving(answer(PAGE))) as server,
        fetching(credentials=Credentials(bearer_file=str(file))) as fetcher,
    ):
        fetcher.get(server.url, timeout=PATIENCE)
        assert authorization(server) == "Authorization: Bearer first"
        file.write_text("  second\r\n")
        fetcher.get(server.url, timeout=PATIENCE)
        assert authorization(server) == "Authorization: Bearer second"
        assert server.connections == 1


def test_a_password_is_read_anew_and_may_hold_any_bytes(tmp_path: Path) -> None:
    """Name and password go out as UTF-8; what is no UTF-8 goes out as it stands."""
    file = tmp_path / "password"
    with (
        RawServer(serving(answer(PAGE))) as server,
        fetching(
            credentials=Credentials(username="ünï", password_file=str(file))
        ) as fetcher,
    ):
        for password in (b"se:cret", "pä€ss".encode(), b"\xff\xfe"):
            file.write_bytes(password + b"\n")
            fetcher.get(server.url, timeout=PATIENCE)
            expected = base64.b64encode("ünï:".encode() + password).decode()
            assert authorization(server) == f"Authorization: Basic {expected}"


SECRETS = {
    "empty": b"",
    "blank": b" \n\t\n",
    "of two lines": b"hunter2\nhunter3\n",
    "of two lines as on a Mac": b"hunter2\rhunter3",
    "huge": b"hunter2" * 10_000,
}
TOKENS = {
    "with a space": b"hunter2 hunter3",
    "not ASCII": "hunter2é€".encode(),
    "not UTF-8": b"hunter2\xff",
    "with a control": b"hunter2\x00\x1b[0m",
}


def spoken(error: BaseException) -> str:
    """Returns all that an error and its causes would print."""
    parts = []
    cause: BaseException | None = error
    while cause is not None:
        parts += [str(cause), repr(cause)]
        cause = cause.__cause__ or cause.__context__
    return " ".join(parts)


@pytest.mark.parametrize("kind", ["bearer", "basic"])
@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_a_secret_that_is_not_one_line_is_credentials(
    tmp_path: Path, secret: bytes, kind: str
) -> None:
    """The error names the file and never its text, and nobody was asked."""
    file = tmp_path / "secret"
    file.write_bytes(secret)
    given = {
        "bearer": Credentials(bearer_file=str(file)),
        "basic": Credentials(username="me", password_file=str(file)),
    }[kind]
    with RawServer(serving(answer(PAGE))) as server:
        with fetching(credentials=given) as fetcher:
            failed = failure(fetcher, server.url)
        assert failed.reason == "credentials"
        assert failed.detail == f"{file}: must hold one line of text"
        assert "hunter" not in spoken(failed)
        assert server.connections == 0


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_a_text_that_no_header_can_hold_is_no_token(
    tmp_path: Path, token: bytes
) -> None:
    """It is refused before it reaches a header, and not shown."""
    file = tmp_path / "token"
    file.write_bytes(token)
    with fetching(credentials=Credentials(bearer_file=str(file))) as fetcher:
        failed = failure(fetcher, "http://127.0.0.1:1/metrics")
    assert failed.reason == "credentials"
    assert failed.detail == f"{file}: not a bearer token"
    assert "hunter" not in spoken(failed)


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_secret_file_that_cannot_be_read_is_credentials(
    tmp_path: Path, name: str
) -> None:
    """A missing file, or a folder; the next scrape finds it when it has come."""
    file = tmp_path / name
    with (
        RawServer(serving(answer(PAGE))) as server,
        fetching(credentials=Credentials(bearer_file=str(file))) as fetcher,
    ):
        failed = failure(fetcher, server.url)
        assert failed.reason == "credentials"
        assert str(file) in failed.detail
        if name == "missing":
            file.write_text("here")
            fetcher.get(server.url, timeout=PATIENCE)
            assert authorization(server) == "Authorization: Bearer here"


def test_a_refused_secret_is_not_in_the_error(tmp_path: Path) -> None:
    """Nor is one that was sent."""
    file = tmp_path / "token"
    file.write_text("hunter2")
    with (
        RawServer(saying(answer(b"no", status="401 No"))) as server,
        fetching(credentials=Credentials(bearer_file=str(file))) as fetcher,
    ):
        failed = failure(fetcher, server.url)
        assert "hunter2" in authorization(server)
        assert "hunter2" not in spoken(failed)


def test_proxies_and_netrc_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The engine is beside us; a proxy would see its metrics and our secrets."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password hunter2\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", CA)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with (
        RawServer(serving(answer(b"proxy 1\n"))) as proxy,
        RawServer(serving(answer(PAGE))) as plain,
        RawServer(serving(answer(PAGE)), tls=context()) as encrypted,
        fetching() as fetcher,
    ):
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            address = f"http://127.0.0.1:{proxy.port}"
            monkeypatch.setenv(name, address)
            monkeypatch.setenv(name.lower(), address)
        assert fetcher.get(plain.url, timeout=PATIENCE).body == PAGE
        assert failure(fetcher, encrypted.url).reason == "tls"
        assert proxy.connections == 0
        assert b"Authorization" not in plain.requests[0]

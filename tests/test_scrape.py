"""The fetcher against answers that are broken in every way, on real sockets."""

from __future__ import annotations

import gzip
import random

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
    stalling,
)
from scraping import (
    BUFFERED,
    CHUNKED,
    DEADLINE,
    MAX_BYTES,
    PAGE,
    PATIENCE,
    SIZED,
    failure,
    fetching,
    nothing_is_left,  # noqa: F401  pytest holds every test here to it
)

from analyzer.sources.scrape import Page, ScrapeError

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

from __future__ import annotations

import gzip
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from web_serving import (
    PAGE,
    PATIENCE_SECONDS,
    ask,
    connect,
    handlers,
    read_all,
    serving,
)

from exporter.web import App, WebError, WebServer
from exporter.web_front import Limits


@pytest.fixture
def server() -> Iterator[WebServer]:
    """A server with default handlers and limits."""
    with serving() as running:
        yield running


@pytest.mark.parametrize(
    ("path", "content_type", "body"),
    [
        ("/metrics", "text/plain", PAGE),
        ("/", "text/html; charset=utf-8", b"<!doctype html>"),
        ("/api/v1/status", "application/json", b'{"windows": []}'),
        ("/-/healthy", "text/plain; charset=utf-8", b"healthy\n"),
        ("/-/ready", "text/plain; charset=utf-8", b"ready\n"),
        ("/metrics?name=x", "text/plain", PAGE),
    ],
)
def test_each_route_answers_get_and_head(
    server: WebServer, path: str, content_type: str, body: bytes
) -> None:
    """GET gives the handler's body, HEAD the same headers without it."""
    got = ask(server, path)
    head = ask(server, path, method="HEAD")
    assert (got.status_code, got.content) == (200, body)
    assert got.headers["Content-Type"] == content_type
    assert (head.status_code, head.content) == (200, b"")
    for name in ("Content-Type", "Content-Length"):
        assert head.headers[name] == got.headers[name]


@pytest.mark.parametrize(
    ("header", "deadline"),
    [
        ("10", 9.5),
        ("1.25", 0.75),
        ("0.55", 0.1),
        ("0.2", 0.1),
        ("0", None),
        ("-3", None),
        ("inf", None),
        ("nan", None),
        ("soon", None),
        ("", None),
        (None, None),
    ],
)
def test_the_deadline_is_the_scrape_timeout_less_half_a_second(
    header: str | None, deadline: float | None
) -> None:
    """What is no positive finite number of seconds sets no deadline."""
    seen: list[float | None] = []

    def metrics(seconds: float | None, _: str) -> tuple[str, bytes]:
        seen.append(seconds)
        return "text/plain", b""

    given_headers = (
        {} if header is None else {"X-Prometheus-Scrape-Timeout-Seconds": header}
    )
    with serving(handlers(metrics=metrics)) as server:
        ask(server, "/metrics", headers=given_headers)
    assert seen == [pytest.approx(deadline)]


def test_the_metrics_handler_sees_accept_and_chooses_the_content_type() -> None:
    """The exposition's format is the handler's choice, by the Accept header."""

    def metrics(_: float | None, accept: str) -> tuple[str, bytes]:
        return accept, b"x 1\n"

    with serving(handlers(metrics=metrics)) as server:
        wanted = "application/openmetrics-text;version=1.0.0"
        got = ask(server, "/metrics", headers={"Accept": wanted})
    assert got.headers["Content-Type"] == wanted


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("x-gzip", True),
        ("gzip, deflate, br", True),
        ("*", True),
        ("gzip;q=0.1", True),
        ("identity;q=0.5, gzip;q=0.5", True),
        ("identity, gzip;q=0.5", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("*, gzip;q=0", False),
        ("gzip;q=much", False),
        ("identity", False),
        ("br, deflate", False),
        ("", False),
    ],
)
def test_compression_follows_accept_encoding(
    server: WebServer, accepted: str, *, compressed: bool
) -> None:
    """A large body is gzipped when the client wants that, by its q-values."""
    got = ask(server, "/metrics", headers={"Accept-Encoding": accepted})
    assert (got.headers.get("Content-Encoding") == "gzip") is compressed
    assert got.headers["Vary"] == "Accept-Encoding"
    assert got.content == PAGE
    length = int(got.headers["Content-Length"])
    assert (length < len(PAGE)) is compressed


def test_a_gzipped_body_is_the_same_every_time(server: WebServer) -> None:
    """The compressed bytes hold no time of their making, and are whole."""
    bodies = []
    for _ in range(2):
        with connect(server) as sock:
            sock.sendall(
                b"GET /metrics HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n",
            )
            bodies.append(read_all(sock).partition(b"\r\n\r\n")[2])
    assert bodies[0] == bodies[1]
    assert bodies[0][4:8] == bytes(4)  # the time
    assert gzip.decompress(bodies[0]) == PAGE


def test_an_answer_to_head_ends_with_its_head(server: WebServer) -> None:
    """Not one byte of the body follows, though its length is told."""
    with connect(server) as sock:
        sock.sendall(b"HEAD /metrics HTTP/1.0\r\n\r\n")
        answer = read_all(sock)
    assert b"Content-Length: %d\r\n" % len(PAGE) in answer
    assert answer.endswith(b"\r\n\r\n")


def test_small_bodies_stay_as_they_are(server: WebServer) -> None:
    """Compression that gains nothing is not done."""
    got = ask(server, "/-/healthy", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in got.headers


def test_the_page_may_load_nothing_and_run_nothing(server: WebServer) -> None:
    """The status page's policy allows inline styles and an empty icon, no more."""
    policy = ask(server, "/").headers["Content-Security-Policy"]
    assert policy.split("; ") == [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/status", "/nope"])
def test_answers_forbid_sniffing_and_name_no_version(
    server: WebServer, path: str
) -> None:
    """Every answer has nosniff, and a Server header without a version."""
    headers = ask(server, path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Server"] == "goodput-exporter"


@pytest.mark.parametrize("path", ["/-/healthy", "/-/ready"])
def test_a_failing_check_is_503_with_its_reason(path: str) -> None:
    """Probes fail by status, and people read why."""
    bad = (False, "no sample for 30 s\n")
    with serving(handlers(healthy=bad, ready=bad)) as server:
        got = ask(server, path)
    assert (got.status_code, got.text) == (503, "no sample for 30 s\n")


@pytest.mark.parametrize(
    ("result", "status"),
    [((True, "reloaded\n"), 200), ((False, "slo.yml: is missing\n"), 500)],
)
def test_reload_tells_whether_it_worked(result: tuple[bool, str], status: int) -> None:
    """POST /-/reload gives 200, or 500 with what is wrong."""
    with serving(handlers(reload=lambda: result)) as server:
        got = ask(server, "/-/reload", method="POST")
    assert (got.status_code, got.text) == (status, result[1])


def test_reload_that_is_off_names_the_flag() -> None:
    """POST /-/reload is 403 when it is switched off, GET is 405 as ever."""
    with serving(handlers(reload=None)) as server:
        post = ask(server, "/-/reload", method="POST")
        get = ask(server, "/-/reload")
    assert post.status_code == 403
    assert "--web.enable-lifecycle" in post.text
    assert (get.status_code, get.headers["Allow"]) == (405, "POST")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/", "/metrics", "/-/healthy", "/api/v1/status"])
def test_other_methods_are_405_with_allow(
    server: WebServer, path: str, method: str
) -> None:
    """What is read cannot be written."""
    got = ask(server, path, method=method)
    assert (got.status_code, got.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/nope", "/metrics/", "/%2e%2e/etc/passwd", "/-/"])
def test_unknown_paths_are_404_and_name_the_known(server: WebServer, path: str) -> None:
    """A wrong path tells the right ones."""
    got = ask(server, path)
    assert got.status_code == 404
    assert got.text.splitlines()[1:] == [
        "/metrics",
        "/",
        "/api/v1/status",
        "/-/healthy",
        "/-/ready",
        "/-/reload",
    ]


def test_the_telemetry_path_can_be_another() -> None:
    """Only the configured path has the metrics."""
    with serving(App(handlers(), telemetry_path="/probe/goodput")) as server:
        assert ask(server, "/probe/goodput").content == PAGE
        assert ask(server, "/metrics").status_code == 404


@pytest.mark.parametrize(
    "path",
    ["/", "/api/v1/status", "/-/healthy", "/-/ready", "/-/reload"],
)
def test_the_telemetry_path_must_be_its_own(path: str) -> None:
    """A path that another route has is refused by name."""
    with pytest.raises(WebError) as caught:
        App(handlers(), telemetry_path=path)
    assert str(caught.value) == f"telemetry path {path} is taken by another route"


@pytest.mark.parametrize(
    "path", ["", "metrics", "/a b", "/m?x=1", "/m#x", "//m", "/a\n", "/%6d", "/ü"]
)
def test_the_telemetry_path_must_be_a_path(path: str) -> None:
    """What no client could ask for is refused."""
    with pytest.raises(WebError, match="must be / and a path of letters"):
        App(handlers(), telemetry_path=path)


def test_a_handler_that_raises_is_500_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client gets a sentence, the log the traceback, and the server lives on."""

    def broken() -> bytes:
        raise RuntimeError("the secret inside")

    with serving(handlers(status=broken)) as server:
        got = ask(server, "/api/v1/status")
        after = ask(server, "/-/healthy")
    assert got.status_code == 500
    assert got.text.startswith("/api/v1/status failed by an error of the exporter")
    assert "secret" not in got.text
    assert after.status_code == 200
    (record,) = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert record.getMessage() == "a handler failed path=/api/v1/status"
    assert "the secret inside" in caplog.text


def test_requests_leave_no_line_in_the_log(
    server: WebServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither good requests nor bad clients are logged at info or above."""
    with caplog.at_level(logging.INFO):
        ask(server, "/metrics")
        ask(server, "/nope")
        for nonsense in (b"", b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\n\n"):
            with connect(server) as sock:
                sock.sendall(nonsense)
                sock.shutdown(socket.SHUT_WR)
                read_all(sock)
    assert [r for r in caplog.records if r.name.startswith("exporter")] == []


def test_scrapes_that_wait_leave_threads_for_the_health_checks() -> None:
    """Scrapes beyond the limit get 503 at once, and probes are answered."""
    gate, arrived = threading.Event(), threading.Semaphore(0)

    def slow(_: float | None, __: str) -> tuple[str, bytes]:
        arrived.release()
        gate.wait(PATIENCE_SECONDS)
        return "text/plain", b"late\n"

    app = App(handlers(metrics=slow), max_scrapes=2)
    with serving(app, limits=Limits(threads=3)) as server, ExitStack() as stack:
        waiting = [stack.enter_context(connect(server)) for _ in range(2)]
        for sock in waiting:
            sock.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert arrived.acquire(timeout=PATIENCE_SECONDS)
        refused = ask(server, "/metrics")
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert ask(server, "/-/healthy").status_code == 200
        gate.set()
        for sock in waiting:
            assert read_all(sock).endswith(b"late\n")
        assert ask(server, "/metrics").content == b"late\n"

"""The exporter's routes. None of them reads a request's body."""

from __future__ import annotations

import gzip
import logging
import math
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from wsgiref.types import StartResponse, WSGIEnvironment

from exporter.web_server import WebError, WebServer

__all__ = ["App", "Handlers", "WebError", "WebServer"]

logger = logging.getLogger(__name__)

TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
JSON = "application/json"
READS = ("GET", "HEAD")
# The page has inline CSS, inline SVG and an icon of no bytes, and no scripts.
PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
DEADLINE_MARGIN_SECONDS = 0.5  # for the way back, as blackbox_exporter has it
LEAST_DEADLINE_SECONDS = 0.1
WORTH_COMPRESSING_BYTES = 1024
GZIP_LEVEL = 4  # a tenth larger than level 9 on expositions, at a quarter of its time
_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@-][A-Za-z0-9._~!$&'()*+,;=:@/-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """What answers the routes; each may be called by several threads at once.

    `metrics` gets the seconds left to answer in, or None, and the Accept header; it
    returns the content type and the body. `page` gets the query string. `reload` is
    None when it is switched off, `truth` unless a demonstration runs; what it returns
    is None when the simulated site does not answer.
    """

    metrics: Callable[[float | None, str], tuple[str, bytes]]
    page: Callable[[str], bytes]
    status: Callable[[], bytes]
    healthy: Callable[[], tuple[bool, str]]
    ready: Callable[[], tuple[bool, str]]
    reload: Callable[[], tuple[bool, str]] | None
    truth: Callable[[], bytes | None] | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, whole in memory."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """A path's methods, and what answers them."""

    methods: tuple[str, ...]
    answer: Callable[[WSGIEnvironment], Response]


class App:
    """The routes, as a WSGI application.

    At most *max_scrapes* answers of the telemetry path are made at a time, the rest
    get 503: waiting for slow targets must leave threads for the health checks.
    Raises WebError for a telemetry path that is none or belongs to another route.
    """

    def __init__(
        self,
        handlers: Handlers,
        *,
        telemetry_path: str = "/metrics",
        max_scrapes: int = 6,
    ) -> None:
        self._handlers = handlers
        self._places = threading.BoundedSemaphore(max_scrapes)
        routes = {
            "/": Route(READS, self._page),
            "/api/v1/status": Route(READS, self._status),
            "/-/healthy": Route(READS, lambda _: _check(handlers.healthy)),
            "/-/ready": Route(READS, lambda _: _check(handlers.ready)),
            "/-/reload": Route(("POST",), self._reload),
        }
        if handlers.truth is not None:
            truth = handlers.truth
            routes["/demo/truth"] = Route(READS, lambda _: _truth(truth()))
        if telemetry_path in routes:
            raise WebError(f"telemetry path {telemetry_path} is taken by another route")
        if not _PATH.fullmatch(telemetry_path):
            raise WebError(
                f"telemetry path {telemetry_path!r} must be / and a path of letters, "
                "digits and ._~!$&'()*+,;=:@/-"
            )
        self._routes: Mapping[str, Route] = {
            telemetry_path: Route(READS, self._metrics),
            **routes,
        }

    def __call__(
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Answers a request."""
        response = self._respond(environ)
        headers = [
            ("Content-Type", response.content_type),
            ("X-Content-Type-Options", "nosniff"),
            *response.headers,
        ]
        body = response.body
        if len(body) >= WORTH_COMPRESSING_BYTES:
            headers.append(("Vary", "Accept-Encoding"))
            if accepts_gzip(environ.get("HTTP_ACCEPT_ENCODING", "")):
                body = gzip.compress(body, GZIP_LEVEL, mtime=0)
                headers.append(("Content-Encoding", "gzip"))
        headers.append(("Content-Length", str(len(body))))
        status = response.status
        start_response(f"{status.value} {status.phrase}", headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _respond(self, environ: WSGIEnvironment) -> Response:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        route = self._routes.get(path)
        if route is None:
            known = "\n".join(self._routes)
            return _sentence(
                HTTPStatus.NOT_FOUND, f"nothing is served here; known paths:\n{known}"
            )
        if method not in route.methods:
            allowed = ", ".join(route.methods)
            return _sentence(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"{path} answers {allowed}",
                ("Allow", allowed),
            )
        try:
            return route.answer(environ)
        except Exception:  # one bad answer must not end the daemon
            logger.exception("a handler failed path=%s", path)
            return _sentence(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                f"{path} failed by an error of the exporter; its log has the details",
            )

    def _metrics(self, environ: WSGIEnvironment) -> Response:
        if not self._places.acquire(blocking=False):
            return _sentence(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "too many scrapes at a time",
                ("Retry-After", "1"),
            )
        try:
            content_type, body = self._handlers.metrics(
                scrape_deadline(
                    environ.get("HTTP_X_PROMETHEUS_SCRAPE_TIMEOUT_SECONDS", "")
                ),
                environ.get("HTTP_ACCEPT", ""),
            )
        finally:
            self._places.release()
        return Response(body, content_type)

    def _page(self, environ: WSGIEnvironment) -> Response:
        policy = ("Content-Security-Policy", PAGE_POLICY)
        return Response(
            self._handlers.page(environ.get("QUERY_STRING", "")),
            HTML,
            headers=(policy,),
        )

    def _status(self, _: WSGIEnvironment) -> Response:
        return Response(self._handlers.status(), JSON)

    def _reload(self, _: WSGIEnvironment) -> Response:
        if self._handlers.reload is None:
            return _sentence(
                HTTPStatus.FORBIDDEN,
                "reload over HTTP is off; --web.enable-lifecycle switches it on",
            )
        return _check(self._handlers.reload, HTTPStatus.INTERNAL_SERVER_ERROR)


def scrape_deadline(text: str) -> float | None:
    """Returns the seconds to answer in, from a header of Prometheus.

    None when the text is not a positive finite number.
    """
    try:
        seconds = float(text)
    except ValueError:
        return None
    if not math.isfinite(seconds) or seconds <= 0:
        return None
    return max(LEAST_DEADLINE_SECONDS, seconds - DEADLINE_MARGIN_SECONDS)


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether the header wants gzip, at least as much as no encoding."""
    weights: dict[str, float] = {}
    for item in accept_encoding.lower().split(","):
        coding, *parameters = (part.strip() for part in item.split(";"))
        weights[coding] = _weight(parameters)
    gzipped = weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0)))
    return gzipped > 0 and gzipped >= weights.get("identity", 0.0)


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def _check(
    handler: Callable[[], tuple[bool, str]],
    otherwise: HTTPStatus = HTTPStatus.SERVICE_UNAVAILABLE,
) -> Response:
    fine, text = handler()
    return Response(text.encode(), status=HTTPStatus.OK if fine else otherwise)


def _truth(body: bytes | None) -> Response:
    if body is None:
        return _sentence(
            HTTPStatus.SERVICE_UNAVAILABLE, "the simulated site does not answer"
        )
    return Response(body, JSON)


def _sentence(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Response:
    return Response(f"{text}\n".encode(), status=status, headers=headers)

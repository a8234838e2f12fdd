"""Basic authentication and configured headers, in front of all routes."""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from types import TracebackType
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import bcrypt

from exporter.web_config import WebConfig

REALM = "goodput-exporter"
REMEMBERED = 100
CHECKS_WAITING = 4
BCRYPT_BYTES = 72  # what follows never counted; the library insists on being told

ExcInfo = (
    tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]
)


class BusyError(Exception):
    """Too many passwords are being checked."""


class Guard:
    """A WSGI application that asks for a name and password when there are users.

    The configuration is asked for at every request. Its headers stand on every
    answer, instead of those of the same name.
    """

    def __init__(self, app: WSGIApplication, config: Callable[[], WebConfig]) -> None:
        self._app = app
        self._config = config
        self._passwords = Passwords()

    def __call__(
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Answers a request."""
        config = self._config()
        start = _with_headers(start_response, config.headers)
        if not config.users:
            return self._app(environ, start)
        given = environ.get("HTTP_AUTHORIZATION", "")
        try:
            if self._passwords.accept(given, config.users):
                return self._app(environ, start)
        except BusyError:
            retry = ("Retry-After", "1")
            return _refuse(start, HTTPStatus.SERVICE_UNAVAILABLE, retry)
        challenge = ("WWW-Authenticate", f'Basic realm="{REALM}", charset="UTF-8"')
        return _refuse(start, HTTPStatus.UNAUTHORIZED, challenge)


class Passwords:
    """Checks passwords against bcrypt hashes, and remembers the right ones.

    bcrypt is slow on purpose. So one check runs at a time, few wait, and what was
    right is remembered by a keyed digest of name, hash and password. Wrong ones are
    not: a flood of them could push the right ones out.
    """

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._right: dict[bytes, None] = {}
        self._places = threading.BoundedSemaphore(CHECKS_WAITING)
        self._lock = threading.Lock()

    def accept(self, authorization: str, users: Mapping[str, str]) -> bool:
        """Whether the header's name and password are a user's.

        Raises BusyError when too many checks wait already.
        """
        pair = _decoded(authorization)
        if pair is None:
            return False
        name, password = pair
        known = name in users
        # A stranger's check takes as long as a user's, so times tell no names.
        hashed = users[name] if known else next(iter(users.values()))
        digest = self._digest(name, hashed, password)
        if known and digest in self._right:
            return True
        if not self._places.acquire(blocking=False):
            raise BusyError
        try:
            with self._lock:
                right = bcrypt.checkpw(password[:BCRYPT_BYTES], hashed.encode())
        finally:
            self._places.release()
        if right and known:
            self._remember(digest)
        return right and known

    def _digest(self, name: str, hashed: str, password: bytes) -> bytes:
        parts = (name.encode(), hashed.encode(), password)
        text = b"".join(len(part).to_bytes(8) + part for part in parts)
        return hmac.digest(self._key, text, "sha256")

    def _remember(self, digest: bytes) -> None:
        with self._lock:
            while len(self._right) >= REMEMBERED:
                del self._right[next(iter(self._right))]  # the oldest
            self._right[digest] = None


def _decoded(authorization: str) -> tuple[str, bytes] | None:
    """Returns the name and password of a Basic header, None if it is no such."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded.strip(), validate=True)
        name, colon, password = text.partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None


def _with_headers(
    start_response: StartResponse, headers: tuple[tuple[str, str], ...]
) -> StartResponse:
    names = {name.lower() for name, _ in headers}

    def start(
        status: str, given: list[tuple[str, str]], exc_info: ExcInfo | None = None, /
    ) -> Callable[[bytes], object]:
        kept = [pair for pair in given if pair[0].lower() not in names]
        return start_response(status, [*kept, *headers], exc_info)

    return start if headers else start_response


def _refuse(
    start: StartResponse, status: HTTPStatus, header: tuple[str, str]
) -> Iterable[bytes]:
    body = f"{status.phrase}\n".encode()
    start(
        f"{status.value} {status.phrase}",
        [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("X-Content-Type-Options", "nosniff"),
            header,
        ],
    )
    return [body]

"""Fetches one page from a target within a total deadline and a size limit."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from analyzer.config_sources import Credentials, Tls

CHUNK_BYTES = 65_536
# OpenMetrics parsers are strict and vLLM prints the text format whatever is asked.
ACCEPT = "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.5"
MAX_SECRET_BYTES = 65_536


class ScrapeError(Exception):
    """A page that could not be fetched: `reason` is the failure counter's label."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Page:
    """A fetched page: the body as received, and how long it took in seconds."""

    body: bytes
    seconds: float

    @property
    def text(self) -> str:
        """The body as text; bytes that are not UTF-8 are replaced."""
        return self.body.decode("utf-8", "replace")


class Fetcher:
    """Fetches pages from one target over a kept connection.

    The deadline holds for the whole exchange: when it passes, the socket is shut
    down, so that dripping headers, handshakes and bodies end as well.
    """

    def __init__(self, *, tls: Tls, credentials: Credentials, max_bytes: int) -> None:
        self._credentials = credentials
        self._max_bytes = max_bytes
        self._session = requests.Session()
        self._session.trust_env = False  # no proxies, no ~/.netrc
        self._session.verify = (
            False if tls.insecure_skip_verify else tls.ca_file or True
        )
        if tls.cert_file:
            self._session.cert = (tls.cert_file, tls.key_file)
        self._lines: list[_Line] = []
        adapter = HTTPAdapter(pool_connections=1, pool_maxsize=1, max_retries=0)
        adapter.poolmanager.pool_classes_by_scheme = _pools(self._lines)
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)

    def get(self, url: str, *, timeout: float) -> Page:
        """Returns the page at *url*. Raises ScrapeError by its reason."""
        begun = time.monotonic()
        try:
            headers = {
                "Accept": ACCEPT,
                "Accept-Encoding": "identity",  # an engine has better work to do
                **self._authorization(),
            }
        except (OSError, ValueError) as error:
            raise ScrapeError("credentials", _short(error)) from error
        guillotine = threading.Timer(timeout, self._cut)
        guillotine.daemon = True
        guillotine.start()
        try:
            body = self._get(url, headers, timeout)
        except (
            requests.RequestException,
            urllib3.exceptions.HTTPError,
            OSError,
        ) as error:
            raise _classify(error, timeout, time.monotonic() - begun) from error
        finally:
            guillotine.cancel()
            self._release()
        spent = time.monotonic() - begun
        if spent >= timeout:  # a body without a length looks whole when it is cut off
            raise ScrapeError("timeout", f"no whole answer within {timeout:g} s")
        return Page(body, spent)

    def _get(self, url: str, headers: dict[str, str], timeout: float) -> bytes:
        with self._session.get(
            url, headers=headers, timeout=timeout, stream=True, allow_redirects=False
        ) as response:
            if response.status_code != requests.codes.ok:
                raise ScrapeError("http_status", f"HTTP {response.status_code}")
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding != "identity":
                raise ScrapeError("not_an_exposition", f"Content-Encoding: {encoding}")
            chunks: list[bytes] = []
            size = 0
            for chunk in response.raw.stream(CHUNK_BYTES, decode_content=False):
                size += len(chunk)
                if size > self._max_bytes:
                    raise ScrapeError(
                        "too_large", f"body exceeds {self._max_bytes} bytes"
                    )
                chunks.append(chunk)
            return b"".join(chunks)

    def _cut(self) -> None:
        for line in tuple(self._lines):
            with contextlib.suppress(OSError):  # closed in the meantime
                line.socket.shutdown(socket.SHUT_RDWR)

    def _release(self) -> None:
        """Lets go of connections that are closed and read to their end."""
        for line in [line for line in self._lines if line.retired]:
            self._lines.remove(line)
            line.socket.close()

    def _authorization(self) -> dict[str, str]:
        given = self._credentials
        if given.bearer_file:
            return {"Authorization": f"Bearer {_secret(given.bearer_file)}"}
        if given.username:
            password = _secret(given.password_file)
            basic = urllib3.make_headers(basic_auth=f"{given.username}:{password}")
            return {"Authorization": basic["authorization"]}
        return {}

    def close(self) -> None:
        """Closes the kept connection."""
        self._session.close()
        self._release()


@dataclass(slots=True)
class _Line:
    """A duplicate of a connection's socket; shutting it down ends the connection.

    A duplicate, since TLS takes the original over before its handshake, and since a
    connection counts as closed while its last answer is still being read.
    """

    socket: socket.socket
    retired: bool = False


def _pools(lines: list[_Line]) -> dict[str, type[HTTPConnectionPool]]:
    """Returns connection pools whose open sockets stand in *lines*."""

    class Tracked:
        line: _Line | None = None

        def _new_conn(self) -> socket.socket:
            opened: socket.socket = super()._new_conn()  # type: ignore[misc]
            self.line = _Line(opened.dup())
            lines.append(self.line)
            return opened

        def close(self) -> None:
            super().close()  # type: ignore[misc]
            if self.line is not None:
                self.line.retired = True

    class Plain(Tracked, HTTPConnection):
        pass

    class Secure(Tracked, HTTPSConnection):
        pass

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def _secret(path: str) -> str:
    """Returns a secret from a file; its text appears in no error."""
    with Path(path).open("rb") as file:
        data = file.read(MAX_SECRET_BYTES + 1)
    text = data.decode("utf-8", "replace").strip()
    if not text or len(data) > MAX_SECRET_BYTES or any(c in text for c in "\r\n"):
        raise ValueError(f"{path}: must hold one line of text")
    return text


def _classify(error: Exception, timeout: float, spent: float) -> ScrapeError:
    """Returns the failure's reason, found along the chain of causes."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and len(chain) < 10:
        chain.append(cause)
        inner = getattr(cause, "reason", None)
        if isinstance(inner, BaseException):
            cause = inner
        else:
            cause = cause.__cause__ or cause.__context__ or _first_exception(cause)
    detail = _short(chain[-1])
    for reason, kinds in _REASONS:
        if any(isinstance(c, kinds) for c in chain):
            return ScrapeError(reason, detail)
    if spent >= timeout or any(isinstance(c, _TIMEOUTS) for c in chain):
        return ScrapeError("timeout", f"no whole answer within {timeout:g} s")
    return ScrapeError("connection", detail)


_REASONS: tuple[tuple[str, tuple[type[BaseException], ...]], ...] = (
    ("refused", (ConnectionRefusedError,)),
    ("dns", (socket.gaierror, urllib3.exceptions.NameResolutionError)),
    ("tls", (ssl.SSLError, requests.exceptions.SSLError)),
)
_TIMEOUTS = (TimeoutError, requests.Timeout, urllib3.exceptions.ReadTimeoutError)


def _first_exception(error: BaseException) -> BaseException | None:
    return next((a for a in error.args if isinstance(a, BaseException)), None)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__

"""Fetches one page from a target within a total deadline and a size limit."""

from __future__ import annotations

import re
import socket
import ssl
import time
from base64 import b64encode
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Self

import requests
import urllib3
from requests.adapters import HTTPAdapter

from analyzer.config_gpus import GpuSource
from analyzer.config_sources import Credentials, EngineSource, Tls
from analyzer.sources.wire import Wire

CHUNK_BYTES = 65_536
# OpenMetrics parsers are strict and vLLM prints the text format whatever is asked.
ACCEPT = "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.5"
MAX_SECRET_BYTES = 65_536
MIN_SECONDS = 0.001  # what is left when nothing is; sockets take no 0
_TOKEN = re.compile(rb"[\x21-\x7e]+")


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
    """Fetches pages from one target over a kept connection, one at a time.

    The deadline holds for the whole exchange, from the name to the body's last byte.
    """

    def __init__(self, *, tls: Tls, credentials: Credentials, max_bytes: int) -> None:
        self._tls = tls
        self._credentials = credentials
        self._max_bytes = max_bytes
        self._session = _Session()
        self._session.trust_env = False  # no proxies, no ~/.netrc
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._session.verify = (
            False if tls.insecure_skip_verify else tls.ca_file or True
        )
        if tls.cert_file:
            self._session.cert = (tls.cert_file, tls.key_file)
        self._wire = Wire()
        self._closed = False
        adapter = HTTPAdapter(pool_connections=1, pool_maxsize=1, max_retries=0)
        adapter.poolmanager.pool_classes_by_scheme = self._wire.pools()
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)

    @classmethod
    def of(cls, source: EngineSource | GpuSource) -> Self:
        """Returns a fetcher with the credentials and limits of *source*."""
        return cls(
            tls=source.tls,
            credentials=source.credentials,
            max_bytes=source.max_body_bytes,
        )

    def get(self, url: str, *, timeout: float) -> Page:
        """Returns the page at *url*. Raises ScrapeError by its reason."""
        begun = time.monotonic()
        headers = {
            "Accept": ACCEPT,
            "Accept-Encoding": "identity",  # an engine has better work to do
            **self._authorization(),
        }
        self._find_tls_files()
        try:
            with self._wire.within(timeout):
                body = self._body(url, headers)
        except (
            requests.RequestException,
            urllib3.exceptions.HTTPError,
            OSError,
            ValueError,  # http.client's, of a chunk of negative size for one
        ) as error:
            raise _classify(error, timeout, time.monotonic() - begun) from error
        finally:
            if self._closed:
                self.close()
        if not self._wire.remaining():
            # A body without a length looks whole when it is cut off.
            raise ScrapeError("timeout", f"no whole answer within {timeout:g} s")
        return Page(body, time.monotonic() - begun)

    def _body(self, url: str, headers: dict[str, str]) -> bytes:
        with self._answer(url, headers) as response:
            if response.status_code != requests.codes.ok:
                raise ScrapeError("http_status", f"HTTP {response.status_code}")
            encoding = response.headers.get("Content-Encoding", "").strip()
            if encoding.lower() not in ("", "identity"):
                raise ScrapeError(
                    "not_an_exposition", f"Content-Encoding: {encoding[:40]}"
                )
            chunks: list[bytes] = []
            size = 0
            # Not `stream`: on chunked bodies its lines know no limit.
            while chunk := response.raw.read(CHUNK_BYTES, decode_content=False):
                size += len(chunk)
                if size > self._max_bytes:
                    raise ScrapeError(
                        "too_large", f"body exceeds {self._max_bytes} bytes"
                    )
                chunks.append(chunk)
            return b"".join(chunks)

    def _answer(self, url: str, headers: dict[str, str]) -> requests.Response:
        """Returns an answer of which the headers have come.

        A server may close a kept connection in the moment that it is used again;
        nothing is wrong then, and a new connection is tried once.
        """
        wire = self._wire
        kept, dials = wire.kept(), wire.dials
        try:
            return self._ask(url, headers)
        except requests.ConnectionError as error:
            on_kept = kept and wire.dials == dials
            if not on_kept or not _hung_up(error) or not wire.remaining():
                raise
        return self._ask(url, headers)

    def _ask(self, url: str, headers: dict[str, str]) -> requests.Response:
        return self._session.get(
            url,
            headers=headers,
            timeout=self._wire.remaining() or MIN_SECONDS,
            stream=True,
            allow_redirects=False,
        )

    def _authorization(self) -> dict[str, str]:
        given = self._credentials
        try:
            if given.bearer_file:
                return {"Authorization": f"Bearer {_token(given.bearer_file)}"}
            if given.username:
                password = _secret(given.password_file)
                pair = b64encode(b"%s:%s" % (given.username.encode(), password))
                return {"Authorization": f"Basic {pair.decode('ascii')}"}
        except (OSError, ValueError) as error:
            raise ScrapeError("credentials", _short(error)) from error
        return {}

    def _find_tls_files(self) -> None:
        for path in (self._tls.ca_file, self._tls.cert_file, self._tls.key_file):
            if path and not Path(path).exists():
                raise ScrapeError("tls", f"{path}: no such file")

    def abort(self) -> None:
        """Ends the `get` that another thread is in, with a ScrapeError."""
        self._wire.cut()

    def close(self) -> None:
        """Closes the kept connection; one in use closes at its end."""
        self._closed = True
        self._session.close()
        self._wire.close()


class _Session(requests.Session):
    """A session that follows no redirect.

    Not even to see where it leads, for which requests reads the whole body.
    """

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Returns None, whatever the answer says."""


def _token(path: str) -> str:
    """Returns a bearer token from a file; its text appears in no error."""
    token = _secret(path)
    if not _TOKEN.fullmatch(token):
        raise ValueError(f"{path}: not a bearer token")
    return token.decode("ascii")


def _secret(path: str) -> bytes:
    """Returns a secret from a file, in which it stands alone on one line.

    Its text appears in no error.
    """
    with Path(path).open("rb") as file:
        data = file.read(MAX_SECRET_BYTES + 1)
    text = data.strip()
    if not text or len(data) > MAX_SECRET_BYTES or len(text.splitlines()) > 1:
        raise ValueError(f"{path}: must hold one line of text")
    return text


def _classify(error: Exception, timeout: float, spent: float) -> ScrapeError:
    """Returns the failure's reason, found along the chain of causes."""
    chain = _chain(error)
    detail = _short(chain[-1])

    def caused_by(*kinds: type[BaseException]) -> bool:
        return any(isinstance(cause, kinds) for cause in chain)

    if caused_by(socket.gaierror, urllib3.exceptions.NameResolutionError):
        return ScrapeError("dns", detail)
    if spent >= timeout or caused_by(*_TIMEOUTS):
        return ScrapeError("timeout", f"no whole answer within {timeout:g} s")
    if caused_by(ConnectionRefusedError):
        return ScrapeError("refused", detail)
    if caused_by(ssl.SSLError, requests.exceptions.SSLError):
        return ScrapeError("tls", detail)
    return ScrapeError("connection", detail)


def _hung_up(error: Exception) -> bool:
    """Whether the server closed the connection."""
    return any(isinstance(c, (ConnectionError, ssl.SSLEOFError)) for c in _chain(error))


def _chain(error: BaseException) -> list[BaseException]:
    """Returns an error and its causes, the first cause last."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and len(chain) < 10:
        chain.append(cause)
        inner = getattr(cause, "reason", None)
        if isinstance(inner, BaseException):
            cause = inner
        elif cause.__suppress_context__:
            cause = cause.__cause__
        else:
            cause = cause.__context__ or _first_exception(cause)
    return chain


_TIMEOUTS = (TimeoutError, requests.Timeout, urllib3.exceptions.ReadTimeoutError)


def _first_exception(error: BaseException) -> BaseException | None:
    return next((a for a in error.args if isinstance(a, BaseException)), None)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__

"""The exporter's web server: takes an address, serves an application on it."""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
import threading
from pathlib import Path
from wsgiref.types import WSGIApplication

from exporter.web_auth import Guard
from exporter.web_config import WebConfig, WebConfigFile
from exporter.web_front import FrontServer, Limits

logger = logging.getLogger(__name__)

BACKLOG = 128
CLOSE_SECONDS = 2.0
_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[^\[\]:]*)):(?P<port>\d{1,5})")
_ALL_INTERFACES = ("", "::")
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class WebError(ValueError):
    """An address or a path that cannot be served; the text names it."""


class WebServer:
    """Serves an application on an address from `start` to `close`.

    The address is `host:port`; without host it means all interfaces, IPv4 and IPv6,
    and port 0 any free port. The port is taken at once, and answers after `start`.
    Raises WebError for an address that cannot be used, ConfigError for a *web_config*
    file that cannot be.
    """

    def __init__(
        self,
        listen_address: str,
        app: WSGIApplication,
        *,
        web_config: Path | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._config = None if web_config is None else WebConfigFile(web_config)
        if self._config is not None:
            app = Guard(app, self._current)
        self.scheme = "http" if self._current().tls is None else "https"
        listener = listen(listen_address)
        host, port = listener.getsockname()[:2]
        self.address: tuple[str, int] = (host, port)
        self._server = FrontServer(
            listener, app, tls=lambda: self._current().tls, limits=limits or Limits()
        )
        self._thread = threading.Thread(
            target=self._server.serve, name="web", daemon=True
        )
        self._started = False

    def _current(self) -> WebConfig:
        return WebConfig() if self._config is None else self._config.current

    @property
    def url(self) -> str:
        """The server's URL without a path, for use on this machine."""
        host, port = self.address
        if host in {"0.0.0.0", "::"}:  # noqa: S104  compared, not bound
            host = "localhost"
        return f"{self.scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def config_error(self) -> str:
        """Why the web configuration file, as it is now, is not in use; or empty."""
        return "" if self._config is None else self._config.last_error

    def start(self) -> None:
        """Starts to answer."""
        self._started = True
        self._thread.start()

    def close(self) -> None:
        """Stops within two seconds; requests that are being answered get one.

        A handler that still runs then is left to itself, in a daemon thread.
        """
        if not self._started:
            self._server.close_unserved()
            return
        self._server.stop()
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            logger.warning("a request is still being handled")


def listen(address: str) -> socket.socket:
    """Returns a socket that listens on `host:port`. Raises WebError with the address.

    Without host, or on `[::]`, it takes IPv4 and IPv6. A name that has several
    addresses means its first, IPv4 before IPv6.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > 65535:
        raise WebError(
            f"listen address {address!r} must be host:port, :port or [IPv6]:port"
        )
    host, port = match["v6"] or match["host"], int(match["port"])
    try:
        if host in _ALL_INTERFACES and socket.has_dualstack_ipv6():
            try:
                return socket.create_server(
                    ("::", port),
                    family=socket.AF_INET6,
                    backlog=BACKLOG,
                    dualstack_ipv6=True,
                )
            except OSError as error:
                if error.errno not in _NO_IPV6:
                    raise
        found = socket.getaddrinfo(
            host or "0.0.0.0",  # noqa: S104  what no host means
            port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )
        found.sort(key=lambda entry: entry[0] != socket.AF_INET)
        family, where = found[0][0], found[0][4]
        return socket.create_server(where, family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        raise WebError(f"cannot listen on {address}: {_reason(error)}") from error


def _reason(error: OSError | UnicodeError) -> str:
    """Returns the system's words alone: create_server adds the address to them."""
    if not isinstance(error, OSError):
        return str(error)
    if isinstance(error, socket.gaierror) or error.errno is None:
        return error.strerror or str(error)
    return os.strerror(error.errno)

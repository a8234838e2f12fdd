"""Connections whose every step ends at one deadline: name, connect, TLS, answer."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import (
    ConnectTimeoutError,
    NameResolutionError,
    NewConnectionError,
)

# family, type, protocol, canonical name, address: as getaddrinfo returns them
_Address = tuple[Any, Any, int, str, Any]


@dataclass(slots=True, eq=False)
class _Line:
    """A duplicate of a connection's socket; shutting it down ends the connection.

    A duplicate, since TLS takes the original over before its handshake, and since a
    connection counts as closed while its last answer is still being read.
    """

    socket: socket.socket
    connection: HTTPConnection | None
    retired: bool = False

    def end(self) -> None:
        """Shuts the connection down; whoever reads from it sees its end."""
        with contextlib.suppress(OSError):  # it has ended by itself
            self.socket.shutdown(socket.SHUT_RDWR)


class Wire:
    """The connections of one fetcher, which uses them one request at a time.

    When the deadline of `within` passes, every connection is shut down, so that
    dripping handshakes, headers and bodies end as well.
    """

    def __init__(self) -> None:
        self.dials = 0  # connections begun, successful or not
        self._lock = threading.Lock()
        self._lines: list[_Line] = []
        self._until = 0.0  # monotonic
        self._period: object = None  # the one that `within` bounds now
        self._lookup: tuple[tuple[str, int], Future[list[_Address]]] | None = None

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Ends all that happens on the connections after *seconds*."""
        period = object()
        with self._lock:
            self._until = time.monotonic() + seconds
            self._period = period
        guillotine = threading.Timer(seconds, self._cut, (period,))
        guillotine.daemon = True
        guillotine.start()
        try:
            yield
        finally:
            guillotine.cancel()
            with self._lock:
                self._period = None
            self.release()

    def cut(self) -> None:
        """Ends what happens on the connections now, as if the deadline had passed."""
        self._until = time.monotonic()
        self._cut(self._period)

    def remaining(self) -> float:
        """Returns the seconds left until the deadline, 0 when it has passed."""
        return max(0.0, self._until - time.monotonic())

    def kept(self) -> bool:
        """Whether a connection is open."""
        with self._lock:
            return any(not line.retired for line in self._lines)

    def release(self) -> None:
        """Lets go of connections that are closed and read to their end."""
        with self._lock:
            for line in [line for line in self._lines if line.retired]:
                self._lines.remove(line)
                line.socket.close()
                line.connection = None  # it refers to us

    def close(self) -> None:
        """Closes the kept connection, unless it is in use.

        The pools would do it whenever they are collected as garbage.
        """
        with self._lock:
            idle = [] if self._period is not None else list(self._lines)
        for line in idle:
            if line.connection is not None:
                line.connection.close()
        self.release()

    def _cut(self, period: object) -> None:
        with self._lock:
            if self._period is period:
                for line in self._lines:
                    line.end()

    def track(self, opened: socket.socket, connection: HTTPConnection) -> _Line:
        """Returns a line for a new socket; after the deadline it has ended."""
        line = _Line(opened.dup(), connection)
        with self._lock:
            self._lines.append(line)
            if not self.remaining():
                line.end()
        return line

    def dial(
        self, host: str, port: int, options: list[tuple[Any, ...]]
    ) -> socket.socket:
        """Returns a new connection to the first address of *host* that answers.

        Each address has its share of the time that is left. Raises gaierror when the
        name has no address, else the last address's OSError.
        """
        self.dials += 1
        addresses = self._addresses(host.strip("[]"), port)
        failure = OSError(f"{host} has no address")
        for number, (family, kind, protocol, _, address) in enumerate(addresses):
            share = self.remaining() / (len(addresses) - number)
            if not share:
                raise TimeoutError("timed out")
            try:
                return _connect((family, kind, protocol), address, share, options)
            except OSError as error:
                failure = error
        raise failure

    def _addresses(self, host: str, port: int) -> list[_Address]:
        with contextlib.suppress(OSError, UnicodeError):
            return socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )
        # The resolver knows no deadline, hence a thread of its own. While it hangs it
        # is asked once and not again at every scrape.
        lookup = self._lookup
        if lookup is None or lookup[0] != (host, port) or lookup[1].done():
            lookup = self._lookup = (host, port), _look_up(host, port)
        try:
            return lookup[1].result(self.remaining())
        except TimeoutError:
            raise socket.gaierror(
                socket.EAI_AGAIN, f"no answer for the name {host} in time"
            ) from None

    def pools(self) -> dict[str, type[HTTPConnectionPool]]:
        """Returns connection pools, by scheme, whose connections stand here."""
        wire = self

        class Tracked:
            line: _Line | None = None

            def _new_conn(self: Any) -> socket.socket:
                opened = _dialled(self, wire.dial)
                try:
                    self.line = wire.track(opened, self)
                except OSError:
                    opened.close()
                    raise
                return opened

            def close(self) -> None:
                super().close()  # type: ignore[misc]
                if self.line is not None:
                    self.line.retired = True

        class Plain(Tracked, HTTPConnection):
            pass

        class Secure(Tracked, HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                # Whoever configured insecure_skip_verify needs no warning in the log.
                self.is_verified = True

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = Secure

        return {"http": PlainPool, "https": SecurePool}


def _connect(
    kind: tuple[Any, Any, int],
    address: Any,  # noqa: ANN401  its form is the family's
    seconds: float,
    options: list[tuple[Any, ...]],
) -> socket.socket:
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(socket.socket(*kind))
        for option in options:
            sock.setsockopt(*option)
        sock.settimeout(seconds)
        sock.connect(address)
        stack.pop_all()  # connected: whoever called closes it
    return sock


def _look_up(host: str, port: int) -> Future[list[_Address]]:
    """Asks the resolver in a thread, which ends when the resolver gives up."""
    future: Future[list[_Address]] = Future()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            future.set_exception(error)
        except UnicodeError as error:  # a name that no resolver is asked for
            unknown = socket.gaierror(socket.EAI_NONAME, f"not a host name: {error}")
            future.set_exception(unknown)
        else:
            future.set_result(found)

    threading.Thread(target=ask, name="look-up", daemon=True).start()
    return future


def _dialled(
    connection: HTTPConnection,
    dial: Callable[[str, int, list[tuple[Any, ...]]], socket.socket],
) -> socket.socket:
    """Returns a new socket for *connection*, with the errors that urllib3 expects."""
    # The host as given: `host` lacks the dot that ends an absolute name.
    host: str = connection._dns_host  # noqa: SLF001
    try:
        return dial(host, connection.port, list(connection.socket_options or ()))
    except socket.gaierror as error:
        raise NameResolutionError(connection.host, connection, error) from error
    except TimeoutError as error:
        raise ConnectTimeoutError(connection, f"no connection to {host}") from error
    except OSError as error:
        raise NewConnectionError(connection, str(error)) from error

"""Binds the sockets that log lines are sent to, and listens at them for a while."""

from __future__ import annotations

import errno
import socket
import stat
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

UDP = "udp://"
UNIX = "unix://"
# Any user of the pod may send: the engine may run as another one.
SOCKET_MODE = 0o666
DATAGRAM_BYTES = (1 << 20) + 1


class SourceError(Exception):
    """A socket that cannot be opened; the text names its address."""

    def __init__(self, address: str, error: OSError) -> None:
        super().__init__(f"{address}: {error.strerror or error}")
        self.in_use = error.errno == errno.EADDRINUSE


def bind_unix(path: str) -> socket.socket:
    """Returns a datagram socket bound at *path*.

    A socket left behind by a killed process is replaced; another kind of file is
    not. Raises SourceError when it cannot be bound.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    place = Path(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _remove_socket(place)
        sock.bind(path)
        place.chmod(SOCKET_MODE)
    except OSError as error:
        sock.close()
        raise SourceError(path, error) from error
    return sock


def _remove_socket(path: Path) -> None:
    """Takes away a socket that was left behind; raises OSError for another file."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "is there and is not a socket")
    path.unlink()


def remove_unix(path: str, inode: int) -> None:
    """Takes a socket's file away, unless another one took its place."""
    place = Path(path)
    with suppress(OSError):
        if place.lstat().st_ino == inode:
            place.unlink()


def bind_udp(address: str) -> socket.socket:
    """Returns a socket bound at *address*, such as `udp://:5514`.

    Without a host it is bound at all addresses, of IPv6 too where there is any.
    Raises SourceError when it cannot be bound.
    """
    host, _, port = address.removeprefix(UDP).rpartition(":")
    try:
        return _bound(host.strip("[]"), int(port))
    except OSError as error:
        raise SourceError(address, error) from error


def _bound(host: str, port: int) -> socket.socket:
    """Returns a socket bound there. Raises OSError."""
    if not host:
        try:
            return _bound("::", port)
        except OSError:  # a machine without IPv6, or the port is taken
            host = "0.0.0.0"  # noqa: S104  "all addresses" is what was asked for
    family, kind, protocol, _, place = socket.getaddrinfo(
        host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
        sock.bind(place)
    except OSError:
        sock.close()
        raise
    return sock


def is_served(path: str) -> bool:
    """Whether a program receives at the unix datagram socket *path* now."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as sock:
        try:
            sock.connect(path)
        except OSError as error:
            # Somebody is there whom we may not send to.
            return error.errno in (errno.EACCES, errno.EPERM)
    return True


def listen(
    sock: socket.socket,
    *,
    seconds: float,
    max_bytes: int,
    strip: Callable[[bytes], bytes] = bytes,
) -> list[bytes]:
    """Returns the lines that come within *seconds*, of about *max_bytes* at most.

    *strip* takes a transport's own header off a datagram.
    """
    lines: list[bytes] = []
    deadline, left = time.monotonic() + seconds, max_bytes
    while left > 0 and (wait := deadline - time.monotonic()) > 0:
        sock.settimeout(wait)
        try:
            datagram = sock.recv(DATAGRAM_BYTES)
        except TimeoutError:
            break
        left -= len(datagram)
        lines += [line for line in strip(datagram).split(b"\n") if line]
    return lines

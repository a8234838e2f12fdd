"""Access logs over syslog and UDP, as nginx and HAProxy send them."""

from __future__ import annotations

import socket

from analyzer.gateways.framing import syslog_text
from exporter.datagram import SourceError
from exporter.receiver import Receiver
from exporter.tail_batch import BATCH_BYTES, Batch


class SyslogSource:
    """Listens for syslog datagrams at *address*, such as `udp://:5514`.

    Without a host it listens on all addresses, of IPv6 too where there is any. Raises
    SourceError when the address cannot be bound. UDP may lose datagrams on their way
    to this machine, which nobody can count; those that this machine drops are counted.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("udp://").rpartition(":")
        try:
            sock = _bound(host.strip("[]"), int(port))
        except OSError as error:
            raise SourceError(f"{address}: {error.strerror or error}") from error
        self.port = int(sock.getsockname()[1])
        self._receiver = Receiver(sock, strip=syslog_text)

    def poll(self, limit_bytes: int = BATCH_BYTES) -> Batch:
        """Returns the messages that have come, without their headers."""
        return self._receiver.poll(limit_bytes)

    def close(self) -> None:
        """Closes the socket."""
        self._receiver.close()


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

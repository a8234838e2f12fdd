"""Access logs over syslog and UDP, as nginx and HAProxy send them."""

from __future__ import annotations

from analyzer.gateways.framing import syslog_text
from analyzer.sources.datagrams import bind_udp
from exporter.receiver import Receiver
from exporter.tail_batch import BATCH_BYTES, Batch


class SyslogSource:
    """Listens for syslog datagrams at *address*, such as `udp://:5514`.

    Without a host it listens on all addresses, of IPv6 too where there is any. Raises
    SourceError when the address cannot be bound. UDP may lose datagrams on their way
    to this machine, which nobody can count; those that this machine drops are counted.
    """

    def __init__(self, address: str) -> None:
        sock = bind_udp(address)
        self.port = int(sock.getsockname()[1])
        self._receiver = Receiver(sock, strip=syslog_text)

    def poll(self, limit_bytes: int = BATCH_BYTES) -> Batch:
        """Returns the messages that have come, without their headers."""
        return self._receiver.poll(limit_bytes)

    def close(self) -> None:
        """Closes the socket."""
        self._receiver.close()

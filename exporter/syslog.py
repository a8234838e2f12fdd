"""Access logs over syslog and UDP, as nginx and HAProxy send them."""

from __future__ import annotations

import re
import socket

from exporter.datagram import SourceError
from exporter.receiver import Receiver
from exporter.tail_batch import BATCH_BYTES, Batch

# RFC 5424: <PRI>VERSION TIMESTAMP HOST APP PROCID MSGID, structured data, message.
_RFC5424 = re.compile(
    rb"<\d{1,3}>1 \S+ \S+ \S+ \S+ \S+ "
    rb"(?:-|(?:\[(?:[^\]\\\"]|\\.|\"(?:[^\"\\]|\\.)*\")*\])+)"
    rb"(?: (?:\xef\xbb\xbf)?|\Z)"
)
# RFC 3164: <PRI>Mmm dd hh:mm:ss [HOST] TAG[PID]: message. HAProxy leaves the host out.
_RFC3164 = re.compile(
    rb"<\d{1,3}>(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d )?"
    rb"(?:[^\s:\[]+ )?(?:[^\s:\[]{1,64}(?:\[\d+\])?: ?)?"
)
_HEADER_BYTES = 4096


class SyslogSource:
    """Listens for syslog datagrams at *address*, such as `udp://:5514`.

    Raises SourceError when the address cannot be bound. UDP may lose datagrams
    before they reach us, which nobody can count.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("udp://").rpartition(":")
        host = host.strip("[]")
        family = socket.AF_INET if "." in host else socket.AF_INET6
        sock = socket.socket(family, socket.SOCK_DGRAM)
        try:
            if family is socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind((host, int(port)))
        except OSError as error:
            sock.close()
            raise SourceError(f"{address}: {error.strerror or error}") from error
        self.port = int(sock.getsockname()[1])
        self._receiver = Receiver(sock, strip=without_header)

    def poll(self, limit_bytes: int = BATCH_BYTES) -> Batch:
        """Returns the messages that have come, without their headers."""
        return self._receiver.poll(limit_bytes)

    def close(self) -> None:
        """Closes the socket."""
        self._receiver.close()


def without_header(datagram: bytes) -> bytes:
    """Returns a syslog datagram's message; one without a header as it is."""
    head = datagram[:_HEADER_BYTES]
    match = _RFC5424.match(head) or _RFC3164.match(head)
    return datagram[match.end() :] if match else datagram

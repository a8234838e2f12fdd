"""Lines that come as datagrams: unix sockets and syslog over UDP."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest
from running_exporter import wait_for

from exporter.datagram import DatagramSource, SourceError
from exporter.receiver import Receiver
from exporter.syslog import SyslogSource, without_header
from exporter.tail_batch import LineSource


def collected(source: LineSource, number: int) -> list[bytes]:
    """Polls until that many lines have come."""
    lines: list[bytes] = []

    def enough() -> bool:
        lines.extend(source.poll().lines)
        return len(lines) >= number

    wait_for(enough, seconds=10)
    return lines


def test_records_sent_to_the_socket_arrive_in_order(tmp_path: Path) -> None:
    """More datagrams than the kernel queues arrive, whole and in order."""
    path = str(tmp_path / "run" / "requests.sock")
    source = DatagramSource(path)
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sent = [b'{"n":%d}' % n for n in range(2000)]
    for line in sent:
        sender.sendto(line + b"\n", path)
    assert collected(source, len(sent)) == sent
    sender.close()
    source.close()
    assert not Path(path).exists()


def test_a_socket_left_behind_is_replaced_and_another_file_is_not(
    tmp_path: Path,
) -> None:
    """A killed process leaves its socket; a file of the same name is somebody's."""
    path = tmp_path / "requests.sock"
    left = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.bind(str(path))
    left.close()
    DatagramSource(str(path)).close()
    path.write_text("precious", encoding="utf-8")
    with pytest.raises(SourceError, match="is not a socket"):
        DatagramSource(str(path))
    assert path.read_text(encoding="utf-8") == "precious"


def test_the_socket_of_a_successor_is_left_in_place(tmp_path: Path) -> None:
    """Closing late does not take away what a newer process bound."""
    path = tmp_path / "requests.sock"
    old, new = DatagramSource(str(path)), None
    new = DatagramSource(str(path))
    old.close()
    assert path.exists()
    new.close()


def test_a_full_queue_drops_and_counts() -> None:
    """Memory is bounded; what did not fit is told by number."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver = Receiver(ours, queue_bytes=100, max_line_bytes=50)
    for _ in range(20):
        theirs.send(b"x" * 10)
    theirs.send(b"y" * 60)
    time.sleep(0.2)
    batch = receiver.poll()
    assert list(batch.lines) == [b"x" * 10] * 10
    assert batch.stats.lost == {"queue_full": 10}
    assert batch.stats.too_long == 1
    assert receiver.poll().stats.lost == {}
    theirs.close()
    receiver.close()


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_closing_ends_the_thread_and_frees_every_descriptor() -> None:
    """No thread and no descriptor is left."""
    threads, files = threading.active_count(), _descriptors()
    source = SyslogSource("udp://127.0.0.1:0")
    source.close()
    assert threading.active_count() == threads
    assert _descriptors() == files


@pytest.mark.parametrize("address", ["udp://127.0.0.1:0", "udp://[::1]:0", "udp://:0"])
def test_syslog_datagrams_arrive_without_their_header(address: str) -> None:
    """IPv4, IPv6 and all interfaces; the message is what the gateway logged."""
    source = SyslogSource(address)
    host = "::1" if "::1" in address else "127.0.0.1"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        message = b'<190>Nov 29 18:00:00 web nginx: {"status":"200"}'
        sender.sendto(message, (host, source.port))
        assert collected(source, 1) == [b'{"status":"200"}']
    source.close()


def test_a_port_that_is_taken_is_named() -> None:
    """The error says which address and why."""
    source = SyslogSource("udp://127.0.0.1:0")
    with pytest.raises(SourceError, match=rf"127.0.0.1:{source.port}: Address already"):
        SyslogSource(f"udp://127.0.0.1:{source.port}")
    source.close()


@pytest.mark.parametrize(
    ("datagram", "message"),
    [
        (b'<190>Nov 29 18:00:00 web nginx: {"a":1}', b'{"a":1}'),
        (b'<190>Nov  9 18:00:00 web nginx: {"a": "b: c"}', b'{"a": "b: c"}'),
        (b"<134>Nov 29 18:00:00 haproxy[812]: 10.0.0.1:5 [x]", b"10.0.0.1:5 [x]"),
        (b'<134>1 2026-11-29T18:00:00Z h haproxy 812 - - {"a":1}', b'{"a":1}'),
        (
            b'<134>1 2026-11-29T18:00:00Z h app 1 - [x@1 k="]\\""][y@2] \xef\xbb\xbf{}',
            b"{}",
        ),
        (b"<134>1 2026-11-29T18:00:00Z h app 1 - -", b""),
        (b'{"no":"header"}', b'{"no":"header"}'),
        (b"", b""),
    ],
)
def test_headers_of_both_kinds_are_taken_off(datagram: bytes, message: bytes) -> None:
    """RFC 3164 as nginx and HAProxy write it, RFC 5424, and none at all."""
    assert without_header(datagram) == message

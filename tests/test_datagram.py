"""Lines that come as datagrams: unix sockets and syslog over UDP."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from open_files import open_files
from running_exporter import wait_for

from analyzer.sources.datagrams import SourceError
from exporter.datagram import DatagramSource
from exporter.receiver import LINE_OVERHEAD_BYTES, Receiver
from exporter.syslog import SyslogSource
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
    room = 10 * (10 + LINE_OVERHEAD_BYTES)
    receiver = Receiver(ours, queue_bytes=room, max_line_bytes=50)
    for _ in range(20):
        theirs.send(b"x" * 10)
    theirs.send(b"y" * 60)
    wait_for(lambda: receiver._too_long)  # the last one was taken
    batch = receiver.poll()
    assert list(batch.lines) == [b"x" * 10] * 10
    assert batch.stats.lost == {"queue_full": 10}
    assert batch.stats.too_long == 1
    assert batch.stats.lag_bytes == 0
    assert receiver.poll().stats.lost == {}
    theirs.close()
    receiver.close()


def test_datagrams_that_the_kernel_dropped_are_counted() -> None:
    """Of UDP that comes faster than it is received, all is read or told as lost."""
    go_on = threading.Event()

    def slowly(datagram: bytes) -> bytes:
        go_on.wait(10)
        return datagram

    ours = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ours.bind(("127.0.0.1", 0))
    address = ours.getsockname()
    receiver = Receiver(ours, strip=slowly, queue_bytes=1 << 30)
    read, lost, sent = 0, Counter[str](), 500
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(sent):
            sender.sendto(b"x" * 60_000, address)
        go_on.set()
        last = b""
        while last != b"last":
            sender.sendto(b"last", address)  # the kernel tells with the next one
            time.sleep(0.01)
            batch = receiver.poll(1 << 30)
            read += sum(line != b"last" for line in batch.lines)
            lost += Counter(batch.stats.lost)
            last = batch.lines[-1] if batch.lines else b""
    receiver.close()
    assert lost["kernel_buffer_full"] > 0
    assert read + lost.total() == sent


def test_a_stream_of_datagrams_does_not_keep_the_receiver_from_ending() -> None:
    """The thread sees that it shall end while datagrams come without a pause."""
    ours = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ours.bind(("127.0.0.1", 0))
    address = ours.getsockname()
    receiver = Receiver(ours)
    ended = threading.Event()

    def flood() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while not ended.is_set():
                sender.sendto(b"x", address)

    flooding = threading.Thread(target=flood)
    flooding.start()
    wait_for(lambda: receiver.poll().lines)
    receiver.close()
    alive = receiver._thread.is_alive()
    ended.set()
    flooding.join()
    assert not alive


def test_closing_ends_the_thread_and_frees_every_descriptor() -> None:
    """No thread and no descriptor is left."""
    threads, files = threading.active_count(), open_files()
    source = SyslogSource("udp://127.0.0.1:0")
    source.close()
    assert threading.active_count() == threads
    assert open_files() == files


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

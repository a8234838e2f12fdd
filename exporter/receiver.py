"""Takes datagrams off a socket as they come, into a bounded queue of lines."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable

from exporter.tail_batch import BATCH_BYTES, MAX_LINE_BYTES, Batch, Stats

QUEUE_BYTES = 16 << 20
LINE_OVERHEAD_BYTES = 64  # what a line costs in the queue beside its bytes
RECEIVE_BUFFER_BYTES = 4 << 20
BURST = 256
STOP_SECONDS = 2.0
# From Linux's asm/socket.h; Python names neither.
_SO_RXQ_OVFL = 40
_SO_RCVBUFFORCE = 33
_COUNTER_MODULUS = 1 << 32


class Receiver:
    """A line source over a bound datagram socket, which it owns; has `close()`.

    A thread empties the socket, since the kernel keeps only a few datagrams and the
    sender does not wait. What comes while the queue is full is dropped and counted,
    and so is what the kernel dropped of UDP because the socket was full. *strip* takes
    a transport's own header off a datagram. There is no position: datagrams that
    nobody counted before a kill are gone.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        strip: Callable[[bytes], bytes] = bytes,
        queue_bytes: int = QUEUE_BYTES,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self._socket = sock
        self._strip = strip
        self._queue_bytes = queue_bytes
        self._max_line_bytes = max_line_bytes
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._too_long = 0
        self._lost: Counter[str] = Counter()
        self._overflows = 0  # as the kernel counts them, since the socket was made
        self._problem = ""
        self._lock = threading.Lock()
        self._closing, self._wake = socket.socketpair()
        _enlarge(sock)
        sock.setblocking(False)
        self._thread = threading.Thread(
            target=self._run, name="log-receiver", daemon=True
        )
        self._thread.start()

    def _run(self) -> None:
        # select() knows no descriptor above 1023.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._closing, select.POLLIN)
        buffer = bytearray(self._max_line_bytes + 1)
        try:
            while True:
                ready = [descriptor for descriptor, _ in poll.poll()]
                if self._closing.fileno() in ready:
                    return
                self._receive(buffer)
        except OSError as error:
            with self._lock:
                self._problem = error.strerror or str(error)

    def _receive(self, buffer: bytearray) -> None:
        """Takes what is there, but no more than a burst."""
        space = socket.CMSG_SPACE(4)
        with contextlib.suppress(BlockingIOError):
            for _ in range(BURST):
                size, extras, _, _ = self._socket.recvmsg_into([buffer], space)
                self._take(bytes(memoryview(buffer)[:size]))
                for level, kind, data in extras:
                    if (level, kind) == (socket.SOL_SOCKET, _SO_RXQ_OVFL):
                        self._overflowed(int.from_bytes(data[:4], "little"))

    def _overflowed(self, count: int) -> None:
        more = (count - self._overflows) % _COUNTER_MODULUS
        self._overflows = count
        if more:
            with self._lock:
                self._lost["kernel_buffer_full"] += more

    def _take(self, datagram: bytes) -> None:
        if len(datagram) > self._max_line_bytes:
            with self._lock:
                self._too_long += 1
            return
        lines = [line for line in self._strip(datagram).split(b"\n") if line]
        with self._lock:
            for line in lines:
                size = len(line) + LINE_OVERHEAD_BYTES
                if self._size + size > self._queue_bytes:
                    self._lost["queue_full"] += 1
                    continue
                self._lines.append(line)
                self._size += size

    def poll(self, limit_bytes: int = BATCH_BYTES) -> Batch:
        """Returns the lines that have come, of about *limit_bytes* at most."""
        lines: list[bytes] = []
        left = limit_bytes
        with self._lock:
            while self._lines and left > 0:
                line = self._lines.popleft()
                self._size -= len(line) + LINE_OVERHEAD_BYTES
                left -= len(line)
                lines.append(line)
            lost, self._lost = self._lost, Counter()
            too_long, self._too_long = self._too_long, 0
            stats = Stats(
                too_long=too_long,
                lost=lost,
                lag_bytes=self._size - LINE_OVERHEAD_BYTES * len(self._lines),
                problems={"socket": self._problem} if self._problem else {},
            )
            return Batch(lines, None, stats, more=bool(self._lines))

    def close(self) -> None:
        """Ends the thread and closes the socket."""
        self._wake.send(b"x")
        self._thread.join(STOP_SECONDS)
        for sock in (self._wake, self._closing, self._socket):
            sock.close()


def _enlarge(sock: socket.socket) -> None:
    """Asks for a larger buffer, as far as we may, and for the kernel's losses."""
    for option in (socket.SO_RCVBUF, _SO_RCVBUFFORCE):
        with contextlib.suppress(OSError):  # beyond the limit it takes a privilege
            sock.setsockopt(socket.SOL_SOCKET, option, RECEIVE_BUFFER_BYTES)
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_RXQ_OVFL, 1)

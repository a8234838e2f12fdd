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
RECEIVE_BUFFER_BYTES = 4 << 20
STOP_SECONDS = 2.0


class Receiver:
    """A line source over a bound datagram socket, which it owns; has `close()`.

    A thread empties the socket, since the kernel keeps only a few datagrams and the
    sender does not wait. What comes while the queue is full is dropped and counted.
    *strip* takes a transport's own header off a datagram. There is no position:
    datagrams that nobody counted before a kill are gone.
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
        self._problem = ""
        self._lock = threading.Lock()
        self._closing, self._wake = socket.socketpair()
        with contextlib.suppress(OSError):  # the kernel may allow less
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        sock.setblocking(False)
        self._thread = threading.Thread(
            target=self._run, name="log-receiver", daemon=True
        )
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                ready, _, _ = select.select([self._socket, self._closing], [], [])
                if self._closing in ready:
                    return
                with contextlib.suppress(BlockingIOError):
                    while True:
                        self._take(self._socket.recv(self._max_line_bytes + 1))
        except OSError as error:
            with self._lock:
                self._problem = error.strerror or str(error)

    def _take(self, datagram: bytes) -> None:
        with self._lock:
            if len(datagram) > self._max_line_bytes:
                self._too_long += 1
                return
            for line in self._strip(datagram).split(b"\n"):
                if not line:
                    continue
                if self._size + len(line) > self._queue_bytes:
                    self._lost["queue_full"] += 1
                    continue
                self._lines.append(line)
                self._size += len(line)

    def poll(self, limit_bytes: int = BATCH_BYTES) -> Batch:
        """Returns the lines that have come, of about *limit_bytes* at most."""
        lines: list[bytes] = []
        left = limit_bytes
        with self._lock:
            while self._lines and left > 0:
                line = self._lines.popleft()
                self._size -= len(line)
                left -= len(line)
                lines.append(line)
            lost, self._lost = self._lost, Counter()
            too_long, self._too_long = self._too_long, 0
            stats = Stats(
                too_long=too_long,
                lost=lost,
                lag_bytes=self._size,
                problems={"socket": self._problem} if self._problem else {},
            )
            return Batch(lines, None, stats, more=bool(self._lines))

    def close(self) -> None:
        """Ends the thread and closes the socket."""
        self._wake.send(b"x")
        self._thread.join(STOP_SECONDS)
        for sock in (self._wake, self._closing, self._socket):
            sock.close()

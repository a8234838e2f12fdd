"""The web server's front: one thread does all socket work, with total deadlines.

cheroot hands a new connection to a worker that waits for its bytes, counts its
timeout from read to read, and does TLS handshakes in the thread that accepts: a few
silent clients would hold everything. So here one thread accepts, shakes hands,
collects the whole head of a request and later sends the answer. cheroot's workers
parse and answer in memory, and never wait for a client.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from wsgiref.types import WSGIApplication

from cheroot import wsgi

from exporter.web_connection import Connection, Phase, plain_answer
from exporter.web_tls import Tls

logger = logging.getLogger(__name__)

PRODUCT = "goodput-exporter"
ACCEPTS_AT_ONCE = 32
ACCEPT_PAUSE_SECONDS = 1.0
STOP_GRACE_SECONDS = 1.0
WORKER_GRACE_SECONDS = 0.5
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What clients may use: counts, bytes, and seconds in total, not per read.

    `head_seconds` covers the TLS handshake and the request's head, `idle_seconds` a
    kept connection between two requests (longer than most scrape intervals),
    `send_seconds` the taking of an answer, `linger_seconds` the end of a connection.
    """

    threads: int = 8
    queued: int = 32
    connections: int = 64
    head_bytes: int = 65_536
    body_bytes: int = 65_536
    head_seconds: float = 5.0
    idle_seconds: float = 90.0
    send_seconds: float = 15.0
    linger_seconds: float = 1.0


class FrontServer(wsgi.Server):
    """cheroot's server behind a front of its own, on a socket that listens.

    `serve` runs until `stop`; both are called once. When all places are taken, a new
    connection gets that of the client that has kept us waiting longest.
    """

    def __init__(
        self,
        listener: socket.socket,
        app: WSGIApplication,
        *,
        tls: Callable[[], Tls | None],
        limits: Limits,
    ) -> None:
        super().__init__(
            listener.getsockname()[:2],
            app,
            numthreads=limits.threads,
            max=limits.threads,
            server_name=PRODUCT,  # no version
            timeout=int(limits.idle_seconds),
            accepted_queue_size=limits.queued,
            accepted_queue_timeout=0,
        )
        self.software = PRODUCT
        self.max_request_header_size = limits.head_bytes
        self.max_request_body_size = limits.body_bytes
        self._limits = limits
        self._tls = tls
        self._listener = listener
        self._accepts_from = 0.0  # monotonic; later than now while accepting pauses
        self._open: set[Connection] = set()
        self._returned: deque[tuple[Connection, bool]] = deque()
        self._selector = selectors.DefaultSelector()
        self._alarm, self._bell = socket.socketpair()
        for end in (listener, self._alarm, self._bell):
            end.setblocking(False)
        self._stopping = self._ended = False
        self._stops_at: float | None = None

    # What cheroot's workers call, in their threads.

    @property
    def can_add_keepalive_connection(self) -> bool:
        """Whether a connection may stay open after its answer."""
        return not self._stopping

    def put_conn(self, conn: Connection) -> None:
        """Takes back a connection that stays open after its answer."""
        self.give_back(conn, keep=True)

    def give_back(self, conn: Connection, *, keep: bool) -> None:
        """Takes back a connection whose answer is ready to be sent."""
        self._returned.append((conn, keep))
        if self._ended:
            self._discard_returned()
        else:
            self._ring()

    def error_log(
        self,
        msg: str = "",
        level: int = logging.INFO,
        traceback: bool = False,  # noqa: FBT001, FBT002  cheroot's signature
    ) -> None:
        """Logs what cheroot reports."""
        logger.log(level, "%s", msg, exc_info=traceback)

    # The front's own thread.

    def serve(self) -> None:
        """Serves until `stop`. Run it in a daemon thread.

        Workers inherit being daemons from it, so that a handler that never returns
        cannot keep the process from ending.
        """
        self.requests.start()
        self._selector.register(self._listener, READ)
        self._selector.register(self._alarm, READ)
        try:
            while not (self._stopping and self._is_over()):
                for key, _ in self._selector.select(self._patience()):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj is self._alarm:
                        self._alarm.recv(4096)
                    elif key.data in self._open:  # not shed in this very round
                        self._advance(key.data)
                self._send_returned()
                self._expire()
        finally:
            self._end()

    def stop(self) -> None:
        """Ends `serve`: requests being answered get one second, the rest nothing."""
        self._stopping = True
        self._ring()

    def close_unserved(self) -> None:
        """Closes the sockets of a server whose `serve` never ran."""
        self._end_sockets()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # full is as good as rung; closed is over
            self._bell.send(b"\0")

    def _patience(self) -> float | None:
        """Returns the seconds until something is due, None when nothing ever is."""
        due = [c.deadline for c in self._open if c.phase is not Phase.WORKER]
        if self._accepts_from:
            due.append(self._accepts_from)
        if self._stops_at is not None:
            due.append(self._stops_at)
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                sock, peer = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:  # no file descriptor or memory is left
                logger.warning("cannot accept connections error=%r", str(error))
                self._selector.unregister(self._listener)
                self._accepts_from = time.monotonic() + ACCEPT_PAUSE_SECONDS
                return
            if len(self._open) >= self._limits.connections:
                self._shed()
            self._admit(sock, peer)

    def _admit(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        tls = self._tls()
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wrapped = sock if tls is None else tls.wrap(sock)
        except (OSError, ValueError) as error:  # it left already
            logger.debug("lost a connection peer=%s error=%r", peer[0], str(error))
            sock.close()
            return
        conn = Connection(self, wrapped, tls=tls, peer=peer)
        conn.enter(conn.phase, self._limits.head_seconds)
        self._open.add(conn)
        self._advance(conn)

    def _shed(self) -> None:
        """Drops the connection that has kept us waiting longest.

        Idle ones too: a client that meant no harm connects again. So a new client
        loses its place only when as many newer ones come before its request does.
        """
        waiting = [c for c in self._open if c.phase is not Phase.WORKER]
        if waiting:
            self._drop(min(waiting, key=lambda c: c.since))

    def _advance(self, conn: Connection) -> None:
        """Does for a connection all that needs no waiting, then waits for more."""
        try:
            self._go_on(conn)
        except OSError as error:
            self._wait(conn, 0)
            if conn.speaks_plainly(error):
                self._send(conn, plain_answer(400, "this port speaks HTTPS only"))
                self._advance(conn)
                return
            if not conn.is_idle:
                logger.debug("lost a connection %s error=%r", conn.label, str(error))
            self._drop(conn)
        except Exception:  # one client's exchange must not end all others'
            logger.exception("dropped a connection %s", conn.label)
            self._drop(conn)

    def _go_on(self, conn: Connection) -> None:
        try:
            while conn.phase is not Phase.WORKER and conn in self._open:
                self._step(conn)
        except ssl.SSLWantReadError:
            self._wait(conn, READ)
        except ssl.SSLWantWriteError:
            self._wait(conn, WRITE)
        except BlockingIOError:
            self._wait(conn, WRITE if conn.phase is Phase.SEND else READ)

    def _step(self, conn: Connection) -> None:
        if conn.phase is Phase.HANDSHAKE:
            conn.shake_hands()
        elif conn.phase is Phase.HEAD:
            if conn.is_idle and not conn.has_input:
                conn.receive()
                conn.enter(Phase.HEAD, self._limits.head_seconds)
            elif not conn.has_whole_head(self._limits.head_bytes):
                conn.receive()
            else:
                self._hand_over(conn)
        elif conn.phase is Phase.SEND:
            if conn.send():
                self._after_answer(conn)
        elif not conn.discard(self._limits.body_bytes):
            self._drop(conn)

    def _hand_over(self, conn: Connection) -> None:
        self._wait(conn, 0)
        conn.load()
        conn.enter(Phase.WORKER, 0.0)
        try:
            self.requests.put(conn)
        except queue.Full:
            conn.unload()
            self._send(conn, plain_answer(503, "too many requests are waiting"))

    def _send_returned(self) -> None:
        while self._returned:
            conn, keep = self._returned.popleft()
            if conn in self._open:
                self._send(conn, conn.unload(), keep=keep and not self._stopping)
                self._advance(conn)

    def _send(self, conn: Connection, answer: bytes, *, keep: bool = False) -> None:
        conn.put_answer(answer, keep=keep)
        conn.enter(Phase.SEND, self._limits.send_seconds)

    def _after_answer(self, conn: Connection) -> None:
        if conn.keep:
            limit = self._limits.head_seconds if conn.has_input else None
            conn.enter(Phase.HEAD, limit or self._limits.idle_seconds)
        else:
            conn.enter(Phase.LINGER, self._limits.linger_seconds)
            conn.end_sending()

    def _wait(self, conn: Connection, events: int) -> None:
        """Has the selector watch for *events*, 0 for none."""
        if events == conn.events:
            return
        if not conn.events:
            self._selector.register(conn.socket, events, conn)
        elif events:
            self._selector.modify(conn.socket, events, conn)
        else:
            self._selector.unregister(conn.socket)
        conn.events = events

    def _expire(self) -> None:
        now = time.monotonic()
        for conn in [c for c in self._open if c.phase is not Phase.WORKER]:
            if conn.deadline <= now:
                self._drop(conn)
        if self._accepts_from and self._accepts_from <= now and not self._stopping:
            self._accepts_from = 0.0
            self._selector.register(self._listener, READ)

    def _drop(self, conn: Connection) -> None:
        self._wait(conn, 0)
        self._open.discard(conn)
        conn.drop()

    def _is_over(self) -> bool:
        """Whether no request is being answered any more, or its time has passed."""
        if self._stops_at is None:
            self._stops_at = time.monotonic() + STOP_GRACE_SECONDS
            self._accepts_from = 0.0
            with contextlib.suppress(KeyError):  # accepting was paused
                self._selector.unregister(self._listener)
            self._listener.close()
        for conn in [c for c in self._open if c.phase in Phase.unanswered()]:
            self._drop(conn)
        return not self._open or time.monotonic() >= self._stops_at

    def _end(self) -> None:
        self._end_sockets()
        self._discard_returned()
        self.requests.stop(WORKER_GRACE_SECONDS)

    def _end_sockets(self) -> None:
        self._stopping = self._ended = True
        for conn in tuple(self._open):
            self._open.discard(conn)
            conn.drop()
        self._selector.close()
        for end in (self._listener, self._alarm, self._bell):
            end.close()

    def _discard_returned(self) -> None:
        with contextlib.suppress(IndexError):  # another thread took the last one
            while True:
                self._returned.popleft()[0].drop()

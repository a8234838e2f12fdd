"""One connection of the web server: its socket, its bytes and its phase."""

from __future__ import annotations

import contextlib
import enum
import io
import re
import socket
import ssl
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from cheroot.server import HTTPConnection, HTTPRequest

from exporter.web_tls import Tls

if TYPE_CHECKING:
    from exporter.web_front import FrontServer

CHUNK_BYTES = 16_384
# cheroot answers a head that ends in bare line feeds with 400.
_HEAD_END = re.compile(rb"\n\r?\n")
_HEAD_END_BYTES = 3


class Phase(enum.Enum):
    """Where an exchange stands."""

    HANDSHAKE = "handshake"
    HEAD = "head"
    WORKER = "worker"
    SEND = "send"
    LINGER = "linger"

    @classmethod
    def unanswered(cls) -> tuple[Phase, ...]:
        """Returns the phases in which no answer is on its way."""
        return cls.HANDSHAKE, cls.HEAD, cls.LINGER


class Request(HTTPRequest):
    """A request whose body, if it has one, is never read: no route needs any.

    The connection then ends with the answer, since where the next request begins
    is only known behind the body.
    """

    def read_request_headers(self) -> bool:
        """Reads the headers from memory; returns whether they are usable."""
        if not super().read_request_headers():  # type: ignore[no-untyped-call]
            return False
        length = self.inheaders.get(b"Content-Length", b"0").strip()
        if length != b"0" or b"Transfer-Encoding" in self.inheaders:
            self.close_connection = True
        return True


class Connection(HTTPConnection):
    """A client's connection; its socket never blocks.

    Methods that read or write raise BlockingIOError, SSLWantReadError or
    SSLWantWriteError when they must wait, another OSError when the client is lost.
    """

    RequestHandlerClass = Request
    server: FrontServer

    def __init__(
        self,
        server: FrontServer,
        sock: socket.socket,
        *,
        tls: Tls | None,
        peer: tuple[str, int],
    ) -> None:
        super().__init__(server, sock, _in_memory)
        self.remote_addr, self.remote_port = peer[:2]
        self.phase = Phase.HEAD if tls is None else Phase.HANDSHAKE
        self.since = self.deadline = 0.0
        self.events = 0  # what the selector watches for
        self.keep = False
        self.is_idle = False  # answered before, and nothing of a next request came
        self._tls = tls
        self._inbox = bytearray()
        self._searched = 0
        self._outbox = memoryview(b"")
        self._discarded = 0

    def close(self) -> None:
        """Hands the connection back; cheroot's workers close it this way."""
        self.server.give_back(self, keep=False)

    def enter(self, phase: Phase, seconds: float) -> None:
        """Starts a phase that may last *seconds*."""
        self.is_idle = (
            phase is Phase.HEAD and self.phase is Phase.SEND and not self.has_input
        )
        self.phase = phase
        self.since = time.monotonic()
        self.deadline = self.since + seconds

    def shake_hands(self) -> None:
        """Goes on with the TLS handshake, and checks the client's certificate."""
        if self._tls is not None:
            self.socket.do_handshake()
            self._tls.check(self.socket)
        self.phase = Phase.HEAD  # the deadline stays: it covers both

    def speaks_plainly(self, error: OSError) -> bool:
        """Whether a handshake failed since the client speaks plain HTTP.

        The socket is then a plain one, and can carry an answer. No selector may know
        it, since it is a new object.
        """
        reason = getattr(error, "reason", None)
        if self.phase is not Phase.HANDSHAKE or reason != "HTTP_REQUEST":
            return False
        self.socket = socket.socket(fileno=self.socket.detach())
        self.socket.setblocking(False)
        return True

    @property
    def label(self) -> str:
        """What the log says of the connection."""
        return f"peer={self.remote_addr} phase={self.phase.value}"

    @property
    def has_input(self) -> bool:
        """Whether bytes of a next request are here."""
        return bool(self._inbox)

    def receive(self) -> None:
        """Adds what has arrived to the input."""
        data = self.socket.recv(CHUNK_BYTES)
        if not data:
            raise ConnectionResetError("closed before a whole request")
        self._inbox += data

    def has_whole_head(self, limit: int) -> bool:
        """Whether cheroot can judge the request: its head is whole, or too large."""
        begin = max(0, self._searched - _HEAD_END_BYTES)
        self._searched = len(self._inbox)
        return (
            len(self._inbox) > limit or _HEAD_END.search(self._inbox, begin) is not None
        )

    def load(self) -> None:
        """Makes the input readable for a worker."""
        self.rfile = io.BytesIO(self._inbox)
        self.wfile = io.BytesIO()
        self._inbox = bytearray()
        self._searched = 0

    def unload(self) -> bytes:
        """Returns the answer that a worker wrote; what it left unread is input."""
        self._inbox += self.rfile.read()
        answer: bytes = self.wfile.getvalue()
        self.rfile, self.wfile = io.BytesIO(), io.BytesIO()
        return answer

    def put_answer(self, answer: bytes, *, keep: bool) -> None:
        """Sets what `send` sends, and whether the connection stays open after it."""
        self._outbox = memoryview(answer)
        self.keep = keep

    def send(self) -> bool:
        """Sends some of the answer; returns whether that was all of it."""
        if self._outbox:
            sent = self.socket.send(self._outbox[: 4 * CHUNK_BYTES])
            self._outbox = self._outbox[sent:] or memoryview(b"")  # let go of it
        return not self._outbox

    def end_sending(self) -> None:
        """Tells the client that nothing more comes.

        What it still sends is discarded for a while, since closing on unread bytes
        would reset the connection, and could cost it the answer.
        """
        if isinstance(self.socket, ssl.SSLSocket):
            with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                self.socket.unwrap()
        self.socket.shutdown(socket.SHUT_WR)

    def discard(self, limit: int) -> bool:
        """Throws input away; returns whether more may come, at most *limit* bytes."""
        count = len(self.socket.recv(CHUNK_BYTES))
        self._discarded += count
        return count > 0 and self._discarded <= limit

    def drop(self) -> None:
        """Closes the socket."""
        with contextlib.suppress(OSError):
            self.socket.close()


def plain_answer(status: int, text: str) -> bytes:
    """Returns a whole answer of one sentence, after which the connection ends."""
    body = f"{text}\n".encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _in_memory(_sock: socket.socket, _mode: str, _size: int) -> io.BytesIO:
    """Stands in for cheroot's makefile: workers read and write in memory."""
    return io.BytesIO()

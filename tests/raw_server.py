"""A TCP server that does with a connection whatever a test's script says."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

PATIENCE_SECONDS = 20.0  # for what must come


class Peer:
    """One connection as its script sees it; `number` counts them from 0."""

    def __init__(self, sock: socket.socket, number: int, stop: threading.Event) -> None:
        self.socket = sock
        self.number = number
        self.requests: list[bytes] = []
        self.sent = 0
        self._stop = stop

    def request(self) -> bytes:
        """Returns the next request's head, b"" when the client has gone."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            data = self.socket.recv(1)
            if not data:
                return b""
            head += data
        self.requests.append(head)
        return head

    def send(self, data: bytes) -> None:
        """Sends all of *data*; `sent` counts the bytes."""
        self.socket.sendall(data)
        self.sent += len(data)

    def drip(self, data: bytes, *, every: float = 0.02) -> None:
        """Sends *data* again and again, a byte at a time, until somebody stops."""
        while True:
            for byte in data:
                self.send(bytes([byte]))
                if self._stop.wait(every):
                    return

    def pour(self, data: bytes) -> None:
        """Sends *data* again and again, as fast as it goes, until somebody stops."""
        while not self._stop.is_set():
            self.send(data)

    def hang(self) -> None:
        """Does nothing until the server is stopped."""
        self._stop.wait()

    def reset(self) -> None:
        """Closes the connection with a reset instead of an orderly end."""
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.socket.close()


Script = Callable[[Peer], None]


class RawServer:
    """Runs *script* on every connection to a free port, each in its own thread."""

    def __init__(
        self,
        script: Script,
        *,
        address: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._script = script
        self._tls = tls
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.peers: list[Peer] = []
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family)
        host = f"[{address}]" if ":" in address else address
        scheme = "http" if tls is None else "https"
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{scheme}://{host}:{self.port}/metrics"
        self._acceptor = threading.Thread(target=self._accept)
        self._acceptor.start()

    @property
    def connections(self) -> int:
        """How many connections there have been."""
        return len(self.peers)

    @property
    def requests(self) -> list[bytes]:
        """The heads of all requests so far, by connection."""
        return [head for peer in list(self.peers) for head in peer.requests]

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._stop.is_set():
                    sock.close()
                    return
                peer = Peer(sock, len(self.peers), self._stop)
                self.peers.append(peer)
                thread = threading.Thread(target=self._serve, args=(peer,))
                self._threads.append(thread)
            thread.start()

    def _serve(self, peer: Peer) -> None:
        with contextlib.suppress(OSError):  # the client has gone
            if self._tls is not None:
                peer.socket = self._tls.wrap_socket(peer.socket, server_side=True)
            self._script(peer)
        peer.socket.close()

    def close(self) -> None:
        """Ends every script and connection, and frees the port."""
        self._stop.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join(PATIENCE_SECONDS)
        with self._lock:
            for peer in self.peers:
                with contextlib.suppress(OSError):
                    peer.socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def answer(
    body: bytes, *headers: str, status: str = "200 OK", length: int | None = None
) -> bytes:
    """Returns a whole HTTP answer; *length* lies about the body's."""
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Length: {len(body) if length is None else length}",
        *headers,
    ]
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body


def head(*headers: str, status: str = "200 OK") -> bytes:
    """Returns the head of an HTTP answer without a length."""
    lines = [f"HTTP/1.1 {status}", *headers]
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"


def chunk(data: bytes) -> bytes:
    """Returns one chunk of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def saying(*parts: bytes) -> Script:
    """Returns a script that reads a request, sends these parts and closes."""

    def script(peer: Peer) -> None:
        if peer.request():
            for part in parts:
                peer.send(part)

    return script


def serving(*parts: bytes) -> Script:
    """Returns a script that answers every request of a connection with these parts."""

    def script(peer: Peer) -> None:
        while peer.request():
            peer.send(b"".join(parts))

    return script


def dripping(first: bytes, drops: bytes) -> Script:
    """Returns a script that sends *first* at once and then *drops* for ever."""

    def script(peer: Peer) -> None:
        if peer.request():
            peer.send(first)
            peer.drip(drops)

    return script


def stalling(*parts: bytes) -> Script:
    """Returns a script that sends these parts, and then nothing for ever."""

    def script(peer: Peer) -> None:
        saying(*parts)(peer)
        peer.hang()

    return script


def pouring(first: bytes, flood: bytes) -> Script:
    """Returns a script that sends *first* and then *flood* for ever."""

    def script(peer: Peer) -> None:
        if peer.request():
            peer.send(first)
            peer.pour(flood)

    return script


def resetting(peer: Peer) -> None:
    """Reads a request and resets the connection."""
    if peer.request():
        peer.reset()

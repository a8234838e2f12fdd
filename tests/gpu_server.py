"""An HTTP server that prints what a GPU exporter would; the test decides what."""

from __future__ import annotations

import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from types import TracebackType
from typing import Self


class GpuServer:
    """Serves `page` at `/metrics` on a free port; with *token* only to who has it.

    Clear `answering` to let it hang.
    """

    def __init__(
        self, page: str = "", *, token: str = "", tls: SSLContext | None = None
    ) -> None:
        self.page = page
        self.status = 200
        self.scrapes = 0
        self.answering = threading.Event()
        self.answering.set()
        gpus = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                gpus.scrapes += 1
                gpus.answering.wait(30)
                wanted = f"Bearer {token}" if token else None
                allowed = self.headers.get("Authorization") == wanted
                body = gpus.page.encode()
                self.send_response(gpus.status if allowed else 401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with suppress(OSError):  # who asked may have lost patience
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Keeps the tests' output clean."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://localhost:{self._server.server_port}/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.answering.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

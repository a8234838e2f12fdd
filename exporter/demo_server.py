"""A small HTTP server for pages that a function makes; it can be gone at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Content type and body; None closes the connection without an answer.
Answer = tuple[str, bytes] | None


class PageServer:
    """Answers GET on 127.0.0.1 from *pages* by path; has `close()`.

    After that new connections are refused, and open ones end with the next request.
    """

    def __init__(
        self, pages: Mapping[str, Callable[[], Answer]], *, port: int = 0
    ) -> None:
        gone = self._gone = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def do_GET(self) -> None:
                make = pages.get(self.path)
                if make is None:
                    self.send_error(404)
                    return
                answer = None if gone.is_set() else make()
                if answer is None:
                    self.close_connection = True
                    return
                kind, body = answer
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self._server = _Server(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.server_port

    def close(self) -> None:
        """Stops listening."""
        self._gone.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

"""A demonstration without an engine: a recording of a real vLLM, in real time.

The pages of the recording are served over HTTP as the engine served them, second by
second and again from the begin, so that the exporter works as it does in earnest.
"""

from __future__ import annotations

import bisect
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import as_file, files

from analyzer.config import Config, parse_config
from analyzer.sources.recording import Scrape, read_scrapes

SCENARIOS = ("recording",)
CONFIG = """
slo_classes:
  - name: interactive
    good: {{ttft: 1s, tpot: 50ms, e2e: 10s}}
    objective: 0.95
    percentiles: {{ttft: {{p95: 1s}}}}
engines:
  - name: demo
    url: "{url}"
    interval: 1s
"""


class DemoEngine:
    """Serves a recording's pages in real time on a free local port; has `close()`."""

    def __init__(self) -> None:
        scrapes = [s for s in _recorded() if s.text is not None]
        begin = time.monotonic()
        offsets = [s.at - scrapes[0].at for s in scrapes]
        length = offsets[-1] + 1.0

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path != "/metrics":
                    self.send_error(404)
                    return
                elapsed = (time.monotonic() - begin) % length
                index = bisect.bisect_right(offsets, elapsed) - 1
                body = (scrapes[max(0, index)].text or "").encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=1.0.0")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="demo-engine", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the metrics."""
        return f"http://127.0.0.1:{self._server.server_port}/metrics"

    @property
    def config(self) -> Config:
        """A configuration that watches this engine."""
        return parse_config(CONFIG.format(url=self.url), "demo")

    def close(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _recorded() -> list[Scrape]:
    """Returns the pages of the recording that ships with the package."""
    with as_file(files("exporter") / "demo_data") as directory:
        return list(read_scrapes(directory))

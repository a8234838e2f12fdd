"""Pages of many pods from one server, for benchmarks of Prometheus."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serving(page: Callable[[int, int], bytes]) -> Iterator[int]:
    """Serves each pod at its number; yields the port.

    *page* takes the pod and how often it was scraped before.
    """
    served: Counter[int] = Counter()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pod = int(self.path.removeprefix("/"))
            body = page(pod, served[pod])
            served[pod] += 1
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def scraped(
    port: int, pods: int, *, interval: str, labels: Mapping[str, str]
) -> dict[str, object]:
    """Returns the scrape of every pod's page, which is a target of its own."""
    targets = [
        {
            "targets": [f"127.0.0.1:{port}"],
            "labels": {
                "__metrics_path__": f"/{pod}",
                **labels,
                "instance": f"10.0.0.{pod}:1",
                "pod": f"vllm-{pod}",
            },
        }
        for pod in range(pods)
    ]
    timing = {"scrape_interval": interval, "scrape_timeout": "10s"}
    return {"job_name": "vllm", **timing, "static_configs": targets}

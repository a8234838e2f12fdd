"""An HTTP server that prints what a vLLM would, with counts that the test decides."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

MODEL = "demo-small"
TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5)
ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
PORTS = 5_000  # a process's own
_ASKED = itertools.count()
LATENCY = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0)


class Process:
    """One engine process: its registry dies with it."""

    def __init__(self, model: str, *, with_start_time: bool) -> None:
        self.registry = CollectorRegistry()
        labels = {"model_name": model, "engine": "0"}
        names = tuple(labels)

        def histogram(name: str, buckets: tuple[float, ...]) -> Histogram:
            metric = Histogram(
                f"vllm:{name}", name, names, buckets=buckets, registry=self.registry
            )
            return metric.labels(**labels)

        def gauge(name: str) -> Gauge:
            metric = Gauge(f"vllm:{name}", name, names, registry=self.registry)
            return metric.labels(**labels)

        self.ttft = histogram("time_to_first_token_seconds", TTFT)
        self.tpot = histogram("request_time_per_output_token_seconds", ITL)
        self.e2e = histogram("e2e_request_latency_seconds", LATENCY)
        self.running = gauge("num_requests_running")
        self.waiting = gauge("num_requests_waiting")
        self.kv = gauge("kv_cache_usage_perc")
        self.tokens = Counter(
            "vllm:generation_tokens", "tokens", names, registry=self.registry
        ).labels(**labels)
        if with_start_time:
            Gauge("process_start_time_seconds", "start", registry=self.registry).set(
                time.time()
            )


def free_port() -> int:
    """Returns a port that nobody listens on, and that nobody is given soon.

    It is below those that the kernel hands out, and each process of pytest-xdist has
    its own thousands, from a place of its own on.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = 12_000 + worker % 4 * PORTS
    for _ in range(PORTS):
        port = first + (os.getpid() * 37 + next(_ASKED)) % PORTS
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no free port from {first} on")


class SyntheticEngine:
    """Serves `/metrics` and `/v1/models` on a free port; `restart` is a new process.

    `finish` is atomic towards a scrape, so that totals can be compared exactly.
    """

    def __init__(
        self, model: str = MODEL, *, with_start_time: bool = True, port: int = 0
    ) -> None:
        self.model = model
        self.lock = threading.Lock()
        self.scrapes = 0
        self.finished = 0
        self.connections: list[socket.socket] = []
        self._with_start_time = with_start_time
        self.process = Process(model, with_start_time=with_start_time)
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                engine.connections.append(self.connection)

            def do_GET(self) -> None:
                if self.path == "/metrics":
                    with engine.lock:
                        engine.scrapes += 1
                        body = generate_latest(engine.process.registry)
                elif self.path == "/v1/models":
                    body = (
                        b'{"data":[{"id":"%s","root":"/m"},'
                        b'{"id":"an-alias","root":"/m"}]}' % engine.model.encode()
                    )
                else:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the metrics."""
        return f"http://127.0.0.1:{self._server.server_port}/metrics"

    def finish(
        self, *, ttft: float = 0.05, tpot: float = 0.02, e2e: float = 1.0
    ) -> None:
        """Finishes one request with these latencies and ten tokens."""
        with self.lock:
            self.finished += 1
            self.process.ttft.observe(ttft)
            self.process.tpot.observe(tpot)
            self.process.e2e.observe(e2e)
            self.process.tokens.inc(10)

    def restart(self) -> None:
        """Replaces the process: every counter begins at zero."""
        with self.lock:
            self.process = Process(self.model, with_start_time=self._with_start_time)

    def close(self) -> None:
        """Stops serving and frees the port; kept connections end as well."""
        self._server.shutdown()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

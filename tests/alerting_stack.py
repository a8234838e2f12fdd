"""A real Prometheus and Alertmanager, the shipped rules and routes, and a webhook."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import requests
import yaml
from running_exporter import wait_for
from synthetic_engine import free_port

ALERTS = Path(__file__).resolve().parents[1] / "alerts"


@dataclass(frozen=True)
class Message:
    """One alert of a notification, and when it arrived."""

    at: float
    receiver: str
    status: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


class Webhook:
    """Takes Alertmanager's notifications on 127.0.0.1; has `close()`."""

    def __init__(self) -> None:
        self.messages: queue.Queue[Message] = queue.Queue()
        messages = self.messages

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                body = json.loads(self.rfile.read(size))
                now = time.monotonic()
                for alert in body["alerts"]:
                    status, labels = alert["status"], alert["labels"]
                    texts, receiver = alert["annotations"], body["receiver"]
                    messages.put(Message(now, receiver, status, labels, texts))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def quick_routes(hook: str, directory: Path) -> Path:
    """Writes the shipped routes with every receiver a webhook and nobody waiting."""
    config = yaml.safe_load((ALERTS / "alertmanager.yml").read_text(encoding="utf-8"))
    config["receivers"] = [
        {
            "name": receiver["name"],
            "webhook_configs": [{"url": hook, "send_resolved": True}],
        }
        for receiver in config["receivers"]
    ]
    config["templates"] = []

    def hurry(route: dict[str, Any]) -> None:
        route["group_wait"], route["group_interval"] = "0s", "1s"
        for below in route.get("routes", ()):
            hurry(below)

    hurry(config["route"])
    path = directory / "alertmanager.yml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


@dataclass
class Stack:
    """Both servers over scrape targets (`job`, address, labels); has `close()`."""

    directory: Path
    rules: Path
    targets: Sequence[tuple[str, Mapping[str, str]]]
    need_tool: Callable[[str], str]
    seen: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hook = Webhook()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.alertmanager = self._alertmanager()
        self.prometheus = self._prometheus()

    def _start(self, *command: str) -> None:
        log = (self.directory / f"{Path(command[0]).name}.log").open("wb")
        with log:
            self._processes.append(
                subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            )

    def _alertmanager(self) -> str:
        port = free_port()
        config = quick_routes(self.hook.url, self.directory)
        self._start(
            self.need_tool("prometheus-alertmanager"),
            f"--config.file={config}",
            f"--storage.path={self.directory / 'alertmanager'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        )
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: answers(f"{url}/-/ready"), seconds=60)
        return url

    def _prometheus(self) -> str:
        port = free_port()
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "rule_files": [str(self.rules)],
            "alerting": {
                "alertmanagers": [
                    {"static_configs": [{"targets": [self.alertmanager[7:]]}]}
                ]
            },
            "scrape_configs": [
                {
                    "job_name": "goodput",
                    "static_configs": [
                        {"targets": [address], "labels": dict(labels)}
                        for address, labels in self.targets
                    ],
                }
            ],
        }
        path = self.directory / "prometheus.yml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        self._start(
            self.need_tool("prometheus"),
            f"--config.file={path}",
            f"--storage.tsdb.path={self.directory / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        )
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: answers(f"{url}/-/ready"), seconds=60)
        return url

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Returns what Prometheus answers to an instant query."""
        answer = requests.get(
            f"{self.prometheus}/api/v1/query", params={"query": expr}, timeout=10
        ).json()
        assert answer["status"] == "success", answer
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def heard(self) -> list[Message]:
        """Returns every message up to now."""
        with suppress(queue.Empty):
            while True:
                self.seen.append(self.hook.messages.get_nowait())
        return self.seen

    def wait(
        self, wanted: Callable[[Message], bool], *, seconds: float = 120.0
    ) -> Message:
        """Returns the first message that is wanted, also among those before."""
        for message in self.seen:
            if wanted(message):
                return message
        deadline = time.monotonic() + seconds
        while True:
            try:
                message = self.hook.messages.get(
                    timeout=max(0.01, deadline - time.monotonic())
                )
            except queue.Empty:
                told = {
                    (
                        m.status,
                        m.labels["alertname"],
                        m.labels.get("cluster"),
                        m.labels.get("constraint"),
                    )
                    for m in self.seen
                }
                burning = self.query("slo_class:goodput_budget_burn:ratio_rate5m")
                raise AssertionError(
                    f"not in {seconds} s; told were {told}, {burning}"
                ) from None
            self.seen.append(message)
            if wanted(message):
                return message

    def close(self) -> None:
        """Ends both servers."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            process.wait(20)
        self.hook.close()


def answers(url: str) -> bool:
    """Whether a server answers with 200."""
    try:
        return requests.get(url, timeout=2).status_code == 200
    except requests.RequestException:
        return False

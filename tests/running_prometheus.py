"""A real Prometheus on a free port, with a configuration of the test."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import requests
import yaml
from running_exporter import wait_for
from synthetic_engine import free_port


class RunningPrometheus:
    """Runs *program* on *config*, whose paths are relative to *directory*.

    It is ready when it is made; has `close()`. `http` asks it without any proxy.
    """

    def __init__(
        self, program: str, directory: Path, config: Mapping[str, object]
    ) -> None:
        file = directory / "prometheus.yml"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.http = requests.Session()
        self.http.trust_env = False
        self._process = subprocess.Popen(
            [
                program,
                f"--config.file={file}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=error",
            ]
        )
        try:
            wait_for(self._ready, seconds=60)
        except BaseException:
            self.close()
            raise

    def _ready(self) -> bool:
        assert self._process.poll() is None, "Prometheus does not start"
        try:
            return self.http.get(f"{self.url}/-/ready", timeout=5).ok
        except requests.ConnectionError:
            return False

    def close(self) -> None:
        """Ends it."""
        self.http.close()
        self._process.terminate()
        self._process.wait(30)

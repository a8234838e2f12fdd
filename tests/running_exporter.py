"""The exporter as a process of its own, as users run it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import requests

from analyzer.exposition import Sample, parse_text

LISTENING = re.compile(r"listening url=(\S+?)[\"\s]")
START_SECONDS = 30.0
PROGRAM = Path(sys.executable).with_name("goodput-exporter")


def wait_for(condition: Callable[[], object], *, seconds: float = 20.0) -> None:
    """Waits until *condition* holds; fails when it does not within *seconds*."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{condition} did not come true in {seconds} s")
        time.sleep(0.05)


class RunningExporter:
    """Starts `goodput-exporter` on a free port; `kill` is a `kill -9`.

    *program* is a command that stands in for it, and becomes it in the same process.
    """

    def __init__(
        self,
        *arguments: str | Path,
        port: int = 0,
        stdin: int | None = None,
        program: Sequence[str] = (),
    ) -> None:
        self.log: list[str] = []
        self.process = subprocess.Popen(
            [
                *(program or [str(PROGRAM)]),
                f"--web.listen-address=127.0.0.1:{port}",
                *map(str, arguments),
            ],
            stdin=stdin,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        deadline = time.monotonic() + START_SECONDS
        while not self.url:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError("did not start:\n" + "".join(self.log))
            time.sleep(0.02)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            found = LISTENING.search(line)
            if found:
                self.url = found[1].rstrip("/")

    def get(self, path: str = "/metrics", **headers: str) -> requests.Response:
        """Returns the answer to a GET."""
        return requests.get(self.url + path, headers=headers, timeout=30)

    def samples(self) -> list[Sample]:
        """Scrapes once and returns the samples."""
        answer = self.get()
        assert answer.status_code == 200
        return parse_text(answer.text)

    def value(self, name: str, **labels: str) -> float | None:
        """Scrapes once and returns one sample's value, None when it is not there."""
        return value(self.samples(), name, **labels)

    def kill(self) -> None:
        """Ends the process as the kernel would, without any chance to clean up."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        self._reader.join(5)

    def stop(self) -> int:
        """Ends the process by SIGTERM and returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(20)
        self._reader.join(5)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()


def value(samples: list[Sample], name: str, **labels: str) -> float | None:
    """Returns the value of the one sample with at least these labels."""
    found = [
        sample.value
        for sample in samples
        if sample.name == name and labels.items() <= dict(sample.labels).items()
    ]
    assert len(found) <= 1, f"{name}{labels} is there {len(found)} times"
    return found[0] if found else None


def configuration(
    path: Path, url: str, *, interval: str = "1s", extra: str = ""
) -> Path:
    """Writes a configuration with one class and one engine; returns its path."""
    path.write_text(
        f"""
slo_classes:
  - name: interactive
    good: {{ttft: 100ms, tpot: 25ms, e2e: 2s}}
    objective: 0.95
engines:
  - {{name: vllm, url: "{url}", interval: {interval}, timeout: 2s}}
{extra}
""",
        encoding="utf-8",
    )
    return path

"""A demonstration without an engine: a simulated site, in a process of its own.

The site (`exporter.demo_site`) serves replicas' metrics and GPUs and writes a gateway's
log; the exporter watches it as it would in earnest, and its own cost stays visible.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from analyzer.config import Config, parse_config
from analyzer.config_sources import Credentials, Tls
from analyzer.simulation.scenarios import SCENARIOS
from analyzer.sources.scrape import Fetcher, ScrapeError
from exporter.demo_site import LIMITS, LOG, NODE, TARGETS

NAMES = tuple(SCENARIOS)
STOP_SECONDS = 5.0
CONFIG = """
slo_classes:
  - name: interactive
    good: {{ttft: {ttft}s, tpot: {tpot}s, e2e: {e2e}s}}
    objective: 0.95
    percentiles: {{ttft: {{p95: {ttft}s}}}}
    stages: {{gateway: 50ms}}
engines:
  - name: demo
    file_sd: {{files: ["{directory}/{targets}"]}}
    interval: {interval}
    declared: {{max_num_batched_tokens: 2048, tensor_parallel: 1}}
gpus:
  - name: node
    url: "http://127.0.0.1:{port}/gpu/metrics"
    match: {{hostname: {node}}}
gateways:
  - {{name: edge, path: "{directory}/{log}", format: envoy}}
"""


class DemoError(Exception):
    """The demonstration cannot start; the text is for the user."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Which scenario, how many simulated seconds a second, and how many replicas."""

    scenario: str
    speed: float = 1.0
    replicas: int = 2
    seed: int = 1


class Demo:
    """The process that plays the site; has `close()`. Raises DemoError.

    `begin` lets time run there: call it when the exporter is watching, so that it
    sees everything.
    """

    def __init__(self, options: DemoOptions) -> None:
        self._options = options
        try:
            self._directory = Path(tempfile.mkdtemp(prefix="goodput-demo-"))
        except OSError as error:
            raise DemoError(f"no place for the simulated site: {error}") from error
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [
                sys.executable,
                "-m",
                "exporter.demo_site",
                f"--scenario={options.scenario}",
                f"--directory={self._directory}",
                f"--speed={options.speed}",
                f"--replicas={options.replicas}",
                f"--seed={options.seed}",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for us
        )
        line = _pipe(self._process.stdout).readline()
        if not line:
            self.close()
            raise DemoError("the simulated site did not start")
        self._port = int(json.loads(line)["port"])

    def truth(self) -> bytes | None:
        """Returns what became of all requests so far, as JSON.

        None when the site does not answer.
        """
        url = f"http://127.0.0.1:{self._port}/demo/truth"
        fetcher = Fetcher(tls=Tls(), credentials=Credentials(), max_bytes=1 << 20)
        try:
            return fetcher.get(url, timeout=STOP_SECONDS).body
        except ScrapeError:
            return None
        finally:
            fetcher.close()

    @property
    def config(self) -> Config:
        """A configuration that watches the site."""
        many = self._options.replicas > 20  # then it is the exporter's cost that counts
        text = CONFIG.format(
            ttft=LIMITS.ttft,
            tpot=LIMITS.tpot,
            e2e=LIMITS.e2e,
            directory=self._directory,
            targets=TARGETS,
            interval="5s" if many else "1s",
            port=self._port,
            node=NODE,
            log=LOG,
        )
        return parse_config(text, "demo")

    def begin(self) -> None:
        """Lets the site's clock run."""
        stdin = _pipe(self._process.stdin)
        with suppress(BrokenPipeError):  # that it has died shows as targets down
            stdin.write("begin\n")
            stdin.flush()

    def close(self) -> None:
        """Ends the process, and removes what it wrote."""
        with suppress(BrokenPipeError):  # of what could not be written before
            _pipe(self._process.stdin).close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


def _pipe(end: IO[str] | None) -> IO[str]:
    if end is None:
        raise DemoError("the simulated site has no pipe to us")
    return end


def scenarios_text() -> str:
    """Returns the scenarios and what each shows, for the command's help."""
    return "\n".join(f"  {name:<13} {s.text}" for name, s in SCENARIOS.items())

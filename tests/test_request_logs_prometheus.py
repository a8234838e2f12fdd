"""What Prometheus servers count over any number of kills is what was written."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
from rotating_log import Writer, rotate
from running_exporter import RunningExporter, wait_for
from synthetic_engine import free_port

LINES = "goodput_log_lines_total"
SECONDS, RATE = 18.0, 300
# The number of a line is its length in milliseconds and in tokens, and so its class.
EARLY, MET, LATE, UNKNOWN = 1200, 400, 2400, 1800
CONFIG = f"""
slo_classes:
  - {{name: early, match: {{prompt_tokens: {{max: {EARLY}}}}}, good: {{e2e: {MET}ms}},
     objective: 0.9}}
  - {{name: late, match: {{prompt_tokens: {{max: {LATE}}}}}, objective: 0.9,
     good: {{ttft: 1s, e2e: {UNKNOWN}ms}}}}
gateways:
  - name: edge
    format: custom
    fields: {{e2e: {{key: n, unit: ms}}, prompt_tokens: n, completion_tokens: n}}
    path: """
Row = tuple[str, str]  # verdict and class


def row_of(number: int) -> Row:
    """Returns what a line is counted as."""
    if number <= EARLY:
        return ("good" if number <= MET else "bad", "early")
    if number <= LATE:  # nobody told the first token
        return ("unevaluable" if number <= UNKNOWN else "bad", "late")
    return ("good", "none")


class Server:
    """A running Prometheus server."""

    def __init__(self, address: str) -> None:
        self._url = f"http://{address}"

    def ready(self) -> bool:
        """Whether it answers queries."""
        try:
            return requests.get(f"{self._url}/-/ready", timeout=5).ok
        except requests.ConnectionError:
            return False

    def _query(self, query: str) -> list[dict[str, Any]]:
        answer = requests.get(
            f"{self._url}/api/v1/query", params={"query": query}, timeout=20
        )
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    def scraped_after(self, at: float) -> bool:
        """Whether its latest sample of the log is from after a moment."""
        found = self._query(f"timestamp({LINES})")
        return bool(found) and float(found[0]["value"][1]) > at

    def samples(self, name: str) -> dict[str, list[float]]:
        """Returns the raw samples of a metric's series by their class."""
        found = self._query(f"{name}[10m]")
        return {
            series["metric"].get("slo_class", ""): [
                float(v) for _, v in series["values"]
            ]
            for series in found
        }


@contextmanager
def scraping(
    program: str, directory: Path, target: int, interval: str
) -> Iterator[Server]:
    """Runs a Prometheus server that scrapes a port at an interval."""
    directory.mkdir()
    address = f"127.0.0.1:{free_port()}"
    (directory / "prometheus.yml").write_text(
        f"global: {{scrape_interval: {interval}, scrape_timeout: {interval}}}\n"
        "scrape_configs:\n"
        "  - job_name: goodput\n"
        f"    static_configs: [{{targets: ['127.0.0.1:{target}']}}]\n"
    )
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={directory}/prometheus.yml",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address={address}",
            ],
            stdout=output,
            stderr=output,
        )
        try:
            server = Server(address)
            wait_for(lambda: process.poll() is not None or server.ready())
            assert process.poll() is None, (directory / "output").read_text()
            yield server
        finally:
            process.terminate()
            process.wait(30)


def accumulated(samples: list[float]) -> float:
    """Returns what a counter grew by from 0: after a step back it began anew."""
    before = total = 0.0
    for value in samples:
        total += value - before if value >= before else value
        before = value
    return total


def kill_and_rotate(
    start: Callable[[], RunningExporter],
    writer: Writer,
    rng: random.Random,
    wait_to_be_seen: Callable[[], None],
) -> tuple[RunningExporter, int]:
    """Kills and starts the exporter while the writer writes, and rotates its log.

    Every other one lives until all servers have seen it. Returns the last exporter,
    which runs, and how many were killed.
    """
    exporter, kills = start(), 0
    while writer.process.poll() is None:
        if kills % 2 == 0:
            wait_to_be_seen()
        time.sleep(rng.uniform(0.0, 1.2))
        rotations = rng.choice([0, 0, 1, 2])
        dead = rng.random() < 0.5
        if dead:
            exporter.kill()
        for _ in range(rotations):
            rotate(writer.path, compress_after=2)
            time.sleep(0.3)
            if writer.process.poll() is None:
                writer.reopen()
        if not dead:
            time.sleep(rng.uniform(0.0, 0.2))
            exporter.kill()
        exporter, kills = start(), kills + 1
    return exporter, kills


@pytest.mark.slow
def test_two_prometheus_servers_have_counted_what_was_written(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    """`kill -9` at any moment, rotations: raw samples, by the reset rule, are exact."""
    program, port = need_tool("prometheus"), free_port()
    log, config = tmp_path / "gw.log", tmp_path / "c.yml"
    log.touch()
    config.write_text(f"{CONFIG}'{log}'\n")

    def start() -> RunningExporter:
        storage = f"--storage.path={tmp_path / 'state'}"
        return RunningExporter(f"--config.file={config}", storage, port=port)

    with ExitStack() as stack:
        first = stack.enter_context(start())
        wait_for(lambda: first.value(LINES) == 0)
        servers = [
            stack.enter_context(scraping(program, tmp_path / interval, port, interval))
            for interval in ("400ms", "1100ms")
        ]
        first.kill()
        writer = stack.enter_context(Writer(log, rate=RATE, seconds=SECONDS))

        def wait_to_be_seen() -> None:
            now = time.time()
            for server in servers:
                wait_for(partial(server.scraped_after, now))

        exporter, kills = kill_and_rotate(
            start, writer, random.Random(11), wait_to_be_seen
        )
        stack.enter_context(exporter)
        written = writer.written()
        wait_for(lambda: exporter.value(LINES) == written)
        wait_to_be_seen()
        wanted = Counter(row_of(number) for number in range(1, written + 1))
        found = [counted(server) for server in servers]
        lives = [len(set(lives_of(server))) for server in servers]
        assert exporter.value("goodput_log_lag_bytes") == 0
    assert written > LATE
    assert found == [wanted, wanted]
    assert kills >= 4
    assert min(lives) >= 3  # each saw several of the processes that were killed


def counted(server: Server) -> Mapping[Row, float]:
    """Returns a server's totals by verdict and class, without those at 0."""
    found: Counter[Row] = Counter()
    for verdict in ("good", "bad", "unevaluable"):
        rows = server.samples(f"goodput_{verdict}_requests_total")
        for name, samples in rows.items():
            found[verdict, name] += accumulated(samples)  # type: ignore[assignment]
    all_requests = server.samples("goodput_requests_total").values()
    assert sum(map(accumulated, all_requests)) == found.total()
    (lines,) = server.samples(LINES).values()
    assert accumulated(lines) == found.total()
    return +found


def lives_of(server: Server) -> list[float]:
    """Returns the start times of the processes that a server has scraped."""
    (found,) = server.samples("process_start_time_seconds").values()
    return found


def test_the_accumulation_sees_lost_and_doubled_lines() -> None:
    """A total that steps back counts anew, as Prometheus takes it."""
    assert accumulated([0.0, 2.0, 2.0, 5.0]) == 5.0
    assert accumulated([3.0, 4.0, 1.0, 2.0]) == 6.0

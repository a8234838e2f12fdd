"""Request logs in the running exporter: exact counts, each line once, whatever dies."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import threading
import time
from pathlib import Path

from running_exporter import RunningExporter, value, wait_for
from synthetic_engine import MODEL, SyntheticEngine

from exporter.tail_batch import LOST_REASONS

REQUESTS = "goodput_requests_total"
COVERAGE = "goodput_source_coverage_ratio"
GOOD = "goodput_good_requests_total"
CLASSES = """
slo_classes:
  - name: interactive
    match: {model: "*", tenant: free}
    good: {ttft: 300ms, tpot: 20ms, e2e: 2s}
    objective: 0.95
    stages: {gateway: 300ms}
  - {name: rest, good: {e2e: 5s}, objective: 0.9}
"""
FIELDS = """
    format: custom
    fields:
      start: {key: time, unit: s}
      request_id: rid
      status: status
      model: model
      tenant: tenant
      route: path
      ttft: {key: ttft_ms, unit: ms}
      tpot: {key: tpot_ms, unit: ms}
      e2e: {key: duration_ms, unit: ms}
      completion_tokens: usage.completion_tokens
"""


def line(number: int, **given: object) -> bytes:
    """Returns one log line of a good request, or of what is given instead."""
    record = {
        "time": time.time() - 1.0,
        "rid": f"r{number}",
        "status": 200,
        "model": MODEL,
        "tenant": "free",
        "path": "/v1/chat/completions",
        "ttft_ms": 100,
        "tpot_ms": 10,
        "duration_ms": 900,
        "usage": {"completion_tokens": 50},
    }
    return json.dumps({**record, **given}).encode() + b"\n"


def configuration(path: Path, log: Path, engine: str = "") -> Path:
    """Writes a configuration with a custom log, and an engine if given."""
    text = CLASSES + f"gateways:\n  - name: edge\n    path: '{log}'{FIELDS}"
    if engine:
        text += f"engines: [{{name: vllm, url: '{engine}', interval: 1s}}]\n"
    path.write_text(text, encoding="utf-8")
    return path


def test_verdicts_are_counted_by_class_with_their_reasons(tmp_path: Path) -> None:
    """Good, late, failed, unevaluable, left, and what is no generation."""
    log = tmp_path / "gw.log"
    log.touch()
    config = configuration(tmp_path / "c.yml", log)
    with RunningExporter(f"--config.file={config}") as exporter:
        wait_for(lambda: exporter.value("goodput_log_lines_total") == 0)
        with log.open("ab") as file:
            file.write(line(1))
            file.write(line(2, ttft_ms=301))
            file.write(line(3, ttft_ms=300, duration_ms=2000, tpot_ms=20))
            file.write(line(4, status=503, ttft_ms=None, tpot_ms=None))
            file.write(line(5, ttft_ms=None, tpot_ms=None))
            file.write(line(6, status=404))
            file.write(line(7, path="/v1/embeddings"))
            file.write(line(8, tenant="gold", duration_ms=5001))
            file.write(b"not json\n")
        wait_for(lambda: exporter.value("goodput_log_lines_total") == 9)
        samples = exporter.samples()

    def count(name: str, **labels: str) -> float | None:
        return value(samples, name, gateway="edge", **labels)

    free = {"model": MODEL, "slo_class": "interactive"}
    assert count(REQUESTS, **free) == 5
    assert count(GOOD, **free) == 2
    assert count("goodput_bad_requests_total", **free) == 2
    assert count("goodput_criterion_misses_total", criterion="error", **free) == 1
    assert count("goodput_unevaluable_requests_total", **free) == 1
    assert count("goodput_criterion_misses_total", criterion="ttft", **free) == 1
    assert count("goodput_good_tokens_total", **free) == 100
    assert count(REQUESTS, slo_class="rest", model=MODEL) == 1
    assert count(GOOD, slo_class="rest", model=MODEL) == 0
    assert count("goodput_excluded_requests_total", reason="caller_error") == 1
    assert count("goodput_excluded_requests_total", reason="not_generation") == 1
    assert count("goodput_log_parse_failures_total", reason="not_json") == 1
    for reason in LOST_REASONS:  # before the first, or an increase would not show it
        assert count("goodput_log_losses_total", reason=reason) == 0
    bucket = "goodput_request_ttft_seconds_bucket"
    assert count(bucket, le="0.3", **free) == 2
    assert count(bucket, le="+Inf", **free) == 3


class Gateway:
    """Appends lines at a rate and has its log rotated, as logrotate would do it."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.path = path
        self.written = 0
        self.good = 0
        self._rng = rng
        self._stop = threading.Event()
        self._reopen = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        file = self.path.open("ab")
        while not self._stop.wait(0.003):
            if self._reopen.is_set():
                self._reopen.clear()
                file.close()
                file = self.path.open("ab")
            good = self._rng.random() < 0.7
            file.write(line(self.written, ttft_ms=100 if good else 400))
            file.flush()
            self.written += 1
            self.good += good
        file.close()

    def rotate(self) -> None:
        """Renames the log; the writer reopens 300 ms later."""
        for number in range(8, 0, -1):
            old = self.path.with_name(f"{self.path.name}.{number}")
            if old.exists():
                old.rename(self.path.with_name(f"{self.path.name}.{number + 1}"))
        self.path.rename(self.path.with_name(f"{self.path.name}.1"))
        time.sleep(0.3)
        self._reopen.set()
        wait_for(self.path.exists)

    def stop(self) -> None:
        """Ends the writer after the line in work."""
        self._stop.set()
        self._thread.join()


def test_each_line_counts_once_over_kills_and_rotations(tmp_path: Path) -> None:
    """Random `kill -9`, rotations also while dead, two scrapers: totals are exact."""
    rng = random.Random(7)
    log = tmp_path / "gw.log"
    log.touch()
    config = configuration(tmp_path / "c.yml", log)
    arguments = (f"--config.file={config}", f"--storage.path={tmp_path / 'state'}")
    labels = {"slo_class": "interactive", "model": MODEL}
    seen: list[float] = [0.0, 0.0]
    steps_back: list[str] = []

    def scrape(exporter: RunningExporter, who: int) -> None:
        now = exporter.value(REQUESTS, **labels) or 0.0
        if now < seen[who]:
            steps_back.append(f"{seen[who]} → {now}")
        seen[who] = now

    exporter = RunningExporter(*arguments)
    wait_for(lambda: exporter.value("goodput_log_lines_total") == 0)
    gateway = Gateway(log, rng)
    for life in range(5):
        end = time.monotonic() + rng.uniform(0.6, 1.5)
        while time.monotonic() < end:
            scrape(exporter, rng.randrange(2))
            time.sleep(rng.uniform(0.05, 0.2))
        if life % 2:
            gateway.rotate()
            scrape(exporter, 0)
        exporter.kill()
        if life != 2:
            gateway.rotate()
            gateway.rotate()
        exporter = RunningExporter(*arguments)
    gateway.stop()
    wait_for(lambda: exporter.value(REQUESTS, **labels) == gateway.written)
    scrape(exporter, 0)
    scrape(exporter, 1)
    assert exporter.value(GOOD, **labels) == gateway.good
    assert exporter.value("goodput_log_lag_bytes") == 0
    assert exporter.stop() == 0
    assert steps_back == []
    assert gateway.written > 1000


def test_what_was_published_stands_though_the_log_is_gone(tmp_path: Path) -> None:
    """Totals are on disk before a scrape has them: no line has to be read again."""
    log = tmp_path / "gw.log"
    log.touch()
    config = configuration(tmp_path / "c.yml", log)
    arguments = (f"--config.file={config}", f"--storage.path={tmp_path / 'state'}")
    labels = {"slo_class": "interactive", "model": MODEL}
    for life in (1, 2):
        with RunningExporter(*arguments) as exporter:
            wait_for(lambda: exporter.value("goodput_log_lag_bytes") == 0)
            with log.open("ab") as file:
                file.writelines(line(number) for number in range(100))
            assert exporter.value(REQUESTS, **labels) == 100 * life
            exporter.kill()
        log.unlink()
        with RunningExporter(*arguments) as exporter:
            assert exporter.value(REQUESTS, **labels) == 100 * life
            log.touch()


def test_the_middleware_socket_is_read_and_joined_with_the_engine(
    tmp_path: Path,
) -> None:
    """Records by datagram, an alias that means the served model, and the coverage.

    The engine did not finish the request that failed, so the coverage is without it.
    """
    path = tmp_path / "run" / "requests.sock"
    with SyntheticEngine() as engine:
        config = tmp_path / "c.yml"
        config.write_text(
            CLASSES
            + f"gateways: [{{name: engine, socket: 'unix://{path}', format: custom, "
            "fields: {model: model, status: status, tenant: tenant, "
            "e2e: {key: e2e, unit: s}}}]\n"
            + f"engines: [{{name: vllm, url: '{engine.url}', interval: 1s}}]\n",
            encoding="utf-8",
        )
        with RunningExporter(f"--config.file={config}") as exporter:
            row = {"gateway": "engine", "slo_class": "rest"}
            wait_for(lambda: exporter.value(REQUESTS, **row) == 0)
            time.sleep(1.2)  # the served names are asked for after the first page
            sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            for _ in range(6):
                record = {"model": "an-alias", "status": 200, "tenant": "x", "e2e": 1.0}
                sender.sendto(json.dumps(record).encode(), str(path))
                engine.finish()
            failed = {"model": MODEL, "status": 500, "tenant": "x", "e2e": 1.0}
            sender.sendto(json.dumps(failed).encode(), str(path))
            sender.close()
            wait_for(lambda: exporter.value(REQUESTS, model=MODEL, **row) == 7)
            wait_for(lambda: exporter.value(COVERAGE, model=MODEL) == 1)
            status = exporter.get("/api/v1/status").json()
    rest = next(r for r in status["slo"] if r["class"] == "rest")
    assert rest["total"] == 7


def test_a_log_that_is_not_there_yet_is_read_when_it_comes(tmp_path: Path) -> None:
    """Its absence is told, and costs nothing else."""
    log = tmp_path / "later" / "gw.log"
    config = configuration(tmp_path / "c.yml", log)
    with RunningExporter(f"--config.file={config}") as exporter:
        wait_for(lambda: exporter.value("goodput_log_lines_total") == 0)
        (source,) = exporter.get("/api/v1/status").json()["sources"]
        assert (source["up"], source["reason"]) == (False, "no line read yet")
        log.parent.mkdir()
        log.write_bytes(line(1) + line(2))
        wait_for(lambda: exporter.value("goodput_log_lines_total") == 2)
        assert exporter.value(GOOD, slo_class="interactive") == 2
        (source,) = exporter.get("/api/v1/status").json()["sources"]
        assert (source["up"], source["reason"]) == (True, "")


def test_many_models_and_failed_requests_claim_no_more_than_the_limit(
    tmp_path: Path,
) -> None:
    """A thousand names become twenty and `other`; failures take no place at all."""
    log = tmp_path / "gw.log"
    log.touch()
    config = configuration(tmp_path / "c.yml", log)
    with RunningExporter(f"--config.file={config}") as exporter:
        wait_for(lambda: exporter.value("goodput_log_lines_total") == 0)
        with log.open("ab") as file:
            for number in range(100):
                file.write(line(number, model=f"probe-{number}", status=500))
            for number in range(1000):
                file.write(line(number, model=f"m-{number}"))
        wait_for(lambda: exporter.value("goodput_log_lines_total") == 1100)
        samples = exporter.samples()
    rows = {s.labels["model"]: s.value for s in samples if s.name == REQUESTS}
    assert len(rows) == 21
    assert rows["other"] == 100 + 1000 - 20
    assert sum(rows.values()) == 1100
    dropped = value(samples, "goodput_label_values_dropped_total", label="model")
    assert dropped == rows["other"]


def test_standard_input_is_a_log(tmp_path: Path) -> None:
    """`path: -` reads what is piped in, and its end ends nothing else."""
    config = configuration(tmp_path / "c.yml", Path("-"))
    exporter = RunningExporter(f"--config.file={config}", stdin=subprocess.PIPE)
    with exporter:
        pipe = exporter.process.stdin
        assert pipe is not None
        for number in range(5):
            pipe.write(line(number).decode())
        pipe.close()
        wait_for(lambda: exporter.value("goodput_log_lines_total") == 5)
        assert exporter.value(GOOD, model=MODEL, slo_class="interactive") == 5
        assert exporter.get("/-/healthy").status_code == 200

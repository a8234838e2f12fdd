"""The command line of `goodput`: check, record and replay, as users call them."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from episodes import DIRECTORY
from goodput_command import goodput
from running_exporter import configuration, wait_for
from synthetic_engine import MODEL, TTFT, SyntheticEngine, free_port

from analyzer.sources.recording import read_scrapes


@pytest.fixture
def engine() -> Iterator[SyntheticEngine]:
    """Yields an engine with three requests, one of them undecided at 300 ms."""
    with SyntheticEngine() as running:
        running.finish(ttft=0.05)
        running.finish(ttft=0.3)
        running.finish(ttft=0.9)
        yield running


def slow_class(path: Path, url: str) -> Path:
    """Writes a configuration whose TTFT lies between two bounds."""
    text = configuration(path, url).read_text(encoding="utf-8")
    path.write_text(text.replace("ttft: 100ms", "ttft: 300ms"), encoding="utf-8")
    return path


def test_check_says_what_is_valid_and_what_is_not(tmp_path: Path) -> None:
    """Exit code 0 for a good file, 1 and the place for a bad one."""
    path = configuration(tmp_path / "c.yml", "http://localhost:1/metrics")
    good = goodput("check", "--config.file", path)
    assert (good.exit_code, good.output) == (
        0,
        f"{path}: valid, 1 SLO class, 1 engine\n",
    )
    path.write_text("slo_classes: [{name: a, good: {ttft: 1}, objective: 0.9}]")
    bad = goodput("check", "--config.file", path)
    assert bad.exit_code == 1
    assert bad.output == (
        f"Error: {path}: slo_classes[0].good.ttft: must be a duration with a unit "
        "(ms, s, m, h, d, w), got 1\n"
    )
    listed = goodput("check", "--config.file", path, "--format", "json")
    assert json.loads(listed.stdout)["valid"] is False


def test_check_live_audits_buckets_and_gives_the_flag_to_paste(
    tmp_path: Path, engine: SyntheticEngine
) -> None:
    """One of three requests is between 250 and 500 ms, so a third is undecided."""
    path = slow_class(tmp_path / "c.yml", engine.url)
    found = goodput("check", "--config.file", path, "--live", "--format", "json")
    assert found.exit_code == 1
    (row,) = json.loads(found.stdout)["engines"]
    assert (row["up"], row["models"]) == (True, [MODEL])
    assert row["aliases"] == {"an-alias": MODEL}
    checks = {check["criterion"]: check for check in row["buckets"]}
    assert checks["ttft"]["below_seconds"] == 0.25
    assert checks["ttft"]["above_seconds"] == 0.5
    assert checks["ttft"]["undecided_ratio"] == pytest.approx(1 / 3)
    assert checks["tpot"]["exact"] is True
    flag = row["custom_histogram_buckets"]
    given = json.loads(flag.removeprefix("--custom-histogram-buckets ").strip("'"))
    assert given == {"time_to_first_token": sorted({*TTFT, 0.3})}
    present = {c["signal"]: c["present"] for c in row["capabilities"]}
    assert present["ttft"] is True
    assert present["waiting_by_reason"] is False


def test_check_live_is_content_when_every_threshold_is_a_bound(
    tmp_path: Path, engine: SyntheticEngine
) -> None:
    """No warning, exit code 0, and the text says exact."""
    path = configuration(tmp_path / "c.yml", engine.url)
    found = goodput("check", "--config.file", path, "--live")
    assert found.exit_code == 0
    assert "interactive: ttft ≤ 100ms is a bound: exact" in found.output
    assert "--custom-histogram-buckets" not in found.output


def test_check_live_tells_an_engine_that_does_not_answer(tmp_path: Path) -> None:
    """Exit code 3 and the reason."""
    url = f"http://127.0.0.1:{free_port()}/metrics"
    path = configuration(tmp_path / "c.yml", url)
    found = goodput("check", "--config.file", path, "--live")
    assert found.exit_code == 3
    assert "refused: " in found.output


class _Page(BaseHTTPRequestHandler):
    """Serves a page without engine series: --disable-log-stats."""

    def do_GET(self) -> None:
        body = b"http_request_duration_highr_seconds_count 0.0\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


def test_check_live_finds_disabled_statistics(tmp_path: Path) -> None:
    """The finding names the flag."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/metrics"
    path = configuration(tmp_path / "c.yml", url)
    found = goodput("check", "--config.file", path, "--live")
    server.shutdown()
    server.server_close()
    assert found.exit_code == 1
    assert "--disable-log-stats" in found.output


def test_record_writes_the_layout_and_replay_reads_it(
    tmp_path: Path, engine: SyntheticEngine
) -> None:
    """Pages as served, an index, a configuration that stands alone; counts agree."""
    path = configuration(tmp_path / "c.yml", engine.url)
    recording = tmp_path / "recording"
    worker = threading.Timer(0.7, engine.finish)
    worker.start()
    done = goodput(
        "record", "--config.file", path, "--for", "2s", "--interval", "400ms", recording
    )
    worker.join()
    assert done.exit_code == 0, done.output
    with (recording / "scrapes" / "index.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["n"] for row in rows] == [str(n) for n in range(5)]
    assert {row["status"] for row in rows} == {"200"}
    sizes = [(recording / "scrapes" / f"{n:04d}.prom").stat().st_size for n in range(5)]
    assert [int(row["bytes"]) for row in rows] == sizes
    result = goodput("replay", recording, "--format", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["slo"][0]["total"] == 1
    assert document["slo"][0]["bounds"] == [1.0, 1.0]
    assert {"windows", "slo", "capacity", "sources"} <= document.keys()
    again = goodput("record", "--config.file", path, "--for", "1s", recording)
    assert again.exit_code == 3
    assert "there is a recording already" in again.output


def test_record_copies_the_request_log(tmp_path: Path, engine: SyntheticEngine) -> None:
    """What is logged meanwhile is in access.log, what was there before is not."""
    log = tmp_path / "gw.log"
    log.write_bytes(b"before\n")
    path = configuration(
        tmp_path / "c.yml",
        engine.url,
        extra=f"gateways: [{{name: edge, path: {log}}}]",
    )
    recording = tmp_path / "recording"

    def write() -> None:
        with log.open("ab") as file:
            file.write(b"during\n")
        log.rename(log.with_suffix(".1"))
        log.write_bytes(b"after the rotation\n")

    worker = threading.Timer(0.5, write)
    worker.start()
    done = goodput(
        "record", "--config.file", path, "--for", "2s", "--interval", "300ms", recording
    )
    worker.join()
    assert done.exit_code == 0, done.output
    assert (recording / "access.log").read_bytes() == b"during\nafter the rotation\n"


def test_record_copies_every_log_of_a_pattern(
    tmp_path: Path, engine: SyntheticEngine
) -> None:
    """Containers that come later too, and what is written to a renamed file."""
    folders = [tmp_path / name for name in ("a", "b", "later")]
    for folder in folders[:2]:
        folder.mkdir()
        (folder / "0.log").write_bytes(b"before\n")
    path = configuration(
        tmp_path / "c.yml",
        engine.url,
        extra=f"gateways: [{{name: pods, path: '{tmp_path}/*/0.log*'}}]",
    )
    recording = tmp_path / "recording"

    def write() -> None:
        log = folders[0] / "0.log"
        with log.open("ab") as late, (folders[1] / "0.log").open("ab") as other:
            late.write(b"a1\n")
            other.write(b"b1\nhalf of ")
            other.flush()
            late.flush()
            log.rename(folders[0] / "0.log.20261129-141048")
            log.write_bytes(b"a3\n")
            folders[2].mkdir()
            (folders[2] / "0.log").write_bytes(b"c1\n")
            time.sleep(0.6)
            late.write(b"a2\n")
            other.write(b"b2\n")

    worker = threading.Timer(0.4, write)
    worker.start()
    done = goodput(
        "record", "--config.file", path, "--for", "2s", "--interval", "200ms", recording
    )
    worker.join()
    assert done.exit_code == 0, done.output
    lines = (recording / "access.log").read_bytes().splitlines()
    assert sorted(lines) == [b"a1", b"a2", b"a3", b"b1", b"c1", b"half of b2"]


def test_record_needs_to_know_which_engine(
    tmp_path: Path, engine: SyntheticEngine
) -> None:
    """With several, --target names one; the recording holds that one alone."""
    path = tmp_path / "c.yml"
    path.write_text(
        f"engines: [{{name: a, url: '{engine.url}'}}, "
        f"{{name: b, url: 'http://127.0.0.1:{free_port()}/metrics'}}]"
    )
    recording = tmp_path / "recording"
    unsaid = goodput("record", "--config.file", path, recording)
    assert (unsaid.exit_code, "one of: a, b" in unsaid.output) == (2, True)
    said = ("record", "--config.file", path, "--for", "500ms", "--target")
    assert goodput(*said, "a", recording).exit_code == 0
    assert "name: b" not in (recording / "config.yml").read_text(encoding="utf-8")
    silent = goodput(*said, "b", tmp_path / "other")
    assert silent.exit_code == 3
    index = (tmp_path / "other" / "scrapes" / "index.csv").read_text(encoding="utf-8")
    assert "refused" in index


def test_an_interrupted_recording_is_complete(
    tmp_path: Path, engine: SyntheticEngine
) -> None:
    """Ctrl-C ends it early; every line of the index has its page."""
    path = configuration(tmp_path / "c.yml", engine.url)
    recording = tmp_path / "recording"
    program = Path(sys.executable).with_name("goodput")
    process = subprocess.Popen(
        [program, "record", "--config.file", path, "--interval", "200ms", recording],
        stderr=subprocess.DEVNULL,
    )
    wait_for((recording / "scrapes" / "0003.prom").exists)
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0
    scrapes = list(read_scrapes(recording))
    assert len(scrapes) >= 4
    assert all(scrape.text for scrape in scrapes)


def test_replay_exits_with_1_when_an_objective_is_surely_missed(tmp_path: Path) -> None:
    """kv-a meets no interactive objective, healthy-a does."""
    path = configuration(tmp_path / "c.yml", "http://engine/metrics")
    bad = goodput("replay", DIRECTORY / "kv-a", "--config.file", path)
    assert (bad.exit_code, "MISSED" in bad.output) == (1, True)
    path.write_text("slo_classes: [{name: a, good: {e2e: 60s}, objective: 0.9}]")
    assert goodput("replay", DIRECTORY / "kv-a", "--config.file", path).exit_code == 0


def test_replay_tells_what_is_wrong_with_a_recording(tmp_path: Path) -> None:
    """One sentence with the file and the place, exit code 3."""
    path = configuration(tmp_path / "c.yml", "http://engine/metrics")

    def output(directory: Path) -> str:
        found = goodput("replay", directory, "--config.file", path)
        assert found.exit_code == 3
        assert "Traceback" not in found.output
        return found.output

    assert "no recording" in output(tmp_path)
    scrapes = tmp_path / "scrapes"
    scrapes.mkdir()
    index = scrapes / "index.csv"
    index.write_text("n,time\n")
    assert f"{index}: needs the columns n, status, time" in output(tmp_path)
    index.write_text("n,time,status\n0,yesterday,200\n")
    assert f"{index}: line 2: time must be a number, got 'yesterday'" in output(
        tmp_path
    )
    index.write_text("n,time,status\n0,1.0,200\n")
    assert "0000.prom: is in the index but not there" in output(tmp_path)
    index.write_text("n,time,status\n")
    assert "the recording has no scrapes" in output(tmp_path)
    cut = tmp_path / "cut"
    cut.mkdir()
    shutil.copy(DIRECTORY / "kv-a" / "scrapes.tar.xz", cut)
    data = (cut / "scrapes.tar.xz").read_bytes()
    (cut / "scrapes.tar.xz").write_bytes(data[: len(data) // 2])
    assert f"{cut / 'scrapes.tar.xz'}: not a readable archive" in output(cut)


def test_replay_with_a_bad_configuration_is_a_usage_error(tmp_path: Path) -> None:
    """Exit code 2 and the place."""
    path = tmp_path / "c.yml"
    path.write_text("slo: []")
    found = goodput("replay", DIRECTORY / "kv-a", "--config.file", path)
    assert (found.exit_code, "slo: unknown key" in found.output) == (2, True)


def test_help_has_examples() -> None:
    """Every command shows how it is called."""
    for name in ("check", "record", "replay"):
        text = goodput(name, "--help").output
        assert f"goodput {name}" in text.partition("Examples:")[2]


def test_the_version_is_the_packages() -> None:
    """`goodput --version` answers from an installed package."""
    program = Path(sys.executable).with_name("goodput")
    done = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("goodput, version ")

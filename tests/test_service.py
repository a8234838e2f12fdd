"""The running service: reload, health, readiness, state of engines."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from running_exporter import RunningExporter, configuration, value, wait_for
from synthetic_engine import SyntheticEngine, free_port

EVENTS = "goodput_engine_criterion_events_total"
LOADED = "goodput_config_last_reload_successful"


def test_a_bad_reload_keeps_the_old_configuration_and_says_so(tmp_path: Path) -> None:
    """By SIGHUP or by POST: the old classes go on, metric and page show the error."""
    with SyntheticEngine() as engine:
        path = configuration(tmp_path / "c.yml", engine.url)
        with RunningExporter(f"--config.file={path}") as exporter:
            wait_for(lambda: exporter.value(EVENTS, criterion="e2e") == 0)
            good = path.read_text(encoding="utf-8")
            path.write_text(good.replace("objective: 0.95", "objective: 95"))
            answer = requests.post(exporter.url + "/-/reload", timeout=10)
            expected = (
                f"{path}: slo_classes[0].objective: must be a ratio between 0 and 1, "
                "got 95\n"
            )
            assert (answer.status_code, answer.text) == (500, expected)
            assert exporter.value(LOADED) == 0
            assert exporter.value("goodput_slo_objective_ratio") == 0.95
            assert "must be a ratio between 0 and 1" in exporter.get("/").text
            engine.finish()
            wait_for(lambda: exporter.value(EVENTS, criterion="e2e") == 1)

            path.write_text(good.replace("objective: 0.95", "objective: 0.9"))
            exporter.process.send_signal(signal.SIGHUP)
            wait_for(lambda: exporter.value("goodput_slo_objective_ratio") == 0.9)
            assert exporter.value(LOADED) == 1
            assert exporter.value(EVENTS, criterion="e2e") == 1

            path.write_text("slo_classes: [")
            exporter.process.send_signal(signal.SIGHUP)
            wait_for(lambda: exporter.value(LOADED) == 0)
            assert exporter.value("goodput_slo_objective_ratio") == 0.9


def test_a_configuration_that_changes_is_reloaded_by_itself(tmp_path: Path) -> None:
    """As the kubelet changes a ConfigMap: a link is turned to another folder."""
    with SyntheticEngine() as engine:
        first, second = tmp_path / "first", tmp_path / "second"
        for folder in (first, second):
            folder.mkdir()
        text = configuration(first / "goodput.yml", engine.url).read_text("utf-8")
        changed = text.replace("objective: 0.95", "objective: 0.9")
        (second / "goodput.yml").write_text(changed, encoding="utf-8")
        data = tmp_path / "data"
        data.symlink_to(first)
        with RunningExporter(
            f"--config.file={data / 'goodput.yml'}",
            "--config.auto-reload-interval=1s",
        ) as exporter:
            assert exporter.value("goodput_slo_objective_ratio") == 0.95
            turned = tmp_path / "turned"
            turned.symlink_to(second)
            turned.replace(data)
            wait_for(lambda: exporter.value("goodput_slo_objective_ratio") == 0.9)
            (second / "goodput.yml").write_text("slo_classes: [", encoding="utf-8")
            wait_for(lambda: exporter.value(LOADED) == 0)
            assert exporter.value("goodput_slo_objective_ratio") == 0.9
        assert sum("configuration reloaded" in line for line in exporter.log) == 1


@pytest.mark.parametrize("text", ["30", "0.5s", "2d", "soon"])
def test_a_reload_interval_that_makes_no_sense_is_refused(text: str) -> None:
    """An interval has a unit, and is from a second to a day."""
    done = subprocess.run(
        [
            Path(sys.executable).with_name("goodput-exporter"),
            *("--demo", f"--config.auto-reload-interval={text}"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"{text!r} is not 0s, nor a duration from 1s to 1d" in done.stderr


def test_reload_over_http_can_be_switched_off(tmp_path: Path) -> None:
    """With --no-web.enable-lifecycle nobody reloads over the network."""
    with SyntheticEngine() as engine:
        path = configuration(tmp_path / "c.yml", engine.url)
        with RunningExporter(
            f"--config.file={path}", "--no-web.enable-lifecycle"
        ) as exporter:
            answer = requests.post(exporter.url + "/-/reload", timeout=10)
            assert answer.status_code == 403


def test_reload_adds_and_retires_targets_and_classes(tmp_path: Path) -> None:
    """A new engine gets rows; one that went keeps its counters and loses its gauges."""
    with SyntheticEngine() as one, SyntheticEngine() as two:
        path = configuration(tmp_path / "c.yml", one.url)
        with RunningExporter(f"--config.file={path}") as exporter:
            wait_for(lambda: exporter.value("goodput_target_up", target="vllm") == 1)
            text = path.read_text(encoding="utf-8")
            path.write_text(
                text.replace("name: vllm, url: ", "name: other, url: ")
                .replace(one.url, two.url)
                .replace("name: interactive", "name: strict")
            )
            answer = requests.post(exporter.url + "/-/reload", timeout=10)
            assert answer.status_code == 200
            wait_for(lambda: exporter.value("goodput_target_up", target="other") == 1)
            samples = exporter.samples()
            assert value(samples, "goodput_target_up", target="vllm") is None
            scrapes = value(samples, "goodput_target_scrapes_total", target="vllm")
            assert scrapes is not None
            assert scrapes > 0
            classes = {
                sample.labels["slo_class"]
                for sample in samples
                if "slo_class" in sample.labels
                and sample.labels.get("target") != "vllm"
            }
            assert classes == {"strict"}


def test_a_dead_target_leaves_us_ready_and_healthy(tmp_path: Path) -> None:
    """Kubernetes must not restart us because the engine is down."""
    url = f"http://127.0.0.1:{free_port()}/metrics"
    path = configuration(tmp_path / "c.yml", url)
    with RunningExporter(f"--config.file={path}") as exporter:
        wait_for(lambda: exporter.value("goodput_target_up") == 0)
        assert exporter.get("/-/ready").status_code == 200
        assert exporter.get("/-/healthy").status_code == 200
        refused = exporter.value(
            "goodput_target_scrape_failures_total", reason="refused"
        )
        assert refused is not None
        assert refused > 0


def test_an_engine_that_worked_and_went_is_down_and_comes_back(tmp_path: Path) -> None:
    """Refused after serving is down at once; the next page is serving again."""
    port = free_port()
    path = configuration(tmp_path / "c.yml", f"http://127.0.0.1:{port}/metrics")
    with RunningExporter(f"--config.file={path}") as exporter:

        def state(name: str) -> bool:
            return exporter.value("goodput_engine_state", state=name) == 1

        success = "goodput_target_last_success_timestamp_seconds"
        wait_for(lambda: state("starting"))
        assert exporter.value(success) is None
        with SyntheticEngine(port=port):
            wait_for(lambda: state("serving"))
            first = exporter.value(success)
        wait_for(lambda: state("down"))
        assert exporter.value("goodput_target_up") == 0
        assert not state("serving")
        with SyntheticEngine(port=port):
            wait_for(lambda: state("serving"))
            assert not state("down")
            assert exporter.value("goodput_target_up") == 1
            again = exporter.value(success)
    assert first is not None
    assert again is not None
    assert again > first


def test_status_document_says_what_the_metrics_say(tmp_path: Path) -> None:
    """/api/v1/status holds the windows, classes and sources of the contract."""
    with SyntheticEngine() as engine:
        path = configuration(tmp_path / "c.yml", engine.url)
        with RunningExporter(f"--config.file={path}") as exporter:
            wait_for(lambda: exporter.value(EVENTS, criterion="e2e") == 0)
            engine.finish(ttft=0.05)
            engine.finish(ttft=0.3)
            wait_for(lambda: exporter.value(EVENTS, criterion="e2e") == 2)
            status = exporter.get("/api/v1/status").json()
    assert status["slo"][0]["bounds"] == [0.5, 0.5]
    assert status["slo"][0]["good"] is None
    assert status["slo"][0]["total"] == 2
    assert [w["target"] for w in status["windows"]] == ["vllm"]
    assert status["sources"][0]["up"] is True
    assert status["targets"][0]["state"] == "serving"
    assert set(status["capacity"]["requests_per_second"].values()) == {None}


def test_a_scrape_shows_the_moment_it_was_made(tmp_path: Path) -> None:
    """With an hour's timer a scrape samples by itself; two at once share a sample."""
    with SyntheticEngine() as engine:
        path = configuration(tmp_path / "c.yml", engine.url, interval="1h")
        with RunningExporter(f"--config.file={path}") as exporter:
            wait_for(lambda: exporter.value(EVENTS, criterion="e2e") == 0)
            time.sleep(1.1)
            engine.finish()
            before = engine.scrapes
            with ThreadPoolExecutor(2) as pool:
                with engine.lock:  # the first sample is in flight when the second asks
                    asked = [pool.submit(exporter.samples) for _ in range(2)]
                    time.sleep(1.0)
                pages = [future.result() for future in asked]
            assert [value(p, EVENTS, criterion="e2e") for p in pages] == [1.0, 1.0]
            assert engine.scrapes - before == 1


def test_the_deadline_of_the_scraper_is_kept(tmp_path: Path) -> None:
    """A target slower than the scraper's time-out does not cost the scrape."""
    with SyntheticEngine() as engine:
        path = configuration(tmp_path / "c.yml", engine.url, interval="1s")
        with RunningExporter(f"--config.file={path}") as exporter:
            wait_for(lambda: exporter.value("goodput_target_up") == 1)
            with engine.lock:  # the engine hangs: its page does not come
                begun = time.monotonic()
                answer = exporter.get(**{"X-Prometheus-Scrape-Timeout-Seconds": "1.5"})
                spent = time.monotonic() - begun
            assert answer.status_code == 200
            assert spent < 1.5


def test_sigterm_ends_the_process_quickly_with_its_state_written(
    tmp_path: Path,
) -> None:
    """Exit code 0 within two seconds, and the totals are on disk."""
    with SyntheticEngine() as engine:
        path = configuration(tmp_path / "c.yml", engine.url)
        storage = tmp_path / "state"
        with RunningExporter(
            f"--config.file={path}", f"--storage.path={storage}"
        ) as exporter:
            wait_for(lambda: exporter.value("goodput_target_up") == 1)
            begun = time.monotonic()
            assert exporter.stop() == 0
            assert time.monotonic() - begun < 5.0
        assert (storage / "state.bin").stat().st_size > 0


def exporter_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the exporter's command line to its end."""
    program = str(Path(sys.executable).with_name("goodput-exporter"))
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_config_check_answers_and_exits(tmp_path: Path) -> None:
    """--config.check validates without starting anything."""
    path = configuration(tmp_path / "c.yml", "http://localhost:1/metrics")
    good = exporter_command(f"--config.file={path}", "--config.check")
    assert (good.returncode, good.stdout) == (0, f"{path}: 1 SLO class, 1 engine\n")
    path.write_text("engines: [{name: a}]")
    bad = exporter_command(f"--config.file={path}", "--config.check")
    expected = f"{path}: engines[0]: needs exactly one of url, file_sd, dns\n"
    assert (bad.returncode, bad.stderr) == (1, expected)


def test_starting_with_a_bad_configuration_or_a_taken_port_says_why(
    tmp_path: Path,
) -> None:
    """One sentence on standard error, exit code 1, no traceback."""
    path = configuration(tmp_path / "c.yml", "http://localhost:1/metrics")
    with RunningExporter(f"--config.file={path}") as exporter:
        address = exporter.url.removeprefix("http://")
        taken = exporter_command(
            f"--config.file={path}", f"--web.listen-address={address}"
        )
    assert taken.returncode == 1
    assert address in taken.stderr
    assert "Traceback" not in taken.stderr
    missing = exporter_command(f"--config.file={tmp_path / 'no.yml'}")
    assert missing.returncode == 1
    assert "cannot be read: No such file or directory" in missing.stderr
    nothing = exporter_command()
    assert nothing.returncode == 2


def test_the_page_can_be_kept_as_it_is(tmp_path: Path) -> None:
    """`?refresh=0` stops the page's own refresh and leads back to it."""
    with RunningExporter("--demo", f"--storage.path={tmp_path}") as exporter:
        moving, still = exporter.get("/").text, exporter.get("/?refresh=0").text
    assert 'http-equiv="refresh"' in moving
    assert 'href="?refresh=0"' in moving
    assert 'http-equiv="refresh"' not in still
    assert 'href="?"' in still


def test_config_check_reads_the_web_config_as_well(tmp_path: Path) -> None:
    """--config.check with --web.config.file names the fault in it."""
    path = configuration(tmp_path / "c.yml", "http://localhost:1/metrics")
    web = tmp_path / "web.yml"
    web.write_text("basic_auth_users: {ann: not-a-hash}")
    done = exporter_command(
        f"--config.file={path}", f"--web.config.file={web}", "--config.check"
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"{web}: basic_auth_users.ann")

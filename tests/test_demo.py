"""`--demo`: a simulated fleet in a process of its own, and the exporter beside it."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from running_exporter import RunningExporter, value, wait_for

from analyzer.exposition import Sample, parse_text
from exporter.demo import Demo, DemoError, DemoOptions

MODEL = "llama-3.1-8b"
CLASS = {"gateway": "edge", "model": MODEL, "slo_class": "interactive"}


def truth(exporter: RunningExporter) -> dict[str, Any]:
    """Returns what the simulated site says of itself."""
    answer = exporter.get("/demo/truth")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def counted(samples: list[Sample]) -> Mapping[str, Any]:
    """Returns the exporter's counts in the words of the truth."""

    def split(name: str, label: str) -> dict[str, float]:
        return {s.labels[label]: s.value for s in samples if s.name == name and s.value}

    def total(name: str) -> float | None:
        return value(samples, f"goodput_{name}_total", **CLASS)

    return {
        "requests": total("requests"),
        "good": total("good_requests"),
        "bad": total("bad_requests"),
        "tokens": total("tokens"),
        "good_tokens": total("good_tokens"),
        "missed": split("goodput_criterion_misses_total", "criterion"),
        "excluded": split("goodput_excluded_requests_total", "reason"),
    }


@pytest.mark.parametrize("scenario", ["tour", "overload", "kv-pressure", "restart"])
def test_the_exporter_counts_what_was_the_case(scenario: str, tmp_path: Path) -> None:
    """Every count of the request log equals the simulation's own, at one moment."""
    arguments = (f"--demo={scenario}", "--demo.speed=5", f"--storage.path={tmp_path}")
    with RunningExporter(*arguments) as exporter:
        wait_for(lambda: truth(exporter)["seconds"] > 45, seconds=60)
        compared: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = []

        def still() -> bool:
            """Whether nothing ended while we looked."""
            before = truth(exporter)
            samples = parse_text(exporter.get().text)
            after = truth(exporter)
            if before["log_lines"] != after["log_lines"]:
                return False
            expected = dict(after["classes"]["interactive"])
            del expected["engine"]
            compared.append((counted(samples), expected))
            return True

        wait_for(still, seconds=60)
        ours, expected = compared[0]
        assert ours == expected
        assert expected["requests"] > 50


def test_the_demo_shows_its_replicas_its_log_and_its_gpus(tmp_path: Path) -> None:
    """Targets by pod, found from a file; all of them up, and good requests."""
    arguments = ("--demo=healthy", "--demo.replicas=3", f"--storage.path={tmp_path}")
    with RunningExporter(*arguments) as exporter:
        pods = {f"demo/vllm-{number}-0" for number in range(3)}

        def up() -> set[str]:
            """Returns the engines that answer."""
            return {
                sample.labels["target"]
                for sample in exporter.samples()
                if sample.name == "goodput_target_up"
                and sample.labels["kind"] == "engine"
                and sample.value == 1
            }

        wait_for(lambda: up() == pods)
        wait_for(lambda: (exporter.value("goodput_good_requests_total") or 0) > 3)
        assert "interactive" in exporter.get("/").text
        status = exporter.get("/api/v1/status").json()
        assert {row["model"] for row in status["slo"]} == {MODEL}


def test_a_replica_that_comes_back_as_another_pod_is_another_target(
    tmp_path: Path,
) -> None:
    """The first is down and then gone from the file, the second is up."""
    arguments = ("--demo=restart", "--demo.speed=10", f"--storage.path={tmp_path}")
    with RunningExporter(*arguments) as exporter:
        # The second crash is that of replica 1, at 60 s; it is back at 68 s.
        wait_for(lambda: truth(exporter)["seconds"] > 75, seconds=60)

        def told() -> dict[str, float]:
            """Returns which engines answer, of those in service."""
            return {
                sample.labels["target"]: sample.value
                for sample in exporter.samples()
                if sample.name == "goodput_target_up"
                and sample.labels["kind"] == "engine"
            }

        wait_for(lambda: told().get("demo/vllm-1-1") == 1)
        assert "demo/vllm-1-0" not in told()


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="needs Linux's /proc"
)


def children(process: int) -> list[int]:
    """Returns the processes that *process* has started."""
    path = Path(f"/proc/{process}/task/{process}/children")
    return [int(number) for number in path.read_text().split()]


def folder_of(site: int) -> Path:
    """Returns where the simulated site keeps its files."""
    arguments = Path(f"/proc/{site}/cmdline").read_bytes().split(b"\0")
    (directory,) = (a for a in arguments if a.startswith(b"--directory="))
    return Path(os.fsdecode(directory.partition(b"=")[2]))


@needs_proc
@pytest.mark.parametrize("way", ["kill", "stop"])
def test_the_simulated_site_ends_with_the_exporter(way: str, tmp_path: Path) -> None:
    """However the exporter ends, the site's process and its files are gone."""
    with RunningExporter("--demo", f"--storage.path={tmp_path}") as exporter:
        (site,) = children(exporter.process.pid)
        folder = folder_of(site)
        assert folder.is_dir()
        exporter.kill() if way == "kill" else exporter.stop()
    wait_for(lambda: not Path(f"/proc/{site}").exists())
    assert not folder.exists()


@needs_proc
def test_a_site_that_was_killed_is_down_and_has_no_truth(tmp_path: Path) -> None:
    """The truth is not available rather than our failure, and nothing is left."""
    arguments = ("--demo", "--demo.replicas=1", f"--storage.path={tmp_path}")
    with RunningExporter(*arguments) as exporter:
        (site,) = children(exporter.process.pid)
        folder = folder_of(site)
        wait_for(lambda: exporter.get("/demo/truth").status_code == 200)
        os.kill(site, signal.SIGKILL)
        wait_for(lambda: exporter.get("/demo/truth").status_code == 503)
        wait_for(lambda: exporter.value("goodput_target_up", kind="engine") == 0)
        exporter.stop()
    assert not folder.exists()


@needs_proc
def test_a_site_whose_folder_was_removed_ends_with_a_sentence(tmp_path: Path) -> None:
    """It ends when it next lists its replicas, and does not answer standing still."""
    arguments = ("--demo=restart", "--demo.speed=10", f"--storage.path={tmp_path}")
    with RunningExporter(*arguments) as exporter:
        (site,) = children(exporter.process.pid)
        shutil.rmtree(folder_of(site))
        wait_for(lambda: exporter.get("/demo/truth").status_code == 503)
        assert exporter.stop() == 0
    log = "".join(exporter.log)
    assert "the simulated site ended: " in log
    assert "Traceback" not in log


def test_a_demo_without_a_place_for_its_files_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulated site needs a folder for its log: a sentence, no traceback."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(DemoError, match=r"no place for the simulated site: .*gone"):
        Demo(DemoOptions("healthy"))


def test_without_a_demo_there_is_no_truth(tmp_path: Path) -> None:
    """The path is the demonstration's alone."""
    path = tmp_path / "c.yml"
    path.write_text("slo_classes: [{preset: chat}]")
    with RunningExporter(f"--config.file={path}") as exporter:
        assert exporter.get("/demo/truth").status_code == 404

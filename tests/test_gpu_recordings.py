"""GPU exporters in recordings: written at their own pace, replayed in time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from gpu_pages import UUID, page, rows
from gpu_server import GpuServer
from synthetic_engine import SyntheticEngine

from analyzer.cli import main
from analyzer.config import parse_config
from analyzer.replay import GpuReplay
from analyzer.sources.recording import (
    GPU_SCRAPES,
    SCRAPES,
    Recorder,
    Scrape,
    read_scrapes,
)

DECODE = "h100x8_tp8_decode_composed"


def goodput(*arguments: str | Path) -> Result:
    """Runs `goodput` in this process."""
    return CliRunner().invoke(main, list(map(str, arguments)))


def lines(recording: Path, folder: str) -> int:
    """Returns how many scrapes an index lists."""
    text = (recording / folder / "index.csv").read_text()
    return len(text.splitlines()) - 1


def test_recording_holds_both_and_a_replay_reads_them(tmp_path: Path) -> None:
    """The GPU exporter is scraped at its own interval; replay says the same as live."""
    with GpuServer(page(DECODE)) as gpus, SyntheticEngine() as engine:
        path = tmp_path / "c.yml"
        path.write_text(
            "slo_classes: [{preset: chat}]\n"
            f'engines: [{{name: vllm, url: "{engine.url}", interval: 200ms}}]\n'
            f'gpus: [{{name: vllm, url: "{gpus.url}", interval: 600ms, '
            "match: {pod: llama-70b-0}}]\n"
        )
        recording = tmp_path / "r"
        done = goodput("record", "--config.file", path, "--for", "1200ms", recording)
    assert done.exit_code == 0, done.output
    assert (lines(recording, SCRAPES), lines(recording, GPU_SCRAPES)) == (6, 2)
    body = (recording / "gpu" / "0000.prom").read_text()
    assert body == page(DECODE)
    found = json.loads(goodput("replay", recording, "--format", "json").stdout)
    (exporter,) = found["gpus"]
    assert exporter["join"]["how"] == "pod llama-70b-0"
    assert len(exporter["devices"]) == 8
    first = exporter["devices"][0]["signals"]["gpu_dram_active_ratio"]
    assert first == {"value": 0.703, "state": "present"}
    kinds = {source["source"]: source for source in found["sources"]}
    assert kinds["gpu"]["up"] is True
    assert kinds["gpu"]["missing_signals"] == ["gpu_data_age_seconds"]
    assert "GPUs vllm: 0 gaps" in goodput("replay", recording).stdout


def test_discovered_engine_is_recorded_with_its_own_nodes_gpus(tmp_path: Path) -> None:
    """Of two nodes' exporters the engine's is recorded, and replay knows its pod."""
    ours = rows("DCGM_FI_PROF_DRAM_ACTIVE 0.5", labels='hostname="n2",pod="vllm-7"')
    other = rows("DCGM_FI_PROF_DRAM_ACTIVE 0.9", uuid="GPU-2", labels='pod="vllm-8"')
    with (
        GpuServer(page(DECODE)) as far,
        GpuServer(ours + other) as near,
        SyntheticEngine() as engine,
    ):
        address = engine.url.removeprefix("http://").removesuffix("/metrics")
        (tmp_path / "t.yml").write_text(
            f"- targets: ['{address}']\n  labels: {{pod: vllm-7, node: n2}}\n"
        )
        path = tmp_path / "c.yml"
        path.write_text(
            "engines: [{name: fleet, interval: 200ms, file_sd: {files: [t.yml]}}]\n"
            "gpus:\n"
            f'  - {{name: a, url: "{far.url}", match: {{hostname: n1}}}}\n'
            f'  - {{name: b, url: "{near.url}", match: {{hostname: n2}}}}\n'
        )
        recording = tmp_path / "r"
        done = goodput("record", "--config.file", path, "--for", "200ms", recording)
    assert done.exit_code == 0, done.output
    assert (recording / "gpu" / "0000.prom").read_text() == ours + other
    found = json.loads(goodput("replay", recording, "--format", "json").stdout)
    (exporter,) = found["gpus"]
    assert exporter["target"] == "b"
    assert exporter["join"]["how"] == "pod vllm-7"
    assert [d["uuid"] for d in exporter["devices"] if d["ours"]] == [UUID]


def test_hanging_gpu_exporter_costs_no_scrape_of_the_engine(tmp_path: Path) -> None:
    """The engine's scrapes go on at their pace; the hang stands in the GPU's index."""
    with GpuServer("") as gpus, SyntheticEngine() as engine:
        gpus.answering.clear()
        path = tmp_path / "c.yml"
        path.write_text(
            f'engines: [{{name: vllm, url: "{engine.url}", interval: 200ms}}]\n'
            f'gpus: [{{name: node, url: "{gpus.url}", timeout: 800ms}}]\n'
        )
        recording = tmp_path / "r"
        done = goodput("record", "--config.file", path, "--for", "1s", recording)
    assert done.exit_code == 0, done.output
    assert lines(recording, SCRAPES) == 5
    index = (recording / "gpu" / "index.csv").read_text().splitlines()
    assert [line.split(",")[2] for line in index[1:]] == ["timeout"]


def _scrapes(*pages: tuple[float, str | None]) -> Iterator[Scrape]:
    for at, text in pages:
        yield Scrape(at, 0.01, text, "" if text else "timeout")


def test_replay_knows_no_more_than_there_was() -> None:
    """At each moment only the pages up to it count, failures included."""
    replay = GpuReplay(
        _scrapes(
            (10.0, rows("DCGM_FI_DEV_POWER_USAGE 100.5")),
            (20.0, rows("DCGM_FI_DEV_POWER_USAGE 200.5")),
            (30.0, None),
            (40.0, rows("DCGM_FI_DEV_POWER_USAGE 400.5")),
        ),
        parse_config("gpus: [{name: node, url: 'http://a/m'}]"),
    )
    watts: list[float | None] = []
    for at in (5.0, 10.0, 25.0, 35.0, 45.0):
        replay.until(at)
        devices = replay.flow.reading(at).devices
        watts.append(devices[0].signal("gpu_power_watts").value if devices else None)
    assert watts == [None, 100.5, 200.5, 200.5, 400.5]
    assert replay.flow.gaps == 1
    assert replay.flow.source.name == "node"
    failures = replay.flow.ledger.counter(
        "goodput_target_scrape_failures_total", ("gpu", "timeout")
    )
    assert failures == 1


def test_recording_without_gpus_has_none(tmp_path: Path) -> None:
    """No folder, no exporter: the list is empty and nothing is missed."""
    recorder = Recorder(tmp_path)
    recorder.add(1.0, 0.1, b"vllm:num_requests_running 1\n", "")
    recorder.close()
    found = json.loads(goodput("replay", tmp_path, "--format", "json").stdout)
    assert found["gpus"] == []
    assert [source["source"] for source in found["sources"]] == ["engine"]


def test_broken_gpu_recording_is_told(tmp_path: Path) -> None:
    """A page that the index names and nobody has ends the replay with its place."""
    recorder = Recorder(tmp_path)
    recorder.add(1.0, 0.1, b"vllm:num_requests_running 1\n", "")
    recorder.close()
    gpus = Recorder(tmp_path, GPU_SCRAPES)
    gpus.add(0.5, 0.1, page("t4_idle").encode(), "")
    gpus.close()
    (tmp_path / "gpu" / "0000.prom").unlink()
    done = goodput("replay", tmp_path)
    assert done.exit_code == 3
    assert "gpu/0000.prom: is in the index but not there" in done.output


@pytest.mark.parametrize("reason", ["http_status", "wrong_node", "nonsense"])
def test_recorded_failures_keep_their_reason(reason: str) -> None:
    """A reason that no scrape has counts as a broken connection."""
    scrape = Scrape(1.0, 0.1, None, reason)
    replay = GpuReplay(
        [scrape], parse_config("engines: [{name: a, url: 'http://a/m'}]")
    )
    replay.until(1.0)
    attempt = replay.flow.attempt
    assert attempt is not None
    assert attempt.reason == ("connection" if reason == "nonsense" else reason)


def test_read_scrapes_reads_any_folder(tmp_path: Path) -> None:
    """The folder of GPUs has the same form as that of engines."""
    recorder = Recorder(tmp_path, GPU_SCRAPES)
    recorder.add(1.0, 0.1, rows("DCGM_FI_DEV_GPU_UTIL 5").encode(), "")
    recorder.add(2.0, 0.1, None, "timeout")
    recorder.close()
    first, second = read_scrapes(tmp_path, GPU_SCRAPES)
    assert first.text is not None
    assert UUID in first.text
    assert (second.text, second.reason) == (None, "timeout")

"""The daemon beside real GPU exporters: its series, restarts, reloads and page."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import requests
from gpu_pages import UUID, page, rows
from gpu_server import GpuServer
from running_exporter import RunningExporter, wait_for
from scraping import CERTIFICATES, context
from synthetic_engine import SyntheticEngine, free_port

from analyzer.exposition import Sample

DECODE = "h100x8_tp8_decode_composed"
VIOLATION = "DCGM_FI_DEV_POWER_VIOLATION"
THROTTLED = "goodput_gpu_throttled_seconds_total"
POWER = "goodput_gpu_power_watts"
CLASSES = "slo_classes: [{preset: chat}]\n"


def entry(url: str, name: str = "node", more: str = "") -> str:
    """Returns an entry of `gpus` that is scraped often."""
    return f'  - {{name: {name}, url: "{url}", interval: 200ms, timeout: 1s{more}}}\n'


def configured(folder: Path, *entries: str, engines: str = "") -> Path:
    """Writes a configuration with these GPU exporters."""
    path = folder / "c.yml"
    path.write_text(f"{CLASSES}{engines}gpus:\n{''.join(entries)}")
    return path


def named(samples: list[Sample], name: str) -> dict[tuple[str, ...], float]:
    """Returns the values of a metric by the values of its labels, UUID first."""
    return {
        tuple(sample.labels[label] for label in sorted(sample.labels, reverse=True)): (
            sample.value
        )
        for sample in samples
        if sample.name == name
    }


def holds(
    name: str, wanted: dict[tuple[str, ...], float], samples: list[Sample]
) -> bool:
    """Whether a metric has exactly these rows."""
    return named(samples, name) == wanted


def until(
    exporter: RunningExporter, condition: Callable[[list[Sample]], object]
) -> list[Sample]:
    """Scrapes until *condition* holds of a page, and returns that page."""
    found: list[Sample] = []

    def holds_now() -> object:
        found[:] = exporter.samples()
        return condition(found)

    wait_for(holds_now)
    return found


def test_signals_of_a_node_are_published_in_base_units(tmp_path: Path) -> None:
    """Eight GPUs of one pod: each figure under our name, and the exporter as target."""
    match = ", match: {hostname: gpu-node-tp8, pod: llama-70b-0}"
    with GpuServer(page(DECODE)) as gpus:
        path = configured(tmp_path, entry(gpus.url, more=match))
        with RunningExporter("--config.file", path) as exporter:
            samples = exporter.samples()
    first = "GPU-00000000-0000-4000-8000-c00000000000"
    for name, value in (
        ("utilization_ratio", 0.99),
        ("dram_active_ratio", 0.703),
        ("tensor_active_ratio", 0.071),
        ("sm_active_ratio", 0.742),
        ("engine_active_ratio", 0.962),
        ("memory_used_bytes", 73403 * 1024**2),
        ("memory_bytes", 81559 * 1024**2),
        ("power_watts", 421.3),
        ("power_limit_watts", 700.0),
        ("sm_clock_hertz", 1980e6),
        ("nvlink_bytes_per_second", 12199968768.0),
        ("pcie_bytes_per_second", 103341856.0),
    ):
        found = named(samples, f"goodput_gpu_{name}")
        assert len(found) == 8, name
        assert found[first, ""] == value, name
    assert named(samples, "goodput_gpu_devices") == {("node",): 8.0}
    infos = [s.labels for s in samples if s.name == "goodput_gpu_info"]
    assert infos[0] == {
        "uuid": first,
        "gpu_instance": "",
        "target": "node",
        "gpu": "0",
        "model_name": "NVIDIA H100 80GB HBM3",
        "hostname": "gpu-node-tp8",
        "pci_bus_id": "00000000:53:00.0",
        "namespace": "llm",
        "pod": "llama-70b-0",
    }
    up = [s for s in samples if s.name == "goodput_target_up"]
    assert [(dict(s.labels), s.value) for s in up] == [
        ({"target": "node", "kind": "gpu"}, 1.0)
    ]
    assert named(samples, "goodput_gpu_data_age_seconds") == {}


def test_throttled_seconds_never_step_back_over_kills(tmp_path: Path) -> None:
    """What the GPU counts while we are dead is added once by the process after."""
    with GpuServer(rows(f"{VIOLATION} 1000000000")) as gpus:
        path = configured(tmp_path, entry(gpus.url))
        state = f"--storage.path={tmp_path / 'state'}"
        for seconds in (1, 3, 4):
            gpus.page = rows(f"{VIOLATION} {seconds}000000000")
            wanted: dict[tuple[str, ...], float] = {(UUID, "power", ""): seconds - 1.0}
            with RunningExporter("--config.file", path, state) as exporter:
                found = until(exporter, partial(holds, THROTTLED, wanted))
                assert named(found, THROTTLED) == wanted
                exporter.kill()


def test_dead_or_hanging_gpu_exporter_holds_up_nobody(tmp_path: Path) -> None:
    """Its failures are counted, scrapes of ours are quick, and engines go on."""
    with GpuServer(page("t4_idle")) as gpus, SyntheticEngine() as engine:
        engines = f'engines: [{{name: vllm, url: "{engine.url}", interval: 1s}}]\n'
        nobody = entry(f"http://localhost:{free_port()}/metrics", "gone")
        path = configured(tmp_path, entry(gpus.url), nobody, engines=engines)
        with RunningExporter("--config.file", path) as exporter:
            samples = exporter.samples()
            up = named(samples, "goodput_target_up")
            assert up == {
                ("vllm", "engine"): 1.0,
                ("node", "gpu"): 1.0,
                ("gone", "gpu"): 0.0,
            }
            gpus.answering.clear()
            failures = "goodput_target_scrape_failures_total"
            samples = until(
                exporter,
                lambda found: named(found, failures)["node", "timeout", "gpu"] > 0,
            )
            assert named(samples, failures)["gone", "refused", "gpu"] > 0
            assert named(samples, "goodput_target_up")["vllm", "engine"] == 1.0
            asked = engine.scrapes
            exporter.samples()
            wait_for(lambda: engine.scrapes > asked)


def test_reload_adds_and_ends_exporters(tmp_path: Path) -> None:
    """Gauges of an exporter that went end at once, its counters stay for a while."""
    first = rows("DCGM_FI_DEV_POWER_USAGE 10.5", f"{VIOLATION} 5")
    second = rows("DCGM_FI_DEV_POWER_USAGE 20.5", uuid="GPU-2")
    with GpuServer(first) as one, GpuServer(second) as two:
        path = configured(tmp_path, entry(one.url))
        options = ("--config.file", path, "--web.enable-lifecycle")
        with RunningExporter(*options) as exporter:
            assert named(exporter.samples(), POWER) == {(UUID, ""): 10.5}
            configured(tmp_path, entry(two.url, "other"))
            requests.post(f"{exporter.url}/-/reload", timeout=10).raise_for_status()
            samples = exporter.samples()
            assert named(samples, POWER) == {("GPU-2", ""): 20.5}
            assert named(samples, "goodput_gpu_devices") == {("other",): 1.0}
            assert named(samples, THROTTLED) == {(UUID, "power", ""): 0.0}
            asked = one.scrapes
            configured(tmp_path, entry(one.url))
            requests.post(f"{exporter.url}/-/reload", timeout=10).raise_for_status()
            assert named(exporter.samples(), POWER) == {(UUID, ""): 10.5}
            assert one.scrapes > asked


def test_gpu_that_two_exporters_print_has_its_series_once(tmp_path: Path) -> None:
    """The first of the configuration counts; the page stays valid."""
    text = rows("DCGM_FI_DEV_POWER_USAGE 10.5", f"{VIOLATION} 5")
    with GpuServer(text) as one, GpuServer(text.replace("10.5", "99.5")) as two:
        path = configured(tmp_path, entry(one.url, "a"), entry(two.url, "b"))
        with RunningExporter("--config.file", path) as exporter:
            page_text = exporter.get().text
            samples = exporter.samples()
    assert named(samples, POWER) == {(UUID, ""): 10.5}
    lines = [line.rpartition(" ")[0] for line in page_text.splitlines()]
    series = [line for line in lines if line and not line.startswith("#")]
    assert len(series) == len(set(series))


def test_engine_and_exporter_of_one_name_are_two_targets(tmp_path: Path) -> None:
    """Both are sampled, and `kind` keeps their rows apart."""
    with GpuServer(page("t4_idle")) as gpus, SyntheticEngine() as engine:
        engines = f'engines: [{{name: node, url: "{engine.url}", interval: 1s}}]\n'
        path = configured(tmp_path, entry(gpus.url), engines=engines)
        with RunningExporter("--config.file", path) as exporter:
            samples = exporter.samples()
            asked = gpus.scrapes
            wait_for(lambda: gpus.scrapes > asked + 2)
    assert named(samples, "goodput_target_up") == {
        ("node", "engine"): 1.0,
        ("node", "gpu"): 1.0,
    }


def test_tls_and_a_token_are_used_as_for_engines(tmp_path: Path) -> None:
    """An exporter with a certificate of a private CA that wants a bearer token."""
    (tmp_path / "token").write_text("secret-1\n")
    with GpuServer(page("t4_idle"), token="secret-1", tls=context()) as gpus:
        more = (
            f', tls: {{ca_file: "{CERTIFICATES / "ca.pem"}"}}'
            f', authorization: {{credentials_file: "{tmp_path / "token"}"}}'
        )
        path = configured(
            tmp_path, entry(gpus.url, more=more), entry(gpus.url, "without")
        )
        with RunningExporter("--config.file", path) as exporter:
            samples = exporter.samples()
    assert named(samples, "goodput_target_up") == {
        ("node", "gpu"): 1.0,
        ("without", "gpu"): 0.0,
    }
    assert len(named(samples, POWER)) == 1


def test_gpus_that_are_not_ours_are_not_published(tmp_path: Path) -> None:
    """The join fails: no figure stands for ours, and page and log say why."""
    with GpuServer(page(DECODE)) as gpus:
        path = configured(tmp_path, entry(gpus.url, more=", match: {pod: other}"))
        with RunningExporter("--config.file", path) as exporter:
            samples = exporter.samples()
            status = exporter.get("/api/v1/status").json()
            shown = exporter.get("/").text
    assert named(samples, "goodput_gpu_devices") == {("node",): 0.0}
    assert {s.name for s in samples if s.name.startswith("goodput_gpu_")} == {
        "goodput_gpu_devices"
    }
    (found,) = status["gpus"]
    problem = "no GPU is given to */other; the page names llm/llama-70b-0"
    assert found["join"]["problem"] == problem
    assert len(found["devices"]) == 8
    assert not any(device["ours"] for device in found["devices"])
    assert problem in shown
    assert any(problem in line for line in exporter.log)


def test_mig_instances_and_their_board_are_counted_once(tmp_path: Path) -> None:
    """Power of the board has one series, activity one for each instance."""
    board = "GPU-00000000-0000-4000-8000-a00000000000"
    more = f", match: {{uuid: {board}}}"
    with GpuServer(page("a800x8_mig_mixed_idle")) as gpus:
        path = configured(tmp_path, entry(gpus.url, more=more))
        with RunningExporter("--config.file", path) as exporter:
            samples = exporter.samples()
    assert named(samples, POWER) == {(board, ""): 78.174}
    assert named(samples, "goodput_gpu_devices") == {("node",): 3.0}
    active = named(samples, "goodput_gpu_dram_active_ratio")
    assert set(active) == {(board, "3"), (board, "5"), (board, "6")}


def test_lint_accepts_the_page_with_gpus(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    """The linter finds nothing to say of names, types and helps."""
    with GpuServer(page(DECODE)) as gpus:
        path = configured(tmp_path, entry(gpus.url))
        with RunningExporter("--config.file", path) as exporter:
            text = exporter.get().text
    done = subprocess.run(
        [need_tool("promtool"), "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

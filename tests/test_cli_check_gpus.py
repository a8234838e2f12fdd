"""`goodput check --live` for GPU exporters: whose GPUs, which signals, what to add."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from gpu_pages import page, rows
from gpu_server import GpuServer
from synthetic_engine import SyntheticEngine, free_port

from analyzer.cli import main

H100 = "h100x8_tp8_decode_composed"


def check(folder: Path, url: str, *arguments: str, match: str = "{}") -> Result:
    """Runs `goodput check --live` on a configuration with one GPU exporter."""
    path = folder / "c.yml"
    gpu = f'{{name: node, url: "{url}", match: {match}}}'
    path.write_text(f"slo_classes: [{{preset: chat}}]\ngpus: [{gpu}]\n")
    every = ["check", "--config.file", str(path), "--live", *arguments]
    return CliRunner().invoke(main, every)


def document(result: Result) -> dict[str, Any]:
    """Returns what JSON says of the one exporter."""
    (found,) = json.loads(result.stdout)["gpus"]
    assert isinstance(found, dict)
    return found


def test_own_gpus_and_all_signals_are_said(tmp_path: Path) -> None:
    """A page with everything, and a match that holds: nothing to add."""
    match = "{hostname: gpu-node-tp8, namespace: llm, pod: llama-70b-0}"
    with GpuServer(page(H100)) as server:
        result = check(tmp_path, server.url, match=match)
    assert result.exit_code == 0, result.output
    said = result.stdout
    assert "node (http://localhost:" in said
    assert "dcgm-exporter, 8 GPUs" in said
    assert "GPUs: 8, told by: pod llama-70b-0, namespace llm" in said
    assert "7 NVIDIA H100 80GB HBM3 GPU-00000007" in said
    assert "gpu_dram_active_ratio        0.699 to 0.705" in said
    assert "gpu_data_age_seconds         absent: known from the first change" in said
    assert "--listen 40s" in said
    assert "warning" not in said


def test_missing_fields_are_given_as_rows_to_paste(tmp_path: Path) -> None:
    """No profiling: a warning that says what cannot be told, and the CSV's rows."""
    with GpuServer(page("h100x8_vllm_loaded_idle")) as server:
        match = "{namespace: dynamo-workload}"
        result = check(tmp_path, server.url, match=match)
        found = document(check(tmp_path, server.url, "--format", "json", match=match))
    assert result.exit_code == 1
    assert "GPUs: 1, told by: namespace dynamo-workload" in result.stdout
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert any(line.startswith("DCGM_FI_PROF_DRAM_ACTIVE, gauge, ") for line in lines)
    assert any(
        line.startswith("DCGM_FI_DEV_POWER_VIOLATION, counter") for line in lines
    )
    assert not any(line.startswith("DCGM_FI_DEV_POWER_USAGE,") for line in lines)
    first, second = found["findings"]
    assert (first["code"], first["severity"]) == ("no_profiling", "warning")
    assert (second["code"], second["severity"]) == ("fields_missing", "info")
    own = [device["gpu"] for device in found["devices"] if device["ours"]]
    assert own == ["0"]


def test_rows_have_the_names_of_the_exporter_found(tmp_path: Path) -> None:
    """Since 4.9 the fields are called otherwise."""
    with GpuServer(page("base_units_4_9_0_composed")) as server:
        result = check(tmp_path, server.url)
    assert result.exit_code == 0, result.output
    assert "in the names of 4.9 and later" in result.stdout
    assert "llm/llama-70b-0 is the only pod with GPUs" in result.stdout
    assert "DCGM_FI_PROF_SM_UTIL_RATIO, gauge, " in result.stdout
    assert "DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL, counter, " in result.stdout


def test_gpus_of_nobody_known_are_a_warning(tmp_path: Path) -> None:
    """The pod has no GPU by the page: the sentence says what the page names."""
    with GpuServer(page(H100)) as server:
        result = check(tmp_path, server.url, match="{pod: other}")
        found = document(
            check(tmp_path, server.url, "--format", "json", match="{pod: other}")
        )
    assert result.exit_code == 1
    problem = "no GPU is given to */other; the page names llm/llama-70b-0"
    assert f"GPUs: not known: {problem}" in result.stdout
    assert "signals (all of the page):" in result.stdout
    assert found["join"]["problem"] == problem
    assert [f["code"] for f in found["findings"]] == ["gpus_unknown"]


def test_engine_with_fewer_gpus_than_declared_is_a_warning(tmp_path: Path) -> None:
    """Tensor parallelism over 8 and one GPU by the page's labels."""
    text = rows("DCGM_FI_PROF_DRAM_ACTIVE 0.5")
    with GpuServer(text) as server, SyntheticEngine() as engine:
        path = tmp_path / "c.yml"
        path.write_text(
            f'engines: [{{name: vllm, url: "{engine.url}", '
            f"declared: {{tensor_parallel: 8}}}}]\n"
            f'gpus: [{{name: node, url: "{server.url}"}}]\n'
        )
        result = CliRunner().invoke(
            main, ["check", "--config.file", str(path), "--live"]
        )
    assert "GPUs of vllm: 1, told by: no row names a pod" in result.stdout
    assert "warning: 1 GPU found where the engine should have 8" in result.stdout


def test_listening_waits_until_the_figures_change(tmp_path: Path) -> None:
    """With --listen the age is known as soon as the exporter refreshed its cache."""
    with GpuServer(page(H100)) as server:

        def refresh() -> None:
            while server.scrapes < 2:
                time.sleep(0.01)
            server.page = page("h100x8_tp8_prefill_powercap_composed_t0")

        changing = threading.Thread(target=refresh)
        changing.start()
        result = check(tmp_path, server.url, "--listen", "25s")
        changing.join()
    assert result.exit_code == 0, result.output
    assert "gpu_data_age_seconds         absent" not in result.stdout
    assert "--listen 40s" not in result.stdout
    assert server.scrapes == 3


def test_reloading_exporter_is_waited_for(tmp_path: Path) -> None:
    """An empty page ends after seconds, so it is asked again."""
    with GpuServer("") as server:

        def reload() -> None:
            while server.scrapes < 1:
                time.sleep(0.01)
            server.page = page("t4_idle")

        reloading = threading.Thread(target=reload)
        reloading.start()
        result = check(tmp_path, server.url)
        reloading.join()
    assert result.exit_code == 0, result.output
    assert "dcgm-exporter, 1 GPU\n" in result.stdout


def test_exporter_that_cannot_be_read_fails_the_check(tmp_path: Path) -> None:
    """Nobody listens, or it is another node's page: 3, with the reason."""
    url = f"http://localhost:{free_port()}/metrics"
    result = check(tmp_path, url)
    assert result.exit_code == 3
    assert "refused: " in result.stdout
    with GpuServer(page(H100)) as server:
        result = check(tmp_path, server.url, match="{hostname: elsewhere}")
    assert result.exit_code == 3
    assert "wrong_node: the page is of gpu-node-tp8, not of elsewhere" in result.stdout

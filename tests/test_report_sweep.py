"""Production beside a benchmark's curve."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from benchmark_results import document, unpack
from click.testing import CliRunner
from recorded_logs import packed

from analyzer.cli import main
from analyzer.report.reconcile import Known, at_load

CONFIG = """
slo_classes:
  - {name: all, good: {ttft: 1s, e2e: 10s}, objective: 0.5}
gateways:
  - name: house
    path: /var/log/house.jsonl
    format: custom
    fields: {start: at, ttft: ttft, e2e: e2e, prompt_tokens: input,
             completion_tokens: output, model: model}
"""
BEGIN = 1_700_000_000.0
SHARES = {2: 1.0, 8: 0.9, 32: 0.2}  # by concurrency, of the benchmark


def benchmark(folder: Path) -> Path:
    """Writes long results of vLLM's benchmark with these shares of good requests."""
    given = document(unpack(folder / "real") / "sweeps" / "seqs16" / "c4.json")
    target = folder / "sweep"
    target.mkdir()
    for concurrency, share in SHARES.items():
        number = 250 * concurrency
        rng = random.Random(concurrency)
        ttfts = [0.1 if rng.random() < share else 1.5 for _ in range(number)]
        result = {
            **{k: v for k, v in given.items() if not k.endswith("_ms")},
            "max_concurrency": concurrency,
            "num_prompts": number,
            "completed": number,
            "duration": 1000.0,
            "input_lens": [200] * number,
            "output_lens": [50] * number,
            "total_input_tokens": 200 * number,
            "total_output_tokens": 50 * number,
            "ttfts": ttfts,
            "itls": [[0.05] * 49] * number,
            "latencies": [4.0] * number,
            "start_times": [4.0 * (n // concurrency) for n in range(number)],
            "queue_times": [0.0] * number,
            "generated_texts": [""] * number,
            "errors": [""] * number,
            "request_throughput": number / 1000.0,
            "output_throughput": 50 * number / 1000.0,
        }
        (target / f"c{concurrency}.json").write_text(json.dumps(result))
    return target


def log(folder: Path, *, at_once: int, share: float, prompt: int = 200) -> Path:
    """Writes a log of ten minutes with so many requests at once, a share of them good.

    Each takes four seconds.
    """
    rng = random.Random(1)
    path = folder / "house.jsonl"
    with path.open("w") as file:
        for n in range(150 * at_once):
            row = {
                "at": BEGIN + 4.0 * n / at_once,
                "ttft": 0.1 if rng.random() < share else 1.5,
                "e2e": 4.0,
                "input": prompt,
                "output": 50,
                "model": "demo-small",
            }
            file.write(json.dumps(row) + "\n")
    return path


def compared(folder: Path, path: Path, *options: str) -> dict[str, Any]:
    """Returns the verdict on a log beside the benchmark, and its points."""
    config = folder / "goodput.yml"
    config.write_text(CONFIG)
    page = folder / "report.html"
    given = ["report", str(path), "--config.file", str(config), "--format", "json"]
    given += ["--sweep", str(benchmark(folder)), "--html", str(page), *options]
    done = CliRunner().invoke(main, given)
    assert done.exit_code in (0, 1), done.output
    found = json.loads(done.stdout)
    (verdict,) = found["reconciliation"]
    assert "Beside the benchmark" in page.read_text()
    return {**verdict, "points": found["operating_points"]}


@pytest.mark.parametrize(
    ("share", "verdict"),
    [
        (0.9, "they agree"),
        (0.6, "production is worse"),
        (1.0, "production is better"),
    ],
)
def test_production_is_held_against_the_same_load(
    share: float, verdict: str, tmp_path: Path
) -> None:
    """At eight at once the benchmark says 90 %: near it they agree, else not."""
    found = compared(tmp_path, log(tmp_path, at_once=8, share=share))
    assert found["verdict"] == verdict
    assert found["expected"] == pytest.approx(0.9, abs=0.03)
    assert found["attainment"] == pytest.approx(share, abs=0.03)
    loads = [point["load"] for point in found["points"]]
    assert loads[len(loads) // 2] == pytest.approx(8.0, rel=0.05)


def test_the_load_is_shared_by_replicas(tmp_path: Path) -> None:
    """Sixteen at once on two servers are eight on each."""
    path = log(tmp_path, at_once=16, share=0.9)
    found = compared(tmp_path, path, "--replicas", "2")
    assert found["verdict"] == "they agree"


def test_loads_and_lengths_that_were_not_measured_are_told(tmp_path: Path) -> None:
    """Beyond the sweep nothing is expected, and other lengths are another workload."""
    path = log(tmp_path, at_once=64, share=0.1, prompt=2000)
    found = compared(tmp_path, path)
    assert found["verdict"] in ("not comparable", "cannot be told")
    assert "did not measure" in found["notes"]
    assert "prompts have 2000 tokens" in found["notes"]


def test_between_two_points_the_wider_limits_hold() -> None:
    """The share is on the line, its limits those of both points."""
    known = [Known(2, 1.0, 0.9, 1.0), Known(8, 0.4, 0.3, 0.5)]
    assert at_load(known, 5) == Known(5, 0.7, 0.3, 1.0)
    assert at_load(known, 8) == known[1]
    assert at_load(known, 1.9) is at_load(known, 8.1) is at_load([], 3) is None


def test_a_sweep_needs_classes(tmp_path: Path) -> None:
    """Without thresholds there is no share to compare: usage."""
    sweep = str(benchmark(tmp_path))
    done = CliRunner().invoke(
        main, ["report", str(packed("episodes/kv-a")), "--sweep", sweep]
    )
    assert done.exit_code == 2

"""`goodput sweep` on real sweeps, from the command line."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from benchmark_results import document, good_of, unpack
from click.testing import Result
from goodput_command import goodput

GOOD = "--good=ttft=1s,tpot=50ms,e2e=10s"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of real results."""
    return unpack(tmp_path_factory.mktemp("results"))


def sweep(*arguments: str | Path) -> Result:
    """Runs the command."""
    return goodput("sweep", *arguments)


def found(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    """Returns the command's JSON, after the exit code expected."""
    result = sweep(*arguments, "--format=json")
    assert result.exit_code == code, result.output
    decoded: dict[str, Any] = json.loads(result.stdout)
    return decoded


def test_two_real_sweeps_have_their_knees_and_operating_points(results: Path) -> None:
    """As docs/capacity.md argues; the folders are the configurations."""
    told = found(results / "sweeps" / "seqs16", results / "sweeps" / "seqs32", GOOD)
    assert len(told["points"]) == 14
    by_config = {c["config"]["directory"]: c for c in told["curves"]}
    small, large = by_config["seqs16"], by_config["seqs32"]
    assert (small["knee"]["concurrency"], large["knee"]["concurrency"]) == (16, 32)
    assert small["operating_point"]["concurrency"] == 16
    assert large["operating_point"]["concurrency"] == 8
    assert small["operating_point"]["beyond"] == 32
    assert large["operating_point"]["beyond"] == 16
    assert small["plateau"] == {"axis": "concurrency", "from": 16, "to": 64}
    assert small["goodput_region"] == {"axis": "concurrency", "from": 1, "to": 16}
    assert small["overshoot"] is None
    # The larger batch has more throughput, and yet fewer good requests.
    assert told["operating_point"]["config"] == {"directory": "seqs16"}
    rates = {
        name: max(
            p["requests_per_second"]
            for p in told["points"]
            if p["config"] == {"directory": name}
        )
        for name in by_config
    }
    assert rates["seqs32"] > rates["seqs16"]
    codes = {note["code"] for note in small["notes"]}
    assert codes == {"few_requests", "short"}


def test_points_have_every_field_of_the_contract(results: Path) -> None:
    """None of them is missing where a file holds single requests."""
    told = found(results / "sweeps" / "seqs16" / "c16.json", GOOD)
    (point,) = told["points"]
    names = [
        "concurrency",
        "config",
        "requests_per_second",
        "goodput_requests_per_second",
        "output_tokens_per_second",
        "attainment",
        "failed",
        *(
            f"{latency}_{level}_seconds"
            for latency in ("ttft", "tpot", "itl", "e2e")
            for level in ("p50", "p95", "p99")
        ),
    ]
    assert [name for name in names if point[name] is None] == []
    assert point["request_rate"] is None
    assert point["user_tokens_per_second_p50"] == pytest.approx(
        1 / point["tpot_p50_seconds"]
    )
    assert point["output_tokens_per_second"] > 10 * point["user_tokens_per_second_p50"]
    low, high = point["attainment_interval"]
    assert low < point["attainment"] <= high
    assert told["knee"]["reason"] == "1 load points of the 5 needed"
    assert {"code": "few_points"}.items() <= told["curves"][0]["notes"][0].items()


def test_what_if_the_slo_were_another_needs_no_new_run(results: Path) -> None:
    """A stricter TTFT moves the operating point down."""
    folder = results / "sweeps" / "seqs16"
    strict = found(folder, "--good=ttft=300ms,tpot=50ms", "--objective=0.9")
    for point in strict["points"]:
        told = document(folder / f"c{point['concurrency']:g}.json")
        good = good_of(told, ttft=0.3, tpot=0.05, e2e=1e9)
        assert point["attainment"] == sum(good) / len(good)
    assert strict["operating_point"]["concurrency"] == 2
    assert strict["operating_point"]["beyond"] == 4


def test_a_target_that_no_load_meets_is_a_finding(results: Path) -> None:
    """Exit code 1, for a gate."""
    told = found(results / "sweeps" / "seqs16", "--good=ttft=1ms", code=1)
    assert told["operating_point"]["concurrency"] is None
    assert "lowest load misses" in told["operating_point"]["reason"]


def test_every_class_of_a_configuration_has_its_list(
    results: Path, tmp_path: Path
) -> None:
    """A class that takes other models is told and left out."""
    config = tmp_path / "goodput.yml"
    config.write_text(
        "slo_classes:\n"
        "  - {name: fast, good: {ttft: 100ms}, objective: 0.5}\n"
        "  - {name: slow, good: {e2e: 1m}, objective: 0.99,\n"
        "     percentiles: {ttft: {p95: 500ms}}}\n"
        "  - {name: other, match: {model: nobody}, good: {ttft: 1s}, objective: 0.9}\n"
    )
    folder = results / "sweeps" / "seqs16"
    told = found(folder, f"--config.file={config}")
    fast, slow = told["classes"]
    assert (fast["class"], slow["class"]) == ("fast", "slow")
    assert told["points"] == fast["points"]
    # All are good at 64 at once, and yet its p95 of TTFT is beyond the target.
    assert slow["points"][-1]["attainment"] == 1.0
    assert slow["points"][-1]["meets_target"] is False
    assert slow["operating_point"]["concurrency"] == 4
    assert told["problems"][0]["place"] == "class other"
    only = found(folder, f"--config.file={config}", "--class=slow")
    assert only["class"] == "slow"
    assert "classes" not in only


def test_without_a_class_there_is_throughput_and_no_goodput(results: Path) -> None:
    """Nothing is judged, nothing is missed."""
    told = found(results / "sweeps" / "seqs32")
    assert {p["goodput_requests_per_second"] for p in told["points"]} == {None}
    assert told["operating_point"]["reason"] == "no SLO class was given"
    assert told["knee"]["concurrency"] == 32
    assert 0 < told["knee"]["usl"]["worst_residual"] < 1


def test_broken_files_are_told_and_the_good_ones_count(
    results: Path, tmp_path: Path
) -> None:
    """One sentence each, with file and place."""
    cut = tmp_path / "cut.json"
    cut.write_bytes((results / "sweeps" / "seqs16" / "c1.json").read_bytes()[:700])
    empty = tmp_path / "empty.json"
    empty.touch()
    lost = tmp_path / "lost.json"
    good = results / "sweeps" / "seqs16" / "c2.json"
    result = sweep(cut, empty, lost, good, GOOD)
    assert result.exit_code == 0
    warnings = result.stderr.splitlines()
    assert len(warnings) == 3
    assert warnings[0].startswith(f"Warning: {cut}: not JSON: ")
    assert warnings[1] == f"Warning: {empty}: is empty"
    assert warnings[2] == f"Warning: {lost}: cannot be read: No such file or directory"
    assert "3.06" in result.stdout
    nothing = sweep(cut, empty, GOOD)
    assert nothing.exit_code == 3
    assert "no benchmark result could be read" in nothing.stderr


def test_the_text_says_what_the_curve_says(results: Path) -> None:
    """The table, the knee, the region, the operating point and the doubts."""
    text = sweep(results / "sweeps" / "seqs16", GOOD).stdout
    assert "class good: ttft ≤ 1s, tpot ≤ 50ms, e2e ≤ 10s for 0.95 of requests" in text
    assert "knee: concurrency 16 at 7.67 req/s (Kneedle)" in text
    assert "goodput region: the target is met from concurrency 1 to 16" in text
    assert "the limit lies between concurrency 16 and 32" in text
    assert "at 1, 2, 4, 8, 16: fewer than 100 requests" in text
    (row,) = (line for line in text.splitlines() if line.split()[:1] == ["32"])
    assert row.split()[1:5] == ["7.79", "0.61", "7.8%", "✗"]


def test_a_plain_file_shows_bounds_as_bounds(results: Path) -> None:
    """A span, a question mark, and no single figure."""
    result = sweep(results / "vllm" / "plain-c1.json", "--good=ttft=160ms,tpot=10ms")
    assert "–" in result.stdout
    assert "100.0% ?" in result.stdout
    assert "only bounds" in result.stdout
    assert result.exit_code == 1


def test_the_plot_is_a_picture_of_the_size_of_its_configurations(
    results: Path, tmp_path: Path
) -> None:
    """PNG and SVG; the SVG holds the words that the picture shows."""
    paths = [results / "sweeps" / "seqs16", results / "sweeps" / "seqs32"]
    picture, drawing = tmp_path / "sweep.png", tmp_path / "sweep.svg"
    for path in (picture, drawing):
        assert sweep(*paths, GOOD, "--plot", path).exit_code == 0
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (1650, 1125)
    assert drawing.read_text().count("<svg") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--good=ttft"], "'ttft' is not CRITERION=DURATION"),
        (["--good=speed=1s"], "'speed' is none of ttft, tpot, max_gap, e2e"),
        (["--good=ttft=1"], "must be a duration with a unit"),
        (["--good=itl=1s,tpot=1s"], "tpot is given twice"),
        (["--class=chat"], "--config.file, which is missing"),
        (["--good=ttft=1s", "--objective=1"], "objective"),
        (["--good=ttft=1s", "--plot=x.bmp"], "must end in .png, .svg, .pdf"),
        ([], "Missing argument"),
    ],
)
def test_wrong_options_are_usage_errors(
    results: Path, arguments: list[str], message: str
) -> None:
    """Exit code 2, with what was wrong."""
    files = [results / "sweeps" / "seqs16" / "c1.json"] if arguments else []
    result = sweep(*files, *arguments)
    assert result.exit_code == 2
    assert message in result.output

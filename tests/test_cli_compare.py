"""`goodput compare` on logs of a simulated server, on reports and on real sweeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_results import unpack
from click.testing import Result
from compared_servers import BEGIN, outcomes, write_log
from goodput_command import goodput

from analyzer.sweep.intervals import cut, share

GOOD = "--good=ttft=1s,tpot=50ms,e2e=10s"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Returns logs of the same server twice, of a slower one, and of longer prompts."""
    folder = tmp_path_factory.mktemp("logs")
    made = {
        "before": outcomes(rate=4.5, number=1200, seed=1),
        "again": outcomes(rate=4.5, number=1200, seed=2),
        "slower": outcomes(rate=4.5, number=1200, seed=3, slower=1.6),
        "longer": outcomes(rate=4.5, number=1200, seed=4, longer=1.5),
    }
    return {
        name: write_log(folder / f"{name}.log", found) for name, found in made.items()
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of real benchmark results."""
    return unpack(tmp_path_factory.mktemp("results"))


def compare(*arguments: str | Path) -> Result:
    """Runs the command."""
    return goodput("compare", *arguments)


def told(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    """Returns the command's JSON, after the exit code expected."""
    result = compare(*arguments, "--format=json")
    assert result.exit_code == code, result.output
    decoded: dict[str, Any] = json.loads(result.stdout)
    return decoded


def test_the_same_server_twice_is_not_distinguishable(logs: dict[str, Path]) -> None:
    """The loads are alike, and a gate passes."""
    found = told(logs["before"], logs["again"], GOOD)
    assert found["verdict"] == "not distinguishable"
    (pair,) = found["pairs"]
    assert pair["name"] == "good m"
    assert pair["workload_alike"] is True
    assert [d["alike"] for d in pair["workload"]] == [True, True, True]
    by_name = {row["metric"]: row for row in pair["metrics"]}
    low, high = by_name["attainment"]["interval"]
    assert low <= 0 <= high
    p95 = by_name["ttft_p95_seconds"]
    assert p95["verdict"] == "not distinguishable"
    assert p95["interval"][0] < p95["difference"] < p95["interval"][1]


def test_a_slower_server_is_worse_and_stops_a_gate(logs: dict[str, Path]) -> None:
    """Exit code 1; the other way round it is better, with exit code 0."""
    found = told(logs["before"], logs["slower"], GOOD, code=1)
    assert found["verdict"] == "worse"
    attainment = found["pairs"][0]["metrics"][0]
    assert attainment["interval"][1] < 0
    assert found["quality_reason"] == "quality was not checked"
    assert told(logs["slower"], logs["before"], GOOD)["verdict"] == "better"


def test_other_loads_are_not_comparable(logs: dict[str, Path]) -> None:
    """Longer prompts explain a difference; --allow-drift judges all the same."""
    found = told(logs["before"], logs["longer"], GOOD, code=1)
    assert found["verdict"] == "not comparable"
    alike = {d["property"]: d["alike"] for d in found["pairs"][0]["workload"]}
    assert alike == {"prompt_tokens": False, "output_tokens": True, "rate": True}
    text = compare(logs["before"], logs["longer"], GOOD)
    assert "load DIFFERS: prompt tokens: mean" in text.stdout
    assert "B is not comparable with A: the loads differ" in text.stdout
    judged = compare(logs["before"], logs["longer"], GOOD, "--allow-drift")
    assert "not comparable" not in judged.stdout


@pytest.mark.slow
def test_a_gate_seldom_stops_for_mere_luck() -> None:
    """Pairs of runs of one server near its capacity: at most one in ten differs."""
    shares = []
    for seed in range(60):
        found = outcomes(rate=6.5, number=300, seed=seed)
        found.sort(key=lambda outcome: outcome.request.arrival)
        scores = np.array([max(o.ttft or 0.0, (o.tpot or 0.0) / 0.05) for o in found])
        at_once = sum(o.e2e for o in found) / max(o.ended for o in found)
        interval = share(scores <= 1, scores, cut([scores], [at_once]))
        assert interval is not None
        shares.append(interval)
    assert np.std([s.estimate for s in shares]) > 0.05
    differences = [b.minus(a) for a, b in zip(shares[::2], shares[1::2], strict=True)]
    assert sum(d.lower > 0 or d.upper < 0 for d in differences) <= 3


def test_report_csv_and_log_say_the_same(logs: dict[str, Path], tmp_path: Path) -> None:
    """Attainment to the request, whatever the side is read from."""
    config = tmp_path / "goodput.yml"
    config.write_text(
        "slo_classes: [{name: good, good: {ttft: 1s, tpot: 50ms, e2e: 10s},\n"
        "               objective: 0.95}]\n"
    )
    option = f"--config.file={config}"
    sides = {}
    for name in ("before", "slower"):
        rows, document = tmp_path / f"{name}.csv", tmp_path / f"{name}.json"
        report = goodput(
            "report", logs[name], option, f"--requests={rows}", "--format=json"
        )
        document.write_text(report.stdout)
        sides[name] = (logs[name], rows, document)
    shares, kinds = set(), []
    for a, b in zip(sides["before"], sides["slower"], strict=True):
        found = told(a, b, option, code=1)
        assert found["verdict"] == "worse"
        row = found["pairs"][0]["metrics"][0]
        shares.add((row["a"], row["b"]))
        kinds.append(found["a"]["kind"])
    assert len(shares) == 1
    assert kinds == ["requests", "requests", "report"]


def test_two_ranges_of_time_of_one_log_are_two_sides(tmp_path: Path) -> None:
    """Before and after a change that made the server slow."""
    early = outcomes(rate=4.5, number=900, seed=5)
    late = outcomes(rate=4.5, number=900, seed=6, slower=1.6, start=205.0)
    path = write_log(tmp_path / "access.log", [*early, *late])
    change = f"{BEGIN + 205:.0f}"
    ranges = [f"--range-a=/{change}", f"--range-b={change}/"]
    found = told(path, path, GOOD, *ranges, code=1)
    assert found["verdict"] == "worse"
    counts = [found["pairs"][0][side]["requests"] for side in ("a", "b")]
    assert counts == [900, 900]
    named = [
        "--range-a=2023-11-14T22:13:20/2023-11-14T22:16:45Z",
        f"--range-b={change}/",
    ]
    assert told(path, path, GOOD, *named, code=1)["pairs"][0]["a"]["requests"] == 900
    nothing = compare(path, path, GOOD, "--range-a=0/1", ranges[1])
    assert nothing.exit_code == 3
    assert "has no request in its range" in nothing.stderr


def test_sweeps_are_compared_load_point_by_load_point(results: Path) -> None:
    """Two to eight turns are too few to tell 16 places of a batch from 32."""
    folder = results / "sweeps"
    found = told(folder / "seqs16", folder / "seqs32", GOOD)
    assert [pair["name"] for pair in found["pairs"]] == [
        f"good concurrency {n}" for n in (1, 2, 4, 8, 16, 32, 64)
    ]
    assert found["verdict"] == "not distinguishable"
    assert all(pair["workload_alike"] for pair in found["pairs"])


def test_the_json_of_a_sweep_compares_as_its_files_do(
    results: Path, tmp_path: Path
) -> None:
    """All but the lengths, which it does not hold."""
    sides = []
    for name in ("seqs16", "seqs32"):
        path = tmp_path / f"{name}.json"
        folder = results / "sweeps" / name
        path.write_text(goodput("sweep", folder, GOOD, "--format=json").stdout)
        sides.append((folder, path))
    files, documents = (told(*pair, GOOD) for pair in zip(*sides, strict=True))
    for one, other in zip(files["pairs"], documents["pairs"], strict=True):
        assert one["name"] == other["name"]
        assert one["metrics"][0] == other["metrics"][0]
    checked = [d["alike"] for d in documents["pairs"][0]["workload"]]
    assert checked == [None, None, True]


HARNESS = {
    "results": {
        "gsm8k": {"exact_match,strict": 0.80, "exact_match_stderr,strict": 0.01}
    },
    "higher_is_better": {"gsm8k": {"exact_match": True}},
}


@pytest.mark.parametrize(
    ("score", "verdict", "code"),
    [(0.79, "not distinguishable", 0), (0.75, "worse", 1), (0.85, "better", 0)],
)
def test_quality_that_fell_stops_a_gate_too(
    logs: dict[str, Path], tmp_path: Path, score: float, verdict: str, code: int
) -> None:
    """By its standard errors: two of 0.01 leave room for 0.028."""
    paths = []
    for name, value in (("a", 0.80), ("b", score)):
        told_scores = json.loads(json.dumps(HARNESS))
        told_scores["results"]["gsm8k"]["exact_match,strict"] = value
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(told_scores))
        paths.append(path)
    found = told(logs["before"], logs["again"], GOOD, "--quality", *paths, code=code)
    assert found["quality"] == [
        {
            "metric": "gsm8k exact_match,strict",
            "a": 0.80,
            "b": score,
            "verdict": verdict,
        }
    ]


def test_plain_scores_tolerate_a_hundredth(
    logs: dict[str, Path], tmp_path: Path
) -> None:
    """Without errors a drop of more than 1 % is worse."""
    for name, document in (
        ("a", {"f1": 0.5}),
        ("b", {"f1": 0.496}),
        ("c", {"f1": 0.49}),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    a, b, c = (tmp_path / f"{name}.json" for name in "abc")
    sides = (logs["before"], logs["again"], GOOD, "--quality")
    assert told(*sides, a, b)["quality"][0]["verdict"] == "not distinguishable"
    assert told(*sides, a, c, code=1)["quality"][0]["verdict"] == "worse"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "is empty"),
        (b"what is this\n", "no known format recognises"),
        (b'{"request_throughput": 1, "duration": 1', "not JSON"),
        (b'{"timeline": 1, "percentiles": []}', "no report of goodput"),
        (b'{"curves": [], "operating_point": {}}', "no sweep of goodput"),
    ],
)
def test_a_side_that_cannot_be_read_is_told_in_one_sentence(
    logs: dict[str, Path], tmp_path: Path, content: bytes | None, message: str
) -> None:
    """With its name, and exit code 3."""
    path = tmp_path / "side"
    if content is not None:
        path.write_bytes(content)
    result = compare(logs["before"], path, GOOD)
    assert result.exit_code == 3
    assert message in result.stderr
    assert str(path) in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_recording_is_compared_by_its_log_and_its_classes(
    logs: dict[str, Path], tmp_path: Path
) -> None:
    """The configuration in A's folder judges both."""
    sides = []
    for name in ("before", "slower"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "access.log").write_bytes(logs[name].read_bytes())
        (folder / "config.yml").write_text(
            "slo_classes: [{name: own, good: {tpot: 50ms}, objective: 0.9}]\n"
        )
        sides.append(folder)
    found = told(*sides, code=1)
    assert found["pairs"][0]["name"] == "own m"
    assert found["verdict"] == "worse"


def test_sides_without_anything_in_common_are_told(
    logs: dict[str, Path], results: Path
) -> None:
    """A log beside a sweep of seven loads."""
    result = compare(logs["before"], results / "sweeps" / "seqs16", GOOD)
    assert result.exit_code == 3
    assert "nothing to compare: A has good m; B has good concurrency 1" in result.stderr


@pytest.mark.parametrize("text", ["1", "5/1", "monday/tuesday"])
def test_a_range_that_is_none_is_a_usage_error(
    logs: dict[str, Path], text: str
) -> None:
    """Exit code 2."""
    log = logs["before"]
    assert compare(log, log, GOOD, f"--range-a={text}").exit_code == 2


def test_benchmark_results_have_no_range(results: Path) -> None:
    """Their requests' times have any origin."""
    folder = results / "sweeps" / "seqs16"
    result = compare(folder, folder, GOOD, "--range-a=1/2")
    assert result.exit_code == 3
    assert "no range of time" in result.stderr

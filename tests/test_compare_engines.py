"""`goodput compare` on recordings without a request log: bounds, not shares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from compared_servers import BEGIN, outcomes, write_log, write_recording
from goodput_command import goodput

GOOD = "--good=ttft=1s,tpot=50ms,e2e=10s"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Returns recordings of a server twice and of a slower one, and a log of it."""
    folder = tmp_path_factory.mktemp("servers")
    given = {
        "before": outcomes(rate=3.0, number=1200, seed=1),
        "again": outcomes(rate=3.0, number=1200, seed=2),
        "slower": outcomes(rate=3.0, number=1200, seed=3, slower=2.5),
    }
    found = {name: write_recording(folder / name, o) for name, o in given.items()}
    found["log"] = write_log(folder / "before.log", given["before"])
    return found


def told(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    """Returns the command's JSON, after the exit code expected."""
    result = goodput("compare", *arguments, GOOD, "--format=json")
    assert result.exit_code == code, result.output
    decoded: dict[str, Any] = json.loads(result.stdout)
    return decoded


def share(found: dict[str, Any]) -> dict[str, Any]:
    """Returns the row of attainment of the one pair."""
    (pair,) = found["pairs"]
    row: dict[str, Any] = pair["metrics"][0]
    assert row["metric"] == "attainment"
    return row


def test_the_same_engine_twice_is_not_distinguishable(
    servers: dict[str, Path],
) -> None:
    """No estimate is made of a bound, and all that lies between counts."""
    found = told(servers["before"], servers["again"])
    assert found["verdict"] == "not distinguishable"
    row = share(found)
    assert row["a"] is row["b"] is row["difference"] is None
    low = row["b_bounds"][0] - row["a_bounds"][1]
    high = row["b_bounds"][1] - row["a_bounds"][0]
    assert row["interval"][0] <= low <= high <= row["interval"][1]
    assert "failed before the engine" in found["a"]["warnings"][0]


def test_an_engine_that_is_surely_slower_is_worse(servers: dict[str, Path]) -> None:
    """Disjoint bounds decide, and a gate of them fails."""
    found = told(servers["before"], servers["slower"], code=1)
    assert found["verdict"] == "worse"
    row = share(found)
    assert row["b_bounds"][1] < row["a_bounds"][0]
    assert row["interval"][1] < 0
    assert share(told(servers["slower"], servers["before"]))["verdict"] == "better"


def test_an_engine_beside_the_log_of_the_same_requests(
    servers: dict[str, Path],
) -> None:
    """The share that the log tells lies within the engine's bounds."""
    found = told(servers["log"], servers["before"])
    row = share(found)
    assert row["b_bounds"][0] <= row["a"] <= row["b_bounds"][1]
    assert row["a_bounds"] is None
    assert found["verdict"] == "not distinguishable"
    (pair,) = found["pairs"]
    assert pair["a"]["requests"] == pair["b"]["requests"]
    ttft = next(r for r in pair["metrics"] if r["metric"] == "ttft_p50_seconds")
    assert ttft["b_bounds"][0] <= ttft["a"] <= ttft["b_bounds"][1]
    assert ttft["verdict"] == "unknown"


def test_what_the_engine_does_not_count_is_not_checked(
    servers: dict[str, Path],
) -> None:
    """A page without tokens of prompts has no mean of 0 of them."""
    (pair,) = told(servers["before"], servers["again"])["pairs"]
    alike = {d["property"]: d["alike"] for d in pair["workload"]}
    assert alike == {"prompt_tokens": None, "output_tokens": True, "rate": True}


def test_a_range_of_a_recording(servers: dict[str, Path]) -> None:
    """Only what finished in it counts."""
    found = told(
        *(servers["before"], servers["before"]),
        *(f"--range-a={BEGIN}/{BEGIN + 150}", f"--range-b={BEGIN + 150}/"),
        "--allow-drift",
    )
    (pair,) = found["pairs"]
    assert 0 < pair["a"]["requests"] < pair["b"]["requests"] < 1200
    nothing = goodput(
        *("compare", servers["before"], servers["before"], GOOD),
        f"--range-a=0/{BEGIN - 10}",
    )
    assert nothing.exit_code == 3
    assert "no request finished in its range" in nothing.stderr


def test_bounds_are_written_as_such(servers: dict[str, Path]) -> None:
    """Two percentages with a dash between, and buckets of percentiles."""
    result = goodput("compare", servers["before"], servers["slower"], GOOD)
    assert "%–" in result.stdout
    assert "ttft: p50 " in result.stdout
    assert "verdict: B is worse than A" in result.stdout

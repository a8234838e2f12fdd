"""`goodput diagnose` and `replay` say the same of a recording as the flow itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from diagnosed import SLO
from episodes import DIRECTORY
from synthetic_engine import SyntheticEngine

from analyzer.cli import main
from analyzer.config import parse_config
from analyzer.document import document
from analyzer.replay import replay
from analyzer.sources.recording import read_scrapes


@pytest.fixture
def config(tmp_path: Path) -> str:
    """Returns the path of a configuration with the recordings' SLO."""
    path = tmp_path / "goodput.yml"
    path.write_text(SLO, encoding="utf-8")
    return str(path)


def run(*arguments: str) -> Result:
    """Runs the command line."""
    return CliRunner().invoke(main, arguments)


def rows(*arguments: str) -> list[dict[str, Any]]:
    """Returns the constraints that the command prints as JSON."""
    result = run("diagnose", *arguments, "--format", "json")
    found: list[dict[str, Any]] = json.loads(result.stdout)["constraints"]
    return found


def test_a_recording_is_summed_up_by_verdict(config: str) -> None:
    """The longest first, with its share of the time, evidence and advice; exit 1."""
    found = rows(str(DIRECTORY / "overload-a"), "--config.file", config)
    assert (found[0]["family"], found[0]["cause"]) == ("queueing", "sequence_cap")
    assert sum(row["share"] for row in found) == pytest.approx(1.0)
    assert found[0]["evidence"]
    result = run("diagnose", str(DIRECTORY / "overload-a"), "--config.file", config)
    assert result.exit_code == 1
    assert "queueing/sequence_cap, confidence 0.8" in result.stdout
    assert "→ Raise --max-num-seqs from 16" in result.stdout


def test_a_healthy_recording_exits_with_zero(config: str) -> None:
    """Nothing binds."""
    healthy = str(DIRECTORY / "healthy-a")
    assert run("diagnose", healthy, "--config.file", config).exit_code == 0


def test_replay_the_status_document_and_diagnose_agree(config: str) -> None:
    """The last window of a replay is what the exporter would show at that moment."""
    directory = DIRECTORY / "kv-a"
    result = run("replay", str(directory), "--config.file", config, "--format", "json")
    windows = json.loads(result.stdout)["windows"]
    shared = rows(str(directory), "--config.file", config)
    seconds = {(row["family"], row["cause"]): row["seconds"] for row in shared}
    for name, held in seconds.items():
        found = [w for w in windows if (w["family"], w["cause"]) == name]
        assert sum(w["end"] - w["start"] for w in found) == pytest.approx(held)
    flow = replay(read_scrapes(directory), parse_config(SLO))
    assert flow is not None
    live = document([flow[0]], flow[1], seconds=300.0)["windows"]
    assert [(w["family"], w["start"]) for w in live] == [
        (windows[-1]["family"], windows[-1]["start"])
    ]


def test_constraint_seconds_are_the_time_of_the_windows() -> None:
    """Summed by family and cause; every verdict has its row from the start."""
    found = replay(read_scrapes(DIRECTORY / "overload-a"), parse_config(SLO))
    assert found is not None
    flow = found[0]
    counted = {
        labels[1:]: value
        for labels, value in flow.ledger.rows("goodput_constraint_seconds_total")
    }
    timeline = flow.timelines["demo-small", "0"]
    held: dict[tuple[str, ...], float] = {}
    for segment in timeline.segments():
        name = (segment.verdict.family.value, segment.verdict.cause)
        held[name] = held.get(name, 0.0) + segment.end - segment.start
    assert {n: v for n, v in counted.items() if v} == pytest.approx(held)
    assert counted["memory", "kv_capacity"] == 0.0


def test_a_live_engine_is_sampled_twice_at_least(tmp_path: Path) -> None:
    """An idle one has nothing to say: exit 0."""
    with SyntheticEngine() as engine:
        path = tmp_path / "goodput.yml"
        path.write_text(
            f"engines: [{{name: e, url: '{engine.url}', interval: 0.2s}}]",
            encoding="utf-8",
        )
        (row,) = rows("--config.file", str(path), "--for", "0.1s")
        assert engine.scrapes >= 2
    assert (row["family"], row["cause"]) == ("none", "idle")


def test_an_engine_that_does_not_answer_is_a_failure(tmp_path: Path) -> None:
    """Exit 3 with the reason; wrong usage is 2."""
    path = tmp_path / "goodput.yml"
    path.write_text(
        "engines: [{name: e, url: 'http://127.0.0.1:9/metrics', interval: 0.2s}]",
        encoding="utf-8",
    )
    result = run("diagnose", "--config.file", str(path), "--for", "0.1s")
    assert result.exit_code == 3
    assert "refused" in result.stderr
    assert run("diagnose").exit_code == 2
    assert run("diagnose", "--config.file", str(path), "--for", "x").exit_code == 2

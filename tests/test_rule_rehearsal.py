"""`goodput rules --test-recording`: what would have fired during real recordings."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from episodes import DIRECTORY

from analyzer.cli import main
from analyzer.config import load_config
from analyzer.rules.pack import rule_groups
from analyzer.rules.rule import Options
from analyzer.sources.rehearsal import Episode, Recorded, recorded, rehearse

# A minute of the rules is a second of the recordings, which last one or two minutes.
REHEARSAL = Options(time_scale=1 / 60, minimum_events=3)
INTERVAL = 2.0
CONFIG = """
slo_classes:
  - {name: interactive, good: {ttft: 1s, tpot: 50ms, e2e: 10s}, objective: 0.95}
"""
BURN = "GoodputBudgetBurn"
# What must fire at some time: alert → constraint. Nothing else may page.
EXPECTED: Mapping[str, Mapping[str, str]] = {
    "burst-a": {BURN: "traffic"},
    "decode-a": {BURN: "compute", "GoodputDecodeSaturated": "compute"},
    "kv-a": {BURN: "memory", "GoodputPreemptionThrash": "memory"},
    "overload-a": {BURN: "queueing", "GoodputQueueingWithRoom": "queueing"},
    "prefill-a": {BURN: "compute", "GoodputComputeSaturated": "compute"},
    "prefillcap-a": {BURN: "compute", "GoodputComputeSaturated": "compute"},
    "ramp-a": {BURN: "queueing", "GoodputQueueingWithRoom": "queueing"},
    "restart-a": {"GoodputEnginesDown": "fault", "GoodputEngineDown": "fault"},
    "seqcap-a": {BURN: "queueing", "GoodputQueueingWithRoom": "queueing"},
}
SILENT = ("healthy-a", "prefix-a", "mixed-a", "apiservers-a")
# What may fire where no phase has a label: aborts leave prefill busy and are nobody's
# bad request; two engines share two cores and miss every criterion; four requests of
# 53 took just over their limit beside a full cache that harms nobody.
ALLOWED: Mapping[str, set[tuple[str, str, str]]] = {
    "abortstorm-a": {("warning", "GoodputComputeSaturated", "compute")},
    "dp2-a": {
        ("critical", "GoodputBoundBurn", "unknown"),
        ("critical", BURN, "unknown"),
        ("critical", BURN, "compute"),
        ("critical", BURN, "queueing"),
        ("warning", BURN, "compute"),
        ("warning", BURN, "queueing"),
        ("warning", "GoodputDecodeSaturated", "compute"),
        ("warning", "GoodputQueueingWithRoom", "queueing"),
    },
    "kvhigh-a": {("warning", BURN, "unknown")},
}
SLACK_SECONDS = 6.0  # a window and an evaluation or two


def goodput(*arguments: str | float | Path) -> Result:
    """Runs `goodput` in this process."""
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.fixture(scope="module")
def fired(
    tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[[str], str]
) -> dict[str, tuple[float, Sequence[Episode]]]:
    """Returns when each recording begins, and what would have fired in it."""
    promtool = need_tool("promtool")
    config = tmp_path_factory.mktemp("rehearsal") / "c.yml"
    config.write_text(CONFIG, encoding="utf-8")
    every = rule_groups(load_config(config).slo_classes, REHEARSAL)
    # No alert waits for details, which are most of the series.
    groups = [group for group in every if "-details" not in group.name]
    names = (*EXPECTED, *SILENT, *ALLOWED)

    def play(name: str) -> Recorded:
        return recorded(DIRECTORY / name, config, groups, interval=INTERVAL)

    with ThreadPoolExecutor(2) as pool:
        played = dict(zip(names, pool.map(play, names), strict=True))
    found = rehearse(promtool, groups, played, REHEARSAL)
    return {name: (played[name].begin, found[name]) for name in names}


Fired = dict[str, tuple[float, Sequence[Episode]]]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_alerts_match_what_was_done_to_the_engine(name: str, fired: Fired) -> None:
    """The right alerts with the right constraint, after the phase began."""
    begin, episodes = fired[name]
    told = {(e.last.alert, e.last.labels.get("constraint", "")) for e in episodes}
    assert EXPECTED[name].items() <= told
    phases = json.loads((DIRECTORY / name / "phases.json").read_text())["phases"]
    bad = [p for p in phases if p["constraint"] != "none"]
    for episode in episodes:
        if episode.last.labels["severity"] == "critical":
            assert episode.last.alert in EXPECTED[name]
            assert begin + episode.start >= bad[0]["begin"]
            assert begin + episode.start <= bad[-1]["end"] + SLACK_SECONDS


@pytest.mark.slow
@pytest.mark.parametrize("name", ALLOWED)
def test_phases_without_a_label_bring_nothing_that_would_be_wrong(
    name: str, fired: Fired
) -> None:
    """Never memory, no page for aborts or a full cache; bad requests are told."""
    _, episodes = fired[name]
    told = {
        (e.last.labels["severity"], e.last.alert, e.last.labels.get("constraint", ""))
        for e in episodes
    }
    assert told <= ALLOWED[name]
    assert any(alert == BURN for _, alert, _ in told) == (name != "abortstorm-a")


@pytest.mark.slow
@pytest.mark.parametrize("name", SILENT)
def test_nothing_fires_where_nothing_was_wrong(name: str, fired: Fired) -> None:
    """Healthy loads, shared prefixes, and clients that leave, err or do not stream."""
    _, episodes = fired[name]
    assert [e.last.labels for e in episodes] == []


def test_the_series_are_what_a_replay_counts(tmp_path: Path) -> None:
    """The exporter's own flows and collector; what ends is marked as ended."""
    config = tmp_path / "c.yml"
    config.write_text(CONFIG, encoding="utf-8")
    groups = rule_groups(load_config(config).slo_classes, REHEARSAL)
    series = recorded(DIRECTORY / "restart-a", config, groups, interval=1.0).series
    done = goodput(
        *("replay", DIRECTORY / "restart-a", "--config.file", config),
        *("--format", "json"),
    )
    (row,) = json.loads(done.stdout)["slo"]
    for kind, count in (("good", row["good"]), ("bad", row["bad"])):
        (values,) = (
            values
            for name, values in series.items()
            if name.startswith(f"goodput_{kind}_requests_total{{")
            and 'slo_class="interactive"' in name
        )
        numbers = [float(value) for value in values.split() if value not in "_stale"]
        assert numbers == sorted(numbers)
        assert numbers[-1] == count
    running = next(v for n, v in series.items() if "running_requests" in n).split()
    assert "stale" in running
    assert running.index("stale") < len(running) - 10


@pytest.fixture(scope="module")
def overload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a recording with a configuration of its own."""
    directory = tmp_path_factory.mktemp("overload") / "monday"
    shutil.copytree(DIRECTORY / "overload-a", directory)
    (directory / "config.yml").write_text(CONFIG, encoding="utf-8")
    return directory


def test_the_command_tells_alerts_times_and_labels(
    overload: Path, need_tool: Callable[[str], str]
) -> None:
    """Exit code 1 and a document of what would have fired, by the recording's clock."""
    need_tool("promtool")
    done = goodput(
        *("rules", "--test-recording", overload, "--time-scale", 0.066),
        *("--minimum-events", 3, "--format", "json"),
    )
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)
    assert found["time_scale"] == 0.066
    alerts = {a["alert"]: a for a in found["alerts"]}
    burn = alerts["GoodputBudgetBurn"]
    assert found["begin"] < burn["start"] < burn["end"]
    assert burn["labels"]["slo_class"] == "interactive"
    assert burn["labels"]["constraint"] == "queueing"
    assert burn["annotations"]["runbook_url"].startswith("alerts/runbooks/")


def test_the_command_says_when_no_alert_fires_and_when_the_recording_is_short(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    """Exit code 0; windows of hours want another scale for a minute."""
    need_tool("promtool")
    config = tmp_path / "c.yml"
    config.write_text(CONFIG, encoding="utf-8")
    done = goodput(
        *("rules", "--config.file", config, "--test-recording", DIRECTORY / "prefix-a")
    )
    assert done.exit_code == 0, done.output
    assert "no alert in " in done.stdout
    assert "try --time-scale 0.0" in done.stderr


def test_a_folder_that_is_no_recording_is_told(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    """Exit code 3 and one sentence."""
    need_tool("promtool")
    config = tmp_path / "config.yml"
    config.write_text(CONFIG, encoding="utf-8")
    done = goodput("rules", "--test-recording", tmp_path)
    assert done.exit_code == 3
    assert "no recording" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1

"""`goodput report` as a user runs it."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from episodes import DIRECTORY as EPISODES
from recorded_logs import content, packed, unpacked

from analyzer.cli import main
from analyzer.config import parse_config
from analyzer.replay import replay_log

CONFIG = """
slo_classes:
  - name: interactive
    match: {tenant: [interactive]}
    good: {ttft: 1s, tpot: 50ms, e2e: 10s}
    objective: 0.95
    percentiles: {ttft: {p95: 1s}}
  - {name: rest, good: {e2e: 60s}, objective: 0.5}
"""
FAULTY = """
slo_classes: [{name: all, good: {e2e: 1h}, objective: 0.5}]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Returns a file with two classes."""
    path = tmp_path / "goodput.yml"
    path.write_text(CONFIG)
    return path


def run(*arguments: object) -> Result:
    """Runs `goodput report`."""
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def document(*arguments: object) -> dict[str, Any]:
    """Returns the report as JSON."""
    done = run(*arguments, "--format", "json")
    assert done.exit_code in (0, 1), done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_report_counts_what_replay_counts(config: Path, tmp_path: Path) -> None:
    """Log, classes and verdicts are the same, whoever reads them."""
    log = unpacked("episodes/ramp-a", tmp_path)
    flow = replay_log(
        iter(content("episodes/ramp-a").splitlines()), parse_config(CONFIG), aliases={}
    )
    wanted = {
        (name, model): (c.requests, c.good, c.bad, c.unevaluable, c.excluded)
        for (model, name), c in flow.counts().items()
        if c.requests or c.excluded
    }
    rows = document(log, "--config.file", config)["goodput"]
    keys = ("total", "good", "bad", "unevaluable", "excluded")
    found = {(r["class"], r["model"]): tuple(r[k] for k in keys) for r in rows}
    assert found == wanted
    assert len(found) >= 1


def test_a_missed_objective_is_a_finding(config: Path) -> None:
    """Exit 1 when even what cannot be judged would not help, else 0."""
    assert run(packed("episodes/ramp-a"), "--config.file", config).exit_code == 1
    assert run(packed("episodes/healthy-a"), "--config.file", config).exit_code == 0


def test_each_request_is_one_row(config: Path, tmp_path: Path) -> None:
    """The CSV has the request's latencies, its verdict and the reason, in order."""
    target = tmp_path / "requests.csv"
    run(packed("episodes/ramp-a"), "--config.file", config, "--requests", target)
    with target.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "request_id",
        "start",
        "class",
        "model",
        "outcome",
        "ttft_seconds",
        "tpot_seconds",
        "e2e_seconds",
        "verdict",
        "reason",
    ]
    assert len(rows) == len(content("episodes/ramp-a").splitlines())
    truth = (EPISODES / "ramp-a" / "truth.csv").read_text(encoding="utf-8")
    known = {row["request_id"]: row for row in csv.DictReader(truth.splitlines())}
    for row in rows:
        assert row["request_id"] in known
        slow = float(row["ttft_seconds"]) > 1
        assert (row["verdict"] == "bad") == slow
        assert ("ttft" in row["reason"]) == slow


def test_a_recording_brings_what_bound(config: Path) -> None:
    """Worst stretches name the constraint, and its share of the time is told."""
    found = document(EPISODES / "ramp-a", "--config.file", config)
    shares = [row["share"] for row in found["constraint_shares"]]
    assert sum(shares) == pytest.approx(1.0)
    assert found["worst"][0]["constraint"] == "queueing/sequence_cap"
    alone = document(packed("episodes/ramp-a"), "--config.file", config)
    assert alone["constraints"] == []
    assert "constraints" in alone["missing"]


def test_one_bad_log_does_not_spoil_the_good_ones(config: Path, tmp_path: Path) -> None:
    """Empty, cut, unknown and missing logs have a sentence each; the rest counts."""
    good = unpacked("episodes/healthy-a", tmp_path)
    empty = tmp_path / "empty.log"
    empty.touch()
    cut = tmp_path / "cut.log.xz"
    cut.write_bytes(packed("episodes/ramp-a").read_bytes()[:3000])
    other = tmp_path / "other.log"
    other.write_text("hello\nworld\n")
    gone = tmp_path / "gone.log"
    torn = tmp_path / "torn.log"
    torn.write_bytes(content("episodes/healthy-a")[:-40])
    logs = (good, empty, cut, other, gone, torn)
    done = run(*logs, "--config.file", config, "--format", "json")
    assert done.exit_code in (0, 1)
    rows = {row["source"]: row for row in json.loads(done.stdout)["sources"]}
    assert rows[str(good)]["error"] == rows[str(empty)]["error"] == ""
    assert rows[str(empty)]["lines"] == 0
    assert str(cut) in rows[str(cut)]["error"]
    assert "no known format" in rows[str(other)]["error"]
    assert "no such file" in rows[str(gone)]["error"]
    assert rows[str(torn)]["unreadable"] == 1
    lines = content("episodes/healthy-a").count(b"\n")
    assert rows[str(torn)]["first_problem"].startswith(f"{torn}:{lines}: ")
    for path in (cut, other, gone):
        assert str(path) in done.stderr


@pytest.mark.parametrize("names", [["gone.log"], ["*.nothing"]])
def test_nothing_to_read_is_a_failure(names: list[str], tmp_path: Path) -> None:
    """Exit 3 with one sentence that names the log."""
    done = run(*(tmp_path / name for name in names))
    assert done.exit_code == 3
    assert names[0] in done.stderr


def test_patterns_find_rotated_logs(config: Path, tmp_path: Path) -> None:
    """A pattern in quotes means every file that matches, each once."""
    lines = content("episodes/ramp-a").splitlines(keepends=True)
    (tmp_path / "access.log.1").write_bytes(b"".join(lines[:100]))
    (tmp_path / "access.log").write_bytes(b"".join(lines[100:]))
    split = document(
        tmp_path / "access.log*", tmp_path / "access.log", "--config.file", config
    )
    whole = document(packed("episodes/ramp-a"), "--config.file", config)
    for name in ("goodput", "percentiles", "timeline", "workload", "by_prompt"):
        assert split[name] == whole[name], name


class Page(HTMLParser):
    """Notes what a page would load, and whether its elements are closed."""

    VOID = frozenset(("meta",))

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes an element that begins."""
        if tag not in self.VOID:
            self.open.append(tag)
        self.loads += [
            str(v) for k, v in attrs if k in ("src", "href", "data", "action")
        ]
        assert tag != "script"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes an element that closes itself."""
        assert tag != "script"
        self.loads += [str(v) for k, v in attrs if k in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        """Notes an element that ends."""
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing(config: Path, tmp_path: Path) -> None:
    """One file without script, link or address, whatever names the log holds."""
    log = tmp_path / "access.log"
    hostile = b'<script>alert(1)</script>"><img src=x>'
    data = content("episodes/ramp-a")
    named = json.dumps(hostile.decode()).encode()
    log.write_bytes(re.sub(rb'"llm_model":"[^"]*"', b'"llm_model":' + named, data))
    target = tmp_path / "report.html"
    run(log, EPISODES / "kv-a", "--config.file", config, "--html", target)
    text = target.read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    assert page.loads == []
    assert not re.search(r"url\(|@import|https?://", text)
    assert "&lt;script&gt;alert(1)" in text
    assert text.count("<svg") >= 5


def test_a_year_of_hours_is_drawn_in_wider_bars(tmp_path: Path) -> None:
    """The page stays small and counts every request; the JSON keeps the hours."""
    config = tmp_path / "goodput.yml"
    config.write_text(
        FAULTY
        + "gateways: [{name: a, path: /var/log/a.log, format: custom,\n"
        + "            fields: {start: at, e2e: e2e, outcome: how}}]\n"
    )
    log = tmp_path / "year.jsonl"
    log.write_text(
        "".join(
            f'{{"at": {1.7e9 + 3600 * n}, "e2e": 1, "how": "ok"}}\n'
            for n in range(8760)
        )
    )
    target = tmp_path / "report.html"
    found = document(log, "--config.file", config, "--html", target)
    assert len(found["timeline"]) == 8760
    text = target.read_text(encoding="utf-8")
    assert 400 < text.count('class="good"') <= 802
    drawn = re.findall(r"UTC: good ([0-9,]+), ", text)
    assert sum(int(n.replace(",", "")) for n in drawn) == 8760


def test_logs_of_a_named_gateway_are_read_by_its_settings(tmp_path: Path) -> None:
    """Fields of a custom format, and statuses that are policy, are the gateway's."""
    config = tmp_path / "goodput.yml"
    config.write_text(
        FAULTY
        + "gateways:\n"
        + "  - {name: other, path: /var/log/other.log}\n"
        + "  - {name: house, path: /var/log/house.log, format: custom,\n"
        + "     policy_statuses: [429],\n"
        + "     fields: {status: s, e2e: {key: ms, unit: ms}, outcome: how}}\n"
    )
    log = tmp_path / "house.jsonl"
    log.write_text('{"s": 200, "ms": 5, "how": "ok"}\n{"s": 429, "ms": 1}\n')
    done = run(log, "--config.file", config, "--gateway", "house", "--format", "json")
    row = json.loads(done.stdout)["goodput"][0]
    assert (row["good"], row["excluded"]) == (1, 1)
    assert run(log, "--config.file", config, "--gateway", "none").exit_code == 2


def test_without_its_libraries_the_command_says_what_is_missing(tmp_path: Path) -> None:
    """The tool without the extra is whole but for this command."""
    (tmp_path / "duckdb.py").write_text("raise ImportError(name='duckdb')\n")
    program = "from analyzer.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "report", "x.log"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "llm-goodput[analyzer]" in done.stderr
    assert "Traceback" not in done.stderr

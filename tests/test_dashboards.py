"""The shipped dashboards are the built ones, and free of the usual mistakes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from builder.boards import BOARDS, build
from dashboard_lint import Lint
from goodput_command import goodput

from analyzer.catalogue import METRICS
from analyzer.commands.dashboards import shipped
from analyzer.metric import Kind
from analyzer.rules.pack import rule_groups
from analyzer.rules.rule import Options, Record
from analyzer.slo import read_classes
from analyzer.strict import load

ROOT = Path(__file__).parent.parent
BUILT = {name: json.loads(text) for name, text in build().items()}
PARTS = ("_bucket", "_sum", "_count")


def metrics() -> frozenset[str]:
    """Returns every name that a panel may ask for."""
    found = {"ALERTS", "process_cpu_seconds_total", "process_resident_memory_bytes"}
    for metric in METRICS:
        parts = PARTS if metric.kind is Kind.HISTOGRAM else ("",)
        found |= {metric.name + part for part in parts}
    members = load(ROOT / "alerts" / "example.yml").mapping(
        optional=("slo_classes", "engines", "gateways")
    )
    for group in rule_groups(read_classes(members["slo_classes"]), Options()):
        found |= {rule.name for rule in group.rules if isinstance(rule, Record)}
    return frozenset(found)


KNOWN = metrics()


def test_the_committed_dashboards_are_the_built_ones() -> None:
    """`make dashboards` was run after the last change of the builder."""
    committed = {
        path.name: path.read_text(encoding="utf-8")
        for path in (ROOT / "dashboards" / "json").glob("*.json")
    }
    assert committed == build()


def test_the_installed_package_ships_them() -> None:
    """What the command writes is what was built, also from a wheel."""
    assert {name: json.loads(text) for name, text in shipped().items()} == BUILT


@pytest.mark.parametrize("name", BUILT)
def test_a_dashboard_has_no_mistake_that_a_machine_finds(name: str) -> None:
    """Units, descriptions, grid, variables, queries and metrics are sound."""
    assert Lint(BUILT[name], KNOWN).findings() == []


def test_every_dashboard_has_its_own_address_and_title() -> None:
    """Links and bookmarks lead to one dashboard each."""
    assert len({board.uid for board in BOARDS}) == len(BOARDS)
    assert len({board.title for board in BOARDS}) == len(BOARDS)


def test_links_lead_to_dashboards_that_exist() -> None:
    """A click on a cell opens one of ours."""
    text = "".join(json.dumps(board) for board in BUILT.values())
    linked = {part.split("?")[0] for part in text.split("/d/")[1:]}
    assert linked
    assert linked <= {board.uid for board in BOARDS}


def mistaken(change: str, value: object) -> dict[str, Any]:
    """Returns the first dashboard with one thing of a panel with a query changed."""
    board: dict[str, Any] = copy.deepcopy(next(iter(BUILT.values())))
    panel = next(p for p in board["panels"] if p["type"] == "timeseries")
    match change:
        case "expr":
            panel["targets"][0]["expr"] = value
        case "grid":
            panel["gridPos"]["x"] += 1
        case "unit":
            panel["fieldConfig"]["defaults"]["unit"] = value
        case "editable":
            board["editable"] = value
        case _:
            panel[change] = value
    return board


RATE = "$__rate_interval"
BUCKETS = f"rate(goodput_request_ttft_seconds_bucket[{RATE}])"


@pytest.mark.parametrize(
    ("change", "value", "said"),
    [
        ("expr", "sum(vllm:gpu_cache_usage_perc)", "no catalogue"),
        ("expr", "sum(rate(goodput_requests_total[5m]))", RATE),
        ("expr", "sum(goodput_requests_total)", "without rate"),
        (
            "expr",
            'sum(rate(goodput_requests_total{x="$nix"}[$__rate_interval]))',
            "$nix",
        ),
        ("expr", f"sum(rate(goodput_requests_total[{RATE}])) or vector(0)", "into 0"),
        (
            "expr",
            f"histogram_quantile(0.9, {BUCKETS})",
            "not summed",
        ),
        (
            "expr",
            f"avg(histogram_quantile(0.9, sum by (le, model) ({BUCKETS})))",
            "mean of quantiles",
        ),
        ("expr", f"sum(rate(goodput_request_ttft_seconds_sum[{RATE}]))", "no count"),
        ("expr", "sum(", "unclosed"),
        ("grid", None, "lies over"),
        ("unit", "ms", "unit"),
        ("editable", True, "edited"),
        ("description", "A line.", "Good"),
        ("targest", [], "targest: unknown"),
    ],
)
def test_the_lint_finds_a_mistake(change: str, value: object, said: str) -> None:
    """Each mistake of public dashboards is found when it is made."""
    findings = Lint(mistaken(change, value), KNOWN).findings()
    assert any(said in finding for finding in findings), findings


def test_dashboards_are_written_as_json(tmp_path: Path) -> None:
    """Each file is a dashboard, with the runbooks' address that was given."""
    base = "https://wiki.example.com/goodput"
    done = goodput("dashboards", "-o", str(tmp_path), "--runbook-url", base + "/")
    assert done.exit_code == 0
    written = sorted(tmp_path.iterdir())
    assert [path.name for path in written] == sorted(BUILT)
    for path in written:
        board = json.loads(path.read_text(encoding="utf-8"))
        values = {v["name"]: v for v in board["templating"]["list"]}
        if "runbooks" in values:
            assert values["runbooks"]["current"]["value"] == base
        assert board["uid"] == path.stem


def test_dashboards_are_written_as_config_maps(tmp_path: Path) -> None:
    """Grafana's sidecar finds each by its label, and the JSON in it is whole."""
    done = goodput(
        "dashboards",
        "-o",
        str(tmp_path),
        "--form=configmap",
        "--namespace=monitoring",
        "--label=grafana_dashboard=1",
        "--label=team=serving",
    )
    assert done.exit_code == 0
    assert len(list(tmp_path.iterdir())) == len(BUILT)
    for path in tmp_path.iterdir():
        resource = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert resource["kind"] == "ConfigMap"
        metadata = resource["metadata"]
        assert metadata["namespace"] == "monitoring"
        assert metadata["labels"] == {"grafana_dashboard": "1", "team": "serving"}
        ((name, text),) = resource["data"].items()
        assert json.loads(text) == BUILT[name]
        assert path.stat().st_size < 1 << 20  # what a ConfigMap may hold


def test_a_label_without_a_value_is_refused(tmp_path: Path) -> None:
    """The mistake is told, and nothing is written."""
    done = goodput("dashboards", "-o", str(tmp_path / "out"), "--label", "team")
    assert done.exit_code == 2
    assert "KEY=VALUE" in done.stderr
    assert not (tmp_path / "out").exists()

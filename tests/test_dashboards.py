"""The shipped dashboards are the built ones, and free of the usual mistakes."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
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


def judged(
    board: str, title: str, series: Mapping[str, str], expected: Mapping[str, float]
) -> str:
    """Returns promtool's test of a panel's first query after ten minutes of *series*.

    The query is asked as by a reader who has chosen nothing.
    """
    panels = BUILT[f"llm-goodput-{board}.json"]["panels"]
    (panel,) = (panel for panel in panels if panel["title"] == title)
    expr = panel["targets"][0]["expr"].replace("$__range", "10m")
    asked = {
        "expr": re.sub(r"\$\w+", ".*", expr),
        "eval_time": "10m",
        "exp_samples": [{"labels": k, "value": v} for k, v in expected.items()],
    }
    listed = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "1m", "input_series": listed, "promql_expr_test": [asked]}
    return yaml.safe_dump({"evaluation_interval": "1m", "tests": [test]})


def assert_passes(promtool: str, path: Path, test: str) -> None:
    """Writes promtool's *test* to *path* and runs it."""
    path.write_text(test, encoding="utf-8")
    done = subprocess.run(
        [promtool, "test", "rules", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


REQUESTS, OBJECTIVE = "goodput_requests:rate5m", "goodput_objective:max"
BURN_5M, BURN_1H = (
    f"goodput_budget_burn:ratio_rate{window}" for window in ("5m", "1h")
)
LOWER, UPPER = (f"goodput_{side}_bound:ratio_rate1h" for side in ("lower", "upper"))
Known = Mapping[str, float]


def burning(short: float, long: float) -> Known:
    """Returns what is recorded of a class with requests in a log."""
    return {REQUESTS: 1, BURN_5M: short, BURN_1H: long}


def bounded(lower: float, upper: float) -> Known:
    """Returns what is recorded of a class that only engines count."""
    return {LOWER: lower, UPPER: upper, OBJECTIVE: 0.9}


IDLE: Known = {REQUESTS: 0}
BOUND = "(bound)"


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ({"idle": IDLE, "late": burning(20, 20)}, {("late", ""): 3, ("idle", ""): -1}),
        (
            {"a": IDLE, "fine": burning(0, 0.9), "late": burning(1, 1)},
            {("late", ""): 3, ("fine", ""): 0},
        ),
        (
            {"fine": burning(0.2, 0.1), "new": burning(3, 0.5)},
            {("new", ""): 2, ("fine", ""): 0},
        ),
        ({"over": burning(0, 2)}, {("over", ""): 2}),
        ({"none": {REQUESTS: 5}}, {}),
        ({"a": bounded(0.95, 0.99)}, {("a", BOUND): 0}),
        ({"a": bounded(0.5, 0.99)}, {("a", BOUND): 1}),
        ({"a": bounded(0.1, 0.8)}, {("a", BOUND): 3}),
        ({"a": {**bounded(0.1, 0.8), **burning(0, 0)}}, {("a", ""): 0}),
    ],
)
def test_the_first_tile_shows_the_worst_classes(
    classes: Mapping[str, Known],
    expected: Mapping[tuple[str, str], int],
    tmp_path: Path,
    need_tool: Callable[[str], str],
) -> None:
    """Missed, burning, not to be told, good, idle; a bound only without a log."""
    series = {
        f'slo_class:{row}{{model="m",slo_class="{name}"}}': f"{value}x20"
        for name, rows in classes.items()
        for row, value in rows.items()
    }
    samples = {}
    for (name, source), value in expected.items():
        extra = f',source="{source}"' if source else ""
        samples[f'{{model="m",slo_class="{name}"{extra}}}'] = value
    said = judged("slo", "Are we good?", series, samples)
    assert_passes(need_tool("promtool"), tmp_path / "tests.yml", said)


@pytest.mark.parametrize(
    ("good", "expected"),
    [
        ("10x4 8x20", {"{}": 2.0}),  # 20 requests/s now, 10 were served in time
        ("9x24", {}),  # the objective was never met
    ],
)
def test_load_is_held_against_what_met_the_objective(
    good: str,
    expected: Mapping[str, float],
    tmp_path: Path,
    need_tool: Callable[[str], str],
) -> None:
    """What was served in time while many others were late says nothing."""
    labels = '{model="m",slo_class="c"}'
    series = {
        f"slo_class:goodput_requests:rate5m{labels}": "10x4 20x20",
        f"slo_class:goodput_good_requests:rate5m{labels}": good,
        'slo_class:goodput_objective:max{slo_class="c"}': "0.95x24",
        'target:goodput_kv_cache_usage_max60s:max{model="m",target="t"}': "0.5x24",
    }
    said = judged("capacity", "Load against best served", series, expected)
    assert_passes(need_tool("promtool"), tmp_path / "tests.yml", said)


def test_a_panel_shows_the_engines_in_which_most_requests_wait(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    """Of a large fleet it has twenty lines; one that has gone is still among them."""
    fleet = 22
    names = [f'{{instance="i",pod="p{n}",target="t",model="m"}}' for n in range(fleet)]
    series = {}
    for waiting, labels in enumerate(names):
        gone = waiting == fleet - 1
        length = 4 if gone else 20
        for metric, value in (
            ("waiting_requests", waiting),
            ("kv_cache_usage_ratio", 0.5),
        ):
            series[f"goodput_engine_{metric}{labels}"] = f"{value}x{length}"
        series[f"goodput_engine_running_requests{labels}"] = "7x20"
    expected = dict.fromkeys(names[fleet - 20 :], 7.0)
    said = judged("constraint", "Queueing: running requests", series, expected)
    assert_passes(need_tool("promtool"), tmp_path / "tests.yml", said)


# How Grafana finds variables in a text: a name, fields of it, a format.
REFERENCE = re.compile(r"\$\{(\w+)(?:\.([^:}]+))?(?::(\w+))?\}")
DRILL_DOWN = re.compile(r"/d/([\w-]+)\?(.+)")


def data_links() -> Iterator[tuple[dict[str, Any], dict[str, Any], str]]:
    """Yields the address of every link in a panel, with its dashboard and panel."""
    for board in BUILT.values():
        for panel in board["panels"]:
            for override in panel.get("fieldConfig", {}).get("overrides", ()):
                for one in override["properties"]:
                    if one["id"] == "links":
                        yield from (
                            (board, panel, link["url"]) for link in one["value"]
                        )


LINKS = tuple(data_links())


def variables(board: Mapping[str, Any]) -> set[str]:
    """Returns the names of a dashboard's variables."""
    return {variable["name"] for variable in board["templating"]["list"]}


def test_a_drill_down_keeps_the_time_and_sets_variables_of_its_dashboard() -> None:
    """A click on a cell opens one of ours, on the same span and part of the fleet."""
    opened = [found for *_, url in LINKS if (found := DRILL_DOWN.fullmatch(url))]
    assert opened
    for uid, query in (found.groups() for found in opened):
        there = variables(BUILT[f"{uid}.json"])
        parameters = query.split("&")
        assert "${__url_time_range}" in parameters
        kept = {p[2 : -len(":queryparam}")] for p in parameters if "queryparam" in p}
        assert kept >= {"datasource", "cluster", "namespace"}
        chosen = {p.partition("=")[0] for p in parameters if p.startswith("var-")}
        assert chosen
        assert kept | {name.removeprefix("var-") for name in chosen} <= there
        for parameter in parameters:
            assert re.fullmatch(r"var-\w+=\$\{[^{}]+\}|\$\{[^{}]+\}", parameter)


def test_a_link_takes_cells_that_its_table_has() -> None:
    """Its references are variables, or headings of the row, escaped for an address."""
    for board, panel, url in LINKS:
        assert "$" not in REFERENCE.sub("", url), url
        renamed = panel["transformations"][-1]["options"]["renameByName"].values()
        for name, path, form in REFERENCE.findall(url):
            if name == "__data":
                heading = re.fullmatch(r'fields\["(.+)"\]', path)
                assert heading is not None, url
                assert heading[1] in renamed, url
                assert form == "percentencode", url
            else:
                assert name == "__url_time_range" or name in variables(board), url


def test_a_link_to_a_runbook_is_that_of_the_row() -> None:
    """It begins with what the reader typed, and ends with the cause's file."""
    wanted = '${runbooks}/${__data.fields["Cause"]:percentencode}.md'
    assert wanted in {url for *_, url in LINKS}
    for _, _, url in LINKS:
        assert DRILL_DOWN.fullmatch(url) or url == wanted


@pytest.mark.parametrize("name", BUILT)
def test_every_dashboard_leads_to_all_the_others(name: str) -> None:
    """Those with the same tag are linked in a row, with variables and time kept."""
    (link,) = BUILT[name]["links"]
    assert (link["type"], link["asDropdown"]) == ("dashboards", False)
    assert link["includeVars"]
    assert link["keepTime"]
    assert all({*link["tags"]} <= {*board["tags"]} for board in BUILT.values())


def mistaken(change: str, value: object) -> dict[str, Any]:
    """Returns the first dashboard with one thing of a panel with a query changed."""
    board: dict[str, Any] = copy.deepcopy(next(iter(BUILT.values())))
    panel = next(p for p in board["panels"] if p["type"] == "timeseries")
    match change:
        case "expr":
            panel["targets"][0]["expr"] = value
        case "stack":
            panel["targets"][0]["expr"] = value
            panel["fieldConfig"]["defaults"]["custom"]["stacking"] = {"mode": "normal"}
        case "limits":
            steps = {"steps": [{"value": value, "color": "red"}]}
            panel["fieldConfig"]["defaults"] |= {
                "unit": "percentunit",
                "thresholds": steps,
            }
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
        ("expr", "sum(goodput_request_ttft_seconds_count) / sum(ALERTS)", "by 0"),
        ("expr", f"rate(goodput_engine_running_requests[{RATE}])", "no counter"),
        ("expr", "avg(goodput_engine_kv_cache_usage_ratio)", "hides the fullest"),
        ("stack", f"histogram_quantile(0.9, sum by (le) ({BUCKETS}))", "stacked"),
        ("limits", 90, "of which 1 is all"),
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

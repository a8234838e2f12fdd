"""`goodput rules`: how factors follow from objectives, and the forms of output."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from analyzer.cli import main
from analyzer.config import parse_config
from analyzer.rules.burn import burn_rows, refusal
from analyzer.rules.pack import rule_groups
from analyzer.rules.rule import Alert, Options, Severity
from analyzer.slo import SloClass

ALERTS = Path(__file__).resolve().parents[1] / "alerts"
EXAMPLE = ALERTS / "example.yml"
URL = "https://example.com/runbooks"


def goodput(*arguments: str | Path) -> Result:
    """Runs `goodput` in this process."""
    return CliRunner().invoke(main, list(map(str, arguments)))


def slo_class(objective: float, window: str = "28d") -> SloClass:
    """Returns a class with an objective over a window."""
    text = (
        f"slo_classes: [{{name: a, good: {{ttft: 1s}}, objective: {objective}, "
        f"window: {window}}}]"
    )
    return parse_config(text).slo_classes[0]


def written(directory: Path, config: Path, *more: str) -> str:
    """Returns the rule file that `goodput rules` writes for a configuration."""
    done = goodput("rules", "--config.file", config, "-o", directory, *more)
    assert done.exit_code == 0, done.output
    return (directory / "goodput.rules.yml").read_text(encoding="utf-8")


def test_the_shipped_rules_are_those_of_the_example(tmp_path: Path) -> None:
    """`goodput rules --config.file alerts/example.yml -o alerts` writes them anew."""
    built = written(tmp_path, EXAMPLE, "--runbook-url", URL)
    assert built == (ALERTS / "goodput.rules.yml").read_text(encoding="utf-8")
    done = goodput(
        *("rules", "--config.file", EXAMPLE, "-o", tmp_path, "--runbook-url", URL),
        *("--form", "prometheusrule"),
    )
    assert done.exit_code == 0
    name = "goodput.prometheusrule.yml"
    assert (tmp_path / name).read_text("utf-8") == (ALERTS / name).read_text("utf-8")


def test_at_99_percent_the_factors_are_the_workbooks_for_28_days() -> None:
    """2 % of 28 days in an hour is 13.44 times the pace, 5 % in six hours 5.6."""
    rows = burn_rows(slo_class(0.99))
    found = [(r.severity.value, r.long, r.short, round(r.factor, 3)) for r in rows]
    assert found == [
        ("critical", 3600, 300, 13.44),
        ("critical", 21600, 1800, 5.6),
        ("warning", 86400, 7200, 2.8),
        ("warning", 259200, 21600, 0.933),
    ]
    assert [round(r.spent, 3) for r in rows] == [0.02, 0.05, 0.1, 0.1]


def test_where_half_of_the_requests_must_be_bad_a_quarter_of_an_hour_is_enough() -> (
    None
):
    """At 95 % a full outage would take half an hour of an hour's window to show."""
    rows = burn_rows(slo_class(0.95))
    found = [(r.severity.value, r.long, r.short, round(r.factor, 3)) for r in rows]
    assert found == [
        ("critical", 900, 300, 10),
        ("critical", 21600, 1800, 5),
        ("warning", 86400, 7200, 2.5),
        ("warning", 259200, 21600, 0.933),
    ]
    assert "a full outage shows after 8m" in rows[0].derivation(slo_class(0.95))


@pytest.mark.parametrize("objective", [0.3, 0.5, 0.6, 0.8, 0.9, 0.95, 0.99, 0.9999])
@pytest.mark.parametrize("window", ["1h", "1d", "7d", "28d", "90d"])
def test_every_factor_can_be_reached(objective: float, window: str) -> None:
    """A burn rate above 1/(1 − objective) never comes; faster rows ask for more."""
    rows = burn_rows(slo_class(objective, window))
    assert rows[-1].severity is Severity.WARNING
    for row in rows:
        assert row.factor < 1 / (1 - objective)
        assert row.bad_share == pytest.approx(row.factor * (1 - objective))
        assert row.short < row.long
    factors = [row.factor for row in rows]
    assert factors == sorted(factors, reverse=True)
    assert len({(row.severity, row.long) for row in rows}) == len(rows)


def test_a_page_is_refused_where_the_objective_allows_what_should_page() -> None:
    """At 50 % half of the requests may be bad; the reason is told, tickets remain."""
    assert refusal(slo_class(0.95)) == ""
    assert "an objective of 0.5 allows 0.5" in refusal(slo_class(0.5))
    rows = burn_rows(slo_class(0.5))
    assert [row.severity for row in rows] == [Severity.WARNING]


def test_the_derivation_stands_beside_the_alert_and_warnings_are_printed(
    tmp_path: Path,
) -> None:
    """At 90 % the table's factor is above the highest possible one, and held."""
    config = tmp_path / "c.yml"
    config.write_text(
        "slo_classes: [{name: a, good: {ttft: 1s}, objective: 0.9},"
        "{name: b, good: {ttft: 1s}, objective: 0.5, window: 7d}]"
    )
    done = goodput("rules", "--config.file", config, "-o", tmp_path / "out")
    assert done.exit_code == 0
    assert "class a: its window of 28d is longer than the 15d" in done.stderr
    assert "class b: an objective of 0.5 allows" in done.stderr
    assert "class b: its window" not in done.stderr
    text = (tmp_path / "out" / "goodput.rules.yml").read_text(encoding="utf-8")
    assert "the table asks for 13.4 (the highest possible is 10), held to 5" in text


def test_variables_of_sources_need_not_be_set_for_rules(tmp_path: Path) -> None:
    """Rules are made where the pod's environment is not."""
    config = tmp_path / "c.yml"
    config.write_text(
        EXAMPLE.read_text(encoding="utf-8").replace("localhost", "$(NOWHERE_SET)")
    )
    assert "GoodputBudgetBurn" in written(tmp_path / "out", config)


@pytest.mark.parametrize("text", ["engines: []", "slo_classes: []", "nonsense"])
def test_a_configuration_without_classes_is_a_usage_error(
    tmp_path: Path, text: str
) -> None:
    """Exit code 2 and one sentence."""
    config = tmp_path / "c.yml"
    config.write_text(text)
    done = goodput("rules", "--config.file", config)
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: ")


def test_the_resource_has_the_groups_of_the_file(tmp_path: Path) -> None:
    """A PrometheusRule differs by its envelope, and carries the labels given."""
    file = yaml.safe_load(written(tmp_path, EXAMPLE))
    done = goodput(
        *("rules", "--config.file", EXAMPLE, "-o", tmp_path, "--name", "llm"),
        *("--form", "prometheusrule", "--label", "release=kps"),
    )
    assert done.exit_code == 0
    path = tmp_path / "goodput.prometheusrule.yml"
    resource = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert resource["apiVersion"] == "monitoring.coreos.com/v1"
    assert resource["kind"] == "PrometheusRule"
    assert resource["metadata"] == {"name": "llm", "labels": {"release": "kps"}}
    assert resource["spec"] == file
    wrong = goodput(
        *("rules", "--config.file", EXAMPLE, "--form", "prometheusrule"),
        *("--label", "release"),
    )
    assert wrong.exit_code == 2


def many_classes(count: int) -> str:
    """Returns a configuration of classes with all that rules can be made for."""
    return "slo_classes:\n" + "".join(
        f"  - {{name: class-number-{n:02}-of-a-platform-with-long-names, "
        "good: {ttft: 1s, tpot: 50ms, e2e: 10s}, objective: 0.99, percentiles: "
        "{ttft: {p95: 1s, p99: 2s}, tpot: {p95: 60ms}, e2e: {p99: 20s}}, "
        "stages: {gateway: 50ms, serving: 10s, delivery: 1s}}\n"
        for n in range(count)
    )


def test_many_classes_become_resources_that_kubernetes_takes(tmp_path: Path) -> None:
    """`kubectl apply` keeps a copy in an annotation of at most 256 KiB."""
    config = tmp_path / "c.yml"
    config.write_text(many_classes(50))
    file = yaml.safe_load(written(tmp_path, config))
    done = goodput(
        *("rules", "--config.file", config, "-o", tmp_path, "--name", "llm"),
        *("--form", "prometheusrule", "--label", "release=kps"),
    )
    assert done.exit_code == 0
    text = (tmp_path / "goodput.prometheusrule.yml").read_text(encoding="utf-8")
    resources = list(yaml.safe_load_all(text))
    names = [resource["metadata"]["name"] for resource in resources]
    assert names[:2] == ["llm", "llm-2"]
    assert len(set(names)) == len(names)
    for resource in resources:
        assert resource["metadata"]["labels"] == {"release": "kps"}
        assert len(json.dumps(resource)) < 256 * 1024
    groups = [group for r in resources for group in r["spec"]["groups"]]
    assert groups == file["groups"]
    assert len({group["name"] for group in groups}) == len(groups)


def test_json_lists_every_alert_with_its_derivation(tmp_path: Path) -> None:
    """What was written, by group, for programs."""
    done = goodput(
        *("rules", "--config.file", EXAMPLE, "-o", tmp_path, "--format", "json")
    )
    found = json.loads(done.stdout)
    assert found["files"] == [str(tmp_path / "goodput.rules.yml")]
    alerts = [a for g in found["groups"] for a in g["alerts"]]
    burn = next(a for a in alerts if a["name"] == "GoodputBudgetBurn")
    assert burn["severity"] == "critical"
    assert "held to 10" in burn["derivation"]


@pytest.mark.parametrize("name", ["full", "presets"])
def test_prometheus_accepts_the_rules_of_any_configuration(
    name: str, tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    """`promtool check rules --lint=all --lint-fatal` finds nothing."""
    config = Path(__file__).parent / "fixtures" / "config" / "valid" / f"{name}.yml"
    written(tmp_path, config)
    done = subprocess.run(
        [
            *(need_tool("promtool"), "check", "rules", "--lint=all", "--lint-fatal"),
            str(tmp_path / "goodput.rules.yml"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_time_scale_shortens_windows_and_keeps_names() -> None:
    """At 1/60 a rate of 5 minutes is one of 5 seconds, under the same name."""
    classes = (slo_class(0.95),)
    whole = rule_groups(classes, Options())
    short = rule_groups(classes, Options(time_scale=1 / 60))
    details = ["1s"] * 4
    expected = ["500ms", "4s", "500ms", *details, "500ms"]
    assert [g.interval for g in short] == expected
    for group, scaled in zip(whole, short, strict=True):
        for rule, other in zip(group.rules, scaled.rules, strict=True):
            assert rule.name == other.name
            assert "[5m]" not in other.expr
            if isinstance(rule, Alert) and isinstance(other, Alert):
                assert bool(rule.hold) == bool(other.hold)
                assert rule.hold != other.hold or not rule.hold

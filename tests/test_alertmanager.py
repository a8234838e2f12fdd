"""The example for Alertmanager: it is valid, routes, inhibits, and reads well."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import requests
import yaml
from alerting_stack import ALERTS, Stack
from fault_cases import EXPORTER, SOURCES
from rule_cases import BURN, CAPACITY

CASES = (*BURN, *CAPACITY, *SOURCES, *EXPORTER)
CONFIG = ALERTS / "alertmanager.yml"
WHERE = {"cluster": "eu", "namespace": "serving", "model": "m"}


def amtool(need_tool: Callable[[str], str], *arguments: str) -> str:
    """Returns what amtool prints; it must succeed."""
    command = [need_tool("amtool"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_is_valid(need_tool: Callable[[str], str]) -> None:
    """As amtool has it, with its templates."""
    assert "SUCCESS" in amtool(need_tool, "check-config", str(CONFIG))


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ({"severity": "critical", "constraint": "memory"}, "page"),
        ({"severity": "critical", "constraint": "unknown"}, "page"),
        ({"severity": "critical", "constraint": "fault"}, "page-platform"),
        ({"severity": "critical", "constraint": "gateway"}, "page-gateway"),
        ({"severity": "warning", "constraint": "queueing"}, "tickets-capacity"),
        ({"severity": "warning", "constraint": "fault"}, "tickets"),
        ({"severity": "warning"}, "tickets"),
        ({"severity": "info", "constraint": "traffic"}, "quiet"),
    ],
)
def test_alerts_reach_whoever_can_act(
    labels: Mapping[str, str], receiver: str, need_tool: Callable[[str], str]
) -> None:
    """By severity, and by the constraint's long-window label."""
    pairs = [f"{name}={value}" for name, value in labels.items()]
    route = ("config", "routes", "test", f"--config.file={CONFIG}", *pairs)
    assert amtool(need_tool, *route).strip() == receiver


def test_what_binds_does_not_open_another_group() -> None:
    """A verdict may change while an incident goes on."""
    config = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    routes = [config["route"]]
    while routes:
        route = routes.pop()
        assert "constraint" not in route.get("group_by", ())
        routes.extend(route.get("routes", ()))


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[[str], str]
) -> Iterator[Stack]:
    """Yields a real Alertmanager with the example's routes and inhibitions."""
    directory = tmp_path_factory.mktemp("inhibition")
    running = Stack(directory, ALERTS / "goodput.rules.yml", [], need_tool)
    yield running
    running.close()


def suppressed(stack: Stack, *alerts: Mapping[str, str]) -> set[str]:
    """Returns the names of those alerts that are inhibited when all fire at once."""
    body = [{"labels": {**alert, "run": str(id(alerts))}} for alert in alerts]
    url = f"{stack.alertmanager}/api/v2/alerts"
    assert requests.post(url, json=body, timeout=10).status_code == 200
    mine = {"filter": f'run="{id(alerts)}"'}
    found = requests.get(url, params=mine, timeout=10).json()
    assert len(found) == len(alerts)
    return {
        f"{a['labels']['alertname']}/{a['labels']['severity']}"
        for a in found
        if a["status"]["inhibitedBy"]
    }


def alert(name: str, severity: str, **labels: str) -> dict[str, str]:
    """Returns the labels of an alert on the model of this test."""
    return {"alertname": name, "severity": severity, **WHERE, **labels}


def test_a_page_stills_the_ticket_of_its_class_and_the_reasons(stack: Stack) -> None:
    """Not those of another class or model."""
    goodput = {"slo": "goodput", "slo_class": "a"}
    found = suppressed(
        stack,
        alert("GoodputBudgetBurn", "critical", **goodput),
        alert("GoodputBudgetBurn", "warning", **goodput),
        alert("GoodputQueueingWithRoom", "warning", family="queueing"),
        alert("GoodputBoundUncertain", "warning", slo="goodput_bound", slo_class="b"),
        {**alert("GoodputKvCacheBound", "warning"), "model": "other"},
    )
    assert found == {"GoodputBudgetBurn/warning", "GoodputQueueingWithRoom/warning"}


def test_a_pool_that_is_down_does_not_still_what_another_one_tells(
    stack: Stack,
) -> None:
    """Also without labels of a site, when nothing but the job tells pools apart."""
    down = {"alertname": "GoodputEngineDown", "severity": "warning", "target": "t"}
    found = suppressed(
        stack,
        {"alertname": "GoodputEnginesDown", "severity": "critical", "job": "a"},
        {**down, "job": "b"},
        {"alertname": "GoodputModelUnserved", "severity": "warning", "model": "x"},
    )
    assert found == set()


def test_a_page_by_bounds_stills_the_reasons_too(stack: Stack) -> None:
    """They stand in it as they do in the exact one."""
    page = alert("GoodputBoundBurn", "critical", slo="goodput_bound", slo_class="a")
    why = alert("GoodputQueueingWithRoom", "warning", family="queueing")
    found = suppressed(stack, {**page, "model": "n"}, {**why, "model": "n"})
    assert found == {"GoodputQueueingWithRoom/warning"}


def test_the_fault_of_one_pod_never_stills_the_page_of_a_fleet(stack: Stack) -> None:
    """Every alert on a target fires, and the pages stay."""
    on_targets = [
        {"alertname": case.alert, **case.labels}
        for case in CASES
        if "target" in case.labels or "instance" in case.labels
    ]
    assert len(on_targets) > 10
    pages = [
        alert("GoodputBudgetBurn", "critical", slo="goodput", slo_class="a"),
        alert("GoodputBoundBurn", "critical", slo="goodput_bound", slo_class="b"),
        alert("GoodputEnginesDown", "critical", job="goodput"),
    ]
    found = suppressed(stack, *pages, *on_targets)
    assert found == {"GoodputEngineDown/warning"}


def test_a_message_says_what_binds_why_and_what_to_do(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    """Title and text of the Slack and e-mail templates, for a page."""
    labels = alert("GoodputBudgetBurn", "critical", slo_class="chat")
    texts = {
        "summary": "m chat: the error budget burns 12.0 times too fast",
        "description": "Good requests: 40 %.",
        "constraint": "memory/kv_capacity (70% of the last 5 minutes)",
        "evidence": "fullest KV cache 98%",
        "advice": "Lower --max-num-seqs.",
        "runbook_url": "https://example.com/kv_capacity.md",
    }
    data = {
        "status": "firing",
        "receiver": "page",
        "alerts": [{"status": "firing", "labels": labels, "annotations": texts}],
        "groupLabels": WHERE,
        "commonLabels": labels,
        "commonAnnotations": texts,
    }
    path = tmp_path / "data.json"
    path.write_text(json.dumps(data), encoding="utf-8")

    def rendered(name: str) -> str:
        return amtool(
            need_tool,
            *("template", "render", f"--template.glob={ALERTS / 'templates'}/*.tmpl"),
            f'--template.text={{{{ template "{name}" . }}}}',
            f"--template.data={path}",
        ).strip()

    assert rendered("goodput.title") == (
        "PAGE eu/serving: m chat: the error budget burns 12.0 times too fast"
    )
    assert rendered("goodput.color") == "danger"
    assert rendered("goodput.text").splitlines() == [
        f"GoodputBudgetBurn (critical): {texts['summary']}",
        "Good requests: 40 %.",
        f"What binds: {texts['constraint']}",
        f"Evidence: {texts['evidence']}",
        f"First: {texts['advice']}",
        f"Runbook: {texts['runbook_url']}",
    ]

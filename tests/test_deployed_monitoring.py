"""A real Prometheus scrapes what the chart and Compose deploy, and answers for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from dashboard_session import VARIABLE
from deployed_monitoring import NODE, POD, Deployed
from helm_chart import NAME, find
from helm_values import rendered
from kubernetes_objects import Document
from running_exporter import wait_for

COMPOSE_JOB = "llm-goodput"
JOBS = ("pods", "service", "documented", COMPOSE_JOB)
VALUES = {
    "__rate_interval": "4s",
    "__range": "1m",
    "__to": "0",
    "__interval_ms": "1000",
    "price": "2",
}


def _groups(documents: list[Document]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = find(documents, "PrometheusRule")["spec"]["groups"]
    return found


@pytest.fixture(scope="module")
def deployed(
    tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[[str], str]
) -> Iterator[Deployed]:
    """Prometheus with the chart's monitors and rules, and the job of Compose."""
    documents = rendered("sidecar-all")
    monitors = {
        "pods": find(documents, "PodMonitor", NAME),
        "service": find(rendered("standalone-all"), "ServiceMonitor", NAME),
    }
    found = Deployed(
        tmp_path_factory.mktemp("deployed"),
        need_tool,
        monitors=monitors,
        groups=_groups(documents),
    )
    try:
        yield found
    finally:
        found.close()


def test_every_target_is_up(deployed: Deployed) -> None:
    """Both monitors, the job of the docs and Compose's each lead to the exporter."""
    wait_for(lambda: len(deployed.ask("up == 1")) == len(JOBS), seconds=60)
    assert {labels["job"] for labels in deployed.ask("up == 1")} == set(JOBS)


@pytest.mark.parametrize("job", ["pods", "service", "documented"])
def test_pod_and_namespace_survive(job: str, deployed: Deployed) -> None:
    """Series carry the pod that was scraped; an engine's own pod stays its own."""
    query = f'goodput_build_info{{job="{job}"}}'
    wait_for(lambda: deployed.ask(query), seconds=60)
    [labels] = deployed.ask(query)
    place = {label: labels[label] for label in ("namespace", "pod")}
    assert place == {label: POD[label] for label in place}
    assert labels["node"] == NODE
    query = f'goodput_target_info{{job="{job}", kind="engine"}}'
    wait_for(lambda: deployed.ask(query), seconds=60)
    engines = deployed.ask(query)
    assert {e["namespace"] for e in engines} == {POD["namespace"]}
    assert POD["pod"] not in {e["pod"] for e in engines}
    assert not deployed.ask(f'{{job="{job}", exported_pod!=""}}')


def test_every_rule_of_the_chart_is_evaluated(deployed: Deployed) -> None:
    """All of them are loaded, and none fails on series of several jobs and pods."""
    expected = sum(len(g["rules"]) for g in _groups(rendered("sidecar-all")))

    def healthy() -> bool:
        return {rule["health"] for rule in deployed.rules()} == {"ok"}

    wait_for(healthy, seconds=60)
    assert len(deployed.rules()) == expected


def test_every_query_of_the_charts_dashboards_is_answered(deployed: Deployed) -> None:
    """None is refused; what each shows is judged where dashboards are tested."""
    boards = [
        json.loads(text)
        for document in rendered("sidecar-all")
        if "grafana_dashboard" in document["metadata"].get("labels", ())
        for text in document["data"].values()
    ]
    queries = [
        target["expr"]
        for board in boards
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]
    assert queries
    wait_for(lambda: deployed.ask("slo_class:goodput_requests:rate5m"), seconds=60)
    answered = [
        bool(deployed.ask(VARIABLE.sub(lambda m: VALUES.get(m[1] or m[2], ".*"), q)))
        for q in queries
    ]
    assert sum(answered) > len(queries) / 2

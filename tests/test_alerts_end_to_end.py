"""From a simulated fleet to the webhook: the right alert, with the right reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from alerting_stack import Message, Stack
from running_exporter import RunningExporter, wait_for
from synthetic_engine import free_port

from analyzer.config import parse_config
from analyzer.rules.pack import rule_groups
from analyzer.rules.rule import Options
from analyzer.rules.writing import rule_file

# As the demonstration's own configuration has them.
CLASSES = """
slo_classes:
  - name: interactive
    good: {ttft: 1s, tpot: 50ms, e2e: 30s}
    objective: 0.95
    percentiles: {ttft: {p95: 1s}}
    stages: {gateway: 50ms}
"""
# Minutes become seconds: windows of 5 and 60 s, evaluated twice a second.
REPLICAS = {
    "kv-pressure": 1,
    "overload": 1,
    "long-prompts": 2,
    "restart": 2,
    "rollout": 3,
}
REHEARSAL = Options(time_scale=1 / 60)


ROLLOUT = "rollout"
UP = "goodput_target_up"


@dataclass(frozen=True)
class Expected:
    """What a scenario must bring: the alert, its label and words of its text."""

    alert: str
    receiver: str
    constraint: str
    cause: str
    runbook: str


SCENARIOS = {
    "kv-pressure": Expected(
        "GoodputBudgetBurn", "page", "memory", "memory/kv_capacity", "kv_capacity"
    ),
    "overload": Expected(
        "GoodputBudgetBurn", "page", "queueing", "queueing/sequence_cap", "sequence_cap"
    ),
    "long-prompts": Expected(
        "GoodputBudgetBurn", "page", "compute", "compute/prefill", "prefill"
    ),
    "restart": Expected(
        "GoodputEngineDown", "tickets", "fault", "does not answer", "down"
    ),
}


@dataclass(frozen=True)
class Told:
    """What was told of each scenario: what fired, what resolved, the seconds to fire.

    `others` are the messages on the rollout, `engines` those that were seen in it.
    """

    scenarios: dict[str, tuple[Message, Message, float]]
    others: list[Message]
    engines: int


@pytest.fixture(scope="module")
def told(
    tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[[str], str]
) -> Iterator[Told]:
    """Yields what was told; the rollout goes on as long as the scenarios do.

    A scenario ends when a healthy fleet takes its place at the same address.
    """
    directory = tmp_path_factory.mktemp("alerting")
    rules = directory / "goodput.rules.yml"
    classes = parse_config(CLASSES).slo_classes
    rules.write_text(rule_file(rule_groups(classes, REHEARSAL)), encoding="utf-8")
    ports = {name: free_port() for name in REPLICAS}
    targets = [(f"127.0.0.1:{port}", {"cluster": name}) for name, port in ports.items()]
    stack = Stack(directory, rules, targets, need_tool)
    with ExitStack() as running:
        running.callback(stack.close)
        begun, fleets = {}, {}
        for name, port in ports.items():
            fleets[name] = running.enter_context(
                RunningExporter(
                    f"--demo={name}", f"--demo.replicas={REPLICAS[name]}", port=port
                )
            )
            begun[name] = time.monotonic()
        fired = {n: stack.wait(partial(_is, n, "firing")) for n in SCENARIOS}
        for name in SCENARIOS:
            port = ports[name]
            fleets[name].stop()
            running.enter_context(
                RunningExporter("--demo=healthy", "--demo.replicas=1", port=port)
            )
        resolved = {n: stack.wait(partial(_is, n, "resolved")) for n in SCENARIOS}
        # Long enough ago for an alert that wants it to have come.
        seen = f'{UP}{{cluster="{ROLLOUT}",kind="engine"}}[1h] offset 8s'
        seen = f"count(last_over_time({seen}))"
        wait_for(lambda: number(stack.query(seen)) > REPLICAS[ROLLOUT], seconds=60)
        yield Told(
            {n: (fired[n], resolved[n], fired[n].at - begun[n]) for n in SCENARIOS},
            [m for m in stack.heard() if m.labels.get("cluster") == ROLLOUT],
            int(number(stack.query(seen))),
        )


def number(found: list[dict[str, Any]]) -> float:
    """Returns the value of the one series found."""
    return float(found[0]["value"][1])


def _is(scenario: str, status: str, message: Message) -> bool:
    expected, labels = SCENARIOS[scenario], message.labels
    return (
        message.status == status
        and labels["alertname"] == expected.alert
        and labels["cluster"] == scenario
        and labels["constraint"] == expected.constraint
        and message.receiver == expected.receiver
    )


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_brings_its_alert_with_its_reason_and_resolves(
    scenario: str,
    told: Told,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    """Through real scrapes, rules, routes and templates, within two minutes."""
    expected = SCENARIOS[scenario]
    fired, resolved, seconds = told.scenarios[scenario]
    record_testsuite_property(f"{scenario}_to_webhook_seconds", round(seconds, 1))
    assert expected.cause in fired.annotations["summary"]
    assert fired.annotations["runbook_url"].endswith(f"/{expected.runbook}.md")
    if "evidence" in fired.annotations:
        assert "unknown" not in fired.annotations["evidence"]
        assert "Missed most: " in fired.annotations["description"]
    assert resolved.labels == fired.labels


@pytest.mark.slow
def test_a_rollout_brings_no_alert(told: Told) -> None:
    """Pods that are asked to end go from the list, others come, nobody is told."""
    assert told.engines > REPLICAS[ROLLOUT]
    assert told.others == []

"""Each alert in promtool: it fires; just below and without data it does not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_cases import EXPORTER, SOURCES
from rule_cases import BURN, CAPACITY
from rule_worlds import Case

from analyzer.sources.promtool import Answer, Firing, World, evaluate

ALERTS = Path(__file__).resolve().parents[1] / "alerts"
RULES = ALERTS / "goodput.rules.yml"
CASES = (*BURN, *CAPACITY, *SOURCES, *EXPORTER)
KINDS = ("fires", "below", "absent")


def apart(case: Case, kind: str) -> dict[str, str]:
    """Returns a case's series of one kind, in a cluster of its own."""
    series = {
        "fires": case.fires,
        "below": {**case.fires, **case.below},
        "absent": case.absent(),
    }[kind]
    own = f'cluster="{case.title}"'
    return {name.replace('cluster="eu"', own): v for name, v in series.items()}


@pytest.fixture(scope="module")
def fired(need_tool: Callable[[str], str]) -> Answer:
    """Returns all that fired, from one run of promtool with a world a kind.

    No rule may mix clusters, so that all cases fit into one world.
    """
    times = sorted({case.at for case in CASES})
    alerts = sorted({case.alert for case in CASES})
    worlds = []
    for kind in KINDS:
        series: dict[str, str] = {}
        for case in CASES:
            found = apart(case, kind)
            assert not series.keys() & found.keys()
            series.update(found)
        worlds.append(World(kind, series, times, alerts, interval=60.0))
    text = RULES.read_text(encoding="utf-8")
    return evaluate(need_tool("promtool"), text, worlds, every=60.0)


def of(answer: Answer, case: Case, kind: str) -> list[Firing]:
    """Returns what fired of the case's alert and severity in one of its worlds."""
    return [
        f
        for f in answer.firings
        if (f.world, f.at, f.alert) == (kind, case.at, case.alert)
        and f.labels["cluster"] == case.title
        and f.labels["severity"] == case.labels["severity"]
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.title)
def test_it_fires_with_its_labels_and_its_reason(case: Case, fired: Answer) -> None:
    """Labels are exactly these, so that routes and inhibitions can rest on them."""
    (firing,) = of(fired, case, "fires")
    expected = {"alertname": case.alert, **case.labels, "cluster": case.title}
    assert firing.labels == expected
    for name, text in case.texts.items():
        assert text in firing.annotations[name]
    assert firing.annotations["runbook_url"].startswith("https://example.com/")
    assert "<no value>" not in "".join(firing.annotations.values())
    assert "error expanding" not in "".join(firing.annotations.values())


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.title)
def test_just_below_it_is_silent(case: Case, fired: Answer) -> None:
    """The threshold is where it is said to be."""
    assert of(fired, case, "below") == []


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.title)
def test_without_data_it_is_silent(case: Case, fired: Answer) -> None:
    """Absent is not 0."""
    assert of(fired, case, "absent") == []


def test_every_alert_has_its_cases() -> None:
    """Those of the budget over days are tested with worlds of their own."""
    text = RULES.read_text(encoding="utf-8")
    shipped = set(re.findall(r"^  - alert: (\w+)$", text, re.MULTILINE))
    elsewhere = {"GoodputBudgetSpent", "GoodputBudgetHistoryShort"}
    assert shipped == {case.alert for case in CASES} | elsewhere

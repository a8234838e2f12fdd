"""Alerts over hours: verdicts that flip, rollouts, budgets, sources side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from rule_worlds import (
    SCRAPED,
    bounded,
    counter,
    exact,
    level,
    objective,
    steps,
    verdicts,
)

from analyzer.config import parse_config
from analyzer.rules.pack import rule_groups
from analyzer.rules.rule import Alert, Group, Options
from analyzer.rules.writing import rule_file
from analyzer.sources.promtool import Answer, World, evaluate

RULES = Path(__file__).resolve().parents[1] / "alerts" / "goodput.rules.yml"
MINUTE = 60.0
SLOW = 240.0  # the pace of the budget's rules
FLIPPING = 150  # minutes
POOL = 6


def every_alert() -> list[str]:
    """Returns the names of all alerts."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return sorted({r["alert"] for g in groups for r in g["rules"] if "alert" in r})


def flipping() -> dict[str, str]:
    """Returns the time under two verdicts that take turns by the minute, then one."""
    names = list(verdicts({("memory", "kv_capacity"): 1, ("compute", "prefill"): 1}))
    turns = FLIPPING // 2
    first = [(1.0, 1), (0.0, 1)] * turns + [(0.0, 120)]
    second = [(0.0, 1), (1.0, 1)] * turns + [(1.0, 120)]
    return {names[0]: steps(*first), names[1]: steps(*second)}


def rollout() -> dict[str, str]:
    """Returns a pool whose pods are replaced one after another, three minutes each.

    A pod's series end with it; the new one starts for two minutes, then serves. What
    is left of the pool serves all requests well.
    """
    series = {}
    gateway = f'{SCRAPED},gateway="edge",model="m",slo_class="interactive"'
    for name, rate in (
        ("requests", 20),
        ("good_requests", 19.9),
        ("bad_requests", 0.1),
    ):
        series[f"goodput_{name}_total{{{gateway}}}"] = counter(rate)
    series[f'goodput_slo_objective_ratio{{{SCRAPED},slo_class="interactive"}}'] = level(
        0.95
    )
    for pod in range(POOL):
        begin = 30 + 5 * pod
        for new in (False, True):
            labels = (
                'cluster="eu",namespace="serving",job="pods",'
                f'instance="10.0.{int(new)}.{pod}:10555",'
                f'pod="vllm-{pod}-{"new" if new else "old"}"'
            )
            before = f"_x{begin + 3} " if new else ""
            length = 200 if new else begin

            def part(value: str, lead: str = before, pod_length: int = length) -> str:
                return lead + value + ("" if lead else f"x{pod_length} stale")

            series[f"up{{{labels}}}"] = part("1x200" if new else "1")
            series[f'goodput_build_info{{{labels},version="1"}}'] = part(
                "1x200" if new else "1"
            )
            for state in ("serving", "starting", "down", "stalled", "stats_disabled"):
                serving = float(state == "serving")
                if new:
                    value = f"{float(state == 'starting'):g}x1 {serving:g}x200"
                else:
                    value = f"{serving:g}"
                name = f'goodput_engine_state{{{labels},target="vllm",state="{state}"}}'
                series[name] = part(value)
            running = f'{{{labels},target="vllm",model="m",rank="0"}}'
            series[f"goodput_engine_running_requests{running}"] = part(
                "3x200" if new else "3"
            )
    return series


def _moved(series: Mapping[str, str], namespace: str) -> dict[str, str]:
    wanted = f'namespace="{namespace}"'
    return {k.replace('namespace="serving"', wanted): v for k, v in series.items()}


@pytest.fixture(scope="module")
def told(need_tool: Callable[[str], str]) -> Answer:
    """Returns what fired in all worlds, minute by minute."""
    alerts = every_alert()
    hours = [MINUTE * minute for minute in range(5, FLIPPING + 100)]
    worlds = [
        World(
            "flip", {**exact(0.6), **flipping()}, hours, ["GoodputBudgetBurn"], MINUTE
        ),
        World("rollout", rollout(), hours[:100], alerts, MINUTE),
        World(
            "both",
            {**bounded(0.1, 0.4), **exact(0.01)},
            [2400.0],
            ["GoodputBoundBurn", "GoodputBoundUncertain"],
            MINUTE,
        ),
        World(
            "apart",
            {
                **_moved(exact(0.6), "gateways"),
                **verdicts({("queueing", "sequence_cap"): 0.9}),
            },
            [2400.0],
            ["GoodputBudgetBurn"],
            MINUTE,
        ),
        World(
            "one-pod",
            {
                **exact(0.6),
                **verdicts({("memory", "kv_capacity"): 0.04, ("none", "idle"): 0.96}),
            },
            [2400.0],
            ["GoodputBudgetBurn"],
            MINUTE,
        ),
    ]
    text = RULES.read_text(encoding="utf-8")
    return evaluate(need_tool("promtool"), text, worlds, every=MINUTE)


def pages(answer: Answer, world: str) -> Mapping[float, str]:
    """Returns the constraint of the burn page at each time at which it fires."""
    found: dict[float, str] = {}
    for firing in answer.firings:
        burns = firing.alert == "GoodputBudgetBurn"
        if firing.world == world and burns and firing.labels["severity"] == "critical":
            assert firing.at not in found, "two pages at once"
            found[firing.at] = firing.labels["constraint"]
    return found


def test_a_verdict_that_flips_every_minute_does_not_stop_or_split_the_page(
    told: Answer,
) -> None:
    """From the first moment one alert, with one label, until another really leads."""
    found = pages(told, "flip")
    times = sorted(found)
    assert times == [times[0] + MINUTE * i for i in range(len(times))]
    assert times[0] <= 10 * MINUTE
    flips = [found[at] for at in times if at <= FLIPPING * MINUTE]
    assert len(set(flips)) == 1
    assert found[times[-1]] == "compute"
    labels = [found[at] for at in times]
    assert sum(a != b for a, b in pairwise(labels)) <= 1


def test_a_rollout_is_silent(told: Answer) -> None:
    """Pods go and come one by one, and nobody is woken or told."""
    assert [f for f in told.firings if f.world == "rollout"] == []


def test_bounds_keep_still_beside_an_exact_source(told: Answer) -> None:
    """What the log knows exactly, the engine's histograms need not guess."""
    assert [f for f in told.firings if f.world == "both"] == []


def test_a_gateway_in_another_namespace_is_routed_by_its_engines(told: Answer) -> None:
    """Cluster and model join what one process cannot see."""
    assert pages(told, "apart") == {2400.0: "queueing"}


def test_what_binds_one_pod_of_many_is_not_said_of_the_fleet(told: Answer) -> None:
    """A verdict needs a twentieth of the time."""
    assert pages(told, "one-pod") == {2400.0: "unknown"}


PARTS = (
    "requests:rate5m",
    "requests:rate30m",
    "budget_left",
    "budget_covered",
    "objective",
)


def of_budget(objective: float, window: str, names: Sequence[str]) -> str:
    """Returns a file of those rules alone that the budget's alerts need."""
    text = (
        f"slo_classes: [{{name: interactive, good: {{ttft: 1s}}, "
        f"objective: {objective}, window: {window}}}]"
    )
    groups = rule_groups(parse_config(text).slo_classes, Options())
    kept = tuple(
        rule
        for group in groups
        for rule in group.rules
        if rule.name in names
        or (not isinstance(rule, Alert) and any(part in rule.name for part in PARTS))
    )
    return rule_file([Group("budget", "30s", kept)])


def test_a_spent_budget_is_told_once_enough_of_its_window_is_known(
    need_tool: Callable[[str], str],
) -> None:
    """A quarter of the window, and an hour of it; half of the pace is within it."""
    rules = of_budget(0.95, "1d", ["GoodputBudgetSpent"])
    hour = 3600.0
    times = [5.5 * hour, 7.5 * hour, 16 * hour]  # nothing is served by then
    worlds = [
        World(
            name,
            {**exact(bad, minutes=480), **objective(minutes=1000)},
            times,
            ["GoodputBudgetSpent"],
            MINUTE,
        )
        for name, bad in (("over", 0.06), ("within", 0.04))
    ]
    found = evaluate(need_tool("promtool"), rules, worlds, every=SLOW)
    (firing,) = found.firings
    assert (firing.world, firing.at) == ("over", 7.5 * hour)
    assert firing.labels["slo_class"] == "interactive"
    assert "the error budget of 1d is spent" in firing.annotations["summary"]


def test_a_budget_whose_history_no_longer_grows_is_told(
    need_tool: Callable[[str], str],
) -> None:
    """What grows is no fault, nor what is no longer served, or by day only."""
    rules = of_budget(0.95, "2d", ["GoodputBudgetHistoryShort"])
    hour = 3600.0
    alert = ["GoodputBudgetHistoryShort"]
    worlds = [
        World("young", exact(0.0, minutes=1700), [28 * hour], alert, MINUTE),
        World("retired", exact(0.0, minutes=600), [36 * hour], alert, MINUTE),
    ]
    assert evaluate(need_tool("promtool"), rules, worlds, every=SLOW).firings == []
    # promtool deletes nothing: what rules would find after that is given instead.
    labels = '{cluster="eu",namespace="serving",model="m",slo_class="interactive"}'
    covered = "slo_class:goodput_budget_covered_seconds:count2d" + labels
    half_hours = "slo_class:goodput_good_requests:rate30m" + labels
    kept = {covered: level(10 * hour, minutes=3200)}
    deleted = {**kept, half_hours: f"_x{42 * 60} {level(2, minutes=640)}"}
    daytime = {**kept, half_hours: " ".join(["2x600 _x838"] * 3)}
    text = yaml.safe_load(rules)
    for group in text["groups"]:
        group["rules"] = [rule for rule in group["rules"] if "alert" in rule]
    worlds = [
        World(name, series, [52 * hour], alert, MINUTE)
        for name, series in (("deleted", deleted), ("daytime", daytime))
    ]
    found = evaluate(need_tool("promtool"), yaml.safe_dump(text), worlds, every=SLOW)
    (firing,) = found.firings
    assert firing.world == "deleted"
    assert "rests on 10h" in firing.annotations["summary"]

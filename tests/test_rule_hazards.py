"""What breaks rules elsewhere: leftovers, copies, one failure, odd names, gaps."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import pytest
from rule_worlds import (
    SCRAPED,
    bounded,
    counter,
    engine,
    exact,
    objective,
    states,
    verdicts,
)

from analyzer.config import parse_config
from analyzer.rules.pack import rule_groups
from analyzer.rules.rule import Alert, Group, Options
from analyzer.rules.writing import rule_file
from analyzer.sources.promtool import Answer, Firing, World, evaluate

MINUTE = 60.0
BURN = "GoodputBudgetBurn"
LOG = f'{{{SCRAPED},gateway="edge",model="m",slo_class="interactive"}}'
KV = {("memory", "kv_capacity"): 0.7, ("none", "headroom"): 0.3}
Evaluate = Callable[..., Sequence[Firing]]


def groups(share: float = 0.95) -> Sequence[Group]:
    """Returns the rules of one class with an objective."""
    text = (
        "slo_classes: [{name: interactive, good: {ttft: 1s, tpot: 50ms, e2e: 10s}, "
        f"percentiles: {{ttft: {{p95: 1s}}}}, objective: {share}, window: 28d}}]"
    )
    every = rule_groups(parse_config(text).slo_classes, Options())
    return [group for group in every if "-details-" not in group.name]


@pytest.fixture
def fired(need_tool: Callable[[str], str]) -> Evaluate:
    """Returns what fires in a world; an error of any rule is one of the test."""

    def run(
        series: Mapping[str, str],
        *minutes: float,
        alerts: Sequence[str] = (BURN,),
        share: float = 0.95,
    ) -> Sequence[Firing]:
        series = {**series, **objective(share)} if share != 0.95 else series
        times = [MINUTE * minute for minute in minutes]
        world = World("w", series, times, alerts, MINUTE)
        text = rule_file(groups(share))
        answer: Answer = evaluate(need_tool("promtool"), text, [world], every=30.0)
        return answer.firings

    return run


def pages(firings: Sequence[Firing]) -> list[float]:
    """Returns the minutes at which something pages."""
    return [f.at / 60 for f in firings if f.labels["severity"] == "critical"]


def elsewhere(series: Mapping[str, str], namespace: str) -> dict[str, str]:
    """Returns series as they are in another namespace."""
    moved = f'namespace="{namespace}"'
    return {k.replace('namespace="serving"', moved): v for k, v in series.items()}


MODEL = 'cluster="eu",namespace="serving",model="m"'
LEFT_BEHIND = {
    "a restart, another verdict": "model:goodput_constraint_verdict:winner30m"
    f'{{{MODEL},constraint="traffic"}}',
    "a restart, another winner": "model:goodput_constraint_family:winner30m"
    f'{{{MODEL},family="traffic"}}',
    "an upgrade, another advice": "cause:goodput_advice:info"
    '{cause="kv_capacity",advice="as it was"}',
    "a federated objective": "slo_class:goodput_objective:max"
    '{cluster="eu",namespace="serving",slo_class="interactive",prometheus="b"}',
    "a federated verdict": "model:goodput_constraint_verdict:winner30m"
    f'{{{MODEL},constraint="memory",prometheus="b"}}',
    "a federated time": f"model:goodput_constraint_seconds:rate5m"
    f'{{{MODEL},family="memory",cause="kv_capacity",prometheus="b"}}',
    "a federated leader": "model:goodput_own_constraint_leading:ratio_rate5m"
    f'{{{MODEL},family="memory",cause="kv_capacity",prometheus="b"}}',
}


@pytest.mark.parametrize("name", LEFT_BEHIND.values(), ids=LEFT_BEHIND)
def test_a_series_left_behind_or_copied_fails_no_rule(
    name: str, fired: Evaluate
) -> None:
    """Prometheus ends no series when it restarts: for minutes there are two of it."""
    found = fired({**exact(0.6), **verdicts(KV), name: "0.95x30"}, 2, 10, 30)
    assert sorted(set(pages(found))) == [2, 10, 30]


def test_after_a_restart_the_newest_verdict_is_the_label(fired: Evaluate) -> None:
    """Not that of the Prometheus before."""
    before = LEFT_BEHIND["a restart, another verdict"]
    found = fired({**exact(0.6), **verdicts(KV), before: "1x3"}, 5, 6)
    assert {f.labels["constraint"] for f in found} == {"memory"}


def failures(*minutes: int, per_minute: float, begin: int = 0) -> dict[str, str]:
    """Returns a log that begins at a minute, with a failed request in each given."""
    good, bad, every = (["_"] * begin for _ in range(3))
    for minute in range(begin, 200):
        failed = sum(m <= minute for m in minutes)
        total = per_minute * (minute - begin) + 1
        good.append(f"{total - failed:g}")
        bad.append(f"{failed:g}")
        every.append(f"{total:g}")
    return {
        **objective(),
        f"goodput_good_requests_total{LOG}": " ".join(good),
        f"goodput_bad_requests_total{LOG}": " ".join(bad),
        f"goodput_requests_total{LOG}": " ".join(every),
    }


@pytest.mark.parametrize("share", [0.999, 0.99999])
@pytest.mark.parametrize("begin", [0, 26], ids=["of an old log", "of a young log"])
def test_one_failed_request_pages_nobody(
    share: float, begin: int, fired: Evaluate
) -> None:
    """One of 12 in five minutes is more than any such objective allows, and chance."""
    series = failures(30, per_minute=2.4, begin=begin)
    assert pages(fired(series, *range(29, 60), share=share)) == []


def test_several_failed_requests_page_at_99_9_percent(fired: Evaluate) -> None:
    """Five in a row are no chance."""
    series = failures(30, 31, 32, 33, 34, per_minute=2.4)
    assert pages(fired(series, 36, share=0.999)) == [36]


def test_a_young_log_is_not_taken_for_an_old_one(fired: Evaluate) -> None:
    """One failure a minute: ten of them take ten minutes, whatever the window."""
    series = failures(*range(31, 90), per_minute=1, begin=30)
    assert pages(fired(series, *range(31, 41))) == []
    assert pages(fired(series, 46)) == [46]


def test_a_young_histogram_is_not_taken_for_an_old_one(fired: Evaluate) -> None:
    """A p95 of sixty requests rests on three of them, which is chance."""
    values = ["_"] * 30 + [f"{min(3.0 * m, 60):g}" for m in range(170)]
    within = ["_"] * 30 + [f"{min(2.7 * m, 54):g}" for m in range(170)]
    series = {}
    for suffix, extra, numbers in (
        ("bucket", ',le="1.0"', within),
        ("bucket", ',le="+Inf"', values),
        ("count", "", values),
    ):
        name = f"goodput_request_ttft_seconds_{suffix}{LOG[:-1]}{extra}}}"
        series[name] = " ".join(numbers)
    alert = "GoodputPercentileMissed"
    assert fired(series, *range(31, 90), alerts=[alert]) == []


def test_one_slow_request_of_an_engine_pages_nobody(fired: Evaluate) -> None:
    """The upper bound counts as the log does."""
    series = dict(bounded(1.0, 1.0))
    for name in series:
        if "_events_total" in name:
            series[name] = counter(0.04)
        if "good_events" in name and "ttft" in name:
            values = [f"{2.4 * i - (i >= 30):g}" for i in range(200)]
            series[name] = " ".join(values)
    found = fired(series, *range(29, 60), alerts=["GoodputBoundBurn"], share=0.999)
    assert pages(found) == []


def test_a_log_of_one_team_does_not_silence_the_engines_of_another(
    fired: Evaluate,
) -> None:
    """The same model in two namespaces: only a gateway's own one stands for others."""
    engines = elsewhere(bounded(0.1, 0.2), "team-b")
    alerts = ["GoodputBoundBurn"]
    log = exact(0.0)
    mine = bounded(1.0, 1.0)
    found = fired({**engines, **log, **mine}, 40, alerts=alerts)
    assert [f.labels["namespace"] for f in found] == ["team-b"]
    assert fired({**engines, **log}, 40, alerts=alerts) == []


def test_annotations_are_of_the_namespace_of_the_alert(fired: Evaluate) -> None:
    """Staging with the same model is full; in production requests wait."""
    here = {("queueing", "sequence_cap"): 0.4, ("none", "headroom"): 0.6}
    kv = f"goodput_engine_kv_cache_usage_ratio_max60s{engine()[:-1]},rank="
    series = {
        **exact(0.6),
        **verdicts(here),
        kv + '"0"}': "0.3x200",
        **elsewhere({**verdicts(KV), kv + '"0"}': "1x200"}, "staging"),
    }
    for firing in fired(series, 40):
        assert firing.labels["constraint"] == "queueing"
        texts = firing.annotations
        assert texts["constraint"].startswith("queueing/sequence_cap (40%")
        assert texts["runbook_url"].endswith("/sequence_cap.md")
        assert "fullest KV cache 30%" in texts["evidence"]


def test_engines_without_a_limit_are_not_given_that_of_other_namespaces(
    fired: Evaluate,
) -> None:
    """Production has room: what binds staging does not explain it."""
    series = {
        **exact(0.6),
        **verdicts({("none", "headroom"): 1.0}),
        **elsewhere(verdicts(KV), "staging"),
    }
    found = fired(series, 40)
    assert {f.labels["constraint"] for f in found} == {"unknown"}
    assert {f.annotations["constraint"].split()[0] for f in found} == {"unknown"}


def test_a_gateways_namespace_has_the_annotations_of_the_engines(
    fired: Evaluate,
) -> None:
    """It has none itself."""
    kv = f'goodput_engine_kv_cache_usage_ratio_max60s{engine()[:-1]},rank="0"}}'
    series = {**elsewhere(exact(0.6), "edge"), **verdicts(KV), kv: "0.98x200"}
    found = fired(series, 40)
    assert found
    for firing in found:
        assert firing.labels["namespace"] == "edge"
        texts = firing.annotations
        assert texts["constraint"] == "memory/kv_capacity (70% of the last 5 minutes)"
        assert "lower --max-num-seqs" in texts["advice"]
        assert "fullest KV cache 98%" in texts["evidence"]


def test_a_page_outlasts_a_gap_of_ten_minutes(fired: Evaluate) -> None:
    """Its second row looks back for half an hour; the objective is remembered."""
    series = exact(0.6, minutes=200)
    gap = {}
    for name, values in series.items():
        begin, _, growth = values.removesuffix("x200").partition("+")
        numbers = [float(begin) + float(growth or 0) * i for i in range(120)]
        texts = [f"{n:.10g}" for n in numbers]
        gap[name] = " ".join([*texts[:60], "stale", *["_"] * 9, *texts[70:]])
    times = range(58, 80)
    assert pages(fired(gap, *times)) == list(times)


ODD_NAMES = (
    "org/Llama-3.1 (8B)*",
    'a "quoted" name',
    "back\\slash",
    "modèle 日本",
    "it's `q`",
    "%s %[1]q {{ .X }}",
    "x" * 200,
    "",
)


def test_odd_names_are_looked_up_and_shown_as_they_are(fired: Evaluate) -> None:
    """Templates neither run what a model is called nor lose it."""
    series: dict[str, str] = {}
    for name in ODD_NAMES:
        world = {**exact(0.6), **verdicts(KV)}
        quoted = f"model={json.dumps(name, ensure_ascii=False)}"
        series |= {k.replace('model="m"', quoted): v for k, v in world.items()}
    found = [f for f in fired(series, 40) if f.labels["severity"] == "critical"]
    assert {f.labels.get("model", "") for f in found} == set(ODD_NAMES)
    for firing in found:
        name = firing.labels.get("model", "")
        texts = firing.annotations
        assert texts["summary"].startswith(f"{name} interactive: the error budget")
        assert texts["constraint"].startswith("memory/kv_capacity (70%")
        assert "Good requests in the last 5 minutes: 40%;" in texts["description"]


def test_an_objective_of_five_nines_is_said_so(fired: Evaluate) -> None:
    """Four digits would make it 1."""
    found = fired(exact(0.6), 40, share=0.99999)
    assert found
    for firing in found:
        assert "the objective is 0.99999." in firing.annotations["description"]


def test_sites_without_labels_get_every_kind_of_page(fired: Evaluate) -> None:
    """No cluster, no namespace, no pod: rules and templates still hold."""
    bare = {
        name.replace('cluster="eu",namespace="serving",', ""): values
        for world in (exact(0.6), verdicts(KV), states(vllm="stalled", other="down"))
        for name, values in world.items()
    }
    alerts = [BURN, "GoodputEnginesDown", "GoodputEngineStalled"]
    found = fired(bare, 40, alerts=alerts)
    assert {f.alert for f in found} == set(alerts)
    for firing in found:
        assert not {"cluster", "namespace"} & firing.labels.keys()
        assert "error expanding" not in "".join(firing.annotations.values())
        if firing.alert == BURN:
            assert firing.annotations["constraint"].startswith("memory/kv_capacity")


def healthy(minutes: int) -> dict[str, str]:
    """Returns all that a fleet without faults publishes, a value a minute."""
    own = {
        f'goodput_log_lines_total{{{SCRAPED},gateway="edge"}}': counter(2.0),
        f'goodput_build_info{{{SCRAPED},version="1"}}': "1+0x400",
        f"up{{{SCRAPED}}}": "1+0x400",
        f'goodput_source_coverage_ratio{{{SCRAPED},model="m"}}': "1+0x400",
        f'goodput_engine_running_requests{engine()[:-1]},rank="0"}}': "3+0x400",
        f'goodput_engine_finished_requests_total{engine()[:-1]},reason="stop"}}': (
            counter(2.0)
        ),
    }
    series = {
        **exact(0.01),
        **bounded(0.97, 1.0),
        **verdicts({("none", "headroom"): 1.0}),
        **states(vllm="serving", other="serving"),
        **own,
    }
    found = {}
    for name, values in series.items():
        first, _, growth = values.removesuffix("x400").partition("+")
        numbers = [float(first) + float(growth or 0) * i for i in range(minutes)]
        found[name] = " ".join(f"{number:.10g}" for number in numbers)
    return found


@pytest.mark.parametrize("scrapes", ["failed", "none"])
@pytest.mark.parametrize("gap", [3, 10])
def test_gaps_in_scrapes_a_minute_apart_page_nobody(
    gap: int, scrapes: str, fired: Evaluate
) -> None:
    """Three minutes and a restart are silent; ten say what is away, without a page."""
    failing = scrapes == "failed"
    series = {}
    for name, values in healthy(90).items():
        parts = values.split()
        if failing:
            away = ["0"] * gap if name.startswith("up{") else ["stale", *["_"] * gap]
        else:
            away = ["_"] * gap
        after = parts[40 + gap :]
        if "_total" in name:  # the exporter restarted, without its state
            after = parts[: len(after)]
        series[name] = " ".join([*parts[:40], *away[:gap], *after])
    alerts = sorted({r.name for g in groups() for r in g.rules if isinstance(r, Alert)})
    found = fired(series, *range(10, 88), alerts=alerts)
    away_alerts = {"GoodputExporterDown", "GoodputExporterAbsent"}
    expected = {*away_alerts, "GoodputModelUnserved"} if failing and gap > 5 else set()
    assert {f.alert for f in found} == expected
    assert pages(found) == []

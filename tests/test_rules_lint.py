"""Names, metrics, and the mistakes that rules of others make, checked by machine."""

from __future__ import annotations

import re
from pathlib import Path

from analyzer.catalogue import BY_NAME
from analyzer.config import parse_config
from analyzer.metric import Kind
from analyzer.rules.pack import rule_groups
from analyzer.rules.rule import Alert, Options, Record, Severity

EXAMPLE = Path(__file__).resolve().parents[1] / "alerts" / "example.yml"
GROUPS = rule_groups(
    parse_config(EXAMPLE.read_text(encoding="utf-8")).slo_classes, Options()
)
RULES = [rule for group in GROUPS for rule in group.rules]
RECORDS = [rule for rule in RULES if isinstance(rule, Record)]
METRIC = re.compile(r"\b[a-z_]+(?::[a-z0-9_:]+)?\b")


def used_metrics(expr: str) -> set[str]:
    """Returns the names in an expression that are metrics or recordings."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"', "", expr)
    return {name for name in METRIC.findall(text) if "goodput" in name}


def test_recordings_are_named_by_level_metric_and_operations() -> None:
    """Each name once, in three parts; what is on the left are labels that are kept."""
    names = [rule.name for rule in RECORDS if not rule.labels]
    assert len(names) == len(set(names))
    for rule in RECORDS:
        assert re.fullmatch(r"[a-z_]+:goodput_[a-z0-9_]+:[a-z0-9_]+", rule.name)


def test_what_is_recorded_is_recorded_before_its_use() -> None:
    """Rules of a group are evaluated in order, and groups beside each other."""
    recorded = {rule.name for rule in RECORDS}
    for group in GROUPS:
        own = {rule.name for rule in group.rules if isinstance(rule, Record)}
        before: set[str] = set()
        for rule in group.rules:
            for name in used_metrics(rule.expr):
                if ":" not in name:
                    continue
                assert name in recorded, f"{rule.name} uses {name}"
                assert name in before or name not in own or name == rule.name
            if isinstance(rule, Record):
                before.add(rule.name)


def _kind(name: str) -> Kind:
    """Returns the type of a series' metric in the catalogue."""
    for suffix in ("", "_bucket", "_count", "_sum"):
        metric = BY_NAME.get(name.removesuffix(suffix))
        if metric is not None and (not suffix or metric.kind is Kind.HISTOGRAM):
            return metric.kind
    raise AssertionError(f"{name} is not in the catalogue")


def _raw(rule: Record | Alert) -> set[str]:
    return {name for name in used_metrics(rule.expr) if ":" not in name}


def test_every_metric_in_a_rule_is_published() -> None:
    """A rule on a name that nobody exports can never fire."""
    kinds = {name: _kind(name) for rule in RULES for name in _raw(rule)}
    assert kinds["goodput_kv_cache_exhaustion_seconds"] is Kind.GAUGE
    assert kinds["goodput_good_requests_total"] is Kind.COUNTER


def test_counters_are_rated_and_gauges_are_not() -> None:
    """A lifetime total says nothing of now, and a gauge has no rate."""
    for rule in RULES:
        for name in _raw(rule):
            rated = re.findall(rf"(?:rate|increase)\({name}\b", rule.expr)
            every = re.findall(rf"\b{name}\b", rule.expr)
            counts = _kind(name) in (Kind.COUNTER, Kind.HISTOGRAM)
            assert len(rated) == (len(every) if counts else 0), rule.name


def test_no_rule_makes_the_usual_mistakes() -> None:
    """Averages of ratios, 0 for missing, fixed jobs, ratios without traffic, sums."""
    everything = " ".join(rule.expr for rule in RULES)
    for rule in RULES:
        expr = rule.expr
        assert "or vector(0)" not in expr
        assert "$__" not in expr
        for name in re.findall(r"\b\w+_sum\b", expr):
            assert name.removesuffix("_sum") + "_count" in everything
        assert not re.search(r"\b(job|namespace|instance|cluster)=~?\"", expr)
        for averaged in re.findall(r"avg_over_time\((\S+?)[{\[]", expr):
            assert averaged.endswith((":rate5m", ":rate30m"))
        if " / " in expr and "goodput_objective" not in expr:
            assert "> 0)" in expr or "count by" in expr, rule.name


JOIN = re.compile(r"on \(([^)]*)\)\s+group_left \([^)]*\)\s+(\S+)")
ONE_EACH = re.compile(r"\(*(?:1 - )?(?:sum|max|topk) by \(([^)]*)\)")


def test_every_join_is_on_the_labels_that_its_one_side_is_aggregated_by() -> None:
    """Two series where a rule wants one fail all of it: a restart leaves such pairs."""
    joins = 0
    for rule in RULES:
        for join in JOIN.finditer(rule.expr):
            one = ONE_EACH.match(rule.expr, join.start(2))
            assert one, f"{rule.name}: {rule.expr[join.start() :]}"
            assert one[1] == join[1], rule.name
            joins += 1
        assert len(JOIN.findall(rule.expr)) == rule.expr.count("group_left")
    assert joins > len(GROUPS)


def test_no_group_is_evaluated_as_seldom_as_prometheus_looks_back() -> None:
    """At five minutes a series would be missing whenever an evaluation is late."""
    for group in GROUPS:
        minutes = re.fullmatch(r"([1-4])m|30s", group.interval)
        assert minutes, f"{group.name}: {group.interval}"


def test_quantiles_are_of_sums_by_bucket() -> None:
    """One quantile of all replicas, not one of each."""
    texts = [
        text
        for rule in RULES
        if isinstance(rule, Alert)
        for text in (rule.expr, *rule.annotations.values())
    ]
    found = [text for text in texts if "histogram_quantile" in text]
    assert found
    for text in found:
        assert re.search(r"histogram_quantile\([\d.]+, sum by \(le\) \(rate\(", text)


def test_every_page_is_on_what_users_feel_or_on_engines_that_hang() -> None:
    """Few pages: the rest are tickets."""
    pages = {
        rule.name
        for rule in RULES
        if isinstance(rule, Alert) and rule.severity is Severity.CRITICAL
    }
    assert pages == {
        "GoodputBudgetBurn",
        "GoodputBoundBurn",
        "GoodputEngineStalled",
        "GoodputEnginesDown",
    }

"""Requests of many kinds into totals, each counted as if it were the only one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from gateway_truth import unpacked

from analyzer.config import parse_config
from analyzer.config_gateways import GatewaySource
from analyzer.counting import MAX_KIND_LENGTH, MAX_KINDS, NO_MODEL, RequestCounter
from analyzer.gateways.record import Outcome, RequestRecord
from analyzer.judgement import Verdict, class_for, judge
from analyzer.labels import OTHER, LabelCap
from analyzer.logflow import LogFlow
from analyzer.requests_total import RequestTotals
from analyzer.slo import NO_CLASS

AT = 2e9
ALIASES = {"alias": "a"}
EDGE = GatewaySource("edge", path="/gw.log", policy_statuses=(402,))
CLASSES = """
slo_classes:
  - name: long
    match: {prompt_tokens: {min: 100}}
    good: {ttft: {base: 100ms, per_prompt_token: 0.1ms}, tpot: 20ms}
    objective: 0.9
  - {name: high, match: {header: {x-priority: high}}, good: {e2e: 1s}, objective: 0.9}
  - {name: short, match: {prompt_tokens: {max: 20}}, good: {ttft: 1s}, objective: 0.9}
  - name: free
    match: {tenant: "free*", route: "/v1/*"}
    good: {tpot: 15ms}
    objective: 0.9
"""
CONFIG = parse_config(CLASSES)
SLO_CLASSES = CONFIG.slo_classes


def counter(
    totals: RequestTotals,
    admit: Callable[[str], str] = str,
    admit_failed: Callable[[str], str] = str,
) -> RequestCounter:
    """Returns a counter with the classes; without *admit* all models have places."""
    made = RequestCounter(totals, admit=admit, admit_failed=admit_failed)
    totals.configure(SLO_CLASSES)
    made.configure(EDGE, SLO_CLASSES)
    return made


def some_records() -> list[RequestRecord]:
    """Returns requests of a few thousand kinds."""
    rng = random.Random(3)
    return [some_record(rng) for _ in range(3000)]


def some_record(rng: random.Random) -> RequestRecord:
    """Returns a request of one of a few thousand kinds."""
    return RequestRecord(
        start=1.9e9 + rng.random(),
        route=rng.choice(("/v1/completions", "/v1/models", "/generate", "")),
        tenant=rng.choice(("free", "free-2", "pro", "")),
        model=rng.choice(("a", "b", "alias", "")),
        headers=rng.choice(({}, {"x-priority": "high"}, {"x-priority": "low"})),
        status=rng.choice((200, 200, 200, 400, 402, 429, 503, None)),
        outcome=rng.choice(list(Outcome)),
        ttft=rng.choice((None, 0.05, 0.11, 0.3)),
        tpot=rng.choice((None, 0.01, 0.015, 0.03)),
        e2e=rng.choice((None, 0.5, 1.0, 3.0)),
        prompt_tokens=rng.choice((None, 10, 20, 21, 99, 100, 101, 3000)),
        completion_tokens=rng.choice((None, 0, 1, 2, 50)),
        stream=rng.choice((True, False, None)),
    )


def test_each_request_counts_in_the_row_and_under_the_verdict_of_its_own() -> None:
    """What requests of its kind had before decides nothing."""
    records = some_records()
    totals = RequestTotals()
    found = counter(totals)
    found.know(ALIASES)
    found.count(records, AT)
    wanted: Counter[tuple[str, str, Verdict]] = Counter()
    for record in records:
        served = ALIASES.get(record.model, record.model) or NO_MODEL
        names = (served, record.model)
        slo_class = class_for(record, SLO_CLASSES, names)
        judgement = judge(record, slo_class, policy_statuses=frozenset({402}))
        name = slo_class.name if slo_class else NO_CLASS
        wanted[served, name, judgement.verdict] += 1
    counted = {
        (*key, verdict): number
        for key, row in totals.rows.items()
        for verdict, number in (
            (Verdict.GOOD, row.good),
            (Verdict.BAD, row.bad),
            (Verdict.UNEVALUABLE, row.unevaluable),
            (Verdict.EXCLUDED, row.excluded),
        )
        if number
    }
    assert counted == wanted
    assert {name for _, name in totals.rows} == {
        "long",
        "high",
        "short",
        "free",
        "none",
    }


def test_many_at_once_count_as_each_by_a_counter_of_its_own() -> None:
    """Counters, reasons and histograms, to the last bit of their sums."""
    records = some_records()[:600]
    together, apart = RequestTotals(), RequestTotals()
    found = counter(together)
    for begin in range(0, len(records), 70):
        found.count(records[begin : begin + 70], AT)
    for record in records:
        counter(apart).count([record], AT)
    assert together == apart


def test_a_model_whose_requests_all_failed_claims_no_place() -> None:
    """Its first request that did not fail does, and later failures are then its own."""
    cap, totals = LabelCap(1), RequestTotals()
    found = counter(totals, cap.admit, cap.known)
    failed = RequestRecord(model="m", status=503, outcome=Outcome.HTTP_ERROR)
    found.count([failed, failed, RequestRecord(model="m"), failed], AT)
    found.count([RequestRecord(model="late"), RequestRecord(model="late")], AT)
    requests = {model: row.requests for (model, _), row in totals.rows.items()}
    assert requests == {OTHER: 4.0, "m": 2.0}
    assert cap.take_dropped() == 4


def test_kinds_that_are_remembered_are_bounded() -> None:
    """However many tenants there are, and however long their names."""
    totals = RequestTotals()
    found = counter(totals)
    for begin in range(0, 2 * MAX_KINDS, 1000):
        tenants = range(begin, begin + 1000)
        found.count([RequestRecord(tenant=str(t), model="m") for t in tenants], AT)
        assert len(found._kinds) <= MAX_KINDS
    found._kinds.clear()
    found.count([RequestRecord(tenant="t" * MAX_KIND_LENGTH, model="m")], AT)
    assert not found._kinds
    assert sum(row.requests for row in totals.rows.values()) == begin + 1001


def test_requests_after_a_reload_go_to_the_new_classes_and_histograms() -> None:
    """What was remembered under the configuration before does not count on."""
    flow = LogFlow(EDGE, CONFIG)
    line = unpacked("envoy")[0]
    flow.take([line], AT)
    other = CLASSES.replace("ttft: 1s", "ttft: 17ms").replace("tpot: 15ms", "e2e: 2s")
    flow.configure(EDGE, parse_config(other))
    flow.take([line, line], AT)
    [row] = [row for row in flow.totals.rows.values() if row.requests]
    assert row.requests == 3.0
    assert row.latencies["e2e"].histogram().count == 3.0
    assert 0.017 in row.latencies["ttft"].bounds


def test_a_name_that_becomes_an_alias_counts_for_the_served_model() -> None:
    """From the next lines on; engines tell their names when they are reached."""
    served: dict[str, str] = {}
    flow = LogFlow(EDGE, CONFIG, aliases=lambda: dict(served))
    line = unpacked("envoy")[0]
    flow.take([line], AT)
    [model] = {model for (model, _), row in flow.totals.rows.items() if row.requests}
    served[model] = "base"
    flow.take([line], AT)
    models = {model for (model, _), row in flow.totals.rows.items() if row.requests}
    assert models == {model, "base"}

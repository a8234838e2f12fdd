"""One engine followed over pages: stale gauges, failures and damage, classes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from watched_engine import (
    BORN,
    CONFIG,
    SOURCE,
    Engine,
    flow,
    observe,
    pulse,
    state,
    total,
)

from analyzer.catalogue import SCRAPE_FAILURES
from analyzer.config import Config, parse_config
from analyzer.engines.served import served_models
from analyzer.flow import EngineFlow
from analyzer.heartbeat import Pulse
from analyzer.slo_rows import slo_rows
from analyzer.snapshot import Reset


def test_gauges_are_stale_before_the_first_page_and_without_later_ones() -> None:
    """Three intervals, at least ten seconds, and the time-out are believed."""
    followed = flow()
    assert followed.stale(2000.0) == "no page read yet"
    observe(followed, Engine(running=2.0).page(), 2000.0)
    assert followed.stale(2000.0) == ""
    followed.fail("timeout", 2010.0, seconds=5.0)
    assert followed.stale(2015.0) == ""
    assert followed.stale(2016.0) == "last page is 16 s old"
    slow = flow(source=replace(SOURCE, interval=20.0))
    observe(slow, Engine().page(), 2000.0)
    assert slow.stale(2065.0) == ""
    assert slow.stale(2066.0) == "last page is 66 s old"


def test_frozen_gauges_are_stale_and_enter_no_distribution() -> None:
    """Everybody left, old engines keep showing them: no load, and no stall."""
    followed = flow()
    engine = Engine(running=4.0, waiting=1.0, kv=0.99)
    engine.finish()
    observe(followed, engine.page(), 2000.0)
    engine.tokens += 10
    observe(followed, engine.page(), 2002.0)
    engine.answered += 5  # five answers end, and the engine finishes none
    for at in range(2004, 2060, 2):
        observe(followed, engine.page(), float(at))
    assert pulse(followed) is Pulse.FROZEN
    assert state(followed, 2058.0) == "serving"
    assert followed.stale(2058.0) == (
        "gauges are frozen: the requests they show have gone"
    )
    samples = followed.ledger.histograms["goodput_engine_kv_cache_usage_samples"]
    assert samples[("m",)].count == 6  # 2000, 2002 … 2010, and none from 2012 on
    engine.running, engine.waiting, engine.kv = 1.0, 0.0, 0.1
    engine.tokens += 1
    observe(followed, engine.page(), 2060.0)
    assert pulse(followed) is Pulse.MOVING
    assert followed.stale(2060.0) == ""


def test_only_ticks_enter_distributions_but_every_page_the_maximum() -> None:
    """Scrapes of ours come at any rate; the timer's samples are evenly spaced."""
    followed = flow()
    observe(followed, Engine(kv=0.5).page(), 2000.0)
    observe(followed, Engine(kv=0.97).page(), 2001.0, tick=False)
    observe(followed, Engine(kv=0.4).page(), 2002.0)
    samples = followed.ledger.histograms["goodput_engine_kv_cache_usage_samples"]
    assert samples[("m",)].count == 2
    assert followed.kv_peak("m", "0", 2030.0) == 0.97
    assert followed.kv_peak("m", "0", 2061.5) == 0.4
    assert followed.kv_peak("m", "0", 2070.0) is None
    assert followed.kv_peak("m", "1", 2002.0) is None


# Failures and damage, counted.


def test_every_failure_is_counted_by_its_reason() -> None:
    """All reasons exist at 0 before the first scrape."""
    followed = flow()
    rows = dict(followed.ledger.rows("goodput_target_scrape_failures_total"))
    assert rows == {("engine", reason): 0.0 for reason in SCRAPE_FAILURES}
    for number, reason in enumerate(SCRAPE_FAILURES, 1):
        for _ in range(number):
            followed.fail(reason, 2000.0, seconds=0.1, detail="why")
    rows = dict(followed.ledger.rows("goodput_target_scrape_failures_total"))
    expected = {("engine", r): float(n) for n, r in enumerate(SCRAPE_FAILURES, 1)}
    assert rows == expected
    assert total(followed, "target_scrapes", "engine") == sum(expected.values())
    assert followed.attempt is not None
    assert followed.attempt.detail == "why"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not_an_exposition"),
        ("<html><body>Welcome to nginx!</body></html>\n", "not_an_exposition"),
        ('{"detail":"Not Found"}\n', "not_an_exposition"),
        ("# HELP a b\n", "not_an_exposition"),
        ("node_load1 0.5\n", "no_engine_metrics"),
        ("process_start_time_seconds 1795961216.45\n", "no_engine_metrics"),
        (Engine(tokens=5).page()[:-20], "connection"),
    ],
)
def test_a_page_that_is_no_engines_is_a_failure_and_costs_nothing(
    text: str, reason: str
) -> None:
    """Totals and the remembered page stay; the next good page goes on from there."""
    followed = flow()
    engine = Engine(tokens=500)
    observe(followed, engine.page(), 2000.0)
    assert observe(followed, text, 2002.0) is None
    assert total(followed, "target_scrape_failures", "engine", reason) == 1
    assert followed.attempt is not None
    assert followed.attempt.reason == reason
    engine.tokens = 530
    observe(followed, engine.page(), 2004.0)
    assert total(followed, "engine_generation_tokens", "m") == 30
    assert total(followed, "target_scrapes", "engine") == 3


def test_an_empty_openmetrics_page_is_an_engine_without_series_yet() -> None:
    """Some engines print a series only once it has moved."""
    followed = flow()
    assert observe(followed, "# EOF\n", 2000.0) is not None
    assert followed.state(2000.0) == ("serving", "no series yet")


def test_damaged_lines_and_impossible_sums_are_counted() -> None:
    """One bad line costs one line; a sum that cannot be is held, and told."""
    followed = flow()
    engine = Engine()
    engine.finish(2)
    observe(followed, engine.page(), 2000.0)
    engine.finish(3)
    page = engine.page().replace(f"{sum(engine.e2e)}", "123456789.0")
    observe(followed, page + "garbage\nmore garbage\n", 2002.0)
    assert total(followed, "target_damaged_lines", "engine") == 2
    assert [error.excerpt for error in followed.damaged] == ["garbage", "more garbage"]
    assert total(followed, "target_sum_anomalies", "engine") == 1
    e2e = followed.ledger.histograms["goodput_engine_e2e_seconds"][("m",)]
    assert e2e.count == 3
    assert e2e.sum < 30


def test_resets_are_counted_by_kind() -> None:
    """A restart, a single series, and an older process behind the same address."""
    followed = flow()
    rows = dict(followed.ledger.rows("goodput_target_resets_total"))
    assert rows == {
        ("engine", kind): 0.0 for kind in ("restart", "series", "other_process")
    }
    observe(followed, Engine(tokens=500).page(), 2000.0)
    observe(followed, Engine(tokens=40).page(), 2002.0)
    observe(followed, Engine(tokens=7, started=2003.0).page(), 2010.0)
    observe(followed, Engine(tokens=900).page(), 2012.0)
    rows = dict(followed.ledger.rows("goodput_target_resets_total"))
    assert set(rows.values()) == {1.0}
    assert total(followed, "engine_generation_tokens", "m") == 47


def test_an_engine_that_starts_under_watch_has_had_no_reset() -> None:
    """Its first page is all new; nothing was there to begin anew."""
    followed = flow(since=BORN - 10)
    engine = Engine()
    engine.finish(3)
    grown = observe(followed, engine.page(), 2000.0)
    assert grown is not None
    assert grown.reset is Reset.NONE
    assert total(followed, "engine_generation_tokens", "m") == 30
    assert total(followed, "target_resets", "engine", "restart") == 0


# Classes and configuration.


def criterion(followed: EngineFlow, name: str, slo_class: str) -> float | None:
    """Returns the events of a criterion of model m."""
    return total(followed, "engine_criterion_events", "m", slo_class, name)


def test_rows_of_a_class_that_is_gone_go_with_it() -> None:
    """A reload renames the class: the old one's counters end, the engine's go on."""
    followed = flow()
    engine = Engine()
    observe(followed, engine.page(), 2000.0)
    engine.finish(4)
    observe(followed, engine.page(), 2002.0)
    assert criterion(followed, "ttft", "fast") == 4
    p95 = ("m", "fast", "ttft", "p95")
    assert total(followed, "engine_percentile_events", *p95) == 4
    renamed = parse_config(
        "slo_classes: [{name: quick, good: {ttft: 500ms}, objective: 0.9}]"
    )
    followed.configure(SOURCE, renamed, at=2003.0)
    assert criterion(followed, "ttft", "fast") is None
    assert total(followed, "engine_percentile_events", *p95) is None
    engine.finish(3)
    observe(followed, engine.page(), 2004.0)
    assert criterion(followed, "ttft", "quick") == 3
    assert total(followed, "engine_generation_tokens", "m") == 70


def test_rows_of_a_criterion_that_is_gone_go_with_it() -> None:
    """And so does what it said: a bound that waits for its events would stay 0."""
    followed = flow()
    engine = Engine()
    observe(followed, engine.page(), 2000.0)
    engine.finish(4)
    observe(followed, engine.page(), 2002.0)
    fewer = parse_config(
        "slo_classes: [{name: fast, good: {e2e: 2500ms}, objective: 0.9, "
        "percentiles: {ttft: {p50: 100ms}}}]"
    )
    followed.configure(SOURCE, fewer, at=2003.0)
    engine.finish(3)
    observe(followed, engine.page(), 2004.0)
    rows = followed.ledger.rows
    levels = dict(rows("goodput_engine_percentile_events_total"))
    assert levels == {("m", "fast", "ttft", "p50"): 3.0}
    events = dict(rows("goodput_engine_criterion_events_total"))
    assert events == {("m", "fast", "e2e"): 7.0}
    for seconds in (60.0, None):
        (row,) = slo_rows([followed], [], 2004.0, seconds)
        assert (row["bounds"], list(row["criteria"])) == ([1.0, 1.0], ["e2e"])


def test_another_address_is_another_engine() -> None:
    """Its first page is a baseline, however much it has counted."""
    followed = flow()
    observe(followed, Engine(tokens=500).page(), 2000.0)
    moved = replace(SOURCE, url="http://other:8000/metrics")
    followed.configure(moved, CONFIG, at=2001.0)
    observe(followed, Engine(tokens=90_000).page(), 2002.0)
    observe(followed, Engine(tokens=90_005).page(), 2004.0)
    assert total(followed, "engine_generation_tokens", "m") == 5


def test_names_that_the_engine_tells_find_its_class() -> None:
    """A class for an alias or adapter judges the model that serves it."""
    only_alias = Config(slo_classes=CONFIG.slo_classes[1:])
    followed = EngineFlow(SOURCE, only_alias, since=2000.0)
    assert followed.class_of("m") == (None, "no class matches this model")
    body = b'{"data":[{"id":"m","root":"/w"},{"id":"gold","root":"/w"}]}'
    followed.learn(served_models(body))
    found, reason = followed.class_of("m")
    assert found is not None
    assert (found.name, reason) == ("alias", "")


def test_a_flow_goes_on_from_what_another_remembered() -> None:
    """Totals and the last page outlive the process: nothing counts twice or is lost."""
    first = flow()
    engine = Engine()
    observe(first, engine.page(), 2000.0)
    engine.finish(5)
    observe(first, engine.page(), 2002.0)
    engine.finish(2)
    second = EngineFlow(SOURCE, CONFIG, since=2050.0, memory=first.memory)
    observe(second, engine.page(), 2052.0)
    assert criterion(second, "e2e", "fast") == 7
    assert total(second, "engine_generation_tokens", "m") == 70

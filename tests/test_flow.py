"""One engine followed over pages and failures: states, totals, stale gauges."""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest
from episodes import DIRECTORY
from watched_engine import observe

from analyzer.catalogue import SCRAPE_FAILURES
from analyzer.config import Config, parse_config
from analyzer.config_sources import EngineSource
from analyzer.engines.served import served_models
from analyzer.flow import EngineFlow
from analyzer.heartbeat import Pulse
from analyzer.replay import replay
from analyzer.snapshot import Reset
from analyzer.sources.recording import Scrape, read_scrapes

PAGES = Path(__file__).parent / "fixtures" / "vllm"
SOURCE = EngineSource(
    "e", "http://engine:8000/metrics", interval=2.0, timeout=5.0, stall_grace=30.0
)
CONFIG = parse_config(
    """
slo_classes:
  - {name: fast, match: {model: "m"}, good: {ttft: 500ms, e2e: 2500ms}, objective: 0.9}
  - {name: alias, match: {model: "gold"}, good: {ttft: 1s}, objective: 0.9}
"""
)
BOUNDS = (0.5, 2.5, 10.0)
LABELS = 'engine="0",model_name="m"'
BORN = 1000.0


@dataclass
class Engine:
    """What an engine has counted, and how its page looks."""

    started: float = BORN
    tokens: int = 0
    running: float = 0.0
    waiting: float = 0.0
    kv: float = 0.0
    awake: int = 1
    answered: int = 0
    failed: int = 0
    rejected: int = 0
    ttft: list[float] = field(default_factory=list)
    e2e: list[float] = field(default_factory=list)
    prefill: list[float] = field(default_factory=list)

    def finish(self, number: int = 1, *, ttft: float = 0.2, e2e: float = 1.0) -> None:
        """Finishes and answers requests of ten tokens."""
        self.tokens += 10 * number
        self.answered += number
        self.ttft += [ttft] * number
        self.e2e += [e2e] * number
        self.prefill += [ttft / 2] * number

    def page(self) -> str:
        """Returns the exposition."""
        http = 'http_requests_total{handler="/v1/completions",method="POST",status='
        refused = 'vllm:admission_rejections_total{model_name="m",reason="x"}'
        lines = [
            f"process_start_time_seconds {self.started}",
            f"vllm:num_requests_running{{{LABELS}}} {self.running}",
            f"vllm:num_requests_waiting{{{LABELS}}} {self.waiting}",
            f"vllm:kv_cache_usage_perc{{{LABELS}}} {self.kv}",
            f'vllm:engine_sleep_state{{{LABELS},sleep_state="awake"}} {self.awake}',
            f"vllm:generation_tokens_total{{{LABELS}}} {self.tokens}",
            f"{refused} {self.rejected}",
            f'{http}"2xx"}} {self.answered}',
            f'{http}"5xx"}} {self.failed}',
        ]
        for name, values in (
            ("time_to_first_token_seconds", self.ttft),
            ("e2e_request_latency_seconds", self.e2e),
            ("request_prefill_time_seconds", self.prefill),
        ):
            for bound in (*BOUNDS, float("inf")):
                count = sum(value <= bound for value in values)
                le = "+Inf" if bound > BOUNDS[-1] else bound
                lines.append(f'vllm:{name}_bucket{{{LABELS},le="{le}"}} {count}')
            lines.append(f"vllm:{name}_sum{{{LABELS}}} {sum(values)}")
        return "\n".join(lines) + "\n"


def flow(*, source: EngineSource = SOURCE, since: float = BORN + 100) -> EngineFlow:
    """Returns a flow whose watch begins after the engine did."""
    return EngineFlow(source, CONFIG, since=since)


def state(followed: EngineFlow, at: float) -> str:
    """Returns the state without its sentence."""
    return followed.state(at)[0]


def pulse(followed: EngineFlow) -> Pulse:
    """Returns the pulse of the latest page."""
    return followed.pulse


def total(followed: EngineFlow, name: str, *labels: str) -> float | None:
    """Returns a counter of the ledger."""
    return followed.ledger.counter(f"goodput_{name}_total", labels)


def real_page(name: str) -> str:
    """Returns a real page of vLLM 0.32.0."""
    return gzip.decompress((PAGES / f"{name}.prom.gz").read_bytes()).decode()


# States.


def test_an_engine_is_starting_until_its_grace_is_over() -> None:
    """Whatever fails, it may still be loading its weights; then it is down."""
    followed = flow(source=replace(SOURCE, startup_grace=600.0), since=2000.0)
    assert followed.state(2000.0) == ("starting", "no answer yet: not scraped yet")
    for at in range(2000, 2640, 40):
        followed.fail("refused", float(at), seconds=0.1)
        expected = "starting" if at <= 2600 else "down"
        assert state(followed, float(at)) == expected, at
    assert followed.state(2620.0) == ("down", "no answer for 620 s: refused")
    observe(followed, Engine().page(), 2700.0)
    assert followed.state(2700.0) == ("serving", "")


def test_a_refused_connection_after_serving_is_down_at_once() -> None:
    """Nobody listens any more: that is no hiccup."""
    followed = flow()
    observe(followed, Engine().page(), 2000.0)
    followed.fail("refused", 2002.0, seconds=0.1)
    assert followed.state(2002.0) == ("down", "failing for 0 s: refused")
    observe(followed, Engine().page(), 2004.0)
    assert state(followed, 2004.0) == "serving"


@pytest.mark.parametrize("reason", ["timeout", "connection", "http_status", "dns"])
def test_a_lone_failure_does_not_flip_the_state(reason: str) -> None:
    """Only ten seconds of failures in a row do; one page in between begins anew."""
    followed = flow()
    engine = Engine()
    observe(followed, engine.page(), 2000.0)
    for at in (2002.0, 2010.0):
        followed.fail(reason, at, seconds=5.0)
        assert state(followed, at) == "serving"
    observe(followed, engine.page(), 2011.0)
    for at in (2013.0, 2022.0):
        followed.fail(reason, at, seconds=5.0)
        assert state(followed, at) == "serving"
    followed.fail(reason, 2023.0, seconds=5.0)
    assert followed.state(2023.0) == ("down", f"failing for 10 s: {reason}")
    assert followed.liveness.gaps == 2


def test_statistics_switched_off_are_a_state_of_their_own() -> None:
    """An API server without engine series is neither idle nor down."""
    followed = flow()
    assert observe(followed, real_page("stats-disabled"), 2000.0) is not None
    assert state(followed, 2000.0) == "stats_disabled"
    assert followed.ranks() == ()
    assert total(followed, "target_scrapes", "engine") == 1


def test_an_engine_is_asleep_when_every_rank_is() -> None:
    """One rank awake serves; without the series nothing is known of sleep."""
    followed = flow()
    engine = Engine(awake=0)
    observe(followed, engine.page(), 2000.0)
    assert state(followed, 2000.0) == "sleeping"
    other = engine.page().replace('engine="0"', 'engine="1"')
    awake = other.replace('sleep_state="awake"} 0', 'sleep_state="awake"} 1')
    observe(followed, engine.page() + awake, 2002.0)
    assert state(followed, 2002.0) == "serving"
    observe(followed, re.sub(r"vllm:engine_sleep.*\n", "", engine.page()), 2004.0)
    assert state(followed, 2004.0) == "serving"


def test_an_engine_without_progress_is_stalled_after_its_grace() -> None:
    """Work on the gauges and no counter that moves; the sentence says how long."""
    followed = flow()
    engine = Engine(running=2.0, tokens=500)
    observe(followed, engine.page(), 2000.0)
    engine.tokens += 1
    for at in (2010.0, 2020.0, 2040.0):
        observe(followed, engine.page(), at)
        assert state(followed, at) == "serving"
    observe(followed, engine.page(), 2042.0)
    assert followed.state(2042.0) == (
        "stalled",
        "requests present, no counter moved for 32 s",
    )
    engine.tokens += 1
    observe(followed, engine.page(), 2044.0)
    assert state(followed, 2044.0) == "serving"


def test_a_hung_engine_that_refuses_new_requests_is_stalled() -> None:
    """The API server's answers and refusals go on; they are no progress."""
    followed = flow()
    engine = Engine(running=2.0, waiting=5.0)
    for at in range(2000, 2040, 2):
        engine.rejected += 3
        engine.answered += 1  # a client that left is answered with 200
        observe(followed, engine.page(), float(at))
    assert state(followed, 2038.0) == "stalled"
    assert total(followed, "engine_rejected_requests", "m", "x") == 57


def test_a_lone_long_prompt_is_no_stall() -> None:
    """Its prefill moves no counter; earlier prefills of that length are patience."""
    followed = flow()
    engine = Engine()
    engine.finish(10, ttft=16.0, e2e=20.0)
    engine.prefill = [9.0] * 10  # in the bucket up to ten seconds, p99 at most 10 s
    observe(followed, engine.page(), 2000.0)
    assert state(followed, 5600.0) == "serving"
    engine.running = 1.0
    for at in (5602.0, 5620.0):
        observe(followed, engine.page(), at)
        assert state(followed, at) == "serving"
    impatient = replace(SOURCE, stall_grace=12.0)
    followed.configure(impatient, CONFIG, at=5621.0)
    observe(followed, engine.page(), 5622.0)
    assert state(followed, 5622.0) == "serving"  # 20 s after 5602: twice 10 s
    observe(followed, engine.page(), 5623.0)
    assert state(followed, 5623.0) == "stalled"


def test_an_engine_that_drains_is_neither_stalled_nor_down() -> None:
    """New prompts get 500 while those in work go on; then the process goes."""
    followed = flow()
    engine = Engine(running=3.0)
    engine.finish(5)
    observe(followed, engine.page(), 2000.0)
    engine.failed += 2
    engine.tokens += 30
    observe(followed, engine.page(), 2002.0)
    assert state(followed, 2002.0) == "draining"
    followed.fail("refused", 2004.0, seconds=0.1)
    assert state(followed, 2004.0) == "draining"
    assert state(followed, 2065.0) == "down"
    observe(followed, Engine(started=2050.0).page(), 2070.0)
    assert state(followed, 2070.0) == "serving"


# Gauges that no longer count.


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
    renamed = parse_config(
        "slo_classes: [{name: quick, good: {ttft: 500ms}, objective: 0.9}]"
    )
    followed.configure(SOURCE, renamed, at=2003.0)
    assert criterion(followed, "ttft", "fast") is None
    engine.finish(3)
    observe(followed, engine.page(), 2004.0)
    assert criterion(followed, "ttft", "quick") == 3
    assert total(followed, "engine_generation_tokens", "m") == 70


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


# A real restart.

START = re.compile(r"^process_start_time_seconds (\S+)$", re.MULTILINE)
COUNTERS = {
    "generation_tokens": r"^vllm:generation_tokens_total\{.*\} (\S+)$",
    "preemptions": r"^vllm:num_preemptions_total\{.*\} (\S+)$",
    "finished:length": r'^vllm:request_success_total\{.*"length".*\} (\S+)$',
    "finished:stop": r'^vllm:request_success_total\{.*"stop".*\} (\S+)$',
    "prompt:computed": r"^vllm:prompt_tokens_by_source_total\{.*compute.*\} (\S+)$",
    "ttft count": r"^vllm:time_to_first_token_seconds_count\{.*\} (\S+)$",
    "ttft sum": r"^vllm:time_to_first_token_seconds_sum\{.*\} (\S+)$",
}


def restart_totals(scrapes: list[Scrape]) -> dict[str, float]:
    """Adds up each line's growth from the raw text; another start counts from 0."""
    pages = [scrape.text for scrape in scrapes if scrape.text is not None]
    found = dict.fromkeys(COUNTERS, 0.0)
    for before, after in pairwise(pages):
        anew = START.findall(before) != START.findall(after)
        for name, pattern in COUNTERS.items():
            (past,) = re.findall(pattern, before, re.MULTILINE)
            (value,) = re.findall(pattern, after, re.MULTILINE)
            found[name] += float(value) - (0.0 if anew else float(past))
    return found


@pytest.fixture(scope="module")
def recorded() -> list[Scrape]:
    """The scrapes around a kill and restart of a real vLLM 0.32.0."""
    return list(read_scrapes(DIRECTORY / "restart-a"))


def test_a_recorded_restart_gives_exact_totals(recorded: list[Scrape]) -> None:
    """Every counter at the end is what the raw lines add up to."""
    found = replay(recorded, CONFIG)
    assert found is not None
    followed, _ = found
    model = followed.reading.models[0] if followed.reading else ""
    expected = restart_totals(recorded)
    ttft = followed.ledger.histograms["goodput_engine_ttft_seconds"][(model,)]
    assert {
        "generation_tokens": total(followed, "engine_generation_tokens", model),
        "preemptions": total(followed, "engine_preemptions", model),
        "finished:length": total(followed, "engine_finished_requests", model, "length"),
        "finished:stop": total(followed, "engine_finished_requests", model, "stop"),
        "prompt:computed": total(
            followed, "engine_prompt_tokens", model, "local_compute"
        ),
        "ttft count": ttft.count,
        "ttft sum": pytest.approx(ttft.sum),
    } == {name: pytest.approx(value) for name, value in expected.items()}
    assert expected["finished:length"] > 20
    assert total(followed, "target_resets", "engine", "restart") == 1
    assert total(followed, "target_resets", "engine", "series") == 0
    assert total(followed, "target_sum_anomalies", "engine") == 0


def test_a_recorded_restart_is_down_once_and_serves_again(
    recorded: list[Scrape],
) -> None:
    """From the first refused scrape to the next page, and no moment more."""
    seen: list[tuple[bool, str]] = []
    followed = EngineFlow(SOURCE, CONFIG, since=recorded[0].at)
    for scrape in recorded:
        if scrape.text is None:
            followed.fail("refused", scrape.at, seconds=scrape.seconds)
        else:
            observe(followed, scrape.text, scrape.at, seconds=scrape.seconds)
        seen.append((scrape.text is not None, state(followed, scrape.at)))
    assert set(seen) == {(True, "serving"), (False, "down")}
    assert followed.liveness.gaps == 1


def test_a_sparser_sampling_of_the_restart_loses_only_what_it_never_saw(
    recorded: list[Scrape],
) -> None:
    """Every seventh scrape: less by what the first process did after its last page."""
    sparse = [*recorded[::7], recorded[-1]]
    found = replay(sparse, CONFIG)
    dense = replay(recorded, CONFIG)
    assert found is not None
    assert dense is not None
    pages = [s for s in recorded if s.text is not None]
    first = START.findall(pages[0].text or "")
    old = [s for s in pages if START.findall(s.text or "") == first]
    seen = [s for s in sparse if s in old]
    lost = restart_totals([seen[-1], old[-1]])
    name, labels = "goodput_engine_generation_tokens_total", ("demo-small",)
    fewer = found[0].ledger.counter(name, labels)
    all_of_them = dense[0].ledger.counter(name, labels)
    assert fewer is not None
    assert all_of_them is not None
    assert seen[-1] != old[-1]
    assert all_of_them - fewer == lost["generation_tokens"] > 0


def _drain_page(*, refused: int, tokens: int, first_tokens: int, running: int) -> str:
    """Returns a page with answers refused on a generation route so far."""
    labels = '{engine="0",model_name="m"}'
    return (
        f"vllm:num_requests_running{labels} {running}.0\n"
        f"vllm:num_requests_waiting{labels} 0.0\n"
        f"vllm:generation_tokens_total{labels} {tokens}.0\n"
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} '
        f"{first_tokens}.0\n"
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0",model_name="m"} '
        f"{first_tokens}.0\n"
        f"vllm:time_to_first_token_seconds_count{labels} {first_tokens}.0\n"
        'http_requests_total{handler="/v1/completions",method="POST",status="5xx"} '
        f"{refused}.0\n"
    )


def _drain_flow() -> EngineFlow:
    config = parse_config('engines: [{name: e, url: "http://e/metrics"}]')
    return EngineFlow(config.engines[0], config, since=0.0)


def test_an_engine_that_refuses_new_requests_and_finishes_old_ones_is_draining() -> (
    None
):
    """Answers of 500, no first token, tokens that go on: a drain, and then it went."""
    flow = _drain_flow()
    observe(flow, _drain_page(refused=0, tokens=10, first_tokens=4, running=4), 1.0)
    observe(flow, _drain_page(refused=3, tokens=20, first_tokens=4, running=4), 2.0)
    assert flow.state(2.0)[0] == "draining"
    flow.fail("refused", 5.0, seconds=0.0)
    assert flow.state(5.0)[0] == "draining"
    flow.fail("refused", 90.0, seconds=0.0)
    assert flow.state(90.0)[0] == "down"


def test_one_refused_answer_is_no_drain_for_long() -> None:
    """The next first token, or a minute without refusals, ends it."""
    flow = _drain_flow()
    observe(flow, _drain_page(refused=0, tokens=10, first_tokens=4, running=4), 1.0)
    observe(flow, _drain_page(refused=1, tokens=20, first_tokens=4, running=4), 2.0)
    assert flow.state(2.0)[0] == "draining"
    observe(flow, _drain_page(refused=1, tokens=30, first_tokens=5, running=4), 3.0)
    assert flow.state(3.0)[0] == "serving"
    observe(flow, _drain_page(refused=2, tokens=40, first_tokens=5, running=0), 4.0)
    observe(flow, _drain_page(refused=2, tokens=40, first_tokens=5, running=0), 100.0)
    assert flow.state(100.0)[0] == "serving"


def test_a_hung_engine_that_answers_500_is_stalled_not_draining() -> None:
    """Refusals count for a drain only while the requests in work go on."""
    flow = _drain_flow()
    observe(flow, _drain_page(refused=0, tokens=10, first_tokens=4, running=4), 1.0)
    for second in range(2, 60):
        page = _drain_page(refused=second, tokens=10, first_tokens=4, running=4)
        observe(flow, page, float(second))
    assert flow.state(59.0)[0] == "stalled"

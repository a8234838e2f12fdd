"""The states of an engine over its pages and failures."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from watched_engine import (
    CONFIG,
    SOURCE,
    Engine,
    flow,
    observe,
    real_page,
    state,
    total,
)

from analyzer.config import parse_config
from analyzer.flow import EngineFlow


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

"""What a request log says of a trailing window, and its rows in the document."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from status_page import both, log_lines, logged, make_log, replayed, scrapes

from analyzer.config import Config, parse_config
from analyzer.document import document
from analyzer.logflow import Counts, LogFlow

AT = 1_800_000_000.0
CUSTOM = """, format: custom, fields: {status: status, model: model, stream: stream,
  outcome: outcome, ttft: {key: ttft, unit: s}, tpot: {key: tpot, unit: s},
  e2e: {key: e2e, unit: s}}"""
KEY = ("m", "interactive")


def line(**given: object) -> bytes:
    """Returns the line of a good request, or of what is given instead."""
    good = {"status": 200, "model": "m", "stream": True, "outcome": "ok"}
    times = {"ttft": 0.1, "tpot": 0.01, "e2e": 1.0}
    return json.dumps({**good, **times, **given}).encode()


def custom(**given: str) -> LogFlow:
    """Returns the flow of a custom log that has read nothing."""
    return make_log(more=CUSTOM, **given)


def over(flow: LogFlow, seconds: float, at: float) -> Counts:
    """Returns the window of the one model and class of these tests."""
    return flow.over(seconds, at).get(KEY, Counts())


def test_the_first_requests_of_a_log_are_in_its_window() -> None:
    """A log that began without any row counts what came before its second mark."""
    flow = custom()
    flow.mark(AT)
    flow.take([line(), line(ttft=9)], AT + 5)
    flow.mark(AT + 12)
    flow.take([line()], AT + 13)
    assert over(flow, 300, AT + 14).requests == 3
    assert over(flow, 300, AT + 14).misses["ttft"] == 1
    assert flow.covered(300, AT + 14) == 14


def test_a_window_covers_no_more_than_it_says() -> None:
    """With an hour of marks the last 5 min are counted, to the spacing of marks."""
    flow = custom()
    for minute in range(70):
        flow.take([line()], AT + 60 * minute)
        flow.mark(AT + 60 * minute)
    at = AT + 60 * 69
    assert over(flow, 300, at).requests == 5
    assert flow.covered(300, at) == 300
    assert 3600 <= flow.covered(10_000, at) < 3700


def test_nothing_is_known_before_the_first_mark() -> None:
    """Totals of before a restart are not of the last minutes."""
    before = custom()
    before.take([line()] * 50, AT)
    flow = custom()
    after = LogFlow(flow.source, _config(), totals=before.totals)
    assert over(after, 300, AT + 1).requests == 0
    assert after.covered(300, AT + 1) == 0
    after.mark(AT + 2)
    after.take([line()], AT + 3)
    assert over(after, 300, AT + 3).requests == 1


def _config() -> Config:
    """Returns a configuration with the class of these tests."""
    return parse_config("slo_classes: [{preset: chat, name: interactive}]")


def test_marks_in_the_future_are_forgotten() -> None:
    """After a clock was set back, windows begin at marks of the time it shows now."""
    flow = custom()
    flow.mark(AT)
    flow.take([line()], AT)
    flow.mark(AT + 1000)
    flow.mark(AT - 500)
    flow.take([line()], AT - 499)
    assert over(flow, 300, AT - 498).requests == 1
    assert flow.covered(300, AT - 498) == 2


def test_a_window_has_the_reasons_of_its_own_requests() -> None:
    """Misses, exclusions and what was not known are of the window, as counts are."""
    flow = custom()
    flow.mark(AT)
    old = [line(status=404), line(ttft=None, stream=False), line(status=503)]
    flow.take(old, AT + 1)
    flow.mark(AT + 100)
    flow.take(
        [
            line(status=400),
            line(outcome="client_abort", ttft=None, tpot=None, e2e=0.2),
            line(outcome="client_abort", ttft=None, tpot=None, e2e=20),
            line(ttft=None, tpot=None, stream=False),
            line(tpot=None),
        ],
        AT + 101,
    )
    found = over(flow, 60, AT + 160)
    assert (found.requests, found.good, found.bad, found.unevaluable) == (3, 0, 1, 2)
    assert _positive(found.misses) == {"ttft": 1, "e2e": 1, "abort": 1}
    assert _positive(found.excluded_for) == {"caller_error": 1, "client_abort": 1}
    assert _positive(found.unevaluable_for) == {"ttft, tpot": 1, "tpot": 1}
    assert found.unstreamed == 1


def _positive(counts: Mapping[str, float]) -> dict[str, float]:
    return {reason: number for reason, number in counts.items() if number}


def test_an_exact_row_has_its_own_time_and_the_engines_beside_it() -> None:
    """`seconds` is what the log covers, and the engine's figures keep their own."""
    engine, at = replayed("mixed-a")
    log = logged("mixed-a", since=at - 40, at=at)
    (row,) = document([engine], at, logs=[log], seconds=300)["slo"]
    assert row["seconds"] == 40
    assert row["engine_seconds"] == 70
    assert row["engine_total"] == 95
    lines = [end for end, _ in log_lines("mixed-a") if at - 40 < end <= at]
    assert row["total"] + row["excluded"] == len(lines)
    assert row["total"] < 95
    assert sum(row["excluded_for"].values()) == row["excluded"] > 0
    assert row["unevaluable_for"] == {"ttft, tpot": row["unevaluable"]}
    assert row["unevaluable_unstreamed"] == row["unevaluable"] > 0
    assert row["thresholds"]["tpot"]["seconds"] == 0.05


def test_two_logs_add_up() -> None:
    """Counts and reasons of a class and model are summed over the logs."""
    engine, log, at = both("mixed-a")
    one = document([engine], at, logs=[log], seconds=300)["slo"][0]
    two = document([engine], at, logs=[log, log], seconds=300)["slo"][0]
    for key in ("total", "good", "bad", "excluded", "unevaluable"):
        assert two[key] == 2 * one[key]
    assert two["excluded_for"] == {r: 2 * n for r, n in one["excluded_for"].items()}
    assert two["bounds"] == one["bounds"]
    assert two["seconds"] == one["seconds"]


def test_a_log_that_was_left_by_everybody_does_not_hide_the_engines_bounds() -> None:
    """With excluded requests only, the row is the engine's, and says how many."""
    engine, at = replayed("kv-a")
    log = make_log(more=CUSTOM)
    log.mark(at - 5)
    log.take([line(model="demo-small", status=404)], at - 1)
    (row,) = document([engine], at, logs=[log], seconds=300)["slo"]
    assert row["source"] == "engine"
    assert row["bounds"][1] < 0.3
    assert row["excluded_for"] == {"caller_error": 1}


@pytest.mark.parametrize("seconds", [300.0, None])
def test_a_class_without_requests_has_a_row_in_windows(seconds: float | None) -> None:
    """Live, silence of an expected class shows; a recording lists what it holds."""
    log = custom(match="model: m")
    log.mark(AT)
    found = document([], AT + 20, logs=[log], seconds=seconds)["slo"]
    if seconds is None:
        assert found == []
        return
    (row,) = found
    assert (row["class"], row["total"], row["bounds"]) == ("interactive", 0, None)
    assert row["seconds"] == 20


def test_lines_wait_for_one_that_tells_their_format() -> None:
    """They are undecided, not counted, until a line is recognised."""
    episode = "kv-a"
    log = make_log()
    log.take([b"starting up", b"listening"], AT)
    assert log.undecided == 2
    assert log.totals.lines == 0
    log.take([log_lines(episode)[0][1]], scrapes(episode)[0].at)
    assert log.undecided == 0
    assert log.totals.lines == 3

"""What the status page says of service levels when a request log tells."""

from __future__ import annotations

import json
import re

import pytest
from status_page import (
    Page,
    both,
    logged,
    make_flow,
    make_log,
    rendered,
    replayed,
    scrapes,
)

from analyzer.document import document
from analyzer.logflow import LogFlow
from exporter import page

AT = 1_800_000_000.0
CUSTOM = """, format: custom, fields: {status: status, model: model, tenant: tenant,
  route: route, stream: stream, outcome: outcome, ttft: {key: ttft, unit: s},
  tpot: {key: tpot, unit: s}, e2e: {key: e2e, unit: s}}"""


def line(**given: object) -> bytes:
    """Returns the line of a good request, or of what is given instead."""
    good = {"status": 200, "model": "m", "tenant": "a", "stream": True, "outcome": "ok"}
    times = {"ttft": 0.1, "tpot": 0.01, "e2e": 1.0, "route": "/v1/completions"}
    return json.dumps({**good, **times, **given}).encode()


def custom(*lines: bytes, seconds: float = 300.0, **given: str) -> LogFlow:
    """Returns the flow of a custom log that was read for *seconds* until AT."""
    flow = make_log(more=CUSTOM, **given)
    flow.mark(AT - seconds)
    flow.take(lines, AT - 1)
    return flow


def test_the_headline_is_exact_and_its_bounds_stand_below() -> None:
    """One share, the outcome, and the engine's bounds in a smaller line."""
    flow, log, at = both("kv-a")
    found = rendered([flow], at, [log])
    assert (
        "interactive · demo-small: 21.6 % of 116 requests were good in the last 2 min; "
        "objective 95 %. ✕ Missed."
    ) in found.said("h3")
    said = found.said()
    assert (
        "By the engine's metrics alone: between 0 % and 21.6 % of the 116 requests "
        "that finished in the last 2 min."
    ) in said
    assert "Most missed: e2e: over 10 s, 78.4 % of the requests." in said
    assert "These are bounds, not goodput" not in said
    assert "The exact share needs a request log" not in said
    labels = [a["aria-label"] for a in found.classes("bar")]
    assert [label.replace("\u202f", " ") for label in labels] == [
        "good 21.6 %, objective 95 %"
    ]


def test_misses_stand_in_a_table_with_failures_and_those_who_left() -> None:
    """By criterion with its threshold, number and share; a request may miss several."""
    late = [line(ttft=1.5, e2e=11)] * 2
    failed = [line(status=503, ttft=None, tpot=None)]
    left = [line(outcome="client_abort", ttft=2, tpot=None, e2e=3)]
    log = custom(*late, *failed, *left, *[line()] * 6)
    found = rendered([], AT, [log])
    assert "interactive · m: 60 % of 10 requests were good in the last 5 min" in (
        found.said("h3")
    )
    assert found.said("table") == (
        "Missed by criterion, of 10 requests; one may miss several"
        "MissedThresholdRequestsShare"
        "ttft1 s330 %"
        "tpot50 ms00 %"
        "e2e10 s220 %"
        "error: failed110 %"
        "abort: client left after a threshold had passed110 %"
    )
    assert "Most missed: ttft: over 1 s, 30 % of the requests." in found.said()


def test_failures_can_be_what_is_missed_most() -> None:
    """Errors have no threshold, and are named all the same."""
    log = custom(*[line(status=500)] * 3, line())
    assert "Most missed: error: failed, 75 % of the requests." in (
        rendered([], AT, [log]).said()
    )


@pytest.mark.parametrize(
    ("objective", "outcome"),
    [
        ("95", "? Cannot tell: it depends on those that cannot be judged."),
        ("75", "✓ Met."),
    ],
)
def test_what_cannot_be_judged_makes_the_share_an_interval(
    objective: str, outcome: str
) -> None:
    """The headline says how many it is, what is not known of them, and the outcome."""
    flow, log, at = both("mixed-a", objective=f"0.{objective}")
    found = rendered([flow], at, [log])
    assert (
        "between 75.8 % and 100 % of 95 requests were good in the last 1 min 10 s, "
        "since 24.2 % cannot be judged (no ttft or tpot of answers that are not "
        f"streamed); objective {objective} %. {outcome}"
    ) in found.said("h3")
    said = found.said()
    assert "Of the 72 requests that can be judged, 100 % were good." in said
    assert "Most missed" not in said


@pytest.mark.parametrize(
    ("unknown", "why"),
    [
        ([{"tpot": None}] * 2, "no tpot in the log"),
        (
            [{"tpot": None, "stream": False}] * 2 + [{"tpot": None}],
            "no ttft or tpot, mostly of answers that are not streamed",
        ),
        ([{"outcome": None}], "not known whether the answer was complete"),
        (
            [{"ttft": None}, {"outcome": None}],
            "no ttft in the log; not known whether the answer was complete",
        ),
    ],
)
def test_the_reason_why_it_cannot_be_judged_is_the_true_one(
    unknown: list[dict[str, object]], why: str
) -> None:
    """Streaming is named only when the log says so; an unknown end is told apart."""
    log = custom(*(line(**given) for given in unknown), line())
    assert f"cannot be judged ({why}); objective" in rendered([], AT, [log]).said("h3")


def test_what_is_not_counted_has_its_reasons() -> None:
    """Excluded requests are no part of the share, and stand below it."""
    flow, log, at = both("mixed-a")
    assert (
        "Not counted: 16 requests that say nothing about the serving (12 left by the "
        "client before a threshold had passed, 4 with the caller's own error)."
    ) in rendered([flow], at, [log]).said()
    one = custom(line(status=404), line())
    assert (
        "Not counted: 1 request that says nothing about the serving (1 with the "
        "caller's own error)."
    ) in rendered([], AT, [one]).said()


def test_excluded_requests_alone_make_no_share() -> None:
    """There is no percentage of nothing."""
    found = rendered([], AT, [custom(line(status=404))])
    assert (
        "interactive · m: – No request logged in the last 5 min. Objective 95 %."
        in found.said("h3")
    )
    assert "Not counted: 1 request" in found.said()
    assert found.classes("bar") == []


def test_a_log_that_is_younger_than_the_window_says_so() -> None:
    """The time that is covered stands in the headline, whatever was asked for."""
    log = custom(line(), seconds=40)
    assert "100 % of 1 request was good in the last 40 s; " in (
        rendered([], AT, [log]).said("h3")
    )


def test_the_engine_and_the_log_have_each_their_own_time() -> None:
    """A log that was opened later covers less, and no comparison is made of it."""
    engine, at = replayed("mixed-a")
    log = logged("mixed-a", since=at - 40, at=at)
    said = rendered([engine], at, [log]).said()
    assert "requests were good in the last 40 s" in said
    assert "of the 95 requests that finished in the last 1 min 10 s." in said
    assert "pass them by" not in said


def test_a_log_that_has_too_few_of_the_engines_requests_is_pointed_out() -> None:
    """Requests that pass the gateway by would make its share a partial one."""
    engine, at = replayed("kv-a")
    log = make_log(more=CUSTOM)
    log.mark(at - 120)
    log.take([line(model="demo-small")] * 60, at - 1)
    said = rendered([engine], at, [log]).said("p")
    assert (
        "The engine finished 116 requests in that time, and the logs have 60 of this "
        "model and class: the others pass them by, or are not read yet."
    ) in said
    log.take([line(model="demo-small")] * 50, at - 1)
    assert "pass them by" not in rendered([engine], at, [log]).said("p")


def test_bounds_are_said_to_be_the_engines_when_the_log_has_no_request() -> None:
    """A log that is read and says nothing of a model does not make bounds exact."""
    engine, at = replayed("kv-a")
    log = custom(line(model="other"))
    log.mark(at)
    said = rendered([engine], at, [log]).said()
    assert "No request log has a request of it in this time: the engine's bounds." in (
        said
    )
    assert "demo-small: between 0 % and 21.6 % of 116 requests" in said
    assert "none is read" not in said
    alone = rendered([engine], at).said()
    assert "No request log has" not in alone
    assert "The exact share needs a request log, and none is read." in alone


def test_an_outage_of_the_engine_does_not_unsay_what_a_log_tells() -> None:
    """Exact rows stand while no target answers."""
    engine, at = replayed("restart-a", until=8)
    log = logged("restart-a", since=scrapes("restart-a")[0].at, at=at)
    said = rendered([engine], at, [log]).said("h3")
    assert re.search(r"100 % of \d+ requests were good in the last .*✓ Met\.", said)
    assert "Cannot tell" not in said


def test_requests_without_a_class_have_no_objective() -> None:
    """They are told in one line: how many, how many failed, what does not count."""
    log = custom(
        line(tenant="a"),
        *[line(tenant="b")] * 3,
        line(tenant="b", status=500),
        line(tenant="b", route="/v1/embeddings"),
        line(tenant="b", outcome=None),
        line(model="x", tenant="b", status=401),
        match="tenant: a",
    )
    found = rendered([], AT, [log])
    assert "interactive · m: 100 % of 1 request" in found.said("h3")
    said = found.said("p")
    assert (
        "no class · m: 5 requests in the last 5 min, 1 failed, 1 perhaps incomplete; "
        "1 not counted (1 for something other than generation). No class takes them, "
        "so there is no objective."
    ) in said
    assert (
        "no class · x: no request that counts in the last 5 min; 1 not counted (1 with "
        "the caller's own error)."
    ) in said
    assert "no class" not in found.said("h3")
    assert len(found.classes("bar")) == 1
    assert found.said("title") == "Status · llm-goodput"


def test_a_model_that_only_the_log_can_judge_is_not_called_unjudged() -> None:
    """A class by tenant is not for the engine's metrics; the line says just that."""
    engine, at = replayed("mixed-a", models="other-*")
    since = scrapes("mixed-a")[0].at
    log = logged("mixed-a", since=since, at=at, match="tenant: interactive")
    said = rendered([engine], at, [log]).said("p")
    assert (
        "demo-small: not judged by the engine's metrics: no class matches this model."
        in said
    )
    assert "demo-small: not judged: no class" not in said


def test_classes_without_requests_share_a_line() -> None:
    """Silence is said once, and takes no headline."""
    log = custom(seconds=60, match="model: m")
    log.expect("m")
    found = rendered([], AT, [log])
    assert "No request logged in the last 1 min: interactive · m." in found.said("p")
    assert found.said("h3") == ""
    assert found.said("title") == "Status · llm-goodput"


def test_what_is_missed_exactly_is_in_the_title() -> None:
    """The tab says it, as it does for bounds."""
    log = custom(*[line(e2e=99)] * 3)
    assert rendered([], AT, [log]).said("title") == "SLO missed · llm-goodput"


def test_misses_are_folded_when_there_are_many_classes() -> None:
    """Six models' tables are folded, five are open."""
    for number, opened in ((5, 5), (6, 0)):
        log = custom(*(line(model=f"m{n}") for n in range(number)))
        found = rendered([], AT, [log])
        tables = [a for a in found.of("details") if a.get("class") is None]
        assert len(tables) == number
        assert len([a for a in tables if "open" in a]) == opened


def test_a_whole_log_without_windows_is_called_so() -> None:
    """A document over everything has no time to name."""
    log = custom(line())
    found = document([make_flow()], AT, logs=[log])
    said = Page(page.render(found, version="1", at=AT)).said("h3")
    assert "100 % of 1 request was good in the whole log; objective 95 %." in said

"""What the status page says of service levels and targets."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from status_page import (
    MODEL,
    Page,
    feed,
    make_flow,
    overview,
    rendered,
    replayed,
    scrapes,
)

from analyzer.document import document
from analyzer.verdict import Evidence, Family, Verdict
from exporter import page


@pytest.mark.parametrize(
    ("objective", "sentence"),
    [
        (
            "0.95",
            (
                "interactive · demo-small: between 0 % and 21.6 % of 116 requests "
                "were good in the last 2 min; objective 95 %. ✕ Missed."
            ),
        ),
        ("0.1", "objective 10 %. ? Cannot tell: the bounds straddle the objective."),
    ],
)
def test_the_headline_holds_the_bounds_against_the_objective(
    objective: str, sentence: str
) -> None:
    """Bounds below the objective miss it, bounds on both sides of it say nothing."""
    flow, at = replayed("kv-a", objective=objective)
    found = rendered([flow], at)
    assert sentence in found.said("h3")
    assert "These are bounds, not goodput." in found.said()
    assert "Hardest criterion: e2e, 21.6 % within 10 s." in found.said()


def test_bounds_above_the_objective_meet_it() -> None:
    """Equal bounds are one number, and no criterion is blamed."""
    flow, at = replayed("restart-a")
    found = rendered([flow], at)
    assert ": 100 % of 55 requests were good in the last " in found.said("h3")
    assert "✓ Met." in found.said("h3")
    assert "Hardest criterion" not in found.said()


@pytest.mark.parametrize(
    ("lower", "outcome"),
    [("95", "✓ Met."), ("94", "? Cannot tell: the bounds straddle the objective.")],
)
def test_bounds_at_the_objective(lower: str, outcome: str) -> None:
    """A lower bound equal to the objective meets it, an upper one does not miss it."""
    flow, at = replayed("restart-a")
    found = document([flow], at, seconds=300, pictures=True)
    found["slo"][0]["bounds"] = [int(lower) / 100, 0.95]
    assert outcome in Page(page.render(found, version="1", at=at)).said("h3")


def test_what_is_missed_stands_above_what_is_met() -> None:
    """Service levels are in the order of their outcome, whatever their names."""
    met, at = replayed("restart-a")
    first = scrapes("kv-a")[0].at
    missed = make_flow("other", since=at - 200)
    at = feed(
        missed,
        (
            replace(s, at=s.at - first + at - 100, text=renamed(s.text, "zebra"))
            for s in scrapes("kv-a")
        ),
    )
    said = rendered([met, missed], at).said("h3")
    assert 0 < said.index("✕ Missed") < said.index("demo-small")


def renamed(text: str | None, model: str) -> str:
    """Returns a page on which the model has another name."""
    return (text or "").replace(f'"{MODEL}"', f'"{model}"')


def test_without_finished_requests_there_is_no_share() -> None:
    """Neither 0 % nor 100 % is said of a window in which nothing finished."""
    flow, at = replayed("kv-a", first=-3)
    found = rendered([flow], at)
    assert "– No request finished in the last 10 s. Objective 95 %." in found.said("h3")
    assert found.classes("bar") == []


def test_one_scrape_measures_nothing() -> None:
    """A window needs two scrapes."""
    flow, at = replayed("kv-a", until=1)
    found = rendered([flow], at)
    assert "– Not measured yet: it takes two scrapes." in found.said("h3")


def test_no_outcome_is_claimed_while_no_target_answers() -> None:
    """The figures before an outage say until when they hold, and nothing of now."""
    flow, at = replayed("restart-a", until=8)
    found = rendered([flow], at)
    assert re.search(
        r"100 % of 31 requests were good in the 20 s until 14:58:35 UTC; objective "
        r"95 %\. \? Cannot tell: no target that serves it has answered since\.",
        found.said("h3"),
    )
    assert found.said("title") == "1 in trouble · llm-goodput"


def test_a_part_from_before_an_outage_is_pointed_out() -> None:
    """With one target of two down, the sentence says that its part is old."""
    down, at = replayed("restart-a", until=8)
    other = make_flow("other", since=at - 40)
    found = scrapes("restart-a")[:5]
    feed(other, (replace(s, at=s.at - found[-1].at + at) for s in found))
    said = rendered([down, other], at).said()
    assert "✓ Met" in said
    assert "1 of the 2 targets that serve it give no page now" in said


def test_a_criterion_without_a_histogram_says_so() -> None:
    """What the engine does not measure is possible and never certain, with why."""
    found = scrapes("restart-a")[:5]
    flow = make_flow(since=found[0].at)
    cut = (
        replace(s, text=re.sub(r"(?m)^.*time_per_output_token.*\n", "", s.text or ""))
        for s in found
    )
    at = feed(flow, cut)
    said = rendered([flow], at).said()
    assert "tpot: the engine has no histogram for tpot." in said
    assert "between 0 % and 100 %" in said


def test_a_threshold_that_grows_with_the_prompt_is_spelled_out() -> None:
    """Both parts of the threshold stand in the table."""
    flow, at = replayed("restart-a", ttft="{base: 300ms, per_prompt_token: 2ms}")
    assert "300 ms + 2 ms per prompt token" in rendered([flow], at).said("table")


def test_a_model_without_a_class_says_why() -> None:
    """It stands in the first part, and at the target."""
    flow, at = replayed("kv-a", models="other-*")
    said = rendered([flow], at).said()
    assert "demo-small: not judged: no class matches this model." in said
    assert "demo-small · no class: no class matches this model" in said


def test_an_idle_engine_shows_zeros() -> None:
    """A value of 0 on the page is a 0 here."""
    flow, at = replayed("kv-a")
    assert overview(rendered([flow], at)) == {
        "Running": "0",
        "Waiting": "0",
        "KV cache": "0\u202f%",
    }


def test_what_the_page_lacks_is_a_dash_and_never_zero() -> None:
    """A missing gauge says what it needs, beside others that have a value."""
    found = scrapes("kv-a")[:10]
    flow = make_flow(since=found[0].at)
    cut = (
        replace(s, text=re.sub(r"(?m)^.*kv_cache_usage_perc.*\n", "", s.text or ""))
        for s in found
    )
    at = feed(flow, cut)
    result = rendered([flow], at)
    assert overview(result) == {"Running": "13", "Waiting": "11", "KV cache": "—"}
    titles = {a["title"] for a in result.classes("absent")}
    assert titles == {"not on the page; needs vLLM 0.2.5 or later"}
    assert "1 signal missing, and why" in result.said("summary")
    assert "1 signal missing" in result.said("table")


@pytest.mark.parametrize("later", [0.0, 60.0])
def test_an_engine_that_is_down_shows_no_values(later: float) -> None:
    """Gauges of the last page do not outlive the engine, not even for seconds."""
    flow, at = replayed("restart-a", until=8)
    result = rendered([flow], at + later)
    assert set(overview(result).values()) == {"—"}
    assert all(a["title"] for a in result.classes("absent"))
    assert "■down: vllm — failing for" in result.said("ul")
    assert "fault / down: the engine does not answer" in result.said()
    assert "Rate— requests/s, — output tokens/s" in result.said()


def test_a_target_never_read_is_starting_and_no_trouble() -> None:
    """Within its grace an engine that does not answer is no alarm."""
    flow = make_flow(since=100.0)
    flow.fail("refused", 101.0, seconds=0.001, detail="Connection refused")
    result = rendered([flow], 102.0)
    assert "1 target starting" in result.said("ul")
    assert set(overview(result).values()) == {"—"}
    assert "Last error" in result.said("dt")
    assert result.said("title") == "Status · llm-goodput"


def test_statistics_switched_off_are_told_apart_from_idleness() -> None:
    """No engine series means no values, and the advice names the flag."""
    text = scrapes("kv-a")[0].text or ""
    http = re.sub(r"(?m)^(# \w+ )?vllm:.*\n", "", text)
    flow = make_flow(since=100.0)
    flow.observe(flow.read(http, 101.0))
    result = rendered([flow], 102.0)
    assert "▲stats disabled" in result.said("ul")
    assert set(overview(result).values()) == {"—"}
    assert "Start the engine without --disable-log-stats" in result.said()
    assert "24 signals missing, and why" in result.said("summary")


def test_a_verdict_shows_evidence_advice_and_what_is_missing() -> None:
    """What binds stands at the top, in the table, and in full in the details."""
    flow, at = replayed("kv-a", until=15)
    verdict = Verdict(
        Family.GATEWAY,
        "overhead",
        0.9,
        (
            Evidence("kv_cache_usage", 0.98, 0.9, "engine"),
            Evidence("waiting", 12.0, None, "engine"),
        ),
        ("gpu_dram_active_ratio",),
        ("queueing/sequence_cap",),
        ("Lower --max-num-seqs to 12.",),
    )
    flow.timelines[MODEL, "0"].extend(at + 2, verdict)
    result = rendered([flow], at + 3)
    phrase = "gateway / overhead: time is spent in the gateway, before the engine"
    assert f"▲serving: vllm — {phrase}" in result.said("ul")
    assert phrase in result.said("table")
    said = result.said("details")
    assert f"{phrase} · confidence 90 % · since 15:05:06 UTC (3 s)" in said
    assert "kv_cache_usage 98 % (engine, threshold 90 %), waiting 12 (engine)" in said
    assert "→ Lower --max-num-seqs to 12." in said
    assert "Missinggpu_dram_active_ratio" in said
    assert "Or elsequeueing/sequence_cap" in said


def test_ranks_under_the_same_verdict_share_it() -> None:
    """Two ranks have two rows and one verdict; one that differs has its own."""
    flow, at = replayed("dp2-a")
    result = rendered([flow], at)
    assert "· ranks 0, 1" in result.said()
    assert len(result.classes("spark")) == 6
    flow.timelines[MODEL, "1"].extend(at + 5, Verdict(Family.NONE, "headroom", 0.5))
    said = rendered([flow], at + 6).said()
    assert re.search("· rank 0(?! ?,)", said)
    assert re.search("none / headroom: .* · rank 1", said)
    for rank, confidence in (("0", 0.8), ("1", 0.6)):
        verdict = Verdict(Family.COMPUTE, "decode", confidence)
        flow.timelines[MODEL, rank].extend(at + 7, verdict)
    said = rendered([flow], at + 8).said()
    assert re.search("compute / decode: .* confidence 60 % .* · ranks 0, 1", said)


def test_damaged_lines_are_shown_with_their_reason() -> None:
    """The line's number, why it could not be read, and how it begins."""
    found = scrapes("kv-a")[:2]
    flow = make_flow(since=found[0].at)
    at = feed(flow, (replace(s, text=f"}}broken {{\n{s.text}") for s in found))
    said = rendered([flow], at).said("table")
    assert "1not a sample}broken {" in said


def test_a_restart_is_a_gap_in_the_sparkline() -> None:
    """The line breaks, the gap is shaded, and the label counts it."""
    flow, at = replayed("restart-a")
    result = rendered([flow], at)
    labels = [a["aria-label"] for a in result.classes("spark")]
    assert labels == [
        f"{label}, last 10 minutes: highest {highest} on a scale from 0 to {top}, 1 gap"
        for label, highest, top in (
            ("Running", "2", "2"),
            ("Waiting", "0", "1"),
            ("KV cache", "0.5\u202f%", "100\u202f%"),
        )
    ]
    paths = [a["d"] for a in result.of("path")]
    assert [path.count("M") for path in paths] == [2, 2, 2]


def test_the_last_hour_stands_below_the_verdict() -> None:
    """A strip by family, and in words the share of each; of each rank its own."""
    flow, at = replayed("kv-a")
    found = rendered([flow], at)
    assert re.search(r"Last hour: (memory|none) \d+(\.\d+)? %, ", found.said("details"))
    assert len(found.classes("strip")) == 1
    ranks, at = replayed("dp2-a")
    said = rendered([ranks], at).said("details")
    assert "Last hour of rank 0:" in said
    assert "Last hour of rank 1:" in said


def test_preemptions_and_bursts_stand_beside_the_verdict() -> None:
    """A second's preemptions over the last minute, and how uneven arrivals are."""
    flow, at = replayed("kv-a")
    assert "Preemptions" in rendered([flow], at).said("details")
    burst, at = replayed("burst-a")
    assert re.search(r"Arrivals ?dispersion \d", rendered([burst], at).said("details"))

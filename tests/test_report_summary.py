"""Summaries add up, widen and report as the requests themselves would tell."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from recorded_logs import NAMES, content, parsed

from analyzer.gateways.record import RequestRecord
from analyzer.judgement import Verdict, judge
from analyzer.report import summary as summaries
from analyzer.report.columns import columns_of
from analyzer.report.folding import kept_names
from analyzer.report.report import records
from analyzer.report.series import LADDER, Series
from analyzer.report.sketch import GREATEST, LEAST, RELATIVE_ERROR, Sketch
from analyzer.report.summary import Summary
from analyzer.report.tables import report_of
from analyzer.report.verdicts import Judge
from analyzer.report.workload import concurrency
from analyzer.slo import Match, SloClass, Threshold

SLO = SloClass(
    "chat",
    Match(),
    {"ttft": Threshold(0.3), "tpot": Threshold(0.015), "e2e": Threshold(1.2)},
    0.9,
    3600.0,
    percentiles={("ttft", "p95"): 0.3},
    stages={"gateway": 0.001},
)
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def summary_of(records: list[RequestRecord], *, parts: int = 1) -> Summary:
    """Returns the summary of requests that were read in some parts."""
    judge = Judge((SLO,), aliases={})
    whole = Summary()
    size = max(1, math.ceil(len(records) / parts))
    for begin in range(0, len(records), size):
        columns = columns_of(records[begin : begin + size])
        part = Summary()
        part.add(columns, judge.judge(columns), judge)
        whole.merge(part)
    return whole


def exact_quantile(values: list[float], q: float) -> float:
    """Returns the ⌈q·n⌉th smallest of *values*."""
    return sorted(values)[max(1, math.ceil(q * len(values))) - 1]


@pytest.mark.parametrize("name", NAMES)
def test_a_report_says_what_the_requests_say(name: str) -> None:
    """Counts are exact, percentiles within the stated error, on every recorded log."""
    found = parsed(content(name))[0]
    report = report_of(summary_of(found, parts=3), (SLO,))
    by_model: dict[str, Counter[str]] = {}
    values: dict[tuple[str, str], list[float]] = {}
    for record in found:
        model = record.model or "unknown"
        judgement = judge(record, SLO)
        counts = by_model.setdefault(model, Counter())
        counts[judgement.verdict.value] += 1
        counts.update(f"missed {m}" for m in judgement.misses)
        if judgement.verdict is Verdict.EXCLUDED:
            continue
        for measure in ("ttft", "tpot", "max_gap", "e2e"):
            value = getattr(record, measure)
            if value is not None:
                values.setdefault((model, measure), []).append(value)
    for row in records(report["goodput"]):
        counts = by_model.pop(row["model"])
        assert row["total"] == counts["good"] + counts["bad"] + counts["unevaluable"]
        for verdict in ("good", "bad", "unevaluable", "excluded"):
            assert row[verdict] == counts[verdict]
        for miss in records(report["misses"]):
            if miss["model"] == row["model"]:
                assert miss["requests"] == counts[f"missed {miss['criterion']}"]
    assert not by_model
    checked = 0
    for row in records(report["percentiles"]):
        wanted = values.get((row["model"], row["measure"]))
        if wanted is None:
            continue
        assert row["count"] == len(wanted)
        assert row["mean"] == pytest.approx(sum(wanted) / len(wanted))
        assert row["max"] == max(wanted)
        for level, q in QUANTILES.items():
            exact = exact_quantile(wanted, q)
            assert row[level] == pytest.approx(exact, rel=RELATIVE_ERROR * 1.001)
        checked += 1
    assert checked == len(values)


@given(
    st.lists(st.floats(LEAST * 1.01, GREATEST * 0.9), min_size=1, max_size=200),
    st.floats(0.001, 1.0),
)
def test_a_sketch_is_never_further_off_than_it_says(
    values: list[float], q: float
) -> None:
    """Any quantile of any values within its range."""
    sketch = Sketch()
    sketch.add(np.array(values))
    assert sketch.quantile(q) == pytest.approx(
        exact_quantile(values, q), rel=RELATIVE_ERROR * 1.001
    )


RECORDS = st.lists(
    st.builds(
        RequestRecord,
        start=st.integers(0, 20_000).map(lambda n: 1.7e9 + n / 4),
        tenant=st.sampled_from(["a", "b"]),
        model=st.sampled_from(["m", "n"]),
        status=st.sampled_from([200, 200, 503]),
        ttft=st.sampled_from([0.1, 0.25, 0.5]),
        tpot=st.sampled_from([0.01, 0.02]),
        e2e=st.integers(0, 4000).map(lambda n: n / 4),
        prompt_tokens=st.integers(1, 5000),
        completion_tokens=st.integers(0, 50),
    ),
    min_size=1,
    max_size=60,
)


@given(RECORDS, st.integers(2, 9))
@settings(max_examples=50, phases=[Phase.generate])
def test_parts_add_up_to_the_whole(found: list[RequestRecord], parts: int) -> None:
    """Whatever the parts, also where series had to widen in some and not in others."""
    before = summaries.TIMELINE_BINS, summaries.ARRIVAL_BINS
    summaries.TIMELINE_BINS, summaries.ARRIVAL_BINS = 7, 11
    try:
        whole, merged = summary_of(found), summary_of(found, parts=parts)
    finally:
        summaries.TIMELINE_BINS, summaries.ARRIVAL_BINS = before
    assert report_of(whole, (SLO,)).document() == report_of(merged, (SLO,)).document()


@given(RECORDS, st.integers(0, 4))
@settings(phases=[Phase.generate])
def test_presence_is_that_of_the_requests_at_any_width(
    found: list[RequestRecord], step: int
) -> None:
    """The mean number at once is the requests' time over that of the bins."""
    arrivals = summary_of(found).arrivals.at_least(LADDER[step])
    stay = sum(record.e2e or 0.0 for record in found)
    begin = min(record.start or 0.0 for record in found)
    end = max((record.start or 0.0) + (record.e2e or 0.0) for record in found)
    width = arrivals.seconds
    length = (end // width - begin // width + 1) * width
    mean = concurrency(arrivals)["mean"]
    assert mean == pytest.approx(stay / length)


def test_a_series_stays_within_its_limit_and_loses_nothing() -> None:
    """A year in minutes becomes wider bins, with the same sum."""
    series = Series(1, 100)
    for day in range(365):
        times = np.arange(1440, dtype=np.float64) * 60 + day * 86400
        series.add(series.bins_of(times), np.ones((1440, 1)))
    bins, values = series.rows
    assert len(bins) <= 100
    assert values.sum() == 365 * 1440


@pytest.mark.parametrize("spread", [3, 50, 10_000_000])
def test_a_series_sums_rows_of_a_bin_near_or_far(spread: int) -> None:
    """Whether bins lie close together or are few among many, to the bit."""
    chance = np.random.default_rng(1)
    bins = chance.integers(-spread, spread, 2000)
    figures = chance.random((2000, 2))
    series = Series(2, 10_000)
    series.add(bins, figures)
    wanted: dict[int, list[float]] = {}
    for place, row in zip(bins.tolist(), figures.tolist(), strict=True):
        known = wanted.setdefault(place, [0.0, 0.0])
        wanted[place] = [a + b for a, b in zip(known, row, strict=True)]
    found, sums = series.rows
    assert dict(zip(found.tolist(), sums.tolist(), strict=True)) == wanted


def test_names_beyond_the_limit_are_kept_alike_in_every_part() -> None:
    """Who is kept of all was kept of each part, so that its counts are whole."""
    names = [f"tenant-{n}" for n in range(500)]
    kept = kept_names(names, 100)
    for part in (names[:250], names[250:], names[::3]):
        assert kept & set(part) <= kept_names(part, 100)
    assert len(kept) == 101


def test_tenants_beyond_the_limit_are_counted_as_other() -> None:
    """The number of names is bounded, and no request is lost."""
    limit = summaries.MOST_TENANTS
    found = [RequestRecord(tenant=f"t{n}", e2e=0.1) for n in range(limit + 50)]
    rows = records(report_of(summary_of(found, parts=4), (SLO,))["tenants"])
    assert len(rows) == limit + 1
    assert sum(row["total"] for row in rows) == limit + 50
    assert {row["tenant"]: row["total"] for row in rows}["other"] == 50

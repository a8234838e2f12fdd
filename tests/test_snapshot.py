"""Growth from one page to the next, over impossible sums, gaps and damage."""

from __future__ import annotations

import math

import pytest
from snapshots import (
    BOUNDS,
    INF,
    PROMPTS,
    TOKENS,
    TTFT,
    follow,
    histogram,
    key,
    page,
    totals,
)

from analyzer.histogram import Histogram
from analyzer.snapshot import ABSENT_SERIES_KEPT_SECONDS, Reset, believable, increase


def test_the_first_page_is_a_baseline() -> None:
    """What was counted before the watch began is not growth; every row exists at 0."""
    first = page(2000.0, {TOKENS: 500.0, TTFT: histogram(1, 2, 3, 4)})
    grown = increase(None, first, watched_since=1500.0)
    assert grown.counters == {TOKENS.group: 0.0}
    assert grown.histograms[TTFT.group].counts == (0, 0, 0, 0)
    assert (grown.begin, grown.end, grown.seconds) == (2000.0, 2000.0, 0.0)
    assert grown.reset is Reset.NONE


def test_a_process_that_began_under_watch_is_all_new() -> None:
    """Its first page counts in full; that is no reset, nothing came before it."""
    first = page(2000.0, {TOKENS: 500.0, TTFT: histogram(1, 2, 3, 4)}, started=1600.0)
    grown = increase(None, first, watched_since=1600.0)
    assert grown.counters == {TOKENS.group: 500.0}
    assert grown.histograms[TTFT.group] == histogram(1, 2, 3, 4)
    assert grown.reset is Reset.NONE


def test_a_first_page_without_a_start_time_is_a_baseline() -> None:
    """Without proof that the process is new, nothing is counted."""
    first = page(2000.0, {TOKENS: 500.0}, started=None)
    assert increase(None, first, watched_since=0.0).counters == {TOKENS.group: 0.0}


# Within one process.


def test_growth_is_the_difference_bucket_by_bucket() -> None:
    """Counters, buckets and sums grow by what was added, over (begin, end]."""
    grown = increase(
        page(2000.0, {TOKENS: 500.0, TTFT: histogram(1, 2, 3, 4, total=9.0)}),
        page(2015.0, {TOKENS: 750.0, TTFT: histogram(1, 5, 7, 9, total=13.0)}),
    )
    assert grown.counters == {TOKENS.group: 250.0}
    assert grown.histograms[TTFT.group] == histogram(0, 3, 4, 5, total=4.0)
    assert (grown.begin, grown.end, grown.reset) == (2000.0, 2015.0, Reset.NONE)
    assert grown.sum_anomalies == 0


def test_series_of_one_group_add_up_but_keep_their_own_history() -> None:
    """Two replicas on one page: one falls and counts from zero, the other goes on."""
    a, b = key("generation_tokens", origin="a"), key("generation_tokens", origin="b")
    ttft_a, ttft_b = key("ttft", origin="a"), key("ttft", origin="b")
    before = {ttft_a: histogram(0, 5, 5, 5), ttft_b: histogram(9, 9, 9, 9)}
    after = {ttft_a: histogram(0, 6, 6, 6), ttft_b: histogram(1, 1, 1, 1)}
    grown = increase(
        page(2000.0, {a: 1000.0, b: 2000.0, **before}, started=None),
        page(2015.0, {a: 1100.0, b: 30.0, **after}, started=None),
    )
    assert grown.reset is Reset.SERIES
    assert grown.counters == {a.group: 130.0}
    assert grown.histograms[ttft_a.group].counts == (1, 2, 2, 2)


def test_a_series_created_later_counts_from_zero() -> None:
    """Some engines print a series only once it has moved."""
    grown = increase(
        page(2000.0, {TOKENS: 500.0}),
        page(2015.0, {TOKENS: 500.0, PROMPTS: 70.0, TTFT: histogram(1, 1, 1, 1)}),
    )
    assert grown.counters == {TOKENS.group: 0.0, PROMPTS.group: 70.0}
    assert grown.histograms[TTFT.group].count == 1


# Sums.


@pytest.mark.parametrize(
    ("total", "why"),
    [
        (-5.0, "a negative sample made the sum fall"),
        (20.0 + 2e6, "a sample of host-uptime size"),
        (math.nan, "not a number"),
        (INF, "infinite"),
    ],
)
def test_an_impossible_sum_is_an_anomaly_and_no_reset(total: float, why: str) -> None:
    """Buckets count as ever; the sum is held to the least that they allow."""
    grown = increase(
        page(2000.0, {TOKENS: 1.0, TTFT: histogram(10, 20, 20, 20, total=20.0)}),
        page(2015.0, {TOKENS: 2.0, TTFT: histogram(11, 22, 22, 23, total=total)}),
    )
    assert grown.reset is Reset.NONE, why
    assert grown.sum_anomalies == 1
    assert grown.histograms[TTFT.group] == histogram(1, 2, 2, 3, total=0.1 + 1.0)


def test_a_wrong_sum_spoils_one_interval_only() -> None:
    """The next difference is right again, since the jump is in both of its ends."""
    grown, _ = follow(
        [
            page(2000.0, {TTFT: histogram(0, 1, 1, 1, total=0.3)}),
            page(2015.0, {TTFT: histogram(0, 2, 2, 2, total=0.6 + 1e6)}),
            page(2030.0, {TTFT: histogram(0, 3, 3, 3, total=0.9 + 1e6)}),
        ]
    )
    assert [step.sum_anomalies for step in grown] == [0, 1, 0]
    assert grown[2].histograms[TTFT.group].sum == pytest.approx(0.3)


def test_long_requests_are_believed() -> None:
    """An overflow of hours is possible; of days it is not; tokens have no limit."""
    overflow = (0.0, 0.0, 0.0, 1.0)
    assert believable(Histogram(BOUNDS, overflow, 7000.0)).sum == 7000.0
    assert believable(Histogram(BOUNDS, overflow, 90_000.0)).sum == 1.0
    longest = Histogram((7680.0, INF), (0.0, 1.0), 8000.0)
    assert believable(longest) is longest
    tokens = Histogram((1e5, INF), (0.0, 1.0), 131_000.0)
    assert believable(tokens, tokens=True) is tokens
    assert believable(Histogram((INF,), (2.0,), 5.0)).sum == 5.0


def test_prompts_beyond_the_last_bound_are_no_anomaly() -> None:
    """A length histogram's overflow is in tokens, not in seconds."""
    lengths = key("prompt_length")
    bounds = (50_000.0, 100_000.0, INF)
    grown = increase(
        page(2000.0, {lengths: Histogram(bounds, (0.0, 0.0, 0.0), 0.0)}),
        page(2015.0, {lengths: Histogram(bounds, (0.0, 0.0, 2.0), 250_000.0)}),
    )
    assert grown.sum_anomalies == 0
    assert grown.histograms[lengths.group].sum == 250_000.0


# Gaps and damage.


def test_a_series_that_a_damaged_page_lacks_is_not_counted_twice() -> None:
    """It comes back with the growth since it was last seen, not with its total."""
    whole = [
        page(2000.0 + 15 * n, {TOKENS: 500.0 + n, TTFT: histogram(n, n, n, 5 + n)})
        for n in range(4)
    ]
    torn = page(2015.0, {PROMPTS: 1.0}, damaged=True)
    grown, memory = follow([whole[0], torn, whole[2], whole[3]])
    assert totals(grown)[TOKENS.group] == 3
    assert totals(grown)[TTFT.group] == 3
    assert grown[2].counters[TOKENS.group] == 2
    assert not memory.damaged


def test_what_a_damaged_first_page_lacked_is_old() -> None:
    """A series that appears after a damaged page may have been there all along."""
    grown, _ = follow(
        [
            page(2000.0, {PROMPTS: 5.0}, damaged=True),
            page(2015.0, {PROMPTS: 6.0, TOKENS: 500.0, TTFT: histogram(1, 2, 3, 4)}),
            page(2030.0, {PROMPTS: 7.0, TOKENS: 501.0, TTFT: histogram(1, 2, 3, 5)}),
        ]
    )
    assert totals(grown) == {PROMPTS.group: 2, TOKENS.group: 1, TTFT.group: 1}


def test_a_histogram_that_lost_a_bucket_waits_for_the_next_page() -> None:
    """No growth is read off torn buckets, and none is lost."""
    grown, _ = follow(
        [
            page(2000.0, {TTFT: histogram(1, 2, 3, 4)}),
            page(2015.0, {TTFT: histogram(1, 3, 5)}, damaged=True),
            page(2030.0, {TTFT: histogram(2, 4, 5, 7)}),
        ]
    )
    assert [step.reset for step in grown] == [Reset.NONE] * 3
    assert grown[1].histograms[TTFT.group] == histogram(0, 0, 0, 0)
    assert grown[2].histograms[TTFT.group] == histogram(1, 2, 2, 3)


def test_after_a_torn_first_page_growth_is_on_the_buckets_it_had() -> None:
    """What lies between the missing bounds before is unknown, so it is not claimed."""
    grown, _ = follow(
        [
            page(2000.0, {TTFT: histogram(1, 2, 900)}, damaged=True),
            page(2015.0, {TTFT: histogram(1, 2, 890, 905)}),
            page(2030.0, {TTFT: histogram(1, 2, 891, 906)}),
        ]
    )
    torn, whole = (step.histograms[TTFT.group] for step in grown[1:])
    assert (torn.bounds, torn.counts) == ((0.1, 0.5, INF), (0, 0, 5))
    assert (whole.bounds, whole.counts) == (BOUNDS, (0, 0, 1, 1))


@pytest.mark.parametrize("started", [1700.0, None])
def test_a_damaged_first_page_after_a_restart_loses_nothing(
    started: float | None,
) -> None:
    """What it lacks began at zero with the process, and counts on the next page."""
    grown, _ = follow(
        [
            page(
                2000.0,
                {TOKENS: 500.0, PROMPTS: 90.0, TTFT: histogram(7, 8, 9, 9)},
                started=started,
            ),
            page(
                2600.0,
                {PROMPTS: 4.0, TTFT: histogram(1, 2, 3)},
                started=started and 2100.0,
                damaged=True,
            ),
            page(
                2615.0,
                {TOKENS: 70.0, PROMPTS: 5.0, TTFT: histogram(1, 2, 3, 4)},
                started=started and 2100.0,
            ),
        ]
    )
    assert grown[1].reset is Reset.RESTART
    assert totals(grown) == {TOKENS.group: 70, PROMPTS.group: 5, TTFT.group: 4}
    assert grown[2].histograms[TTFT.group] == histogram(1, 2, 3, 4)


def test_a_start_time_lost_with_its_line_is_remembered() -> None:
    """A restart right after a damaged page is still proved by the two start times."""
    grown, _ = follow(
        [
            page(2000.0, {TOKENS: 500.0}),
            page(2015.0, {TOKENS: 510.0}, started=None, damaged=True),
            page(2030.0, {TOKENS: 700.0}, started=2020.0),
        ]
    )
    assert grown[2].reset is Reset.RESTART
    assert grown[2].counters == {TOKENS.group: 700.0}


def test_carried_series_expire() -> None:
    """A replica that is gone for good does not stay in memory."""
    gone, stays = key("ttft", origin="gone"), key("ttft", origin="stays")
    kept = histogram(1, 1, 1, 1)
    pages = [page(2000.0, {gone: kept, TOKENS: 5.0, stays: kept})]
    last = 2000.0
    while last < 2010.0 + ABSENT_SERIES_KEPT_SECONDS:
        last += 10.0
        pages.append(page(last, {stays: kept}))
    _, memory = follow(pages)
    assert gone in memory.histograms
    assert memory.counters == {TOKENS: 5.0}
    assert memory.absent_since == {gone: 2010.0, TOKENS: 2010.0}
    _, memory = follow([*pages, page(last + 10.0, {stays: kept})])
    assert memory.histograms == {stays: kept}
    assert memory.counters == {}
    assert memory.absent_since == {}


def test_a_returned_series_is_no_longer_marked_absent() -> None:
    """The five minutes begin anew with the next absence."""
    pages = [
        page(2000.0, {TOKENS: 5.0, PROMPTS: 1.0}),
        page(2010.0, {PROMPTS: 1.0}),
        page(2020.0, {TOKENS: 6.0, PROMPTS: 1.0}),
        page(2030.0, {PROMPTS: 1.0}),
    ]
    assert follow(pages[:3])[1].absent_since == {}
    assert follow(pages)[1].absent_since == {TOKENS: 2030.0}


def test_nothing_is_carried_over_a_restart() -> None:
    """The next process has what its own page shows."""
    _, memory = follow(
        [
            page(2000.0, {TOKENS: 5.0, TTFT: histogram(1, 1, 1, 1)}),
            page(2600.0, {TOKENS: 1.0}, started=2100.0),
        ]
    )
    assert memory.histograms == {}
    assert memory.absent_since == {}

"""Growth between scrapes: restarts, resets of single series, gaps and damage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.histogram import Histogram
from analyzer.snapshot import (
    ABSENT_SERIES_KEPT_SECONDS,
    Group,
    Increase,
    Key,
    Reset,
    Snapshot,
    believable,
    increase,
    merge,
)

INF = math.inf
BOUNDS = (0.1, 0.5, 1.0, INF)
STARTED = 1000.0


def key(signal: str, rank: str = "0", origin: str = "") -> Key:
    """Returns the key of one series of model m."""
    return Key(Group(signal, "m", rank), (("WorkerId", origin),) if origin else ())


def histogram(*counts: float, total: float | None = None) -> Histogram:
    """Returns a histogram over BOUNDS; its sum is the least that its buckets allow."""
    bounds = BOUNDS if len(counts) == len(BOUNDS) else (*BOUNDS[:2], INF)
    result = Histogram(bounds, counts)
    least = result.sum_limits()[0]
    return Histogram(bounds, counts, least if total is None else total)


def page(
    at: float,
    values: Mapping[Key, float | Histogram],
    *,
    started: float | None = STARTED,
    created: Mapping[Key, float] | None = None,
    damaged: bool = False,
) -> Snapshot:
    """Returns one scrape."""
    return Snapshot(
        at,
        started,
        {k: v for k, v in values.items() if isinstance(v, float)},
        {k: v for k, v in values.items() if isinstance(v, Histogram)},
        dict(created or {}),
        damaged=damaged,
    )


def follow(
    pages: Sequence[Snapshot], *, watched_since: float = INF
) -> tuple[list[Increase], Snapshot]:
    """Returns the growth at each page, and what is remembered after the last."""
    memory: Snapshot | None = None
    grown = []
    for later in pages:
        found = increase(memory, later, watched_since=watched_since)
        memory = merge(memory, later, found.reset)
        grown.append(found)
    assert memory is not None
    return grown, memory


def totals(grown: Sequence[Increase]) -> dict[Group, float]:
    """Returns the growth of every counter, and of every histogram's count."""
    found: dict[Group, float] = {}
    for step in grown:
        for group, value in step.counters.items():
            found[group] = found.get(group, 0.0) + value
        for group, grown_by in step.histograms.items():
            found[group] = found.get(group, 0.0) + grown_by.count
    return found


TOKENS = key("generation_tokens")
PROMPTS = key("prompt_tokens")
TTFT = key("ttft")


# The first page.


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


# Restarts.


def test_a_later_process_start_counts_everything_from_zero() -> None:
    """Also values above the old ones, which no fall would have shown."""
    grown = increase(
        page(2000.0, {TOKENS: 500.0, PROMPTS: 9.0, TTFT: histogram(1, 2, 3, 4)}),
        page(
            2600.0,
            {TOKENS: 800.0, PROMPTS: 5.0, TTFT: histogram(2, 4, 6, 8)},
            started=2010.0,
        ),
    )
    assert grown.reset is Reset.RESTART
    assert grown.counters == {TOKENS.group: 800.0, PROMPTS.group: 5.0}
    assert grown.histograms[TTFT.group] == histogram(2, 4, 6, 8)


def test_a_restart_within_the_clocks_tolerance_is_a_restart() -> None:
    """The engine's clock may be a little behind: started before our last scrape."""
    before = page(2000.0, {TOKENS: 500.0})
    restarted = page(2060.0, {TOKENS: 10.0}, started=1996.0)
    assert increase(before, restarted).reset is Reset.RESTART
    assert increase(before, restarted).counters == {TOKENS.group: 10.0}


def test_a_restart_to_other_bounds_starts_on_the_new_bounds() -> None:
    """A new version or flag changes the buckets; the new process counts from zero."""
    grown = increase(
        page(2000.0, {TTFT: histogram(1, 2, 3, 4)}),
        page(2600.0, {TTFT: histogram(5, 6, 7)}, started=2010.0),
    )
    assert grown.histograms[TTFT.group] == histogram(5, 6, 7)


def test_a_restart_without_start_times_is_inferred_from_falls() -> None:
    """Several API servers print no start time: when half has fallen, all began anew."""
    grown = increase(
        page(
            2000.0,
            {TOKENS: 500.0, PROMPTS: 9.0, TTFT: histogram(1, 2, 3, 4)},
            started=None,
        ),
        page(
            2600.0,
            {TOKENS: 100.0, PROMPTS: 40.0, TTFT: histogram(0, 0, 1, 1)},
            started=None,
        ),
    )
    assert grown.reset is Reset.RESTART
    assert grown.counters == {TOKENS.group: 100.0, PROMPTS.group: 40.0}
    assert grown.histograms[TTFT.group] == histogram(0, 0, 1, 1)


def test_other_bounds_without_start_times_prove_another_process() -> None:
    """Bounds are set when the engine starts, so no count needs to have fallen."""
    grown = increase(
        page(2000.0, {TTFT: histogram(0, 0, 0, 10)}, started=None),
        page(2600.0, {TTFT: histogram(5, 6, 12)}, started=None),
    )
    assert grown.reset is Reset.RESTART
    assert grown.histograms[TTFT.group] == histogram(5, 6, 12)


def test_one_rank_that_begins_anew_leaves_the_others_alone() -> None:
    """Scaling ranks recreates one rank's counters: the other rank's go on."""
    both = {
        key(signal, rank): 100.0 if rank == "0" else 50.0
        for signal in ("generation_tokens", "prompt_tokens", "preemptions")
        for rank in ("0", "1")
    }
    after = {k: v + 1 if k.group.rank == "0" else 2.0 for k, v in both.items()}
    grown = increase(
        page(2000.0, both, started=None), page(2015.0, after, started=None)
    )
    assert grown.reset is Reset.SERIES
    assert {(g.rank, v) for g, v in grown.counters.items()} == {("0", 1.0), ("1", 2.0)}


def test_counters_of_the_api_server_alone_are_no_restart_of_the_engine() -> None:
    """The engine's own series decide; the server's count from zero by themselves."""
    http = Key(Group("http_completions", "", "", "2xx"), (("handler", "/v1/x"),))
    grown = increase(
        page(2000.0, {TOKENS: 500.0, http: 40.0}, started=None),
        page(2015.0, {TOKENS: 510.0, http: 3.0}, started=None),
    )
    assert grown.reset is Reset.SERIES
    assert grown.counters == {TOKENS.group: 10.0, http.group: 3.0}


def test_an_unchanged_process_start_rules_a_restart_out() -> None:
    """Series that fell began anew on their own; the rest grew by the difference."""
    grown = increase(
        page(2000.0, {TOKENS: 500.0, PROMPTS: 90.0}),
        page(2015.0, {TOKENS: 100.0, PROMPTS: 95.0}),
    )
    assert grown.reset is Reset.SERIES
    assert grown.counters == {TOKENS.group: 100.0, PROMPTS.group: 5.0}


def test_a_creation_stamp_proves_the_reset_of_one_series() -> None:
    """`_created` moved: that series counts from zero though its value rose."""
    grown = increase(
        page(2000.0, {TOKENS: 500.0, PROMPTS: 90.0}, created={TOKENS: 1001.0}),
        page(2015.0, {TOKENS: 600.0, PROMPTS: 95.0}, created={TOKENS: 2010.0}),
    )
    assert grown.reset is Reset.SERIES
    assert grown.counters == {TOKENS.group: 600.0, PROMPTS.group: 5.0}


def test_a_histogram_is_reset_as_a_whole() -> None:
    """One bucket below its old count means that all its buckets began anew."""
    e2e = key("e2e")
    grown = increase(
        page(2000.0, {TTFT: histogram(4, 5, 6, 7), e2e: histogram(9, 9, 9, 9)}),
        page(2015.0, {TTFT: histogram(3, 8, 8, 8), e2e: histogram(9, 9, 9, 9)}),
    )
    assert grown.reset is Reset.SERIES
    assert grown.histograms[TTFT.group] == histogram(3, 8, 8, 8)
    assert grown.histograms[e2e.group].count == 0


# Load balancers.


def test_an_older_process_counts_nothing() -> None:
    """Another replica answered: no restart, and no growth in either direction."""
    grown = increase(
        page(2000.0, {TOKENS: 500.0}, started=1500.0),
        page(2015.0, {TOKENS: 900.0, TTFT: histogram(1, 2, 3, 4)}, started=1200.0),
    )
    assert grown.reset is Reset.OTHER_PROCESS
    assert grown.counters == {TOKENS.group: 0.0}
    assert grown.histograms[TTFT.group].count == 0


def test_a_newer_process_that_was_already_up_counts_nothing() -> None:
    """Going back to it is no restart either: it began before the last page."""
    a = [page(at, {TOKENS: 100.0 + at}, started=1200.0) for at in (2000.0, 2040.0)]
    b = [page(at, {TOKENS: 9000.0 + at}, started=1500.0) for at in (2020.0, 2060.0)]
    grown, _ = follow([a[0], b[0], a[1], b[1]])
    assert [step.reset for step in grown[1:]] == [Reset.OTHER_PROCESS] * 3
    assert totals(grown) == {TOKENS.group: 0.0}


def test_growth_goes_on_when_the_older_process_stays() -> None:
    """After one uncounted page the process that now answers is followed."""
    grown, _ = follow(
        [
            page(2000.0, {TOKENS: 500.0}, started=1500.0),
            page(2015.0, {TOKENS: 900.0}, started=1200.0),
            page(2030.0, {TOKENS: 930.0}, started=1200.0),
        ]
    )
    assert [step.counters[TOKENS.group] for step in grown] == [0.0, 0.0, 30.0]


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


# Any history.


@dataclass
class Process:
    """One life of an engine: when it ran, and what happened in it.

    Events are (time, rank, milliseconds of latency); each also generates as many
    tokens as it has milliseconds. Nothing is served in the first ten seconds.
    """

    start: float
    end: int
    events: list[tuple[int, str, int]] = field(default_factory=list)

    def page(
        self, at: int, *, start_known: bool, lazy: bool, damage: int = 0
    ) -> Snapshot:
        """Returns the page at *at*; some series and buckets are lost by *damage*."""
        values: dict[Key, float | Histogram] = {}
        for rank in ("0", "1"):
            seen = [ms for t, r, ms in self.events if r == rank and t <= at]
            if lazy and not seen:
                continue
            latencies = [ms / 1000 for ms in seen]
            counts = tuple(float(sum(x <= b for x in latencies)) for b in BOUNDS)
            values[key("ttft", rank)] = Histogram(BOUNDS, counts, sum(latencies))
            values[key("generation_tokens", rank)] = float(sum(seen))
            values[key("finished", rank)] = float(len(seen))
        for bit, lost in enumerate(list(values)):
            if damage >> bit & 1:
                del values[lost]
        for rank in ("0", "1"):
            whole = values.get(key("ttft", rank))
            if damage >> 6 & 1 and isinstance(whole, Histogram):
                values[key("ttft", rank)] = Histogram(
                    (*BOUNDS[:2], INF), (*whole.counts[:2], whole.count), whole.sum
                )
        started = float(self.start) if start_known else None
        if damage >> 7 & 1:
            started = None
        return page(float(at), values, started=started, damaged=damage > 0)


@st.composite
def lives(draw: st.DrawFn, *, most: int) -> list[Process]:
    """Draws an engine's processes, one after the other, with their events."""
    found = []
    at = 0
    for _ in range(draw(st.integers(1, most))):
        length = draw(st.integers(20, 120))
        times = st.integers(at + 10, at + length - 1)
        event = st.tuples(
            times, st.sampled_from(("0", "1")), st.sampled_from((20, 300, 700, 4000))
        )
        events = sorted(draw(st.lists(event, min_size=most + 1, max_size=16)))
        found.append(Process(at, at + length, events))
        at += length + draw(st.integers(1, 30))
    return found


def scrape(
    processes: Sequence[Process],
    times: Sequence[int],
    *,
    start_known: bool = True,
    lazy: bool = False,
    damage: Sequence[int] = (),
) -> list[Snapshot]:
    """Returns the pages at *times*; none while no process runs."""
    pages = []
    for at, lost in zip_longest(times, damage[: len(times)], fillvalue=0):
        alive = next((p for p in processes if p.start <= at < p.end), None)
        if alive is not None:
            pages.append(
                alive.page(at, start_known=start_known, lazy=lazy, damage=lost)
            )
    return pages


def happened(events: Sequence[tuple[int, str, int]]) -> dict[Group, float]:
    """Returns the true totals of events."""
    found: dict[Group, float] = {}
    for _, rank, ms in events:
        for signal, amount in (
            ("ttft", 1),
            ("finished", 1),
            ("generation_tokens", ms),
        ):
            group = key(signal, rank).group
            found[group] = found.get(group, 0.0) + amount
    return found


def counted(
    processes: Sequence[Process], pages: Sequence[Snapshot]
) -> list[tuple[int, str, int]]:
    """Returns the events that pages can show: in each process up to its last page."""
    seen = []
    first = pages[0].at
    for process in processes:
        last = max(
            (p.at for p in pages if process.start <= p.at < process.end), default=0
        )
        seen += [event for event in process.events if first < event[0] <= last]
    return seen


def same(found: Mapping[Group, float], truth: Mapping[Group, float]) -> bool:
    """Whether totals are equal, rows that never moved aside."""
    return {g: v for g, v in found.items() if v} == {
        g: v for g, v in truth.items() if v
    }


def within(found: Mapping[Group, float], truth: Mapping[Group, float]) -> bool:
    """Whether no total is above the truth."""
    return all(value <= truth.get(group, 0.0) for group, value in found.items())


# Lists of many short gaps: sparse samples would hardly meet the interesting moments.
TIMES = st.lists(st.integers(1, 25), min_size=20, max_size=60).map(
    lambda gaps: list(accumulate(gaps, initial=0))
)
DAMAGE = st.lists(st.sampled_from((0, 0, 0, *range(1, 256))), min_size=61, max_size=61)


@given(
    processes=lives(most=1),
    some=TIMES,
    others=TIMES,
    start_known=st.booleans(),
    lazy=st.booleans(),
)
def test_any_cadence_gives_the_true_totals_without_a_restart(
    processes: list[Process],
    some: list[int],
    others: list[int],
    *,
    start_known: bool,
    lazy: bool,
) -> None:
    """Two samplings with the same ends count the same, bucket by bucket: the truth."""
    first, last = 0, processes[0].end - 1
    results = []
    for times in ([first, *some, last], [first, *others, last]):
        kept = sorted(t for t in set(times) if first <= t <= last)
        pages = scrape(processes, kept, start_known=start_known, lazy=lazy)
        grown, _ = follow(pages)
        assert same(totals(grown), happened(counted(processes, pages)))
        buckets: dict[Group, list[float]] = {}
        for step in grown:
            assert step.reset is Reset.NONE
            assert step.sum_anomalies == 0
            for group, grown_by in step.histograms.items():
                row = buckets.setdefault(group, [0.0] * len(BOUNDS))
                buckets[group] = [
                    a + b for a, b in zip(row, grown_by.counts, strict=True)
                ]
        results.append({g: row for g, row in buckets.items() if any(row)})
    assert results[0] == results[1]


@given(processes=lives(most=4), times=TIMES, lazy=st.booleans())
def test_restarts_cost_exactly_what_was_never_shown(
    processes: list[Process], times: list[int], *, lazy: bool
) -> None:
    """With start times totals are the truth less each process's last unseen part."""
    pages = scrape(processes, times, lazy=lazy)
    grown, _ = follow(pages)
    assert same(totals(grown), happened(counted(processes, pages)))


@given(processes=lives(most=4), times=TIMES, lazy=st.booleans())
def test_restarts_without_start_times_never_count_too_much(
    processes: list[Process], times: list[int], *, lazy: bool
) -> None:
    """A restart that no value shows is missed, but nothing is counted twice."""
    pages = scrape(processes, times, start_known=False, lazy=lazy)
    grown, _ = follow(pages)
    assert within(totals(grown), happened(counted(processes, pages)))
    assert all(
        count >= 0
        for step in grown
        for grown_by in step.histograms.values()
        for count in grown_by.counts
    )


@given(lives(most=1), TIMES, DAMAGE)
def test_damage_between_whole_pages_changes_no_total(
    processes: list[Process], times: list[int], damage: list[int]
) -> None:
    """Lost series, torn histograms and lost start times only delay the growth."""
    last = processes[0].end - 1
    kept = sorted({0, last, *(t for t in times if t < last)})
    lost = [0, *damage[1 : len(kept) - 1], 0]
    grown, _ = follow(scrape(processes, kept, damage=lost))
    assert same(totals(grown), happened(processes[0].events))


@given(
    processes=lives(most=4),
    times=TIMES,
    damage=DAMAGE,
    start_known=st.booleans(),
    lazy=st.booleans(),
)
def test_damage_and_restarts_never_count_too_much(
    processes: list[Process],
    times: list[int],
    damage: list[int],
    *,
    start_known: bool,
    lazy: bool,
) -> None:
    """Whatever is lost on whichever page, no event counts twice."""
    pages = scrape(processes, times, start_known=start_known, lazy=lazy, damage=damage)
    grown, _ = follow(pages)
    assert within(totals(grown), happened(counted(processes, pages)))


@given(
    lives(most=3),
    lives(most=3),
    TIMES,
    st.lists(st.booleans(), min_size=61, max_size=61),
    st.integers(-100, 100),
)
def test_a_load_balancer_in_between_never_counts_too_much(
    ours: list[Process],
    others: list[Process],
    times: list[int],
    sides: list[bool],
    shift: int,
) -> None:
    """Two replicas behind one address: less is counted than both did, never more."""
    theirs = [
        Process(
            p.start + shift + 0.5,  # no two processes begin at the same moment
            p.end + shift,
            [(t + shift, rank, ms) for t, rank, ms in p.events],
        )
        for p in others
    ]
    pages = []
    for at, side in zip(times, sides, strict=False):
        pages += scrape(ours if side else theirs, [at])
    if not pages:
        return
    grown, _ = follow(pages)
    events = [e for p in (*ours, *theirs) for e in p.events if e[0] > pages[0].at]
    assert within(totals(grown), happened(events))


@given(lives(most=2), lives(most=2), TIMES)
def test_ranks_that_begin_anew_by_themselves_never_count_too_much(
    zero: list[Process], one: list[Process], times: list[int]
) -> None:
    """Without start times each rank's own falls decide about that rank alone."""
    pages = []
    for at in times:
        values: dict[Key, float | Histogram] = {}
        for rank, processes in (("0", zero), ("1", one)):
            for shown in scrape(processes, [at], start_known=False):
                values |= {k: v for k, v in shown.counters.items() if k[0].rank == rank}
                values |= {
                    k: v for k, v in shown.histograms.items() if k[0].rank == rank
                }
        pages.append(page(float(at), values, started=None))
    grown, _ = follow(pages)
    events = [e for p in zero for e in p.events if e[1] == "0"]
    events += [e for p in one for e in p.events if e[1] == "1"]
    assert within(totals(grown), happened(events))

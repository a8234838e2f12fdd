"""Growth over restarts and load balancers, told from the values."""

from __future__ import annotations

from snapshots import PROMPTS, TOKENS, TTFT, follow, histogram, key, page, totals

from analyzer.snapshot import Group, Key, Reset, increase


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

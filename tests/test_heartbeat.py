"""The pulse of an engine: idle, moving, stalled, or gauges frozen."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.heartbeat import FROZEN_AFTER_SECONDS, Heartbeat, Pulse


def beat(  # one call a test line, most values the same
    heartbeat: Heartbeat,
    at: float,
    *,
    moved: bool = False,
    work: float = 1.0,
    ended: float | None = 0.0,
    finished: float = 0.0,
    prefill_p99: float | None = None,
) -> Pulse:
    """Returns the pulse of a page on which nothing moved, unless told otherwise."""
    return heartbeat.beat(
        at,
        moved=moved,
        work=work,
        ended=ended,
        finished=finished,
        prefill_p99=prefill_p99,
    )


def test_no_work_is_idle_however_long() -> None:
    """An engine without requests owes no progress."""
    heartbeat = Heartbeat()
    assert [beat(heartbeat, at, work=0) for at in (0, 60, 3600)] == [Pulse.IDLE] * 3


def test_work_with_progress_is_moving() -> None:
    """Any counter that moves will do."""
    heartbeat = Heartbeat(grace=30)
    assert [beat(heartbeat, at, moved=True) for at in (0, 100, 200)] == (
        [Pulse.MOVING] * 3
    )


def test_the_first_page_begins_the_grace() -> None:
    """What happened before the watch is unknown, so it is no stall yet."""
    heartbeat = Heartbeat(grace=30)
    assert beat(heartbeat, 1000) is Pulse.MOVING
    assert beat(heartbeat, 1030) is Pulse.MOVING
    assert beat(heartbeat, 1030.1) is Pulse.STALLED


def test_work_without_progress_is_stalled_after_the_grace() -> None:
    """Up to the grace inclusive it is believed; one movement ends the stall."""
    heartbeat = Heartbeat(grace=30)
    beat(heartbeat, 0, moved=True)
    assert beat(heartbeat, 30) is Pulse.MOVING
    assert beat(heartbeat, 31) is Pulse.STALLED
    assert heartbeat.progressed_at == 0
    assert beat(heartbeat, 40, moved=True) is Pulse.MOVING
    assert beat(heartbeat, 70) is Pulse.MOVING


def test_a_request_after_a_quiet_hour_is_no_stall() -> None:
    """The grace runs from the first page that shows it, not from the last token."""
    heartbeat = Heartbeat(grace=30)
    beat(heartbeat, 0, moved=True)
    beat(heartbeat, 10, work=0)
    assert beat(heartbeat, 3600) is Pulse.MOVING  # no page for an hour
    assert beat(heartbeat, 3630) is Pulse.MOVING
    assert beat(heartbeat, 3631) is Pulse.STALLED
    beat(heartbeat, 3632, work=0)
    assert beat(heartbeat, 3640) is Pulse.MOVING


@pytest.mark.parametrize(
    ("prefill_p99", "patience"),
    [(None, 30.0), (2.0, 30.0), (15.0, 30.0), (60.0, 120.0), (math.inf, 30.0)],
)
def test_long_prefills_raise_the_grace(
    prefill_p99: float | None, patience: float
) -> None:
    """Twice the p99 of prefill times; one beyond all bounds tells nothing."""
    heartbeat = Heartbeat(grace=30)
    beat(heartbeat, 0, moved=True)
    assert beat(heartbeat, patience, prefill_p99=prefill_p99) is Pulse.MOVING
    assert beat(heartbeat, patience + 1, prefill_p99=prefill_p99) is Pulse.STALLED


def test_gauges_whose_requests_were_given_up_are_frozen() -> None:
    """As many answers ended unfinished as the gauges still show: nothing is there."""
    heartbeat = Heartbeat(grace=30)
    beat(heartbeat, 0, moved=True, work=5)
    assert beat(heartbeat, 2, work=5, ended=3) is Pulse.MOVING
    assert beat(heartbeat, 4, work=5, ended=2) is Pulse.MOVING
    assert beat(heartbeat, 9, work=5) is Pulse.MOVING
    assert beat(heartbeat, FROZEN_AFTER_SECONDS, work=5) is Pulse.FROZEN
    assert beat(heartbeat, 3600, work=5) is Pulse.FROZEN
    assert beat(heartbeat, 3602, work=1, moved=True) is Pulse.MOVING


def test_requests_given_up_in_the_last_moving_interval_count_as_gone() -> None:
    """The counters' last move and the aborts may fall between the same two pages."""
    heartbeat = Heartbeat(grace=30)
    beat(heartbeat, 0, moved=True, work=5, ended=7, finished=2)
    assert heartbeat.gone == 5
    assert beat(heartbeat, 12, work=5) is Pulse.FROZEN


def test_requests_that_arrive_after_all_had_gone_and_get_nothing_are_a_stall() -> None:
    """With frozen gauges the next request would be served, and move everything."""
    heartbeat = Heartbeat(grace=30)
    beat(heartbeat, 0, moved=True, work=5)
    beat(heartbeat, 2, work=5, ended=5)
    assert beat(heartbeat, 12, work=5) is Pulse.FROZEN
    assert beat(heartbeat, 14, work=5, ended=1) is Pulse.MOVING
    assert beat(heartbeat, 31, work=5, ended=1) is Pulse.STALLED
    assert beat(heartbeat, 60, work=5) is Pulse.STALLED
    beat(heartbeat, 62, work=2, moved=True)
    beat(heartbeat, 64, work=2, ended=2)
    assert beat(heartbeat, 80, work=2) is Pulse.FROZEN


@pytest.mark.parametrize("ended", [None, 0.0, 4.0])
def test_fewer_given_up_than_shown_is_a_stall(ended: float | None) -> None:
    """One request that nobody gave up still waits; unknown answers prove nothing."""
    heartbeat = Heartbeat(grace=30)
    beat(heartbeat, 0, moved=True, work=5)
    assert beat(heartbeat, 2, work=5, ended=ended) is Pulse.MOVING
    assert beat(heartbeat, 31, work=5, ended=None) is Pulse.STALLED


def test_answers_that_the_engine_finished_are_not_given_up() -> None:
    """Only what ended without being finished is gone."""
    heartbeat = Heartbeat(grace=30)
    beat(heartbeat, 0, moved=True, work=5, ended=5, finished=5)
    assert heartbeat.gone == 0
    assert beat(heartbeat, 31, work=5) is Pulse.STALLED


def test_what_was_given_up_before_a_quiet_time_is_forgotten() -> None:
    """The next request is not mistaken for one that has gone."""
    heartbeat = Heartbeat(grace=30)
    beat(heartbeat, 0, moved=True, work=2)
    beat(heartbeat, 2, work=2, ended=2)
    beat(heartbeat, 4, work=0)
    assert beat(heartbeat, 20, work=1) is Pulse.MOVING
    assert beat(heartbeat, 35, work=1) is Pulse.MOVING
    assert beat(heartbeat, 51, work=1) is Pulse.STALLED


STEPS = st.lists(
    st.tuples(
        st.floats(0.1, 60),  # seconds since the page before
        st.booleans(),  # whether a counter moved
        st.integers(0, 3),  # work
    ),
    min_size=1,
    max_size=30,
)


@given(STEPS, st.floats(1, 100))
def test_a_stall_is_work_without_progress_for_longer_than_the_grace(
    steps: list[tuple[float, bool, int]], grace: float
) -> None:
    """In any history: never earlier, never with a movement, and always then."""
    heartbeat = Heartbeat(grace=grace)
    at = still_since = 0.0
    idle = True
    for seconds, moved, work in steps:
        at += seconds
        if moved or idle:
            still_since = at
        idle = work == 0
        expected = Pulse.IDLE if work == 0 else Pulse.MOVING
        if work and at - still_since > grace:
            expected = Pulse.STALLED
        assert beat(heartbeat, at, moved=moved, work=work) is expected

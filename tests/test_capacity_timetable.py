"""Sources that each have their time, merged into one."""

from __future__ import annotations

import math
from itertools import count, islice
from random import Random

import pytest
from capacity_models import ask

from analyzer.capacity.arrivals import ClosedLoop, OpenLoop, poisson
from analyzer.capacity.timetable import Timetable, Window
from analyzer.capacity.workload import Fixed, Mix, Request

MIX = Mix(Fixed(10), Fixed(5))


def every(seconds: float, begin: float) -> OpenLoop:
    """Returns a source with a request at *begin* and each *seconds* after it."""
    times = (begin + n * seconds for n in count())
    return OpenLoop(MIX.requests(Random(1), times))


def arrivals(table: Timetable, number: int) -> list[float]:
    """Takes *number* requests."""
    return [table.take().arrival for _ in range(number)]


def test_a_source_sends_only_within_its_window() -> None:
    """From its begin on, and nothing at its end or after it."""
    table = Timetable(
        [
            Window(0.0, 3.0, lambda at: every(1.0, at)),
            Window(3.0, 5.0, lambda at: every(0.5, at)),
        ]
    )
    assert arrivals(table, 7) == [0.0, 1.0, 2.0, 3.0, 3.5, 4.0, 4.5]
    assert table.next_arrival == math.inf
    with pytest.raises(LookupError):
        table.take()


def test_windows_that_overlap_are_merged_and_numbered_anew() -> None:
    """In the order of arrival; no number comes twice."""
    table = Timetable(
        [
            Window(0.0, math.inf, lambda at: every(2.0, at)),
            Window(1.0, math.inf, lambda at: every(2.0, at)),
        ]
    )
    taken = [table.take() for _ in range(6)]
    assert [r.arrival for r in taken] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert [r.number for r in taken] == list(range(6))


def test_there_may_be_windows_without_end() -> None:
    """They are opened one after the other, as they are needed."""
    opened: list[float] = []

    def make(at: float) -> OpenLoop:
        opened.append(at)
        return OpenLoop(MIX.requests(Random(1), islice(poisson(Random(2), 5.0), 3)))

    table = Timetable(Window(float(n), n + 1.0, make) for n in count())
    assert table.next_arrival < 1.0
    assert opened == [0.0]


def test_clients_of_a_closed_loop_stop_with_their_window() -> None:
    """Who is answered after its end does not ask again, and does not join others."""

    def clients(at: float) -> ClosedLoop:
        requests = MIX.requests(Random(1), (at for _ in count()))
        return ClosedLoop(requests, concurrency=2, start=at)

    table = Timetable([Window(0.0, 10.0, clients), Window(20.0, 30.0, clients)])
    first, second = table.take(), table.take()
    assert (first.arrival, second.arrival) == (0.0, 0.0)
    assert table.next_arrival == 20.0
    table.ended(first, 4.0)
    assert table.take().arrival == 4.0  # before the next window
    later = [table.take() for _ in range(2)]
    assert [r.arrival for r in later] == [20.0, 20.0]
    table.ended(second, 21.0)
    assert table.next_arrival == math.inf


def test_the_answer_to_a_request_that_was_not_taken_here_is_an_error() -> None:
    """A fleet that mixes up its sources is heard of."""
    table = Timetable([Window(0.0, 1.0, lambda at: every(1.0, at))])
    stranger: Request = ask(99, 0.0, 10, 5)
    with pytest.raises(KeyError):
        table.ended(stranger, 1.0)

"""The parts of the diagnosis: windows, step times, arrivals, forecast, the strip."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from synthetic_rank import Load, Watched, second

from analyzer.diagnosis.arrivals import Arrivals, Bin, Burstiness
from analyzer.diagnosis.forecast import exhaustion
from analyzer.diagnosis.intervals import Window, stretch
from analyzer.diagnosis.step_time import StepTimes
from analyzer.outlook import hottest, outlook, strip
from analyzer.timeline import Timeline
from analyzer.verdict import Family, Verdict

LOAD = Load(running=2.0, step=0.012)


def test_a_window_is_bounded_and_forgets_what_lies_in_the_future() -> None:
    """Two minutes, and after a clock that was set back no interval overlaps."""
    window = Window()
    for at in range(1000, 1400):
        window.append(second(LOAD, float(at)))
    assert len(list(window)) <= 121
    assert sum(i.seconds for i in window.last(8.0)) == 8.0
    window.append(second(LOAD, 1300.0))
    ends = [i.end for i in window]
    assert ends == sorted(ends)
    assert ends[-1] == 1301.0


def test_slow_sampling_has_two_intervals_at_least() -> None:
    """Scrapes 30 s apart: one interval alone would have no begin."""
    window = Window()
    for at in (0.0, 30.0, 60.0):
        window.append(replace(second(LOAD, at), end=at + 30.0))
    assert len(window.last(8.0)) == 2


def test_absent_stays_absent_in_a_sum() -> None:
    """No gauge is not 0."""
    bare = replace(second(LOAD, 0.0), waiting=None, kv=None, prefill=None)
    found = stretch([bare, bare])
    assert (found.waiting, found.kv_most, found.prefill) == (None, None, None)
    assert found.running == 2.0


@pytest.mark.parametrize("slope", [0.0002, 0.0005, 0.002])
def test_the_fixed_share_is_found_from_two_sizes_of_batch(slope: float) -> None:
    """Steps of 10 ms and so much a sequence: its share at 40 sequences."""
    steps = StepTimes()
    window = Window()
    before = None
    for at, running in enumerate([2.0] * 12 + [40.0] * 12):
        load = Load(running=running, step=0.010 + slope * running, prefill=0.0)
        interval = second(load, float(at))
        steps.learn(interval, before)
        window.append(interval)
        before = interval
    recent = window.last(8.0)
    found = steps.fixed_share(stretch(recent), recent)
    assert found is not None
    assert found.estimate is not None
    # The test's buckets are 10 % wide, and round the smallest step up at most so much.
    assert found.estimate == pytest.approx(0.010 / (0.010 + 40 * slope), rel=0.12)
    assert found.upper >= found.estimate


def test_without_a_smaller_batch_the_share_is_a_bound() -> None:
    """One size only: no estimate."""
    watched = Watched()
    watched.play(replace(LOAD, running=40.0), 20)
    recent = watched.diagnosis.window.last(8.0)
    found = watched.diagnosis.steps.fixed_share(stretch(recent), recent)
    assert found is not None
    assert found.estimate is None
    assert 0.0 < found.upper <= 1.0


def test_a_batch_that_changes_within_an_interval_teaches_nothing() -> None:
    """Its mean step is of no size in particular."""
    steps = StepTimes()
    small, large = second(LOAD, 0.0), second(replace(LOAD, running=30.0), 1.0)
    steps.learn(large, small)
    assert steps.fixed_share(stretch([large]), [large]).small is None  # type: ignore[union-attr]


def arrivals(counts: list[float]) -> Burstiness | None:
    """Returns the burstiness of counts of two seconds each."""
    found = Arrivals()
    for index, arrived in enumerate(counts):
        running = 30.0 if arrived > 10 else 1.0
        queued = arrived > 10
        end = 2.0 * (index + 1)
        found.add(Bin(end, 2.0, arrived, running, queued=queued, pressed=queued))
    return found.burstiness()


@pytest.mark.parametrize("seed", range(5))
def test_independent_arrivals_have_an_index_of_one(seed: int) -> None:
    """Poisson counts are neither significant nor bursts that bind."""
    rng = Random(seed)
    counts = [
        float(sum(rng.expovariate(4.0) < 0.1 for _ in range(12))) for _ in range(60)
    ]
    found = arrivals(counts)
    assert found is not None
    assert found.known
    assert 0.3 < found.index < 1.8
    assert not found.binding


def test_bursts_out_of_calm_bind_and_one_step_up_does_not() -> None:
    """Four bursts; and a load that begins and stays."""
    bursty = arrivals([1.0, 0.0, 1.0, 40.0, 2.0, 0.0, 1.0, 0.0] * 4)
    assert bursty is not None
    assert bursty.binding
    assert bursty.bursts == 4
    step = arrivals([1.0] * 10 + [40.0] + [12.0] * 20)
    assert step is not None
    assert not step.binding


def test_too_few_bins_say_nothing() -> None:
    """Seven bins, and no arrivals at all."""
    assert arrivals([1.0] * 7) is None
    assert arrivals([0.0] * 30) is None


def test_a_filling_cache_is_forecast_with_what_fills_it() -> None:
    """1 % a second from 40 %: a minute is left after the first 20 s."""
    filling = [
        second(replace(LOAD, running=2.0 + n, kv=0.40 + 0.01 * n), float(n))
        for n in range(20)
    ]
    found = exhaustion(filling)
    assert found is not None
    assert found.seconds == pytest.approx(41.0, abs=0.5)
    assert "running requests 2 → 21" in found.filled_by
    answers = [replace(i, running=8.0) for i in filling]
    assert "growing answers" in exhaustion(answers).filled_by  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "usage",
    [
        [0.95] * 20,  # high and steady
        [0.5 + 0.02 * min(n, 8) for n in range(20)],  # filled up, and stays
        [0.9 - 0.02 * n for n in range(20)],  # emptying
        [0.2 + 0.0001 * n for n in range(20)],  # longer than ten minutes
        [0.1, 0.2],  # two points
    ],
)
def test_a_cache_that_is_not_filling_has_no_forecast(usage: list[float]) -> None:
    """Absent, not infinite."""
    intervals = [second(replace(LOAD, kv=kv), float(n)) for n, kv in enumerate(usage)]
    assert exhaustion(intervals) is None


def test_the_strip_is_the_last_hour_by_what_held_longest() -> None:
    """No more than 240 stretches, without overlap, the newest at the end."""
    timeline = Timeline()
    at = 0.0
    for turn in range(2000):
        family = Family.NONE if turn % 2 else Family.QUEUEING
        at += 1.0 if turn % 2 else 3.0
        timeline.extend(at, Verdict(family, "x", 1.0))
    timeline.extend(at + 600.0, Verdict(Family.MEMORY, "kv_capacity", 1.0))
    found = strip(timeline.segments(), at + 600.0)
    assert len(found) <= 240
    assert found[-1][2] == "memory"
    assert found[-1][1] == pytest.approx(at + 600.0)
    assert all(a[1] <= b[0] for a, b in pairwise(found))
    assert {family for _, _, family in found[1:]} == {"queueing", "memory"}


def test_the_outlook_of_an_engine_that_is_gone_is_unknown() -> None:
    """Stale figures are no forecast; the hottest rank is the fullest one."""
    watched = Watched()
    watched.play(replace(LOAD, preemptions=1.0), 20)
    assert outlook(watched.diagnosis, stale="")["preemptions_per_second"] == 1.0
    gone = outlook(watched.diagnosis, stale="the engine does not answer")
    assert set(gone.values()) == {None}
    assert hottest([("0", 0.2), ("1", 0.9), ("2", None)]) == "1"
    assert hottest([("0", None)]) is None

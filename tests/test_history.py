"""Windows over totals, trails for small pictures, and peaks of gauges."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.goodput import Marginal
from analyzer.history import History, Peak, Stretch, Totals, Trail

EPOCH = 1_700_000_000.0


def totals(at: float, finished: float, **marginals: Marginal) -> Totals:
    """Returns totals at *at* seconds, with three tokens a request, one in flight."""
    return Totals(EPOCH + at, finished, 3 * finished, 1.0, marginals)


@dataclass(frozen=True)
class Step:
    """What happens between two samples."""

    seconds: float
    finished: int
    events: int
    in_flight: int


STEPS = st.lists(
    st.builds(
        Step,
        seconds=st.sampled_from([0.25, 1.0, 2.0, 7.0, 30.0, 100.0]),
        finished=st.integers(0, 5),
        events=st.integers(0, 5),
        in_flight=st.integers(0, 9),
    ),
    min_size=2,
    max_size=60,
)


def walk(steps: list[Step]) -> list[Totals]:
    """Returns the running totals after each step."""
    found = []
    at, finished, events = EPOCH, 0.0, 0.0
    for step in steps:
        at += step.seconds
        finished += step.finished
        events += step.events
        ttft = Marginal(2 * events, events, 1.5 * events)
        found.append(
            Totals(at, finished, 4 * finished, float(step.in_flight), {"ttft": ttft})
        )
    return found


@given(STEPS, st.sampled_from([1.0, 5.0, 30.0, 60.0, 1000.0]))
def test_a_window_is_the_difference_of_two_samples(
    steps: list[Step], seconds: float
) -> None:
    """What a window holds is what happened between two samples, and it says when.

    It covers what was asked for, or all that is kept: it never claims more.
    """
    samples = walk(steps)
    keep, spacing = 60.0, 5.0
    history = History(keep=keep, spacing=spacing)
    for sample in samples:
        history.append(sample)
    found = history.over(seconds)
    assert found is not None
    latest = samples[-1]
    (begin,) = (s for s in samples if s.at == latest.at - found.seconds)
    grown = latest.marginals["ttft"].lower - begin.marginals["ttft"].lower
    assert found == Stretch(
        latest.at - begin.at,
        latest.finished - begin.finished,
        latest.tokens - begin.tokens,
        begin.in_flight,
        {"ttft": Marginal(2 * grown, grown, 1.5 * grown)},
    )
    if found.seconds < seconds:
        assert begin is samples[0] or found.seconds >= keep
    wanted = latest.at - min(seconds, keep)
    earlier = [s for s in samples if s.at <= wanted]
    if earlier:
        longest_gap = max(step.seconds for step in steps)
        assert found.seconds < min(seconds, keep) + spacing + longest_gap


def test_a_window_of_regular_samples_is_at_most_one_spacing_longer() -> None:
    """Sampled each second, the last minute is the last 60 to 70 seconds."""
    history = History()
    for second in range(3000):
        history.append(totals(second, 2.0 * second))
        found = history.over(60.0)
        if second >= 60:
            assert found is not None
            assert 60 <= found.seconds < 70
            assert found.finished == 2 * found.seconds


def test_no_window_before_two_samples() -> None:
    """One sample is a beginning: there is no window yet."""
    history = History()
    assert history.over(60.0) is None
    history.append(totals(0, 5))
    assert history.over(60.0) is None
    history.append(totals(1, 7))
    found = history.over(60.0)
    assert found is not None
    assert (found.seconds, found.finished, found.tokens) == (1.0, 2.0, 6.0)


def test_a_short_history_says_how_short_it_is() -> None:
    """Asked for an hour after three minutes, it gives and states three minutes."""
    history = History()
    for minute in range(4):
        history.append(totals(60 * minute, minute))
    found = history.over(3600.0)
    assert found is not None
    assert (found.seconds, found.finished) == (180.0, 3.0)


def test_the_latest_sample_counts_though_it_is_not_kept_for_long() -> None:
    """A sample within the spacing ends the window until the next replaces it."""
    history = History(spacing=10.0)
    history.append(totals(0, 0))
    for second in (1, 2, 3):
        history.append(totals(second, 10 * second))
        found = history.over(3600.0)
        assert found is not None
        assert (found.seconds, found.finished) == (second, 10 * second)


def test_a_new_criterion_grows_from_nothing_and_keeps_its_reason() -> None:
    """A criterion that appears within a window has all its events in it."""
    history = History()
    reason = "the engine has no histogram for ttft"
    history.append(totals(0, 5, e2e=Marginal(5, 4, 5)))
    later = {"e2e": Marginal(8, 6, 8), "ttft": Marginal(3, 0, 3, reason)}
    history.append(totals(20, 8, **later))
    found = history.over(60.0)
    assert found is not None
    assert found.marginals == {
        "e2e": Marginal(3, 2, 3),
        "ttft": Marginal(3, 0, 3, reason),
    }


@pytest.mark.parametrize("period", [0.5, 1.0, 7.0, 10.0, 33.0])
def test_memory_is_bounded_however_long_it_runs(period: float) -> None:
    """At most keep/spacing + 2 samples stay, and they reach back as far as promised."""
    keep, spacing = 600.0, 10.0
    history = History(keep=keep, spacing=spacing)
    for n in range(5000):
        history.append(totals(n * period, n))
        assert len(history._points) <= keep / spacing + 2
    found = history.over(keep)
    assert found is not None
    assert keep <= found.seconds <= keep + spacing + period


def test_a_clock_that_is_set_back_does_not_stop_the_windows() -> None:
    """After a step back of an hour the windows go on from there, never negative."""
    history = History()
    for second in range(0, 7200, 10):
        history.append(totals(second, second))
    for second in range(3605, 4000, 10):
        history.append(totals(second, second + 3600))
        found = history.over(60.0)
        assert found is not None
        assert 0 < found.seconds < 80
        assert found.finished >= 0
    assert found is not None
    assert found.finished == found.seconds


def test_a_trail_keeps_the_highest_of_each_stretch() -> None:
    """Peaks between the points of a picture are not lost, and the oldest points go."""
    trail = Trail(points=3, spacing=5.0)
    assert trail.values() == []
    assert trail.highest(0.0) is None
    for at, value in ((0, 1), (2, 9), (4, 3), (5, 4), (11, 2), (12, 1)):
        trail.append(at, value)
    assert trail.values() == [(0, 9), (5, 4), (11, 2)]
    assert trail.highest(0.0) == 9
    assert trail.highest(4.9) == 9  # its stretch lasts until 5
    assert trail.highest(5.0) == 4
    assert trail.highest(16.0) is None
    trail.append(20, 7)
    assert trail.values() == [(5, 4), (11, 2), (20, 7)]


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.5, 1.0, 3.0, 20.0]), st.integers(0, 6)),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from([1.0, 5.0, 10.0]),
    st.sampled_from([0.0, 0.5, 4.0, 30.0]),
)
def test_a_peak_is_the_maximum_of_its_window(
    steps: list[tuple[float, int]], window: float, wait: float
) -> None:
    """At every sample, and some time after the last, it equals a plain maximum."""
    peak = Peak(window)
    assert peak.value(0.0) is None
    seen: list[tuple[float, float]] = []

    def plain_maximum(now: float) -> float | None:
        inside = [value for at, value in seen if now - window < at <= now]
        return max(inside, default=None)

    at = 0.0
    for seconds, value in steps:
        at += seconds
        peak.append(at, float(value))
        seen.append((at, float(value)))
        assert peak.value(at) == plain_maximum(at)
    assert peak.value(at + wait) == plain_maximum(at + wait)


def test_a_peak_that_nobody_reads_stays_small() -> None:
    """Values that fall for ever leave the window though no one asks for the peak."""
    peak = Peak(60.0)
    for second in range(10_000):
        peak.append(float(second), -float(second))
        assert len(peak._falling) <= 60
    assert peak.value(9_999.0) == -9_940.0

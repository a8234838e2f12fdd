"""Running totals never fall, whatever is added and on whatever bounds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observed_values import observed

from analyzer.histogram import Histogram
from analyzer.ledger import Ledger

INF = math.inf
WIDE = (1.0, 2.0, 3.0, 4.0, INF)
NAME = "engine_ttft_seconds"
MODEL = ("m",)

Published = dict[float, float]  # cumulative count by bound


def published(ledger: Ledger) -> Published:
    """Returns the buckets as a scrape shows them."""
    histogram = ledger.histograms[NAME][MODEL]
    return dict(zip(histogram.bounds, histogram.counts, strict=True))


VALUES = st.lists(st.integers(0, 5).map(float), max_size=5)
SUBSETS = st.sets(st.sampled_from(WIDE[:-1])).map(lambda s: (*sorted(s), INF))


@given(st.lists(st.tuples(SUBSETS, VALUES), min_size=1, max_size=12))
def test_no_bucket_that_stays_steps_back(
    increases: list[tuple[tuple[float, ...], list[float]]],
) -> None:
    """On any sequence of bounds, a bound that is kept never counts less than before."""
    ledger = Ledger()
    before: Published = {}
    count = total = 0.0
    for bounds, values in increases:
        ledger.add_histogram(NAME, MODEL, observed(bounds, values))
        now = published(ledger)
        assert all(now[bound] >= before[bound] for bound in now.keys() & before.keys())
        assert list(now.values()) == sorted(now.values())
        assert set(bounds) <= set(now)
        count += len(values)
        total += sum(values)
        assert now[INF] == count
        assert ledger.histograms[NAME][MODEL].sum == total
        before = now


@given(st.lists(st.tuples(SUBSETS, VALUES), max_size=12))
def test_a_bucket_that_is_lost_and_comes_back_does_not_step_back(
    increases: list[tuple[tuple[float, ...], list[float]]],
) -> None:
    """Increases that lack bounds leave the total's bounds, and claim nothing there."""
    ledger = Ledger()
    ledger.add_histogram(NAME, MODEL, observed(WIDE, [0.5, 1.5, 2.5]))
    before = published(ledger)
    seen = [0.5, 1.5, 2.5]
    for bounds, values in increases:
        ledger.add_histogram(NAME, MODEL, observed(bounds, values))
        seen += values
        now = published(ledger)
        assert tuple(now) == WIDE
        assert all(now[bound] >= before[bound] for bound in WIDE)
        assert all(now[bound] <= sum(v <= bound for v in seen) for bound in WIDE)
        before = now


def test_a_total_moves_to_the_bounds_of_a_restarted_engine() -> None:
    """Kept bounds go on, new ones begin at what is certain, old ones go."""
    ledger = Ledger()
    ledger.add_histogram(NAME, MODEL, Histogram((1, 3, INF), (5, 7, 8), 14))
    ledger.add_histogram(NAME, MODEL, Histogram((1, 2, 5, INF), (1, 2, 3, 4), 9))
    assert published(ledger) == {1: 6, 2: 7, 5: 10, INF: 12}
    assert ledger.histograms[NAME][MODEL].sum == 23


@given(st.lists(st.floats(0, 1e300)))
def test_a_counter_is_the_sum_of_what_was_added(amounts: list[float]) -> None:
    """It exists at 0 from the first addition, and never falls."""
    ledger = Ledger()
    assert ledger.counter("requests_total", MODEL) is None
    ledger.add("requests_total", MODEL, 0.0)
    total = 0.0
    for amount in amounts:
        before = ledger.counter("requests_total", MODEL)
        ledger.add("requests_total", MODEL, amount)
        now = ledger.counter("requests_total", MODEL)
        total += amount
        assert before is not None
        assert now is not None
        assert before <= now == total
    assert list(ledger.rows("requests_total")) == [(MODEL, total)]


def test_label_values_keep_their_own_totals() -> None:
    """Rows of one name add up apart, and unknown names have none."""
    ledger = Ledger()
    ledger.add("finished_total", ("m", "stop"), 2)
    ledger.add("finished_total", ("m", "length"), 3)
    ledger.add("finished_total", ("m", "stop"), 1)
    assert dict(ledger.rows("finished_total")) == {("m", "stop"): 3, ("m", "length"): 3}
    assert list(ledger.rows("other_total")) == []
    assert ledger.counter("finished_total", ("n", "stop")) is None


@pytest.mark.parametrize("amount", [-1.0, -1e-300, math.nan, INF, -INF])
def test_what_would_make_a_total_fall_is_refused(amount: float) -> None:
    """Negative and non-finite amounts raise and leave every total as it was."""
    ledger = Ledger()
    ledger.add("requests_total", MODEL, 2)
    ledger.add_histogram(NAME, MODEL, Histogram((1, INF), (1, 2), 3))
    untouched = ledger.copy()
    with pytest.raises(ValueError, match=r"requests_total.*cannot grow by"):
        ledger.add("requests_total", MODEL, amount)
    with pytest.raises(ValueError, match=r"new_total.*cannot grow by"):
        ledger.add("new_total", MODEL, amount)
    for bad in (Histogram((1, INF), (amount, 2)), Histogram((1, INF), (0, amount))):
        with pytest.raises(ValueError, match=rf"{NAME}.*cannot grow by"):
            ledger.add_histogram(NAME, MODEL, bad)
    with pytest.raises(ValueError, match=rf"{NAME}.*cannot observe"):
        ledger.observe(NAME, MODEL, amount, (1, INF))
    assert ledger == untouched


@pytest.mark.parametrize("amount", [-1e-9, -5.0, math.nan, INF, -INF])
def test_a_sum_that_would_fall_grows_by_nothing(amount: float) -> None:
    """The events count all the same: only their sum is not believed."""
    ledger = Ledger()
    ledger.add_histogram(NAME, MODEL, Histogram((1, INF), (1, 2), 3))
    ledger.add_histogram(NAME, MODEL, Histogram((1, INF), (0, 1), amount))
    assert ledger.histograms[NAME][MODEL] == Histogram((1, INF), (1, 3), 3)


def test_observations_fall_into_inclusive_buckets() -> None:
    """An observation counts at every bound it does not exceed, +Inf included."""
    ledger = Ledger()
    for value in (0.0, 0.5, 0.75, 1.0, 7.0):
        ledger.observe(NAME, MODEL, value, (0.5, 1.0))
    wanted = Histogram((0.5, 1.0, INF), (2, 4, 5), 9.25)
    assert ledger.histograms[NAME][MODEL] == wanted


def test_observations_move_to_new_bounds() -> None:
    """After an upgrade that adds bounds, what was stored on the old ones goes on."""
    ledger = Ledger()
    ledger.observe(NAME, MODEL, 0.7, (0.5, 1.0))
    ledger.observe(NAME, MODEL, 0.6, (0.5, 0.8, 1.0))
    assert published(ledger) == {0.5: 0, 0.8: 1, 1.0: 2, INF: 2}


def test_a_copy_is_independent() -> None:
    """What is added to either side later does not show on the other."""
    ledger = Ledger()
    ledger.add("requests_total", MODEL, 1)
    ledger.observe(NAME, MODEL, 0.5, (1.0,))
    copy = ledger.copy()
    assert copy == ledger
    ledger.add("requests_total", MODEL, 1)
    ledger.add("requests_total", ("n",), 1)
    copy.observe(NAME, MODEL, 0.5, (1.0,))
    assert copy.counters == {"requests_total": {MODEL: 1}}
    assert ledger.histograms[NAME][MODEL].count == 1
    assert copy.histograms[NAME][MODEL].count == 2

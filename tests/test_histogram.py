"""Histogram algebra: PromQL's quantiles, brackets, sums, differences, other bounds."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from observed_values import observed

from analyzer.histogram import Bracket, Histogram, empty, total

INF = math.inf
# Eighths are exact in binary, so that sums and differences of them are exact too.
EIGHTHS = st.integers(0, 80).map(lambda n: n / 8)
VALUES = st.lists(EIGHTHS, max_size=40)
BOUNDS = st.sets(EIGHTHS, max_size=8).map(lambda found: (*sorted(found), INF))
QUANTILES = st.floats(0, 1)


HISTOGRAMS = st.builds(observed, BOUNDS, VALUES)


@pytest.mark.parametrize(
    ("bounds", "counts", "q", "quantile"),
    [
        pytest.param((1, 2, INF), (4, 8, 8), 0.25, 0.5, id="in the first bucket"),
        pytest.param((1, 2, INF), (4, 8, 8), 0.5, 1.0, id="at a bound"),
        pytest.param((1, 2, INF), (4, 8, 8), 0.75, 1.5, id="in a middle bucket"),
        pytest.param((1, 2, INF), (4, 8, 8), 1, 2.0, id="q=1"),
        pytest.param((1, 2, INF), (4, 8, 8), 0, 0.0, id="q=0"),
        pytest.param((1, 2, INF), (0, 8, 8), 0, None, id="q=0, first bucket empty"),
        pytest.param((1, 2, INF), (4, 8, 8), -0.01, -INF, id="q below 0"),
        pytest.param((1, 2, INF), (0, 0, 0), -0.01, -INF, id="q below 0, empty"),
        pytest.param((1, 2, INF), (4, 8, 8), 1.01, INF, id="q above 1"),
        pytest.param((1, 2, INF), (0, 0, 0), 1.01, INF, id="q above 1, empty"),
        pytest.param((1, 2, INF), (4, 8, 8), math.nan, None, id="q NaN"),
        pytest.param((1, 2, INF), (0, 0, 0), 0.5, None, id="no observations"),
        pytest.param((INF,), (8,), 0.5, None, id="only +Inf"),
        pytest.param((1, 2, INF), (4, 8, 16), 0.9, 2.0, id="in +Inf"),
        pytest.param((1, 2, INF), (0, 0, 16), 0.1, 2.0, id="all in +Inf"),
        pytest.param((1, 2, INF), (4, 8, 16), 1, 2.0, id="q=1 in +Inf"),
        pytest.param((0, 2, INF), (4, 8, 8), 0.25, 0.0, id="first bound 0"),
        pytest.param((-1, 2, INF), (4, 8, 8), 0.25, -1.0, id="first bound negative"),
        pytest.param((-1, 2, INF), (4, 8, 8), 0.75, 0.5, id="above a negative bound"),
        pytest.param((0, 2, INF), (0, 8, 8), 0, 0.0, id="q=0, first bound 0"),
        pytest.param((1, 2, 4, INF), (6, 4, 8, 8), 0.5, 2 / 3, id="below a dip"),
        pytest.param((1, 2, 4, INF), (6, 4, 8, 8), 0.875, 3.0, id="past a dip"),
        pytest.param((1, 2, INF), (4, 8, 6), 0.75, 1.5, id="+Inf dips"),
        pytest.param((1, 2, INF), (4, 8, 0), 0.75, 1.5, id="+Inf dips to 0"),
    ],
)
def test_quantiles_at_the_edges_are_promqls(
    bounds: tuple[float, ...],
    counts: tuple[float, ...],
    q: float,
    quantile: float | None,
) -> None:
    """Each special case of histogram_quantile has its answer, NaN being None."""
    assert Histogram(bounds, counts).quantile(q) == quantile


@given(HISTOGRAMS, QUANTILES, QUANTILES)
def test_quantiles_grow_with_q(histogram: Histogram, q: float, other: float) -> None:
    """A higher q never gives a lower quantile."""
    low, high = sorted((q, other))
    below, above = histogram.quantile(low), histogram.quantile(high)
    assume(below is not None)
    assert below is not None
    assert above is not None
    assert below <= above


@given(BOUNDS, VALUES, QUANTILES)
def test_the_true_quantile_lies_in_its_bracket(
    bounds: tuple[float, ...], values: list[float], q: float
) -> None:
    """The observation of that rank lies between the two ends, +Inf being open.

    So does PromQL's estimate, but for q=0, which it takes from an empty bucket too.
    """
    found = observed(bounds, values).quantile_bracket(q)
    if not values:
        assert found is None
        return
    assert found is not None
    rank = max(1, math.ceil(q * len(values)))
    assert found[0] <= sorted(values)[rank - 1] <= found[1]
    assert found[1] in bounds
    estimate = observed(bounds, values).quantile(q)
    if estimate is not None and q > 0:
        assert found[0] <= estimate <= found[1]


def test_a_quantile_bracket_names_its_two_bounds() -> None:
    """The bracket is the bucket that holds the quantile, and empty is None."""
    histogram = Histogram((1, 2, INF), (4, 8, 16))
    assert histogram.quantile_bracket(0) == (0, 1)
    assert histogram.quantile_bracket(0.25) == (0, 1)
    assert histogram.quantile_bracket(0.26) == (1, 2)
    assert histogram.quantile_bracket(0.9) == (2, INF)
    assert Histogram((-1, INF), (3, 4)).quantile_bracket(0.5) == (-INF, -1)
    assert Histogram((1, INF), (0, 4)).quantile_bracket(0) == (1, INF)
    assert histogram.quantile_bracket(1.1) is None
    assert histogram.quantile_bracket(math.nan) is None
    assert empty((1, 2)).quantile_bracket(0.5) is None


@given(BOUNDS, VALUES, EIGHTHS)
def test_a_bracket_holds_the_true_number_and_is_exact_at_bounds(
    bounds: tuple[float, ...], values: list[float], threshold: float
) -> None:
    """The events at a threshold lie between certain and possible; ≤ is inclusive."""
    lower, upper = observed(bounds, values).bracket(threshold)
    truth = sum(value <= threshold for value in values)
    assert lower <= truth <= upper
    if threshold in bounds:
        assert lower == upper == truth


@pytest.mark.parametrize(
    ("threshold", "bracket"),
    [
        (0.5, Bracket(0, 3)),
        (1.0, Bracket(3, 3)),
        (1.5, Bracket(3, 5)),
        (2.0, Bracket(5, 5)),
        (2.5, Bracket(5, 9)),
        (INF, Bracket(9, 9)),
    ],
)
def test_brackets_between_at_and_above_the_bounds(
    threshold: float, bracket: Bracket
) -> None:
    """Below the first bound nothing is certain, above the last all is possible."""
    assert Histogram((1, 2, INF), (3, 5, 9)).bracket(threshold) == bracket


def test_a_dip_is_raised_before_a_bracket_is_read() -> None:
    """What was counted at a lower bound is certain at a higher one."""
    assert Histogram((1, 2, 4, INF), (6, 4, 8, 8)).bracket(2) == Bracket(6, 6)
    assert Histogram((1, 2, 4, INF), (6, 4, 8, 8)).bracket(3) == Bracket(6, 8)


@given(HISTOGRAMS, QUANTILES)
def test_the_fraction_is_the_inverse_of_the_quantile(
    histogram: Histogram, q: float
) -> None:
    """The share below the q-quantile is q, where the quantile is interpolated."""
    value = histogram.quantile(q)
    assume(value is not None)
    assert value is not None
    rank = q * histogram.count
    index = bisect_left(histogram.counts, rank)
    assume(histogram.bounds[index] < INF)
    assume(index > 0 or histogram.bounds[0] > 0)
    assert histogram.fraction(value) == pytest.approx(q, rel=1e-12, abs=1e-12)


@given(HISTOGRAMS, EIGHTHS)
def test_the_fraction_lies_in_the_bracket_and_is_exact_at_bounds(
    histogram: Histogram, threshold: float
) -> None:
    """The estimate contradicts neither what is certain nor what is possible."""
    fraction = histogram.fraction(threshold)
    if not histogram.count:
        assert fraction is None
        return
    assert fraction is not None
    lower, upper = histogram.bracket(threshold)
    slack = 1e-12 * histogram.count
    assert lower - slack <= fraction * histogram.count <= upper + slack
    if threshold in histogram.bounds:
        assert fraction == lower / histogram.count


@pytest.mark.parametrize(
    ("bounds", "counts", "upper", "fraction"),
    [
        pytest.param((1, 2, INF), (4, 6, 8), 0.5, 0.25, id="in the first bucket"),
        pytest.param((1, 2, INF), (4, 6, 8), 1, 0.5, id="at a bound"),
        pytest.param((1, 2, INF), (4, 6, 8), 1.5, 0.625, id="in a middle bucket"),
        pytest.param((1, 2, INF), (4, 6, 8), 3, 0.75, id="in +Inf"),
        pytest.param((1, 2, INF), (4, 6, 8), INF, 1.0, id="at +Inf"),
        pytest.param((1, 2, INF), (4, 6, 8), 0, 0.0, id="at 0"),
        pytest.param((1, 2, INF), (4, 6, 8), -1, 0.0, id="below 0"),
        pytest.param((1, 2, INF), (4, 6, 8), -INF, 0.0, id="at -Inf"),
        pytest.param((1, 2, INF), (4, 6, 8), math.nan, None, id="NaN"),
        pytest.param((1, 2, INF), (0, 0, 0), 1, None, id="no observations"),
        pytest.param((INF,), (8,), 1, 0.0, id="only +Inf"),
        pytest.param((INF,), (8,), INF, 1.0, id="only +Inf, at it"),
        pytest.param((0, 2, INF), (2, 6, 8), 0, 0.25, id="first bound 0"),
        pytest.param((-1, 1, INF), (2, 6, 8), -1, 0.25, id="at a negative bound"),
        pytest.param((-1, 1, INF), (2, 6, 8), -2, 0.25, id="below a negative bound"),
        pytest.param((-1, 1, INF), (2, 6, 8), 0, 0.5, id="above a negative bound"),
        pytest.param((-1, 1, INF), (2, 6, 8), -INF, 0.0, id="-Inf, negative bound"),
        pytest.param((1, 2, INF), (4, 2, 8), 2, 0.5, id="a dip is raised"),
    ],
)
def test_fractions_at_the_edges(
    bounds: tuple[float, ...],
    counts: tuple[float, ...],
    upper: float,
    fraction: float | None,
) -> None:
    """Each special case of histogram_fraction(-Inf, upper, …) has its answer."""
    assert Histogram(bounds, counts).fraction(upper) == fraction


@given(BOUNDS, VALUES, VALUES, VALUES, VALUES)
def test_differences_and_sums_commute(
    bounds: tuple[float, ...],
    a: list[float],
    b: list[float],
    more_a: list[float],
    more_b: list[float],
) -> None:
    """The growth of a sum is the sum of the growths: replicas and time may swap."""
    before = observed(bounds, a), observed(bounds, b)
    after = observed(bounds, a + more_a), observed(bounds, b + more_b)
    growth = (after[0] + after[1]) - (before[0] + before[1])
    assert growth == (after[0] - before[0]) + (after[1] - before[1])
    assert growth == observed(bounds, more_a + more_b)


@given(st.lists(HISTOGRAMS, max_size=5))
def test_histograms_of_different_bounds_meet_on_those_they_share(
    histograms: list[Histogram],
) -> None:
    """A sum counts exactly what all of them count, in any order."""
    found = total(histograms)
    if found is None:
        assert not histograms
        return
    shared = set.intersection(*(set(h.bounds) for h in histograms))
    assert found.bounds == tuple(sorted(shared))
    for bound in shared:
        there = sum(h.counts[h.bounds.index(bound)] for h in histograms)
        assert found.counts[found.bounds.index(bound)] == there
    assert found.sum == sum(h.sum for h in histograms)
    assert found == total(reversed(histograms))


def test_a_difference_needs_equal_bounds() -> None:
    """Counts of different bounds are not subtracted silently."""
    with pytest.raises(ValueError, match="equal bounds"):
        Histogram((1, INF), (1, 2)) - Histogram((2, INF), (1, 2))


@given(BOUNDS, VALUES, BOUNDS)
def test_a_histogram_on_other_bounds_keeps_what_is_certain(
    bounds: tuple[float, ...], values: list[float], others: tuple[float, ...]
) -> None:
    """Kept bounds keep their counts, new ones begin at the certain part."""
    before = observed(bounds, values)
    moved = before.rebased(others)
    assert moved.bounds == others
    assert moved.sum == before.sum
    assert moved.count == before.count
    assert all(low <= high for low, high in pairwise(moved.counts))
    truth = observed(others, values)
    for bound, count, true in zip(others, moved.counts, truth.counts, strict=True):
        assert count == before.bracket(bound).lower
        assert count <= true
        if bound in bounds:
            assert count == before.counts[bounds.index(bound)]


@given(BOUNDS, VALUES)
def test_the_sum_lies_within_its_limits(
    bounds: tuple[float, ...], values: list[float]
) -> None:
    """Buckets limit the sum from both sides, or from below when +Inf holds some."""
    histogram = observed(bounds, values)
    low, high = histogram.sum_limits()
    assert low <= histogram.sum <= high
    beyond = bool(values) and (bounds[:-1] or (-1.0,))[-1] < max(values)
    assert (high == INF) == beyond


def test_limits_of_the_sum_of_a_few_observations() -> None:
    """Each observation lies between the bounds of its bucket, the lowest being 0."""
    assert Histogram((1, 2, INF), (3, 5, 5)).sum_limits() == (2, 7)
    assert Histogram((1, 2, INF), (3, 5, 6)).sum_limits() == (4, INF)
    assert Histogram((-1, 2, INF), (0, 5, 5)).sum_limits() == (-5, 10)
    assert Histogram((-1, 2, INF), (1, 5, 5)).sum_limits() == (-INF, 7)
    assert empty((1, 2)).sum_limits() == (0, 0)


def test_mean_and_count() -> None:
    """The mean is the sum over the count, None without observations."""
    assert Histogram((1, INF), (1, 4), 10).mean == 2.5
    assert Histogram((1, INF), (1, 4), 10).count == 4
    assert empty((1,)).mean is None
    assert empty((1, INF)) == empty((1,)) == Histogram((1, INF), (0, 0))


@pytest.mark.parametrize(
    ("bounds", "counts", "reason"),
    [
        ((), (), "last bound must be +Inf"),
        ((1,), (1,), "last bound must be +Inf"),
        ((1, INF), (1,), "2 bounds but 1 counts"),
        ((2, 1, INF), (1, 1, 1), "must ascend"),
        ((1, 1, INF), (1, 1, 1), "must ascend"),
        ((1, math.nan, INF), (1, 1, 1), "must ascend"),
        ((INF, INF), (1, 1), "must ascend"),
    ],
)
def test_what_is_no_histogram_is_refused(
    bounds: tuple[float, ...], counts: tuple[float, ...], reason: str
) -> None:
    """Bounds that do not ascend to +Inf, NaN too, or do not fit the counts."""
    with pytest.raises(ValueError, match=reason.replace("+", r"\+")):
        Histogram(bounds, counts)

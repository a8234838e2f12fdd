"""A histogram that is observed many values at a time."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from analyzer.tally import Tally

BOUNDS = (0.1, 0.2, 0.5, 1.0)
# Bounds themselves among them, and values above all of them.
VALUES = st.lists(st.sampled_from(BOUNDS) | st.floats(0.0, 2.0), max_size=120)


@given(VALUES, st.integers(1, 120))
def test_how_values_come_in_batches_does_not_matter(
    values: list[float], size: int
) -> None:
    """Counts and sum are exactly those of one value after the other."""
    tally = Tally(BOUNDS)
    for begin in range(0, len(values), size):
        tally.observe(values[begin : begin + size])
    counts, total = [0.0] * (len(BOUNDS) + 1), 0.0
    for value in values:
        counts[bisect_left(BOUNDS, value)] += 1.0
        total += value
    assert (tally.counts, tally.sum) == (counts, total)


def test_a_bound_is_inclusive() -> None:
    """A value that is a threshold meets it, alone or among many."""
    for number in (1, 100):
        tally = Tally(BOUNDS)
        tally.observe([0.5] * number)
        assert tally.counts == [0.0, 0.0, number, 0.0, 0.0]

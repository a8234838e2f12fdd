"""The knee of a curve by two methods, on curves whose knee is known."""

from __future__ import annotations

import math

import pytest

from analyzer.capacity.knee import Usl, fit_usl, kneedle

POWERS = (1, 2, 4, 8, 16, 32, 64)


def test_kneedle_finds_where_a_saturating_curve_bends() -> None:
    """A server of capacity 16: throughput grows to there and then stays."""
    knee = kneedle(POWERS, [min(load, 16) for load in POWERS])
    assert knee.index is not None
    assert POWERS[knee.index] == 16


def test_kneedle_finds_the_knee_of_its_own_paper() -> None:
    """Satopää et al. (2011), figure 2: y = −1/x + 5 has its knee at 0.22 of x."""
    loads = [0.1 * n for n in range(1, 11)]
    knee = kneedle(loads, [5 - 1 / x for x in loads])
    assert knee.index is not None
    assert loads[knee.index] == pytest.approx(0.3, abs=0.11)


@pytest.mark.parametrize(
    ("rates", "reason"),
    [
        ([1, 2, 3, 4], "4 load points of the 5 needed"),
        ([1, 2, 4, 8, 16, 32, 64], "grows with the load to its end"),
        ([5, 5, 5, 5, 5, 5, 5], "does not rise"),
        ([5, 4, 3, 2, 1, 1, 1], "does not rise"),
        ([1, 2, 4, 8, 15, 30, 60], "not flatten clearly"),
    ],
)
def test_a_curve_without_a_knee_says_why(rates: list[float], reason: str) -> None:
    """A knee is not made up of noise, nor at the end of what was measured."""
    knee = kneedle(POWERS[: len(rates)], rates)
    assert knee.index is None
    assert reason in knee.reason


def test_the_scalability_law_is_found_again_from_its_own_curve() -> None:
    """All three parameters, the peak, and no residual."""
    true = Usl(2.0, 0.05, 0.001, ())
    found = fit_usl(POWERS, [true.at(load) for load in POWERS])
    assert found is not None
    assert found.rate == pytest.approx(2.0)
    assert found.serial == pytest.approx(0.05)
    assert found.crosstalk == pytest.approx(0.001)
    assert found.peak_load == pytest.approx(math.sqrt(0.95 / 0.001))
    assert found.worst_residual < 1e-9
    assert found.at(31) > max(found.at(20), found.at(64))


def test_a_law_never_gets_a_negative_parameter() -> None:
    """Better than linear growth fits no law: the parameters stay at 0."""
    found = fit_usl(POWERS, [load**1.2 for load in POWERS])
    assert found is not None
    assert (found.serial, found.crosstalk) == (0.0, 0.0)
    assert found.peak_load == math.inf
    assert found.worst_residual > 0.2


def test_residuals_say_which_points_the_law_misses() -> None:
    """One point that is off by a fifth stands out."""
    rates = [Usl(2.0, 0.05, 0.001, ()).at(load) for load in POWERS]
    rates[3] *= 0.8
    found = fit_usl(POWERS, rates)
    assert found is not None
    worst = min(range(len(POWERS)), key=lambda at: found.residuals[at])
    assert worst == 3
    assert found.residuals[worst] < -0.1


@pytest.mark.parametrize("rates", [[1, 2, 3, 4, 5], [1, 2, 0, 3, 4, 5, 6]])
def test_too_few_points_or_none_served_have_no_law(rates: list[float]) -> None:
    """Six points hold three parameters; a load that served nothing has no law."""
    assert fit_usl(POWERS[: len(rates)], rates) is None

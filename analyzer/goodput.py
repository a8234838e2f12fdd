"""How many requests were good, as far as an engine's marginal histograms can tell.

The engine says how many requests met each criterion, not which. From that follow
bounds (Fréchet): no more can be good than met the hardest criterion, and no fewer
than all minus every miss. Without a request log there is no goodput, only bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from analyzer.histogram import Bracket, Histogram
from analyzer.slo import SloClass, Threshold


@dataclass(frozen=True, slots=True)
class Marginal:
    """Events judged by one criterion: all, certainly good, possibly good.

    `reason` says why nothing is certain when the engine has no such histogram.
    """

    events: float
    lower: float
    upper: float
    reason: str = ""

    def __add__(self, other: Marginal) -> Marginal:
        return Marginal(
            self.events + other.events,
            self.lower + other.lower,
            self.upper + other.upper,
            self.reason or other.reason,
        )


def marginals(
    slo_class: SloClass,
    histograms: Mapping[str, Histogram],
    finished: float | None,
    longest_prompt: float,
) -> dict[str, Marginal]:
    """Returns the events of each criterion of *slo_class* in one increase.

    *histograms* maps ttft, tpot and e2e to their increase. A criterion without a
    histogram is possible and never certain for all *finished* requests, and left
    out when that number is unknown too. *longest_prompt* (tokens, may be infinite)
    bounds thresholds that grow with the prompt.
    """
    result: dict[str, Marginal] = {}
    for criterion, threshold in slo_class.good.items():
        histogram = histograms.get(criterion)
        if histogram is not None:
            lower, upper = bracket(histogram, threshold, longest_prompt)
            result[criterion] = Marginal(histogram.count, lower, upper)
        elif finished is not None:
            reason = f"the engine has no histogram for {criterion}"
            result[criterion] = Marginal(finished, 0.0, finished, reason)
    return result


def percentile_events(
    slo_class: SloClass, histograms: Mapping[str, Histogram]
) -> dict[tuple[str, str], Marginal]:
    """Returns the events of each percentile of *slo_class* in one increase.

    A percentile is a criterion and a level, such as "p95"; without a histogram of its
    criterion it is left out. Of one-token answers vLLM says a TPOT of 0: they are
    possibly within the limit, so `upper` stays true, and `lower` is not certain.
    """
    return {
        (criterion, level): Marginal(histogram.count, *histogram.bracket(seconds))
        for (criterion, level), seconds in slo_class.percentiles.items()
        if (histogram := histograms.get(criterion)) is not None
    }


def bracket(
    histogram: Histogram, threshold: Threshold, longest_prompt: float
) -> Bracket:
    """Returns how many observations certainly and possibly meet *threshold*.

    For one that grows with the prompt: certain at an empty prompt, possible at the
    longest.
    """
    if not threshold.per_prompt_token:
        return histogram.bracket(threshold.seconds)
    certain = histogram.bracket(threshold.seconds).lower
    return Bracket(certain, histogram.bracket(threshold.at(longest_prompt)).upper)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The number of finished requests, and how many of them were good.

    `lower` and `upper` are counts; the ratios are None when nothing finished.
    """

    finished: float
    lower: float
    upper: float

    @property
    def ratios(self) -> tuple[float, float] | None:
        """The bounds as shares of the finished requests."""
        if not self.finished > 0:
            return None
        return self.lower / self.finished, self.upper / self.finished


def joint_bounds(
    finished: float, by_criterion: Mapping[str, Marginal], *, in_flight: float = 0.0
) -> Bounds:
    """Returns the bounds on good requests among *finished* ones.

    A miss of TTFT may belong to a request that has not finished or never will: it is
    taken off all the same, so the lower bound stays true. *in_flight* requests at
    the window's begin may have had their first token before it; each may be a miss
    that the window does not show, or a hit that it does not count. So may each
    finished request beyond a criterion's events.
    """
    misses, most = 0.0, finished
    for criterion, marginal in by_criterion.items():
        unseen = max(0.0, finished - marginal.events)
        if criterion == "ttft":
            unseen = max(unseen, in_flight)
        misses += marginal.events - marginal.lower + unseen
        most = min(most, marginal.upper + unseen)
    return Bounds(finished, max(0.0, finished - misses), most)


def longest_prompt(lengths: Histogram | None, max_model_len: int | None) -> float:
    """Returns the tokens that no prompt exceeds, +Inf when that is unknown.

    vLLM's length buckets are the 1-2-5 series up to the model's limit, so the limit
    lies below the next of the series; other bounds (custom buckets) say nothing.
    """
    if max_model_len is not None:
        return float(max_model_len)
    if lengths is None or len(lengths.bounds) < 2:
        return math.inf
    finite = lengths.bounds[:-1]
    series = [m * 10.0**e for e in range(12) for m in (1, 2, 5)]
    if list(finite) != series[: len(finite)] or len(finite) >= len(series):
        return math.inf
    return series[len(finite)]

"""Bounds on good requests contain the truth, whatever the marginals hide."""

from __future__ import annotations

import gzip
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from operator import add
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.exposition import parse_text
from analyzer.goodput import (
    Bounds,
    Marginal,
    bracket,
    joint_bounds,
    longest_prompt,
    marginals,
    percentile_events,
)
from analyzer.histogram import Bracket, Histogram, empty
from analyzer.slo import Match, SloClass, Threshold

INF = math.inf
IDLE_PAGE = Path(__file__).parent / "fixtures" / "vllm" / "idle-mfu-two-names.prom.gz"


@dataclass(frozen=True)
class Request:
    """One request on the engine's clock, in seconds; an aborted one never finishes."""

    arrival: float
    ttft: float
    decode: float
    tokens: int
    prompt: int
    aborted: bool

    @property
    def first_token(self) -> float:
        """When its first token came."""
        return self.arrival + self.ttft

    @property
    def finish(self) -> float:
        """When it finished, +Inf when it was aborted."""
        return INF if self.aborted else self.first_token + self.decode

    @property
    def tpot(self) -> float:
        """Seconds a token after the first; vLLM prints 0 for one-token answers."""
        return self.decode / (self.tokens - 1) if self.tokens > 1 else 0.0

    def good(self, slo_class: SloClass) -> bool:
        """Whether it met every criterion of the class."""
        taken = {"ttft": self.ttft, "tpot": self.tpot, "e2e": self.ttft + self.decode}
        return all(
            taken[criterion] <= threshold.at(self.prompt)
            for criterion, threshold in slo_class.good.items()
        )


# Whole seconds, and few of them: events meet thresholds and window edges often.
SECONDS = st.integers(0, 6).map(float)
REQUESTS = st.lists(
    st.builds(
        Request,
        arrival=SECONDS,
        ttft=SECONDS,
        decode=SECONDS,
        tokens=st.sampled_from([1, 2, 3]),
        prompt=st.integers(0, 4),
        aborted=st.sampled_from([False, False, False, True]),
    ),
    max_size=12,
)
BOUNDS = st.sets(SECONDS, min_size=3, max_size=7).map(lambda s: (*sorted(s), INF))
BOUNDS_OF = st.fixed_dictionaries(dict.fromkeys(("ttft", "tpot", "e2e"), BOUNDS))
THRESHOLDS = st.dictionaries(
    st.sampled_from(["ttft", "tpot", "e2e"]), SECONDS.map(Threshold), min_size=1
)
GROWING = st.builds(Threshold, SECONDS, st.sampled_from([0.5, 1.0]))
WINDOWS = st.tuples(SECONDS, st.integers(1, 12).map(float))
MANY = settings(max_examples=500)


def slo(good: dict[str, Threshold]) -> SloClass:
    """Returns a class with these criteria."""
    return SloClass("c", Match(), good, objective=0.95, window_seconds=3600.0)


def observed(bounds: Sequence[float], values: Iterable[float]) -> Histogram:
    """Returns the histogram of *values*, counted one by one."""
    seen = list(values)
    counts = tuple(float(sum(v <= bound for v in seen)) for bound in bounds)
    return Histogram(tuple(bounds), counts, sum(seen))


@dataclass(frozen=True)
class Window:
    """What an engine says of (begin, end], and the truth it does not say."""

    begin: float
    end: float
    requests: list[Request]

    @property
    def finished(self) -> list[Request]:
        """The requests that finished in the window."""
        return [r for r in self.requests if self.begin < r.finish <= self.end]

    @property
    def in_flight(self) -> int:
        """The requests running or waiting when the window begins."""
        return sum(r.arrival <= self.begin < r.finish for r in self.requests)

    def histograms(
        self, bounds: dict[str, tuple[float, ...]], *, lone_tokens: bool = True
    ) -> dict[str, Histogram]:
        """Returns the increase of each histogram, counted when an engine counts it.

        *lone_tokens* says that one-token answers count in TPOT, as vLLM has them.
        """
        begun = [r for r in self.requests if self.begin < r.first_token <= self.end]
        paced = [r for r in self.finished if lone_tokens or r.tokens > 1]
        return {
            "ttft": observed(bounds["ttft"], (r.ttft for r in begun)),
            "tpot": observed(bounds["tpot"], (r.tpot for r in paced)),
            "e2e": observed(bounds["e2e"], (r.ttft + r.decode for r in self.finished)),
        }

    def good(self, slo_class: SloClass) -> int:
        """Returns how many of the finished requests were good."""
        return sum(r.good(slo_class) for r in self.finished)

    def bounds(
        self, slo_class: SloClass, histograms: dict[str, Histogram], longest: float
    ) -> Bounds:
        """Returns the bounds that follow from *histograms*."""
        found = marginals(slo_class, histograms, float(len(self.finished)), longest)
        return joint_bounds(len(self.finished), found, in_flight=self.in_flight)


def assert_contains(bounds: Bounds, truth: int) -> None:
    """Asserts that the truth lies within, and that the bounds make sense."""
    assert 0 <= bounds.lower <= truth <= bounds.upper <= bounds.finished
    if bounds.finished:
        assert bounds.ratios is not None
        low, high = bounds.ratios
        assert 0 <= low <= truth / bounds.finished <= high <= 1
    else:
        assert bounds.ratios is None


@MANY
@given(REQUESTS, WINDOWS, BOUNDS_OF, THRESHOLDS)
def test_the_truth_lies_within_the_bounds(
    requests: list[Request],
    window: tuple[float, float],
    bounds: dict[str, tuple[float, ...]],
    good: dict[str, Threshold],
) -> None:
    """Requests in flight at either end and aborted ones do not break the bounds."""
    begin, seconds = window
    seen = Window(begin, begin + seconds, requests)
    slo_class = slo(good)
    assert_contains(
        seen.bounds(slo_class, seen.histograms(bounds), INF), seen.good(slo_class)
    )


@MANY
@given(
    REQUESTS,
    WINDOWS,
    BOUNDS_OF,
    THRESHOLDS,
    st.sets(st.sampled_from(["ttft", "tpot", "e2e"])),
)
def test_the_truth_lies_within_the_bounds_when_histograms_are_missing(
    requests: list[Request],
    window: tuple[float, float],
    bounds: dict[str, tuple[float, ...]],
    good: dict[str, Threshold],
    missing: Collection[str],
) -> None:
    """A criterion without a histogram is possible for all and certain for none."""
    begin, seconds = window
    seen = Window(begin, begin + seconds, requests)
    slo_class = slo(good)
    there = {k: v for k, v in seen.histograms(bounds).items() if k not in missing}
    found = seen.bounds(slo_class, there, INF)
    assert_contains(found, seen.good(slo_class))
    if set(good) & set(missing):
        assert found.lower == 0


@MANY
@given(REQUESTS, WINDOWS, BOUNDS_OF, THRESHOLDS)
def test_the_truth_lies_within_the_bounds_when_tpot_leaves_out_lone_tokens(
    requests: list[Request],
    window: tuple[float, float],
    bounds: dict[str, tuple[float, ...]],
    good: dict[str, Threshold],
) -> None:
    """An engine that does not time one-token answers makes the bounds wider."""
    begin, seconds = window
    seen = Window(begin, begin + seconds, requests)
    slo_class = slo(good)
    histograms = seen.histograms(bounds, lone_tokens=False)
    assert_contains(seen.bounds(slo_class, histograms, INF), seen.good(slo_class))


@MANY
@given(REQUESTS, WINDOWS, BOUNDS_OF, GROWING, st.sampled_from([4.0, 6.0, INF]))
def test_the_truth_lies_within_the_bounds_when_ttft_grows_with_the_prompt(
    requests: list[Request],
    window: tuple[float, float],
    bounds: dict[str, tuple[float, ...]],
    ttft: Threshold,
    longest: float,
) -> None:
    """Certain at an empty prompt, possible at the longest: the truth is between."""
    begin, seconds = window
    seen = Window(begin, begin + seconds, requests)
    slo_class = slo({"ttft": ttft, "e2e": Threshold(5.0)})
    histograms = seen.histograms(bounds)
    assert_contains(seen.bounds(slo_class, histograms, longest), seen.good(slo_class))
    begun = [r for r in requests if begin < r.first_token <= begin + seconds]
    lower, upper = bracket(histograms["ttft"], ttft, longest)
    assert lower <= sum(r.ttft <= ttft.at(r.prompt) for r in begun) <= upper


@given(REQUESTS, st.lists(SECONDS, min_size=2, max_size=6), BOUNDS_OF, THRESHOLDS)
def test_marginals_of_consecutive_windows_add_up(
    requests: list[Request],
    times: list[float],
    bounds: dict[str, tuple[float, ...]],
    good: dict[str, Threshold],
) -> None:
    """Bounds of a long window need only sums over its parts, which counters give."""
    slo_class = slo(good)
    edges = sorted(times)
    whole = Window(edges[0], edges[-1], requests)
    parts = [Window(begin, end, requests) for begin, end in pairwise(edges)]
    found = [
        marginals(slo_class, w.histograms(bounds), float(len(w.finished)), INF)
        for w in parts
    ]
    summed = {name: reduce(add, (each[name] for each in found)) for name in good}
    finished = sum(len(window.finished) for window in parts)
    assert joint_bounds(finished, summed, in_flight=whole.in_flight) == whole.bounds(
        slo_class, whole.histograms(bounds), INF
    )


@given(REQUESTS, BOUNDS, SECONDS)
def test_one_criterion_at_a_bound_is_exact(
    requests: list[Request], bounds: tuple[float, ...], threshold: float
) -> None:
    """With E2E alone and its threshold among the bounds both ends are the truth."""
    complete = (*sorted({*bounds[:-1], threshold}), INF)
    seen = Window(0.0, 1000.0, requests)
    slo_class = slo({"e2e": Threshold(threshold)})
    histograms = {"e2e": observed(complete, (r.ttft + r.decode for r in seen.finished))}
    found = seen.bounds(slo_class, histograms, INF)
    assert found.lower == found.upper == seen.good(slo_class)


def test_the_joint_bounds_are_those_of_frechet() -> None:
    """97 % meet TTFT and 95 % TPOT: at least 92 % and at most 95 % meet both."""
    found = joint_bounds(
        100, {"ttft": Marginal(100, 97, 97), "tpot": Marginal(100, 95, 95)}
    )
    assert found == Bounds(100, 92, 95)
    assert found.ratios == (0.92, 0.95)


def test_requests_in_flight_widen_ttft_alone() -> None:
    """What ran at the begin had its first token before; its finish is still to come."""
    both = {"ttft": Marginal(100, 90, 90), "e2e": Marginal(100, 95, 95)}
    assert joint_bounds(100, both) == Bounds(100, 85, 90)
    assert joint_bounds(100, both, in_flight=3) == Bounds(100, 82, 93)
    assert joint_bounds(100, {"e2e": both["e2e"]}, in_flight=3) == Bounds(100, 95, 95)


def test_no_criterion_says_nothing_against_a_request() -> None:
    """Without marginals every finished request is good; none finished, none good."""
    assert joint_bounds(7, {}) == Bounds(7, 7, 7)
    assert joint_bounds(0, {"ttft": Marginal(3, 1, 2)}) == Bounds(0, 0, 0)
    assert joint_bounds(0, {}).ratios is None


def test_a_criterion_without_a_histogram_says_why_it_is_open() -> None:
    """It counts all finished requests, or is left out when nobody counted them."""
    slo_class = slo({"ttft": Threshold(1.0), "e2e": Threshold(2.0)})
    e2e = {"e2e": Histogram((2.0, INF), (3.0, 4.0))}
    found = marginals(slo_class, e2e, 4.0, INF)
    assert found["ttft"] == Marginal(
        4.0, 0.0, 4.0, "the engine has no histogram for ttft"
    )
    assert found["e2e"] == Marginal(4.0, 3.0, 3.0)
    assert marginals(slo_class, {}, None, INF) == {}


@given(REQUESTS, BOUNDS_OF, SECONDS, SECONDS, SECONDS)
def test_a_percentile_is_never_said_to_be_missed_when_it_is_kept(
    requests: list[Request],
    bounds: dict[str, tuple[float, ...]],
    ttft: float,
    tpot: float,
    e2e: float,
) -> None:
    """No more requests are within the limit than `upper`, none is counted twice."""
    limits = {("ttft", "p95"): ttft, ("tpot", "p50"): tpot, ("e2e", "p99"): e2e}
    seen = Window(0.0, 1000.0, requests)
    slo_class = replace(slo({"e2e": Threshold(1.0)}), percentiles=limits)
    found = percentile_events(slo_class, seen.histograms(bounds))
    begun = [r.ttft for r in requests if 0 < r.first_token <= 1000.0]
    many = [r.tpot for r in seen.finished if r.tokens > 1]
    whole = [r.ttft + r.decode for r in seen.finished]
    for key, taken in zip(limits, (begun, many, whole), strict=True):
        within = sum(seconds <= limits[key] for seconds in taken)
        assert len(taken) <= found[key].events
        missed = found[key].events - found[key].upper
        assert within <= len(taken) - missed <= found[key].upper


def test_a_percentile_without_a_histogram_is_left_out() -> None:
    """Nothing can be said of it, so nothing is counted."""
    limits = {("ttft", "p95"): 1.0, ("max_gap", "p95"): 1.0}
    slo_class = replace(slo({"e2e": Threshold(1.0)}), percentiles=limits)
    histograms = {"ttft": Histogram((1.0, INF), (3.0, 4.0))}
    assert percentile_events(slo_class, histograms) == {
        ("ttft", "p95"): Marginal(4.0, 3.0, 3.0)
    }


def test_a_sum_of_marginals_keeps_the_reason() -> None:
    """One interval without a histogram is remembered in the sum."""
    open_ = Marginal(2, 0, 2, "no histogram")
    assert open_ + Marginal(1, 1, 1) == Marginal(3, 1, 3, "no histogram")
    assert Marginal(1, 1, 1) + open_ == Marginal(3, 1, 3, "no histogram")


def test_a_growing_threshold_is_bracketed_by_its_ends() -> None:
    """F(base) is certain and F(base + rate × longest) possible, all when unknown."""
    ttft = Histogram((0.5, 1.0, 2.0, INF), (10, 20, 30, 40))
    growing = Threshold(0.5, 0.25)
    assert bracket(ttft, growing, 2.0) == Bracket(10, 20)
    assert bracket(ttft, growing, 3.0) == Bracket(10, 30)
    assert bracket(ttft, growing, INF) == Bracket(10, 40)
    assert bracket(ttft, Threshold(0.75), INF) == Bracket(10, 20)


def one_two_five(limit: int) -> tuple[float, ...]:
    """Returns vLLM's length buckets: the 1-2-5 series up to the model's limit."""
    series = (m * 10**e for e in range(12) for m in (1, 2, 5))
    return (*(float(bound) for bound in series if bound <= limit), INF)


@given(st.integers(1, 10_000_000))
def test_the_longest_prompt_is_read_off_the_length_buckets(limit: int) -> None:
    """The model's limit lies below the next bound of the series, and not far below."""
    found = longest_prompt(empty(one_two_five(limit)), None)
    assert limit < found <= 2.5 * limit


@pytest.mark.parametrize(
    ("lengths", "max_model_len", "longest"),
    [
        pytest.param(empty((1, 2, 5)), 4096, 4096, id="told"),
        pytest.param(None, 4096, 4096, id="told, no histogram"),
        pytest.param(None, None, INF, id="nothing known"),
        pytest.param(empty(()), None, INF, id="only +Inf"),
        pytest.param(empty((1,)), None, 2, id="limit 1"),
        pytest.param(empty((1, 2, 5, 10)), None, 20, id="limit 10 to 19"),
        pytest.param(empty((256, 512)), None, INF, id="custom bounds"),
        pytest.param(empty((1, 2, 10)), None, INF, id="a gap"),
        pytest.param(empty((1, 2, 3)), None, INF, id="another series"),
        pytest.param(empty((2, 5, 10)), None, INF, id="begins later"),
        pytest.param(empty(one_two_five(10**13)), None, INF, id="endless"),
    ],
)
def test_the_longest_prompt_is_unknown_where_nothing_says_it(
    lengths: Histogram | None, max_model_len: int | None, longest: float
) -> None:
    """The engine's own limit counts first, vLLM's series next, others say nothing."""
    assert longest_prompt(lengths, max_model_len) == longest


def test_a_real_vllm_tells_its_longest_prompt() -> None:
    """Where its length buckets end at 1000, no prompt reaches 2000 tokens."""
    page = gzip.decompress(IDLE_PAGE.read_bytes()).decode()
    bounds = [
        float(sample.labels["le"])
        for sample in parse_text(page)
        if sample.name == "vllm:request_prompt_tokens_bucket"
    ]
    assert bounds[-2:] == [1000.0, INF]
    assert longest_prompt(empty(bounds), None) == 2000.0

"""The highest rate under a target, where queueing theory or counting tells it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from random import Random
from statistics import fmean, median

import pytest
from capacity_models import settings

from analyzer.capacity.arrivals import gamma
from analyzer.capacity.costs import StepCosts
from analyzer.plan.demand import Demand, of_trace
from analyzer.plan.search import SEEDS, Question
from analyzer.plan.settings import PlanError
from analyzer.slo import Match, SloClass, Threshold

SERVICE = 0.1  # seconds of a request of one token: one step
ALONE = settings(
    StepCosts(base=SERVICE, prefill_token=0.0, decode_token=0.0, kv_token=0.0),
    max_num_seqs=1,
)
ONE_TOKEN = Demand([(10, 1)], 1.0, "requests that are all alike")


def slo(
    objective: float = 0.9,
    percentiles: dict[tuple[str, str], float] | None = None,
    **good: float,
) -> SloClass:
    """Returns a class with these criteria."""
    criteria = {name: Threshold(seconds) for name, seconds in good.items()}
    return SloClass("c", Match(), criteria, objective, 3600.0, percentiles or {})


@pytest.mark.parametrize("objective", [0.3, 0.5, 0.7])
def test_without_waiting_the_rate_is_that_of_an_idle_server(objective: float) -> None:
    """In M/G/1 the share that finds nobody there is one less the load."""
    question = Question(ONE_TOKEN, slo(objective, ttft=SERVICE * 1.0001))
    found = median(question.rates(ALONE))
    assert found * SERVICE == pytest.approx(1 - objective, rel=0.1)


def test_no_rate_is_higher_than_what_can_be_kept_up() -> None:
    """A time per token is met however long the queue grows."""
    costs = StepCosts(base=0.01, prefill_token=0.0, decode_token=0.0, kv_token=0.0)
    engine = settings(costs, max_num_seqs=4)
    demand = Demand([(10, 20)], 1.0, "answers of 20 tokens")
    found = Question(demand, slo(tpot=0.05)).rates(engine)
    # Four at a time, each of 20 steps of 10 ms.
    assert found == pytest.approx([20.0] * 3, rel=0.02)


def test_a_target_that_an_idle_engine_misses_has_no_rate() -> None:
    """However few requests come, each takes as long as it takes."""
    question = Question(ONE_TOKEN, slo(ttft=SERVICE / 2))
    assert question.rates(ALONE) == (0.0, 0.0, 0.0)


def test_a_rate_meets_the_target_and_a_little_more_does_not() -> None:
    """For every seed, by runs of their own."""
    question = Question(ONE_TOKEN, slo(0.9, e2e=0.5))
    for seed, rate in zip(SEEDS, question.rates(ALONE), strict=True):
        assert question.run(ALONE, rate, seed).met
        assert not question.run(ALONE, rate * 1.02, seed).met


def test_a_percentile_of_the_class_must_hold_as_well() -> None:
    """A p99 is harder than the same limit for nine of ten."""
    plain = Question(ONE_TOKEN, slo(0.9, ttft=0.5))
    also = Question(ONE_TOKEN, slo(0.9, {("ttft", "p99"): 0.5}, ttft=0.5))
    hard = Question(ONE_TOKEN, slo(0.99, ttft=0.5))
    assert also.rates(ALONE) == hard.rates(ALONE)
    assert max(also.rates(ALONE)) < min(plain.rates(ALONE))


def test_a_limit_may_grow_with_the_prompt() -> None:
    """Long prompts get the time that theirs takes."""
    costs = StepCosts(base=0.01, prefill_token=0.001, decode_token=0.0, kv_token=0.0)
    mixed = Demand([(10, 1), (400, 1)], 1.0, "short and long prompts")
    fixed = SloClass("c", Match(), {"ttft": Threshold(0.1)}, 0.9, 1.0)
    grows = replace(fixed, good={"ttft": Threshold(0.1, 0.001)})
    engine = settings(costs)
    assert Question(mixed, fixed).highest_rate(engine, 1) == 0.0
    assert Question(mixed, grows).highest_rate(engine, 1) > 0.5


def test_good_tokens_are_those_of_good_requests() -> None:
    """All good: the rate times the answers' length; none good: nothing."""
    costs = StepCosts(base=0.001, prefill_token=0.0, decode_token=0.0, kv_token=0.0)
    demand = Demand([(10, 20)], 1.0, "answers of 20 tokens")
    engine = settings(costs, max_num_seqs=64)
    found = [Question(demand, slo(e2e=9.0)).run(engine, 5.0, s) for s in SEEDS]
    assert {met.share for met in found} == {1.0}
    assert fmean(met.good_tokens for met in found) == pytest.approx(100.0, rel=0.06)
    bad = Question(demand, slo(e2e=0.001)).run(engine, 5.0, 1)
    assert (bad.share, bad.met, bad.good_tokens) == (0.0, False, 0.0)


def test_requests_longer_than_the_server_takes_are_bad() -> None:
    """They are refused, which no criterion excuses."""
    demand = Demand([(10, 1), (5000, 1)], 1.0, "half of them too long")
    met = Question(demand, slo(ttft=9.0)).run(settings(ALONE.costs), 0.5, 1)
    assert met.share == pytest.approx(0.5, abs=0.05)


def test_an_answer_cut_short_is_bad() -> None:
    """The server has no room for its last tokens, however quick it is."""
    demand = Demand([(2000, 48), (2000, 49)], 1.0, "half of them too long by a token")
    met = Question(demand, slo(ttft=9.0)).run(settings(ALONE.costs), 0.001, 1)
    assert met.share == pytest.approx(0.5, abs=0.05)


def test_requests_that_are_refused_are_no_work() -> None:
    """What is kept up is told by those that were served."""
    half = Question(Demand([(10, 1), (9000, 1)], 1.0, ""), slo(0.3, e2e=1e6))
    assert half.saturation(ALONE, 1) == pytest.approx(2 / SERVICE, rel=0.1)
    none = Question(Demand([(9000, 1)], 1.0, ""), slo(ttft=9.0))
    assert none.rates(ALONE) == (0.0, 0.0, 0.0)


def test_a_strict_target_is_asked_of_more_requests() -> None:
    """A p99.9 of 1500 would be the luck of one; long answers are fewer."""
    strict = Question(ONE_TOKEN, slo(0.9, {("ttft", "p99.9"): 0.5}, ttft=0.5))
    with_turns = Question(Demand([(10, 8000)], 1.0, ""), slo(ttft=0.5))
    assert strict.number(ALONE, 1) == pytest.approx(10_000 / 0.9, abs=2)
    assert with_turns.number(ALONE, 1) == 500


def test_replicas_share_the_work() -> None:
    """Two take somewhat more than twice the rate: luck evens out."""
    question = Question(ONE_TOKEN, slo(0.9, ttft=0.5))
    rate = question.highest_rate(ALONE, 1)
    assert question.run(ALONE, 1.9 * rate, 1, replicas=2).met
    assert not question.run(ALONE, 3 * rate, 1, replicas=2).met


# The demand.


def test_a_seed_gives_the_same_requests_at_every_rate() -> None:
    """Only closer together, so that two rates differ by the rate alone."""
    demand = Demand([(n, n) for n in range(1, 50)], 1.0, "")
    slow, quick = (demand.requests(rate, 100, 1) for rate in (1.0, 4.0))
    for before, after in zip(slow, quick, strict=True):
        assert after.arrival == pytest.approx(before.arrival / 4)
        assert after.prompt_tokens == before.prompt_tokens


def test_bursts_of_a_trace_lower_the_rate() -> None:
    """Requests that come in handfuls wait for each other."""
    even = [b'{"timestamp": %d, "input_length": 10, "output_length": 1}' % n
            for n in range(200)]  # fmt: skip
    bursts = [
        b'{"timestamp": %d, "input_length": 10, "output_length": 1}' % (n - n % 10)
        for n in range(200)
    ]
    slo_class = slo(0.9, ttft=0.5)
    calm, wild = (of_trace(lines, "t", tick=1.0) for lines in (even, bursts))
    assert calm.variation == 1.0
    assert wild.variation == pytest.approx(math.sqrt(10))
    rates = [
        median(Question(demand, slo_class).rates(ALONE)) for demand in (calm, wild)
    ]
    assert rates[1] < 0.8 * rates[0]


def test_a_trace_gives_lengths_and_their_means() -> None:
    """In milliseconds or seconds; blank lines do not matter."""
    lines = [
        b'{"timestamp": %d, "input_length": %d, "output_length": 0, "hash_ids": [1]}\n'
        % (n * n, n)
        for n in range(40)
    ] + [b"\n"]
    found = of_trace(lines, "t.jsonl", tick=0.001)
    assert found.lengths[:3] == [(1, 1), (1, 1), (2, 1)]
    assert found.prompt_tokens == pytest.approx(fmean([1, *range(1, 40)]))
    assert (found.output_tokens, found.longest) == (1.0, 40)
    assert found.source.startswith("t.jsonl (40 requests")


GOOD = b'{"timestamp": 1, "input_length": 1, "output_length": 1}'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "t: line 2: "),
        (b"[]", "t: line 2: "),
        (b'{"timestamp": 1}', "t: line 2: .*input_length"),
        (b'{"timestamp": "x", "input_length": 1, "output_length": 1}', "t: line 2: "),
        (b'{"timestamp": 1, "input_length": -1, "output_length": 1}', "t: line 2: no"),
        (b'{"timestamp": 1, "input_length": 1e9, "output_length": 1}', "t: line 2: "),
        (b'{"timestamp": 1, "input_length": 1, "output_length": 99999999}', "tokens"),
        (b"\xff\xfe", "t: line 2: "),
        (b'{"timestamp": 1e300, "input_length": 1, "output_length": 1}', "line 2: no"),
        (b"", "t: 1 requests; 30 are needed"),
    ],
)
def test_a_trace_that_cannot_be_used_is_told_with_its_line(
    line: bytes, message: str
) -> None:
    """One sentence with file and place."""
    with pytest.raises(PlanError, match=message):
        of_trace([GOOD, line], "t", tick=1.0)


def variation(stamps: Iterable[float]) -> float:
    """Returns the variation that a trace with these times has."""
    lines = (
        b'{"timestamp": %.6f, "input_length": 10, "output_length": 1}' % at
        for at in stamps
    )
    return of_trace(lines, "t", tick=1.0).variation


@pytest.mark.parametrize("cv", [1.0, 2.0, 3.0])
def test_the_variation_of_a_trace_is_that_of_its_gaps(cv: float) -> None:
    """Of renewal processes that have one."""
    stamps = islice(gamma(Random(1), 2.0, cv=cv), 30_000)
    assert variation(stamps) == pytest.approx(cv, rel=0.05)


@pytest.mark.parametrize("pause", [28_800.0, 1e9])
def test_a_night_without_requests_is_no_burst(pause: float) -> None:
    """Whatever the deviation of the gaps says."""
    stamps = list(islice(gamma(Random(1), 2.0, cv=1.0), 4000))
    assert variation(at + pause * (at > 900) for at in stamps) == 1.0


def test_a_trace_of_absurd_answers_is_refused() -> None:
    """It would take hours."""
    line = GOOD.replace(b'output_length": 1', b'output_length": 30000')
    with pytest.raises(PlanError, match="answers of 30000 tokens on average"):
        of_trace([line] * 40, "t", tick=1.0)


def test_a_trace_in_one_moment_is_taken_for_chance() -> None:
    """Without gaps nothing can be said of bursts."""
    assert of_trace([GOOD] * 40, "t", tick=1.0).variation == 1.0
    assert math.isfinite(of_trace([GOOD] * 40, "t", tick=1.0).prompt_tokens)

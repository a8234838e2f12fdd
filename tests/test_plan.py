"""Plans on twins whose costs are known: replicas, knobs, other GPUs, the price."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from analyzer.capacity.costs import StepCosts
from analyzer.capacity.fit import Figures, Point, simulate
from analyzer.capacity.fleet import Balancer
from analyzer.capacity.workload import Request
from analyzer.plan.calibration import Miss, Twin
from analyzer.plan.demand import Demand, of_points
from analyzer.plan.plan import Plan, check_trust, per_million, plan
from analyzer.plan.search import SEEDS, Question
from analyzer.plan.settings import PlanError, Settings, settings_of
from analyzer.plan.what_if import another_gpu, changes, untried, verdict
from analyzer.slo import Match, SloClass, Threshold

# A token of an answer costs next to nothing beside the step: batches pay off.
COSTS = StepCosts(base=0.02, prefill_token=2e-5, decode_token=1e-5, kv_token=0.0)
SLO = SloClass("chat", Match(), {"ttft": Threshold(0.5)}, 0.9, 3600.0)
GIVEN = {
    "max_num_seqs": 8,
    "max_num_batched_tokens": 2048,
    "num_gpu_blocks": 500,
    "max_model_len": 1024,
}


def twin_of(settings: Settings, costs: StepCosts = COSTS, error: float = 0.1) -> Twin:
    """Returns a twin that was measured on itself, with an error all the same."""
    engine = settings.engine(costs)
    requests = [Request(n, 0.0, 100, 50) for n in range(60)]
    point = Point(8, requests, Figures(1.0, 1.0, 1.0))
    measured = simulate(engine, [point])[0]
    miss = Miss(8, error, error, error)
    return Twin(engine, (replace(point, measured=measured),), (miss,), miss)


SETTINGS = settings_of(GIVEN, {}, {}, longest=1)
TWIN = twin_of(SETTINGS)
DEMAND = of_points([TWIN.points[0].requests])
QUESTION = Question(DEMAND, SLO, least=400)


@pytest.fixture(scope="module")
def found() -> Plan:
    """Returns the plan for a rate that several replicas share, and every change."""
    return plan(TWIN, QUESTION, changes(SETTINGS, TWIN.engine, {}), rate=40.0)


def test_the_rate_lies_between_those_of_a_slower_and_a_quicker_twin(
    found: Plan,
) -> None:
    """By the error at least; the luck of the seeds is on top."""
    capacity = found.capacity
    assert capacity.lower < capacity.estimate < capacity.upper
    assert 0.6 < capacity.lower / capacity.estimate < 1 / 1.05
    assert 1.05 < capacity.upper / capacity.estimate < 1.6


def test_replicas_are_as_many_as_a_simulated_fleet_needs(found: Plan) -> None:
    """They meet the target together, and one less does not."""
    asked = found.replicas
    assert asked is not None
    assert asked.number is not None
    assert asked.lower is not None
    assert asked.upper is not None
    assert asked.lower <= asked.number <= asked.upper
    assert math.ceil(40 / found.capacity.estimate) >= asked.number - 1
    assert asked.share is not None
    assert asked.share >= SLO.objective
    fewer = asked.number - 2
    assert not QUESTION.run(TWIN.engine, 40.0, 1, replicas=fewer).met


def test_many_replicas_are_divided_not_simulated(found: Plan) -> None:
    """Then nothing is said of how the fleet would do."""
    many = plan(TWIN, QUESTION, (), rate=4000.0).replicas
    assert many is not None
    assert many.number == math.ceil(4000 / found.capacity.estimate)
    assert many.share is None


def test_each_change_of_a_knob_has_the_effect_that_it_must(found: Plan) -> None:
    """Few places are the limit here: the cache and the tokens of a step are not."""
    verdicts = {effect.change.name: effect.verdict for effect in found.effects}
    assert verdicts == {
        "max_num_seqs 8 → 16": "helps",
        "max_num_seqs 8 → 4": "hurts",
        "max_num_batched_tokens 2048 → 4096": "no difference",
        "max_num_batched_tokens 2048 → 1024": "no difference",
        "num_gpu_blocks 500 → 1000": "no difference",
    }
    gains = {effect.change.name: effect.gain for effect in found.effects}
    # A step takes as long with twice as many in it, and they wait for each other less.
    assert 0.9 < gains["max_num_seqs 8 → 16"] < 1.4


def test_a_small_cache_is_the_limit_where_places_are_not() -> None:
    """Twice the blocks then take more, twice the places do not."""
    small = settings_of({**GIVEN, "max_num_seqs": 64, "num_gpu_blocks": 80}, {}, {},
                        longest=1)  # fmt: skip
    twin = twin_of(small)
    asked = {"max_num_seqs": [128], "num_gpu_blocks": [160]}
    effects = plan(twin, QUESTION, changes(small, twin.engine, asked)).effects
    assert [effect.verdict for effect in effects] == ["no difference", "helps"]


def test_settings_that_nobody_told_are_not_varied() -> None:
    """Twice a guess is a guess."""
    known = settings_of({"max_num_seqs": 8}, {}, {}, longest=1)
    engine = known.engine(COSTS)
    names = [change.name for change in changes(known, engine, {})]
    assert names == ["max_num_seqs 8 → 16", "max_num_seqs 8 → 4"]
    assert untried(known, {}) == ("max_num_batched_tokens", "num_gpu_blocks")
    assert untried(known, {"num_gpu_blocks": [9]}) == ()


def test_more_places_than_tokens_of_a_step_raise_those_too() -> None:
    """As vLLM would have to be started; the name says so."""
    (change,) = changes(SETTINGS, TWIN.engine, {"max_num_seqs": [4096]})
    assert change.name == "max_num_seqs 8 → 4096 (max_num_batched_tokens 4096)"
    assert change.engine.scheduler.max_num_batched_tokens == 4096


def test_another_gpu_is_as_much_quicker_as_its_data_sheet_says() -> None:
    """Steps by bandwidth, prompts by arithmetic, sequences by the worse of both."""
    there = another_gpu(TWIN.engine, "a100", "h100", 4.0)
    costs = there.engine.costs
    reading = (2.039e12 * 0.77) / (3.35e12 * 0.74)
    computing = (312e12 * 0.55) / (989e12 * 0.45)
    assert costs.base == pytest.approx(COSTS.base * reading)
    assert costs.prefill_token == pytest.approx(COSTS.prefill_token * computing)
    assert costs.decode_token == pytest.approx(COSTS.decode_token * reading)
    assert (there.measured, there.price) == (False, 4.0)
    back = another_gpu(there.engine, "h100", "a100", None).engine.costs
    assert back.base == pytest.approx(COSTS.base)


def test_a_verdict_wants_every_seed_to_agree() -> None:
    """One seed that gains nothing makes it no difference."""
    assert verdict((1, 1, 1), (1.1, 1.2, 1.04)) == "helps"
    assert verdict((1, 1, 1), (1.1, 1.2, 1.02)) == "no difference"
    assert verdict((1, 1, 1), (0.9, 0.8, 0.96)) == "hurts"
    assert verdict((0, 0, 0), (1.0, 2.0, 1.0)) == "helps"
    assert verdict((0, 0, 0), (0.0, 0.0, 0.0)) == "no difference"


def test_the_price_is_that_of_good_tokens() -> None:
    """Two replicas at 3 an hour, a thousand good tokens a second."""
    assert per_million(3.0, 1000.0, 2) == pytest.approx(6 / 3.6)
    assert per_million(None, 1000.0) is None
    assert per_million(3.0, 0.0) is None
    assert per_million(3.0, None) is None


def test_a_target_that_nothing_meets_has_no_replicas() -> None:
    """Not 0 of them, and not infinitely many."""
    never = Question(DEMAND, replace(SLO, good={"ttft": Threshold(0.001)}), least=50)
    found = plan(TWIN, never, (), rate=5.0)
    assert found.capacity.estimate == 0.0
    assert found.replicas is not None
    assert found.replicas.number is None


def test_lengths_that_were_not_swept_are_a_doubt() -> None:
    """As are requests that the server does not take."""
    longer = Demand([(400, 50), (2000, 50)], 1.0, "")
    found = plan(TWIN, Question(longer, SLO, least=50), ())
    assert found.doubts[0].startswith("prompts have 1200 tokens on average, 100 in")
    assert "some requests have more than the 1024 tokens" in found.doubts[1]
    assert plan(TWIN, Question(DEMAND, SLO, least=50), ()).doubts == ()


def test_a_twin_far_off_gives_no_plan() -> None:
    """Nothing would be better than a guess."""
    check_trust(TWIN, SETTINGS)
    with pytest.raises(PlanError, match=r"off by 50%, in throughput .* block_size 16"):
        check_trust(twin_of(SETTINGS, error=0.5), SETTINGS)


def test_a_wrong_time_to_first_token_is_distrusted_too() -> None:
    """Throughput and TPOT can be right by luck where the queue begins elsewhere."""
    miss = Miss(8, 0.0, 4.4, 0.0)
    wrong = replace(TWIN, misses=(miss,), held_out=Miss(16, 0.0, 0.0, 0.0))
    assert "in TTFT by +440% at 8 at once" in wrong.distrust


def test_bursts_even_out_among_many_replicas() -> None:
    """Far fewer do than dividing by what one takes says, and one less does not."""
    wild = Question(replace(DEMAND, variation=2.0), SLO, Balancer.LEAST_REQUESTS, 400)
    found = plan(TWIN, wild, (), rate=80.0)
    assert found.replicas is not None
    assert found.replicas.number is not None
    assert found.replicas.number < math.ceil(80.0 / found.capacity.estimate) - 1
    seeds = [
        wild.run(TWIN.engine, 80.0, seed, replicas=found.replicas.number - 1).met
        for seed in SEEDS
    ]
    assert not all(seeds)


def test_a_change_that_changes_nothing_is_not_tried() -> None:
    """Half of one place is one; a step has as many tokens as there are places."""
    least = settings_of(
        {"max_num_seqs": 1, "max_num_batched_tokens": 1}, {}, {}, longest=1
    )
    names = [change.name for change in changes(least, least.engine(COSTS), {})]
    assert names == [
        "max_num_seqs 1 → 2 (max_num_batched_tokens 2)",
        "max_num_batched_tokens 1 → 2",
    ]


def test_blocks_of_another_size_are_of_the_same_memory() -> None:
    """Twice the size would be twice the cache otherwise."""
    (change,) = changes(SETTINGS, TWIN.engine, {"block_size": [32]})
    assert change.name == "block_size 16 → 32 (num_gpu_blocks 250)"
    assert change.engine.scheduler.num_blocks == 250


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("max_num_seqs", 100_000, "above 4096 is not simulated"),
        ("max_num_batched_tokens", 1, "is less than max_num_seqs"),
        ("num_gpu_blocks", 1, "a KV cache of one block"),
        ("block_size", 1_000_000, "a KV cache of one block"),
    ],
)
def test_a_change_that_no_server_takes_is_told(
    name: str, value: int, reason: str
) -> None:
    """With the change, instead of another one or of hours."""
    with pytest.raises(PlanError, match=f"{name} .* → {value}.*: .*{reason}"):
        list(changes(SETTINGS, TWIN.engine, {name: [value]}))

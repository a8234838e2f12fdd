"""The model counts what and when vLLM 0.32 does, and what it prints looks the same."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest
from capacity_models import ask, run, settings
from episodes import DIRECTORY

from analyzer.capacity.arrivals import OpenLoop, poisson
from analyzer.capacity.costs import StepCosts
from analyzer.capacity.engine import Engine
from analyzer.capacity.families import Family, families
from analyzer.capacity.fleet import Fleet
from analyzer.capacity.machines import cpu_demo
from analyzer.capacity.metrics import EngineMetrics, token_bounds
from analyzer.capacity.outcome import Outcome, Status
from analyzer.capacity.settings import Speculation
from analyzer.capacity.workload import LogNormal, Mix
from analyzer.exposition import parse_text
from analyzer.histogram import Histogram
from analyzer.sources.recording import read_scrapes

THRESHOLDS = (0.003, 0.01, 0.02, 0.05, 0.08, 0.1, 0.2, 0.3, 0.7, 1.0, 1.2, 5.0, 30.0)


@pytest.fixture(scope="module")
def crowd() -> tuple[EngineMetrics, list[Outcome]]:
    """Runs a crowded replica with preemptions, leavers and one-token answers."""
    config = cpu_demo()
    scheduler = replace(config.scheduler, num_blocks=40, max_num_seqs=16)
    engine = Engine(replace(config, scheduler=scheduler, max_num_queued_reqs=30))
    rng = Random(1)
    mix = Mix(
        LogNormal(200, 0.8, 1, 1500),
        LogNormal(60, 1.0, 1, 500),
        prefixes=2,
        prefix_tokens=140,
        patience=60.0,
        leavers=0.1,
        leaves_after=3,
    )
    fleet = Fleet([engine], OpenLoop(mix.requests(rng, poisson(rng, 7.0))))
    outcomes = fleet.advance(300.0)
    outcomes += engine.stop(300.0)
    return engine.metrics, outcomes


def truth(outcomes: list[Outcome]) -> dict[str, list[float]]:
    """Returns the latencies of requests that each histogram should hold."""
    complete = [o for o in outcomes if o.status is Status.COMPLETE]
    return {
        "time_to_first_token": [
            o.engine_ttft for o in outcomes if o.engine_ttft is not None
        ],
        "time_per_output_token": [o.tpot or 0.0 for o in complete],
        "e2e_latency": [
            o.ended - o.forwarded for o in complete if o.forwarded is not None
        ],
        "queue_time": [
            o.scheduled - o.queued
            for o in complete
            if o.scheduled is not None and o.queued is not None
        ],
    }


def test_histograms_bracket_the_requests_that_they_count(
    crowd: tuple[EngineMetrics, list[Outcome]],
) -> None:
    """At a bound exactly, between bounds from both sides, and the sum is theirs."""
    metrics, outcomes = crowd
    assert {o.status for o in outcomes} >= {
        *(Status.COMPLETE, Status.LEFT, Status.REJECTED, Status.BROKEN)
    }
    assert any(o.preemptions for o in outcomes)
    for name, values in truth(outcomes).items():
        histogram: Histogram = getattr(metrics, name).histogram()
        assert histogram.count == len(values) > 100
        assert histogram.sum == pytest.approx(sum(values))
        for threshold in THRESHOLDS:
            met = sum(1 for value in values if value <= threshold)
            bracket = histogram.bracket(threshold)
            assert bracket.lower <= met <= bracket.upper
            if threshold in histogram.bounds:
                assert bracket.lower == bracket.upper


def test_counters_are_the_sums_of_requests(
    crowd: tuple[EngineMetrics, list[Outcome]],
) -> None:
    """Tokens of all, also of those that left; the rest of complete answers only."""
    metrics, outcomes = crowd
    complete = [o for o in outcomes if o.status is Status.COMPLETE]
    assert metrics.generation_tokens == sum(o.output_tokens for o in outcomes)
    assert metrics.generation_tokens > sum(o.output_tokens for o in complete)
    assert sum(metrics.finish_reasons.values()) == len(complete)
    rejected = [o for o in outcomes if o.status is Status.REJECTED]
    assert metrics.rejections["max_num_queued_reqs"] == len(rejected)
    gaps = sum(max(0, o.output_tokens - 1) for o in outcomes)
    assert metrics.inter_token_latency.count == gaps
    longest = max(o.max_gap for o in outcomes)
    assert metrics.inter_token_latency.histogram().bracket(longest).upper == gaps
    lengths = metrics.request_generation_tokens
    assert lengths.sum == sum(o.output_tokens for o in complete)
    assert metrics.request_preemptions.sum == sum(o.preemptions for o in complete)


def test_who_leaves_is_in_the_tokens_and_the_ttft_only() -> None:
    """As vLLM has it: no end-to-end latency, no finish reason, not even abort."""
    engine = Engine(settings())
    run(
        engine, [ask(0, 0.0, 10, 50, leaves_after=3), ask(1, 0.0, 10, 50, patience=0.5)]
    )
    metrics = engine.metrics
    assert metrics.time_to_first_token.count == 1
    assert metrics.prompt_tokens == 10
    assert metrics.generation_tokens == 3
    assert metrics.e2e_latency.count == 0
    assert set(metrics.finish_reasons.values()) == {0}
    assert (metrics.running, metrics.waiting, metrics.kv_cache_usage) == (0, 0, 0.0)


def test_a_preemption_counts_when_its_victim_is_heard_of_again() -> None:
    """Until then it shows only as a request that waits."""
    engine = Engine(settings(num_blocks=6, block_size=4, max_model_len=20))
    for number in (0, 1):
        engine.submit(ask(number, 0.0, 8, 9), 0.0)
    while not engine.scheduler.preemptions:
        engine.step()
    engine.step()
    waiting_since = engine.due
    assert (engine.metrics.running, engine.metrics.waiting) == (1, 1)
    while not engine.metrics.preemptions:
        assert engine.metrics.preemptions == 0
        engine.step()
    assert engine.metrics.preemptions == 1
    assert engine.due > waiting_since + 3.0


def test_a_second_wait_is_decode_time_and_not_queue_time() -> None:
    """Queue time ends at the first admission."""
    engine = Engine(settings(num_blocks=6, block_size=4, max_model_len=20))
    outcomes = run(engine, [ask(0, 0.0, 8, 9), ask(1, 0.0, 8, 9)])
    assert outcomes[1].preemptions == 1
    assert engine.metrics.queue_time.sum == 0.0
    waited = outcomes[1].max_gap
    assert waited > 5.0
    assert engine.metrics.decode_time.sum == 8.0 + 7.0 + waited
    assert engine.metrics.inter_token_latency.counts[-6:] != [0] * 6


def test_one_token_has_a_tpot_of_zero() -> None:
    """It counts, and meets every threshold."""
    engine = Engine(settings())
    run(engine, [ask(0, 0.0, 10, 1)])
    assert engine.metrics.time_per_output_token.counts[0] == 1
    assert engine.metrics.time_per_output_token.sum == 0.0
    assert engine.metrics.decode_time.counts[0] == 1


def test_blocks_that_only_remember_count_as_free() -> None:
    """An idle replica with a warm cache has a usage of 0."""
    engine = Engine(settings())
    run(engine, [ask(0, 0.0, 100, 5, prefix="p", prefix_tokens=100)])
    assert engine.metrics.kv_cache_usage == 0.0
    assert run(engine, [ask(1, 90.0, 100, 1, prefix="p", prefix_tokens=100)])[
        1
    ].cached_tokens
    engine.submit(ask(2, 99.0, 32, 5), 99.0)
    engine.step()
    engine.step()
    # 32 tokens take 2 of 1000 blocks; one of 1001 is the null block.
    assert engine.metrics.kv_cache_usage == pytest.approx(0.002)


def test_iteration_tokens_count_a_chunked_prompt_at_its_end() -> None:
    """Steps without output are silent, so a sample can exceed the budget."""
    engine = Engine(settings(max_num_batched_tokens=512))
    run(engine, [ask(0, 0.0, 900, 2)])
    assert engine.work.steps == 3
    assert engine.metrics.iteration_tokens.count == 2
    assert engine.metrics.iteration_tokens.sum == 901 + 1


def test_prefix_hits_count_at_admission_and_cached_tokens_at_the_first_one() -> None:
    """A client that leaves before its first token is in the former only."""
    engine = Engine(settings())
    head = {"prefix": "p", "prefix_tokens": 64}
    run(
        engine, [ask(0, 0.0, 100, 1, **head), ask(1, 5.0, 100, 1, patience=0.5, **head)]
    )
    assert engine.metrics.prefix_cache_queries == 200
    assert engine.metrics.prefix_cache_hits == 64
    assert engine.metrics.prompt_tokens == 100
    assert engine.metrics.prompt_tokens_cached == 0


def test_gauges_are_those_of_the_last_step() -> None:
    """Running at the cap, the rest waiting."""
    engine = Engine(settings(max_num_seqs=2))
    for number in range(5):
        engine.submit(ask(number, 0.0, 10, 10), 0.0)
    engine.step()
    engine.step()
    assert (engine.metrics.running, engine.metrics.waiting) == (2, 3)


def printed(metrics: EngineMetrics, model: str) -> dict[str, Family]:
    """Returns the model's families by name."""
    return {family.name: family for family in families(metrics, model=model)}


def shape(family: Family) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """Returns each series of a family as name and labels, as a page has them."""
    series = set()
    for labels, value in family.rows:
        fixed = tuple(labels.items())
        if isinstance(value, Histogram):
            series |= {(f"{family.name}_{end}", fixed) for end in ("sum", "count")}
            bounds = ("+Inf" if math.isinf(b) else repr(float(b)) for b in value.bounds)
            series |= {
                (f"{family.name}_bucket", tuple(sorted((*fixed, ("le", bound)))))
                for bound in bounds
            }
        else:
            series.add((family.name, fixed))
    return series


def test_families_series_and_bounds_are_those_of_a_real_page() -> None:
    """Every `vllm:` series of a recorded vLLM 0.32, and no other; values may differ."""
    text = next(scrape.text for scrape in read_scrapes(DIRECTORY / "kv-a"))
    assert text is not None
    kinds = {
        line.split()[2]: line.split()[3]
        for line in text.splitlines()
        if line.startswith("# TYPE vllm:") and not line.split()[2].endswith("_created")
    }
    real = {
        (sample.name, tuple(sorted(sample.labels.items())))
        for sample in parse_text(text)
        if sample.name.startswith("vllm:") and not sample.name.endswith("_created")
    }
    model = next(
        dict(labels)["model_name"] for _, labels in real if "model_name" in dict(labels)
    )
    scheduler = replace(cpu_demo().scheduler, num_blocks=40)
    mine = printed(EngineMetrics(scheduler), model)
    assert {name: family.kind for name, family in mine.items()} == kinds
    assert list(mine) == list(kinds)
    info = "vllm:cache_config_info"
    ours = {entry for family in mine.values() for entry in shape(family)}
    assert {e for e in ours if e[0] != info} == {e for e in real if e[0] != info}
    names = [{label for label, _ in e[1]} for e in (*ours, *real) if e[0] == info]
    assert names[0] == names[1]


def test_speculation_has_its_counters_and_only_then() -> None:
    """One series a position."""
    plain = printed(EngineMetrics(settings().scheduler), "m")
    assert not [name for name in plain if "spec_decode" in name]
    engine = Engine(settings(speculation=Speculation(2, (1.0,))))
    run(engine, [ask(0, 0.0, 10, 4)])
    drafting = printed(engine.metrics, "m")
    rows = drafting["vllm:spec_decode_num_accepted_tokens_per_pos_total"].rows
    assert [(row.labels["position"], row.value) for row in rows] == [
        ("0", 1.0),
        ("1", 1.0),
    ]
    assert drafting["vllm:spec_decode_num_draft_tokens_total"].rows[0].value == 2.0


def test_token_bounds_end_below_the_context() -> None:
    """The 1-2-5 series, as vLLM builds it."""
    assert token_bounds(1024)[-2:] == (500.0, 1000.0)
    assert token_bounds(8192)[-1] == 5000.0
    assert token_bounds(10) == (1.0, 2.0, 5.0, 10.0)


def test_a_page_is_the_state_of_its_moment() -> None:
    """Families taken earlier do not change with the engine."""
    engine = Engine(settings(StepCosts(0.1, 0.0, 0.0, 0.0)))
    before = printed(engine.metrics, "m")["vllm:e2e_request_latency_seconds"]
    run(engine, [ask(0, 0.0, 10, 3)])
    after = printed(engine.metrics, "m")["vllm:e2e_request_latency_seconds"]
    counts = [
        family.rows[0].value.count
        for family in (before, after)
        if isinstance(family.rows[0].value, Histogram)
    ]
    assert counts == [0.0, 1.0]

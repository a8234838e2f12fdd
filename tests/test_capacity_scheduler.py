from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from capacity_models import SECOND, SMALL, ask, check, run, settings
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from analyzer.capacity.costs import StepCosts
from analyzer.capacity.engine import Engine
from analyzer.capacity.outcome import Status
from analyzer.capacity.settings import EngineConfig, SchedulerConfig, Speculation
from analyzer.capacity.workload import Request

REAL = StepCosts(base=0.01, prefill_token=1e-4, decode_token=1e-3, kv_token=1e-6)


@st.composite
def configs(draw: st.DrawFn) -> EngineConfig:
    """Draws replicas of all kinds, most of them short of something."""
    block_size = draw(st.sampled_from([1, 4, 16]))
    max_model_len = draw(st.integers(20, 200))
    fits = -(-max_model_len // block_size) + 1
    max_num_seqs = draw(st.integers(1, 12))
    speculation = draw(
        st.sampled_from([None, Speculation(3, (0.6,)), Speculation(2, (0.9, 0.3))])
    )
    drafts = speculation.draft_tokens if speculation else 0
    scheduler = SchedulerConfig(
        num_blocks=fits + draw(st.integers(0, 30)) + drafts,
        block_size=block_size,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_seqs + draw(st.integers(0, 150)),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 7, 40])),
        prefix_caching=draw(st.booleans()),
        reserve_full_prompt=draw(st.booleans()),
        watermark=draw(st.sampled_from([0.0, 0.0, 0.05])),
        asynchronous=draw(st.booleans()),
        speculation=speculation,
    )
    return EngineConfig(
        scheduler,
        REAL,
        frontend_seconds=draw(st.sampled_from([0.0, 0.003])),
        max_num_queued_reqs=draw(st.sampled_from([None, None, 9])),
        max_num_queued_tokens=draw(st.sampled_from([None, None, 300])),
        jitter=draw(st.sampled_from([0.0, 0.2])),
    )


@st.composite
def request_lists(draw: st.DrawFn) -> list[Request]:
    """Draws requests that come thick and fast; some share, stop early or leave."""
    requests = []
    at = 0.0
    for number in range(draw(st.integers(1, 40))):
        at += draw(st.sampled_from([0.0, 0.0, 0.005, 0.1]))
        prompt = draw(st.integers(1, 120))
        requests.append(
            ask(
                number,
                at,
                prompt,
                draw(st.integers(1, 80)),
                max_tokens=draw(st.sampled_from([None, 5, 1000])),
                prefix=draw(st.sampled_from([None, "a", "b"])),
                prefix_tokens=draw(st.integers(0, prompt)),
                patience=draw(st.sampled_from([math.inf, math.inf, 0.02, 0.3])),
                leaves_after=draw(st.sampled_from([None, None, 1, 3])),
            )
        )
    return requests


@pytest.mark.slow
@hypothesis_settings(max_examples=200)
@given(configs(), request_lists())
def test_requests_tokens_and_blocks_are_conserved(
    config: EngineConfig, requests: list[Request]
) -> None:
    """Whatever comes and whatever is short, nothing is lost, made up or held twice."""
    engine = Engine(config, seed=1)
    outcomes = []
    for request in requests:
        while engine.due <= request.arrival:
            outcomes += engine.step()
            check(engine)
        outcomes += filter(None, [engine.submit(request, request.arrival)])
        check(engine)
    while math.isfinite(engine.due):
        outcomes += engine.step()
        check(engine)
    assert sorted(o.request.number for o in outcomes) == list(range(len(requests)))
    assert engine.scheduler.pool.free == engine.scheduler.pool.size
    started = [o for o in outcomes if o.first_token is not None]
    metrics = engine.metrics
    assert metrics.generation_tokens == sum(o.output_tokens for o in outcomes)
    assert metrics.prompt_tokens == sum(o.request.prompt_tokens for o in started)
    assert metrics.prompt_tokens_cached == sum(o.cached_tokens for o in started)
    assert metrics.time_to_first_token.count == len(started)
    complete = [o for o in outcomes if o.status is Status.COMPLETE]
    assert metrics.e2e_latency.count == len(complete)
    for outcome in complete:
        request = outcome.request
        room = config.scheduler.max_model_len - request.prompt_tokens
        asked = request.max_tokens or request.output_tokens
        assert outcome.output_tokens == min(request.output_tokens, asked, room)
        assert outcome.first_token is not None
        assert outcome.last_token == outcome.ended
        moments = [
            *(request.arrival, outcome.forwarded, outcome.queued, outcome.scheduled),
            *(outcome.first_token, outcome.last_token),
        ]
        assert moments == sorted(moments, key=lambda at: -1.0 if at is None else at)


def test_each_token_is_computed_once_when_nothing_is_lost() -> None:
    """Without preemption and caching, steps add up to prompts and answers."""
    engine = Engine(settings(prefix_caching=False))
    requests = [ask(n, n * 3.0, 100 + 37 * n, 5 + n) for n in range(20)]
    run(engine, requests)
    # The last token of an answer is never put into the cache.
    expected = sum(r.prompt_tokens + r.output_tokens - 1 for r in requests)
    assert engine.work.prefill_tokens + engine.work.decode_tokens == expected


def test_a_long_prompt_is_computed_in_chunks_beside_the_decodes() -> None:
    """Running requests keep their pace while a prompt takes what the budget leaves."""
    engine = Engine(settings(max_num_batched_tokens=256))
    outcomes = run(engine, [ask(0, 0.0, 10, 10), ask(1, 1.5, 1000, 2)])
    assert outcomes[0].max_gap == 1.0
    # 255 tokens a step from t=2: the fourth step holds the last 235.
    assert outcomes[1].first_token == 6.0


def test_decodes_come_before_prompts_and_prompts_in_their_order() -> None:
    """A budget that is spent leaves the later prompts for the next steps."""
    engine = Engine(settings(max_num_batched_tokens=100))
    requests = [ask(0, 0.0, 90, 5), ask(1, 0.0, 90, 1), ask(2, 0.0, 90, 1)]
    outcomes = run(engine, requests)
    # Step 1: 90 + 10. Step 2: 1 + 80 + 19. Step 3: 1 + 71.
    assert [outcomes[n].first_token for n in range(3)] == [1.0, 2.0, 3.0]


def test_one_long_prompt_is_cut_only_when_others_could_starve() -> None:
    """The long-prefill threshold holds as soon as there are two requests."""
    alone = Engine(settings(long_prefill_token_threshold=100))
    assert run(alone, [ask(0, 0.0, 400, 1)])[0].first_token == 1.0
    crowded = Engine(settings(long_prefill_token_threshold=100))
    outcomes = run(crowded, [ask(0, 0.0, 400, 1), ask(1, 0.0, 400, 1)])
    assert [outcomes[n].first_token for n in (0, 1)] == [4.0, 4.0]


def test_the_newest_running_request_is_preempted_and_resumes_first() -> None:
    """Its blocks go to the older one; it waits before those that came later."""
    # 5 blocks of 4: two requests of 8 tokens hold 2 each; only one can grow at 8, and
    # again at 12 when the other is gone.
    engine = Engine(settings(num_blocks=6, block_size=4, max_model_len=20))
    requests = [ask(0, 0.0, 8, 9), ask(1, 0.0, 8, 9), ask(2, 0.5, 4, 1)]
    outcomes = run(engine, requests)
    assert [outcomes[n].preemptions for n in range(3)] == [0, 1, 0]
    assert outcomes[0].max_gap == 1.0
    # The first has all its tokens at 9; the victim is heard of again a step later.
    assert outcomes[1].max_gap == 9.0
    assert outcomes[2].scheduled == 9.0


def test_victims_fall_from_the_newest_and_come_back_oldest_first() -> None:
    """Preemption takes the last admitted first; the queue's front restores order."""
    engine = Engine(
        settings(num_blocks=9, block_size=4, max_model_len=32, prefix_caching=False)
    )
    for number in range(4):
        engine.submit(ask(number, 0.0, 8, 20), 0.0)
    engine.step()
    order = [[s.request.number for s in engine.scheduler.running]]
    while engine.scheduler.preemptions < 3:
        engine.step()
        check(engine)
        order.append([s.request.number for s in engine.scheduler.running])
    assert order[0] == [0, 1, 2, 3]
    assert order[-1] == [0] or order[-1] == [0, 1]
    waiting = [s.request.number for s in engine.scheduler.waiting]
    assert waiting == sorted(waiting)
    assert len(order[-1]) + len(waiting) == 4


def test_a_victim_computes_its_tokens_again() -> None:
    """Recomputing costs prefill: prompt and what was generated so far."""
    engine = Engine(
        settings(num_blocks=6, block_size=4, max_model_len=20, prefix_caching=False)
    )
    outcomes = run(engine, [ask(0, 0.0, 8, 9), ask(1, 0.0, 8, 9)])
    assert outcomes[1].preemptions == 1
    # Two prompts of 8, and again the prompt with the one token that it had.
    assert engine.work.prefill_tokens == 8 + 8 + 9


def test_a_victim_finds_again_what_nobody_needed_meanwhile() -> None:
    """With prefix caching, blocks that survive are not computed twice."""
    work = {}
    for caching in (False, True):
        engine = Engine(
            settings(
                num_blocks=40, block_size=4, max_model_len=156, prefix_caching=caching
            )
        )
        outcomes = run(engine, [ask(0, 0.0, 76, 20), ask(1, 0.0, 76, 20)])
        assert outcomes[1].preemptions == 1
        work[caching] = engine.work.prefill_tokens
    assert work[True] < work[False]
    assert (work[False] - work[True]) % 4 == 0


def test_a_prompt_is_admitted_only_when_all_of_it_fits() -> None:
    """With the default the first chunk alone lets nobody in."""
    requests = [ask(0, 0.0, 100, 30), ask(1, 1.0, 100, 1)]
    small: dict[str, Any] = {"num_blocks": 12, "block_size": 16, "max_model_len": 176}
    careful = run(Engine(settings(**small, max_num_batched_tokens=32)), requests)
    assert careful[1].scheduled == careful[0].ended
    eager = Engine(
        settings(**small, max_num_batched_tokens=32, reserve_full_prompt=False)
    )
    early = run(eager, requests)[1].scheduled
    assert early is not None
    assert early < careful[0].ended


def test_the_watermark_keeps_newcomers_out() -> None:
    """Blocks below the watermark are for those that run already."""
    small: dict[str, Any] = {"num_blocks": 21, "block_size": 16, "max_model_len": 320}
    requests = [ask(0, 0.0, 150, 10), ask(1, 0.0, 150, 1)]
    assert run(Engine(settings(**small)), requests)[1].first_token == 1.0
    held = run(Engine(settings(**small, watermark=0.1)), requests)
    assert held[1].scheduled == held[0].ended


def test_a_shared_prefix_is_found_in_whole_blocks_but_for_the_last_token() -> None:
    """Hits are whole blocks of the common head, also within one step."""
    engine = Engine(settings(block_size=16))
    outcomes = run(
        engine,
        [
            ask(0, 0.0, 100, 2, prefix="p", prefix_tokens=70),
            ask(1, 0.0, 100, 2, prefix="p", prefix_tokens=70),
            ask(2, 5.0, 64, 2, prefix="p", prefix_tokens=64),
            ask(3, 5.0, 100, 2, prefix="other", prefix_tokens=70),
        ],
    )
    # 70 tokens hold 4 blocks; of a prompt of 64 the fourth holds the last token.
    assert [outcomes[n].cached_tokens for n in range(4)] == [0, 64, 48, 0]
    assert engine.metrics.prefix_cache_queries == 364
    assert engine.metrics.prefix_cache_hits == 112


def test_a_prefix_is_forgotten_when_its_blocks_are_needed() -> None:
    """The least recently used content goes first."""
    engine = Engine(settings(num_blocks=41, block_size=16, max_model_len=640))
    head = {"prefix": "p", "prefix_tokens": 160}
    outcomes = run(
        engine,
        [
            ask(0, 0.0, 200, 1, **head),
            ask(1, 10.0, 200, 1, **head),
            ask(2, 20.0, 600, 1),
            ask(3, 30.0, 200, 1, **head),
        ],
    )
    assert outcomes[1].cached_tokens == 160
    assert outcomes[3].cached_tokens == 32


def test_asynchronous_scheduling_admits_a_step_later() -> None:
    """The next step is planned while one runs, so a newcomer waits for both."""
    requests = [ask(0, 0.0, 10, 10), ask(1, 2.5, 10, 3)]
    plain = run(Engine(settings()), requests)
    ahead = run(Engine(settings(asynchronous=True)), requests)
    assert plain[1].first_token == 4.0
    assert ahead[1].first_token == 5.0
    # vLLM stamps the admission when it plans the step, not when the step begins.
    assert plain[1].scheduled == ahead[1].scheduled == 3.0
    assert plain[0].ended == ahead[0].ended == 10.0
    assert ahead[1].ended == 7.0


def test_asynchronous_scheduling_wastes_a_step_only_on_a_stop() -> None:
    """An end that max_tokens foretells is planned for; the model's own is not."""
    told = Engine(settings(asynchronous=True))
    run(told, [ask(0, 0.0, 10, 5)])
    assert told.work.decode_tokens == 4
    untold = Engine(settings(asynchronous=True))
    run(untold, [ask(0, 0.0, 10, 5, max_tokens=100), ask(1, 0.0, 10, 9)])
    assert untold.work.decode_tokens == 4 + 1 + 8


def test_drafts_that_are_accepted_save_steps() -> None:
    """All accepted: k + 1 tokens a step. None accepted: one."""
    for acceptance, steps in ((1.0, 3), (0.0, 9)):
        speculation = Speculation(3, (acceptance,))
        engine = Engine(settings(speculation=speculation))
        outcome = run(engine, [ask(0, 0.0, 10, 9)])[0]
        assert outcome.output_tokens == 9
        assert outcome.ended == steps
        assert engine.metrics.inter_token_latency.count == steps - 1
        assert engine.metrics.drafts == steps - 1
        assert engine.metrics.draft_tokens == 3 * (steps - 1)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_acceptance_falls_with_the_position(asynchronous: bool) -> None:  # noqa: FBT001
    """A draft counts only if all before it were accepted."""
    speculation = Speculation(3, (0.8, 0.5, 0.5))
    engine = Engine(
        settings(speculation=speculation, asynchronous=asynchronous), seed=5
    )
    requests = [ask(n, 0.0, 10, 1500) for n in range(8)]
    run(engine, requests)
    drafts = engine.metrics.drafts
    shares = [n / drafts for n in engine.metrics.accepted_by_position]
    assert shares == pytest.approx([0.8, 0.4, 0.2], abs=0.03)
    assert engine.metrics.accepted_tokens == sum(engine.metrics.accepted_by_position)


def test_a_client_that_leaves_frees_its_place_at_the_end_of_the_step() -> None:
    """The engine hears of it between two steps; the outputs of that step are lost."""
    engine = Engine(settings(max_num_seqs=1))
    outcomes = run(
        engine,
        [ask(0, 0.0, 10, 100, patience=3.5), ask(1, 0.2, 10, 2)],
    )
    assert outcomes[0].status is Status.LEFT
    assert outcomes[0].ended == 3.5
    assert outcomes[0].output_tokens == 3
    assert outcomes[1].scheduled == 4.0


def test_a_client_that_has_seen_enough_leaves_in_the_step_after() -> None:
    """Its request runs on until the engine hears of it."""
    engine = Engine(settings())
    outcome = run(engine, [ask(0, 0.0, 10, 100, leaves_after=3)])[0]
    assert (outcome.status, outcome.ended) == (Status.LEFT, 3.0)
    assert outcome.output_tokens == 3
    assert engine.work.steps == 4


def test_queue_limits_turn_requests_away() -> None:
    """On all that are under way, and on prompt tokens without a first token."""
    limited = replace(settings(), max_num_queued_reqs=2)
    outcomes = run(Engine(limited), [ask(n, 0.1 * n, 10, 3) for n in range(4)])
    statuses = [outcomes[n].status for n in range(4)]
    assert statuses == [Status.COMPLETE] * 2 + [Status.REJECTED] * 2
    assert outcomes[3].reason == "max_num_queued_reqs"
    limited = replace(settings(), max_num_queued_tokens=100)
    engine = Engine(limited)
    outcomes = run(engine, [ask(n, 0.1 * n, 60, 3) for n in range(3)])
    assert outcomes[2].reason == "max_num_queued_tokens"
    assert engine.metrics.rejections["max_num_queued_tokens"] == 1


def test_a_prompt_beyond_the_context_is_an_error_and_an_answer_is_cut() -> None:
    """The context holds prompt and answer together."""
    engine = Engine(settings(max_model_len=100))
    outcomes = run(engine, [ask(0, 0.0, 100, 5), ask(1, 0.0, 90, 50)])
    assert outcomes[0].status is Status.INVALID
    assert outcomes[1].output_tokens == 10
    assert outcomes[1].reason == "length"


def test_settings_that_vllm_refuses_are_refused() -> None:
    """A budget below the batch, and a cache below one request."""
    with pytest.raises(ValueError, match="max_num_batched_tokens"):
        replace(SMALL, max_num_seqs=1024)
    with pytest.raises(ValueError, match="max_model_len"):
        replace(SMALL, num_blocks=100)
    with pytest.raises(ValueError, match="acceptance"):
        Speculation(3, (0.5, 0.5))


def test_requests_wait_for_the_api_server_one_after_the_other() -> None:
    """Its time is part of TTFT but not of the queue time."""
    config = replace(settings(), frontend_seconds=0.25)
    engine = Engine(config)
    outcomes = run(engine, [ask(n, 0.0, 10, 1) for n in range(3)])
    assert [outcomes[n].queued for n in range(3)] == [0.25, 1.25, 1.25]
    assert outcomes[2].ttft == 2.25
    assert engine.metrics.queue_time.sum == 0.0


def test_a_number_under_way_is_not_taken_twice() -> None:
    """Two requests of one number could not be told apart."""
    engine = Engine(settings())
    engine.submit(ask(0, 0.0, 10, 5), 0.0)
    with pytest.raises(ValueError, match="under way"):
        engine.submit(ask(0, 0.0, 10, 5), 0.0)


def test_step_time_is_the_sum_of_its_parts() -> None:
    """Prefill tokens, decodes, context read, and pairs of attention."""
    costs = StepCosts(1.0, 0.01, 0.1, 0.001, 1e-4)
    engine = Engine(settings(costs))
    outcome = run(engine, [ask(0, 0.0, 100, 2)])[0]
    # 100 tokens, 100 read, 100 × 50 pairs; then one decode that reads 101.
    first = 1.0 + 1.0 + 0.1 + 0.5
    assert outcome.first_token == pytest.approx(first)
    assert outcome.ended == pytest.approx(first + 1.0 + 0.1 + 0.101)
    assert SECOND.scaled(2.0).seconds(prefill_tokens=5) == 2.0

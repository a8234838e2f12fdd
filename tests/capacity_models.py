"""Small engines whose every figure a test can work out by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from analyzer.capacity.arrivals import OpenLoop
from analyzer.capacity.blocks import Copy
from analyzer.capacity.costs import StepCosts
from analyzer.capacity.engine import Engine
from analyzer.capacity.fleet import Fleet
from analyzer.capacity.outcome import Outcome
from analyzer.capacity.settings import EngineConfig, SchedulerConfig
from analyzer.capacity.workload import Request

# A second a step, whatever is in it: times count steps.
SECOND = StepCosts(base=1.0, prefill_token=0.0, decode_token=0.0, kv_token=0.0)
SMALL = SchedulerConfig(
    num_blocks=1001,
    block_size=16,
    max_model_len=2048,
    max_num_seqs=8,
    max_num_batched_tokens=512,
)


def settings(
    costs: StepCosts = SECOND,
    **changes: Any,  # noqa: ANN401 - whatever else a scheduler has
) -> EngineConfig:
    """Returns a small replica with some of its scheduler's settings changed."""
    return EngineConfig(replace(SMALL, **changes), costs)


def ask(
    number: int,
    arrival: float,
    prompt: int,
    output: int,
    **more: Any,  # noqa: ANN401 - whatever else a request has
) -> Request:
    """Returns a request."""
    return Request(number, arrival, prompt, output, **more)


def run(engine: Engine, requests: Iterable[Request]) -> dict[int, Outcome]:
    """Returns how each of *requests* ended, once nothing happens any more."""
    ordered = sorted(requests, key=lambda request: request.arrival)
    outcomes = Fleet([engine], OpenLoop(ordered)).advance(math.inf)
    return {outcome.request.number: outcome for outcome in outcomes}


def check(engine: Engine) -> None:
    """Asserts what holds between any two steps of any engine."""
    scheduler, pool = engine.scheduler, engine.scheduler.pool
    config = scheduler.config
    live = [*scheduler.running, *scheduler.waiting]
    assert len(scheduler.running) <= config.max_num_seqs
    # Every block is free or held, and a shared one is held once.
    private = sum(sequence.blocks - len(sequence.shared) for sequence in live)
    shared = [copy for sequence in live for copy in sequence.shared]
    assert pool.size - pool.free == private + len(set(shared))
    known = [copy for copies in pool._copies.values() for copy in copies]
    assert {copy: shared.count(copy) for copy in known} == {
        copy: copy.users for copy in known
    }
    assert {copy for copy in known if not copy.users} == {
        key for key in pool._remembered if isinstance(key, Copy)
    }
    assert 0 <= pool.free <= pool.size
    assert pool.free == pool._blank + sum(pool._remembered.values())
    assert pool._blank >= 0
    for sequence in scheduler.running:
        assert sequence.computed <= sequence.slots
        assert sequence.slots == sequence.blocks * config.block_size
    for sequence in scheduler.waiting:
        assert (sequence.blocks, sequence.computed) == (0, 0)
    # Every request under way is in one place.
    in_engine = {sequence.request.number for sequence in live}
    coming = {s.request.number for _, s in engine.frontend._on_the_way}
    assert len(live) == len(in_engine)
    assert in_engine | coming == engine.frontend.unfinished.keys()
    assert not in_engine & coming
    for batch in scheduler.under_way:
        assert 0 < batch.tokens <= config.max_num_batched_tokens
    # A step under way for a request that stopped meanwhile runs to its end.
    busy = bool(engine.frontend.unfinished or scheduler.under_way)
    assert math.isfinite(engine.due) == busy

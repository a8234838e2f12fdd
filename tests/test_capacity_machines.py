from __future__ import annotations

import math
from itertools import pairwise

import pytest

from analyzer.capacity.arrivals import OpenLoop
from analyzer.capacity.engine import Engine
from analyzer.capacity.fleet import Fleet
from analyzer.capacity.machines import (
    A100,
    H100,
    L4,
    LLAMA_8B,
    LLAMA_70B,
    derived_costs,
    kv_blocks,
    machines,
)
from analyzer.capacity.outcome import Outcome, Status
from analyzer.capacity.workload import Request


def alone(name: str, prompt: int, output: int) -> Outcome:
    """Returns how one request on an idle replica ended."""
    source = OpenLoop([Request(0, 0.0, prompt, output)])
    return Fleet([Engine(machines()[name])], source).advance(math.inf)[0]


@pytest.mark.parametrize("name", list(machines()))
def test_every_machine_serves_its_longest_request(name: str) -> None:
    """A prompt up to the context, and half of it as an answer."""
    longest = machines()[name].scheduler.max_model_len
    outcome = alone(name, longest // 2, longest)
    assert outcome.status is Status.COMPLETE
    assert outcome.output_tokens == longest - longest // 2


def test_single_request_figures_lie_near_public_measurements() -> None:
    """Llama-3.1-8B on an H100: TPOT 6.5 ms and TTFT 14 ms for a short prompt.

    On an L4, its data sheet: 16 GB of weights at 300 GB/s are 54 ms at least.
    """
    h100 = alone("h100-llama-8b", 20, 200)
    assert h100.tpot == pytest.approx(0.0065, rel=0.05)
    assert h100.ttft == pytest.approx(0.014, rel=0.3)
    l4 = alone("l4-llama-8b", 20, 50)
    assert l4.tpot is not None
    assert 0.054 < l4.tpot < 0.075


def test_more_and_faster_gpus_are_faster() -> None:
    """In every cost, for the same model."""

    def seconds(name: str) -> list[float]:
        costs = machines()[name].costs
        return [costs.base, costs.prefill_token, costs.decode_token, costs.kv_token]

    ordered = ["h100-llama-8b", "a100-llama-8b", "l4-llama-8b"]
    for faster, slower in pairwise(ordered):
        assert all(a < b for a, b in zip(seconds(faster), seconds(slower), strict=True))
    four, eight = seconds("h100x4-llama-70b"), seconds("h100x8-llama-70b")
    assert all(a < b for a, b in zip(eight, four, strict=True))
    # Collectives do not shrink with the number of GPUs.
    assert eight[0] > four[0] / 2


def test_the_cache_is_what_the_weights_leave() -> None:
    """Public logs of vLLM have some 430 000 to 460 000 tokens for 8B on 80 GB."""
    assert 400_000 < kv_blocks(H100, LLAMA_8B, tensor_parallel=1) * 16 < 480_000
    assert kv_blocks(L4, LLAMA_8B, tensor_parallel=1) * 16 < 40_000
    two = kv_blocks(A100, LLAMA_70B, tensor_parallel=4)
    assert two < kv_blocks(A100, LLAMA_70B, tensor_parallel=8) / 2
    with pytest.raises(ValueError, match="does not fit"):
        kv_blocks(H100, LLAMA_70B, tensor_parallel=1)


def test_a_prefill_of_thousands_is_bound_by_arithmetic() -> None:
    """Long prompts cost more than in proportion, by their attention."""
    costs = derived_costs(H100, LLAMA_8B, tensor_parallel=1)
    seconds = [
        costs.seconds(prefill_tokens=n, prefill_pairs=n * n / 2) - costs.base
        for n in (1000, 30_000)
    ]
    assert 30 < seconds[1] / seconds[0] < 60
    assert 20_000 < 1000 / seconds[0] < 35_000


def test_a_crowded_gpu_runs_out_of_cache_before_places() -> None:
    """An L4 with an 8B model: few requests at once, and preemptions under load."""
    engine = Engine(machines()["l4-llama-8b"])
    requests = (Request(n, 1.0 * n, 1000, 400) for n in range(200))
    fleet = Fleet([engine], OpenLoop(requests))
    fleet.advance(150.0)
    assert engine.scheduler.preemptions > 0
    assert engine.metrics.kv_cache_usage > 0.9
    assert len(engine.scheduler.running) < 64

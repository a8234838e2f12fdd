"""Pages with many models and ranks: the work grows with the page, no faster."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from counted_work import steps
from watched_engine import observe

from analyzer.audit import audit
from analyzer.config import parse_config
from analyzer.document import document
from analyzer.flow import EngineFlow

CONFIG = parse_config(
    """
slo_classes: [{name: c, match: {model: "*"}, good: {ttft: 1s}, objective: 0.9}]
engines: [{name: e, url: "http://e/metrics"}]
"""
)
MANY = 60
GROWTH = 1.2  # allowed beyond proportion; work by all pairs has 2


def page(models: int, ranks: int, tokens: int) -> str:
    """Returns a page of *models* models, each with *ranks* ranks."""
    lines = []
    for model in range(models):
        for rank in range(ranks):
            labels = f'engine="{rank}",model_name="m{model}"'
            lines += [
                f"vllm:num_requests_running{{{labels}}} 1",
                f"vllm:num_requests_waiting{{{labels}}} 0",
                f"vllm:kv_cache_usage_perc{{{labels}}} 0.5",
                f"vllm:generation_tokens_total{{{labels}}} {tokens}",
            ]
            for name in ("request_prompt_tokens", "time_to_first_token_seconds"):
                lines += [
                    f'vllm:{name}_bucket{{{labels},le="1.0"}} {tokens}',
                    f'vllm:{name}_bucket{{{labels},le="+Inf"}} {tokens}',
                    f"vllm:{name}_sum{{{labels}}} {tokens}",
                ]
    return "\n".join(lines) + "\n"


def followed(models: int, ranks: int) -> EngineFlow:
    """Returns a flow that knows the page's series."""
    flow = EngineFlow(CONFIG.engines[0], CONFIG, since=0.0)
    observe(flow, page(models, ranks, 1), 1.0)
    assert len(flow.ranks()) == models * ranks
    return flow


def sampled(flow: EngineFlow, models: int, ranks: int) -> None:
    """Reads and records the next page."""
    assert observe(flow, page(models, ranks, 2), 2.0) is not None


def shown(flow: EngineFlow, models: int, ranks: int) -> None:
    """Makes the document."""
    found = document([flow], 2.0, seconds=300.0, pictures=True)
    assert len(found["targets"][0]["models"]) == models
    assert len(found["windows"]) == models * ranks


def audited(flow: EngineFlow, models: int, ranks: int) -> None:
    """Holds the page against the classes."""
    assert len(audit(flow).buckets) == models
    assert flow.gauge("running", "m0", f"{ranks - 1}") == 1


@pytest.mark.parametrize("work", [sampled, shown, audited])
@pytest.mark.parametrize("shape", ["models", "ranks"])
def test_twice_as_many_models_or_ranks_are_twice_the_work(
    work: Callable[[EngineFlow, int, int], None], shape: str
) -> None:
    """Counted in steps of the interpreter, so that no load of the machine matters."""

    def cost(many: int) -> int:
        models, ranks = (many, 1) if shape == "models" else (1, many)
        flow = followed(models, ranks)
        return steps(lambda: work(flow, models, ranks))

    cost(2)  # Python 3.13 does not count all of a function's first run
    once, twice = cost(MANY), cost(2 * MANY)
    assert once > MANY
    assert twice <= 2 * GROWTH * once

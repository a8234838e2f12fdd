from __future__ import annotations

import json
import lzma
import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from capacity_models import SECOND

from analyzer.capacity.arrivals import OpenLoop
from analyzer.capacity.engine import Engine
from analyzer.capacity.fleet import Fleet
from analyzer.capacity.scheduler import Batch, Scheduler
from analyzer.capacity.settings import EngineConfig, SchedulerConfig, Speculation
from analyzer.capacity.workload import Request

FIXTURE = Path(__file__).parent / "fixtures" / "scheduler" / "decisions.json.xz"


class Scripted(Speculation):
    """Accepts drafts as a list says."""

    __slots__ = ("script",)
    script: list[int]

    def accepted(self, rng: Random, drafts: int) -> int:
        """Returns the next number of the list, no more than there are drafts."""
        del rng
        return min(self.script.pop(0), drafts)


class Recorder(Scheduler):
    """Writes down each step as `fixtures/scheduler/record.py` does with vLLM's."""

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config)
        self.steps: list[list[Any]] = []

    def schedule(self, now: float) -> Batch | None:
        """Plans a step and records it."""
        batch = super().schedule(now)
        if batch is not None:
            self.steps.append(
                [
                    int(now),
                    batch.tokens,
                    [[s.request.number, s.computed, s.total] for s in self.running],
                    [s.request.number for s in self.waiting],
                    self.pool.free,
                    self.prefix_queries,
                    self.prefix_hits,
                ]
            )
        return batch


def recorded() -> list[dict[str, Any]]:
    """Returns the scenarios that vLLM's own scheduler went through."""
    with lzma.open(FIXTURE, "rt") as file:
        scenarios: list[dict[str, Any]] = json.load(file)
    return scenarios


def config(settings: dict[str, Any], accepted: Sequence[int]) -> SchedulerConfig:
    """Returns a scenario's settings as the model's."""
    settings = dict(settings)
    drafts = settings.pop("drafts")
    speculation = None
    if drafts:
        speculation = Scripted(drafts, (0.5,))
        object.__setattr__(speculation, "script", list(accepted))
    return SchedulerConfig(**settings, speculation=speculation)


def test_every_decision_is_the_one_that_vllm_makes() -> None:
    """Step by step: who runs, who waits, tokens, free blocks, and cache hits.

    Scenarios are short of blocks, places or budget, with preemption, chunked and
    capped prefill, shared prefixes, watermark, asynchronous scheduling and drafts.
    """
    preemptions = 0
    for scenario in recorded():
        settings = config(scenario["settings"], scenario["accepted"])
        engine = Engine(EngineConfig(settings, SECOND))
        engine.scheduler = scheduler = Recorder(settings)
        requests = [
            Request(
                r["number"],
                float(r["arrival"]),
                r["prompt"],
                r["output"],
                prefix=r["prefix"],
                prefix_tokens=r["prefix_tokens"],
            )
            for r in scenario["requests"]
        ]
        Fleet([engine], OpenLoop(requests)).advance(math.inf)
        for mine, real in zip(scheduler.steps, scenario["steps"], strict=False):
            assert mine == real, scenario["settings"]
        assert len(scheduler.steps) == len(scenario["steps"])
        preemptions += scheduler.preemptions
    assert preemptions == 562


@pytest.mark.parametrize(
    "setting",
    ["prefix_caching", "asynchronous", "drafts", "watermark"],
)
def test_the_recorded_scenarios_have_all_kinds(setting: str) -> None:
    """A comparison that never meets a feature says nothing about it."""
    having = [s for s in recorded() if s["settings"][setting]]
    assert 10 <= len(having) < len(recorded())

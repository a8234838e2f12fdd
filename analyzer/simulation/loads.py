"""Loads that bring a replica into a known regime, whatever machine it is.

Each is found from the machine's own step costs and settings, so that a scenario means
the same on every accelerator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from random import Random

from analyzer.capacity.arrivals import ClosedLoop, OpenLoop, poisson
from analyzer.capacity.settings import EngineConfig
from analyzer.capacity.workload import Mix


@dataclass(frozen=True, slots=True)
class Shape:
    """Mean lengths of requests in tokens."""

    prompt: float
    output: float


def rate_of(config: EngineConfig, shape: Shape, *, running: float) -> float:
    """Returns the requests a second that keep *running* of them in one replica.

    By Little's law, with a step that also prefills what arrives meanwhile.
    """
    costs = config.costs
    context = shape.prompt + shape.output / 2
    decode = costs.seconds(decode_tokens=1) - costs.base
    step = costs.base + running * (decode + context * costs.kv_token)
    prefill = shape.prompt * costs.prefill_token
    prefill += shape.prompt**2 / 2 * costs.prefill_pair
    step += running * prefill / shape.output
    return running / (shape.output * step)


def open_loop(rng: Random, mix: Mix, *, rate: float, begin: float) -> OpenLoop:
    """Returns independent clients that send *rate* requests a second from *begin*."""
    return OpenLoop(mix.requests(rng, poisson(rng, rate, start=begin)))


def closed_loop(
    rng: Random, mix: Mix, *, clients: int, begin: float, ramp: float = 5.0
) -> ClosedLoop:
    """Returns *clients* that each ask again once answered.

    They begin within *ramp* seconds, so that their requests do not run in step.
    """
    requests = mix.requests(rng, repeat(begin))
    return ClosedLoop(requests, concurrency=clients, start=begin, ramp=ramp)


def cycles(begin: float, *lengths: float) -> Iterator[tuple[int, float, float]]:
    """Yields (index, begin, end) of stages with these *lengths*, again and again."""
    while True:
        for index, seconds in enumerate(lengths):
            yield index, begin, begin + seconds
            begin += seconds

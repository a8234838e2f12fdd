"""How many requests a second an engine can take under an SLO, by simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analyzer.capacity.arrivals import OpenLoop
from analyzer.capacity.engine import Engine
from analyzer.capacity.fleet import Balancer, Fleet
from analyzer.capacity.outcome import Outcome, Status
from analyzer.capacity.settings import EngineConfig
from analyzer.judgement import DOES_NOT_APPLY, UNKNOWN, is_good
from analyzer.plan.demand import Demand
from analyzer.slo import SloClass, percentile

SEEDS = (1, 2, 3)
REQUESTS = 1500
TURNS = 6  # requests for each place of a batch, at least
MOST_REQUESTS = 60_000
MOST_TOKENS = 4_000_000  # of answers in a run, beyond which turns are fewer
FEWEST = (300, 3)  # requests, and turns, all the same
BEYOND = 10  # requests that may miss a target, so that it is not one's luck
TINY = 1e-9
WARM_UP = 0.1  # of the requests, in which queues build up
PRECISION = 1.012  # how far apart a rate that does and one that does not may be
LOWEST = 1 / 256  # of saturation: what is below is an idle engine


@dataclass(frozen=True, slots=True)
class Range:
    """The same figure at the least, at its best guess and at the most."""

    lower: float
    estimate: float
    upper: float


@dataclass(frozen=True, slots=True)
class Met:
    """How a simulated run went: the share of good requests, and whether it will do.

    `good_tokens` are output tokens of good requests a second.
    """

    share: float
    met: bool
    good_tokens: float


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of engines: a demand, under the target of a class."""

    demand: Demand
    slo_class: SloClass
    balancer: Balancer = Balancer.ROUND_ROBIN
    least: int = REQUESTS  # to simulate for one engine

    def run(
        self, engine: EngineConfig, rate: float, seed: int, *, replicas: int = 1
    ) -> Met:
        """Returns how *replicas* serve *rate* requests a second."""
        number = self.number(engine, replicas)
        requests = self.demand.requests(rate, number, seed)
        engines = [Engine(engine, replica=n) for n in range(replicas)]
        fleet = Fleet(engines, OpenLoop(requests), balancer=self.balancer, seed=seed)
        outcomes = fleet.advance(math.inf)
        return self._judged(
            [o for o in outcomes if o.request.number >= WARM_UP * number]
        )

    def number(self, engine: EngineConfig, replicas: int) -> int:
        """Returns how many requests to simulate, so that each place has several."""
        places = engine.scheduler.max_num_seqs * replicas
        wanted = max(self.least * min(replicas, 4), TURNS * places, self._for_target)
        requests, turns = FEWEST
        affordable = int(MOST_TOKENS / self.demand.output_tokens)
        least = min(wanted, max(requests, turns * places))
        return min(MOST_REQUESTS, max(least, min(wanted, affordable)))

    @property
    def _for_target(self) -> int:
        """The requests of which enough may miss the strictest target."""
        levels = [percentile(level) or 0.0 for _, level in self.slo_class.percentiles]
        strictest = max([self.slo_class.objective, *levels])
        return math.ceil(BEYOND / max(TINY, 1.0 - strictest) / (1.0 - WARM_UP))

    def _judged(self, outcomes: Sequence[Outcome]) -> Met:
        values = [_values(outcome) for outcome in outcomes]
        good, tokens = 0, 0
        for outcome, value in zip(outcomes, values, strict=True):
            limits = {
                name: limit.at(outcome.request.prompt_tokens)
                for name, limit in self.slo_class.good.items()
            }
            cut = outcome.output_tokens < outcome.request.output_tokens
            failed = cut or outcome.status is not Status.COMPLETE
            if is_good(value, limits, failed)[0]:
                good += 1
                tokens += outcome.output_tokens
        share = good / len(outcomes)
        met = share >= self.slo_class.objective and self._percentiles_kept(values)
        arrivals = [outcome.request.arrival for outcome in outcomes]
        span = max(arrivals) - min(arrivals)
        return Met(share, met, tokens / span if span > 0 else 0.0)

    def _percentiles_kept(self, values: Sequence[dict[str, float]]) -> bool:
        for (criterion, level), limit in self.slo_class.percentiles.items():
            known = [v[criterion] for v in values if v[criterion] > DOES_NOT_APPLY]
            within = sum(value <= limit for value in known)
            if known and within / len(known) < (percentile(level) or 0.0):
                return False
        return True

    def saturation(self, engine: EngineConfig, seed: int) -> float:
        """Returns the requests a second of an engine that never lacks work.

        No higher rate can be kept up, though a criterion that no wait counts for
        (TPOT) would be met at any. 0 when it refuses all; those it refuses are work
        for nobody.
        """
        requests = self.demand.requests(math.inf, self.number(engine, 1), seed)
        outcomes = Fleet([Engine(engine)], OpenLoop(requests)).advance(math.inf)
        ends = [o.ended for o in outcomes if o.status is Status.COMPLETE]
        if not ends:
            return 0.0
        first, last = len(ends) // 5, len(ends) * 4 // 5  # full batches all the time
        answers = (last - first) / max(TINY, ends[last] - ends[first])
        return answers * len(outcomes) / len(ends)

    def highest_rate(self, engine: EngineConfig, seed: int) -> float:
        """Returns the highest rate at which the target is met, 0 when none will do.

        A higher rate is supposed never to serve better.
        """

        def met(rate: float) -> bool:
            return self.run(engine, rate, seed).met

        most = self.saturation(engine, seed)
        if not most:
            return 0.0
        if met(most):
            return most
        low, high = most / 2, most
        if not met(low):
            low, high = most * LOWEST, low
            if not met(low):
                return 0.0
        while high > low * PRECISION:
            between = math.sqrt(low * high)
            if met(between):
                low = between
            else:
                high = between
        return low

    def rates(self, engine: EngineConfig) -> tuple[float, ...]:
        """Returns the highest rate with each seed."""
        return tuple(self.highest_rate(engine, seed) for seed in SEEDS)


def _values(outcome: Outcome) -> dict[str, float]:
    single = outcome.output_tokens <= 1
    return {
        "ttft": UNKNOWN if outcome.ttft is None else outcome.ttft,
        "tpot": DOES_NOT_APPLY if single else outcome.tpot or 0.0,
        "max_gap": DOES_NOT_APPLY if single else outcome.max_gap,
        "e2e": outcome.e2e,
    }

"""A twin of the server that was swept: step costs fitted to it, and how far off it is.

The costs are fitted to the medians of every load. The highest load is also left out
once and predicted, since what a plan asks of the twin lies beyond what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from statistics import median

from analyzer.benchmarks.run import Requests, Run
from analyzer.capacity.costs import StepCosts
from analyzer.capacity.fit import Figures, Point, fit, simulate
from analyzer.capacity.settings import EngineConfig
from analyzer.capacity.workload import Request
from analyzer.plan.settings import PlanError, Settings

LEAST_LOADS = 3
# Real sweeps repeat themselves to 10 or 20 %; a twin that is further off is none.
TRUSTED = 0.3
TINY = 1e-7  # seconds: a cost must be positive to be fitted
ENOUGH = (200, 30)  # requests, and turns, of a load; more takes long, tells little
MOST_STEPS = 20_000_000  # for one sequence each
SANE = (1e-9, 1e9)  # rates and seconds beyond which a file is not of a server


@dataclass(frozen=True, slots=True)
class Miss:
    """How far the twin is from a measured load, as shares of what was measured."""

    concurrency: int
    throughput: float
    ttft: float
    tpot: float

    @property
    def errors(self) -> tuple[tuple[str, float], ...]:
        """The errors by their names in words."""
        return (
            ("throughput", self.throughput),
            ("TTFT", self.ttft),
            ("TPOT", self.tpot),
        )


@dataclass(frozen=True, slots=True)
class Twin:
    """An engine that behaves as the measured one, and how far off it is.

    `held_out` is the highest load, predicted by a twin that was fitted to the others.
    """

    engine: EngineConfig
    points: tuple[Point, ...]
    misses: tuple[Miss, ...]
    held_out: Miss

    @property
    def error(self) -> float:
        """The share by which a time of the twin is uncertain.

        The root mean square of all errors, or the largest of the load it had not
        seen, if that is more. TTFT is the one that tells a wrong `max_num_seqs`.
        """
        seen = [e for miss in self.misses for _, e in miss.errors]
        mean = math.sqrt(math.fsum(e * e for e in seen) / len(seen))
        return max(mean, *(abs(e) for _, e in self.held_out.errors))

    @property
    def distrust(self) -> str:
        """Why nothing should be planned on it, "" when something may."""
        if self.error <= TRUSTED:
            return ""
        error, name, load = max(
            (
                (error, name, miss.concurrency)
                for miss in (*self.misses, self.held_out)
                for name, error in miss.errors
            ),
            key=lambda one: abs(one[0]),
        )
        return (
            f"the twin does not behave as the server did: off by {self.error:.0%}, in "
            f"{name} by {error:+.0%} at {load} at once"
        )

    def slowed(self, factor: float) -> EngineConfig:
        """Returns the engine with all its times multiplied."""
        return replace(
            self.engine,
            costs=self.engine.costs.scaled(factor),
            frontend_seconds=self.engine.frontend_seconds * factor,
        )


def calibrated(runs: Sequence[Run], settings: Settings) -> Twin:
    """Returns the twin of the server that the closed loops *runs* are of.

    Raises PlanError when they are too few, or do not hold what is needed.
    """
    points = sorted(filter(None, map(_point, runs)), key=lambda p: p.concurrency)
    loads = {point.concurrency for point in points}
    if len(loads) < LEAST_LOADS:
        raise PlanError(
            f"{len(loads)} loads of a closed loop with TTFT, TPOT and lengths of "
            f"single requests in their files; a twin needs {LEAST_LOADS}: vllm bench "
            "serve --save-detailed --max-concurrency 1, 4, 16, … (docs/capacity.md)"
        )
    start = replace(settings.engine(), frontend_seconds=TINY)
    _check_lengths(start, points)
    start = _guess(start, points)
    engine = fit(start, points)
    misses = _misses(engine, points)
    below = [point for point in points if point.concurrency < max(loads)]
    held_out = _misses(fit(start, below), points)[-1]
    return Twin(engine, tuple(points), misses, held_out)


def _check_lengths(engine: EngineConfig, points: Iterable[Point]) -> None:
    """Raises PlanError for requests that the server, or a simulation, cannot take."""
    requests = [request for point in points for request in point.requests]
    longest = max(r.prompt_tokens + r.output_tokens for r in requests)
    prompts = sum(r.prompt_tokens for r in requests)
    steps = prompts / engine.scheduler.max_num_batched_tokens
    if steps + sum(r.output_tokens for r in requests) > MOST_STEPS:
        raise PlanError("the sweep has too many tokens to be simulated")
    most = engine.scheduler.max_model_len
    if longest > most:
        raise PlanError(
            f"the sweep has a request of {longest} tokens, but by its settings the "
            f"server takes {most} at most (max_model_len, or num_gpu_blocks of "
            "block_size tokens): correct --setting or --page"
        )


def _point(run: Run) -> Point | None:
    if run.requests is None or run.concurrency is None or run.request_rate is not None:
        return None
    least, turns = ENOUGH
    requests = _thinned(
        _requests(run.requests), int(max(least, turns * run.concurrency))
    )
    single = run.requests
    taken = [at for at, failed in enumerate(single.failed) if not failed]
    ttft = [single.ttft[at] for at in taken if not math.isnan(single.ttft[at])]
    tpot = [single.tpot[at] for at in taken if not math.isnan(single.tpot[at])]
    if not (requests and ttft and tpot and run.completed):
        return None
    figures = Figures(run.completed / run.duration, median(ttft), median(tpot))
    low, high = SANE
    if not all(low < f < high for f in astuple(figures)) or run.concurrency < 1:
        return None
    return Point(round(run.concurrency), requests, figures)


def _requests(single: Requests) -> list[Request]:
    """Returns what was asked, in the order of starts; what failed is left out."""
    rows = zip(
        single.start,
        single.prompt_tokens,
        single.output_tokens,
        single.failed,
        strict=True,
    )
    known = [
        (0.0 if math.isnan(start) else start, int(prompt), int(output))
        for start, prompt, output, failed in rows
        if not failed and prompt >= 1 and output >= 1
    ]
    known.sort(key=lambda row: row[0])
    return [
        Request(number, 0.0, prompt, output)
        for number, (_, prompt, output) in enumerate(known)
    ]


def _thinned(requests: list[Request], most: int) -> list[Request]:
    """Returns *most* of the requests at most, their answers as long as all are."""
    if len(requests) <= most:
        return requests
    by_length = sorted(requests, key=lambda r: (r.output_tokens, r.prompt_tokens))
    step = len(requests) / most
    kept = (by_length[int((at + 0.5) * step)] for at in range(most))
    return sorted(kept, key=lambda request: request.number)


def _guess(engine: EngineConfig, points: Sequence[Point]) -> EngineConfig:
    """Returns *engine* with the costs to begin the fit with, from two loads.

    Nothing tells a context's cost from that of its sequence, so it is in the latter.
    """
    low, high = points[0], points[-1]
    prompt = sum(r.prompt_tokens for r in low.requests) / len(low.requests)
    most = min(high.concurrency, engine.scheduler.max_num_seqs)
    slope = (high.measured.tpot - low.measured.tpot) / max(1, most - low.concurrency)
    base = 0.8 * low.measured.tpot
    costs = StepCosts(
        base=max(TINY, base),
        prefill_token=max(TINY, 0.7 * (low.measured.ttft - base) / prompt),
        decode_token=max(TINY, slope / 2),
        kv_token=0.0,
    )
    return replace(
        engine, costs=costs, frontend_seconds=max(TINY, 0.1 * low.measured.ttft)
    )


def _misses(engine: EngineConfig, points: Sequence[Point]) -> tuple[Miss, ...]:
    return tuple(
        Miss(point.concurrency, *figures.errors(point.measured))
        for point, figures in zip(points, simulate(engine, points), strict=True)
    )

"""One load point: what its runs measured, and how much of it a class calls good."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analyzer.benchmarks.run import LATENCIES, Run
from analyzer.goodput import Marginal, joint_bounds
from analyzer.slo import SloClass, Threshold, percentile
from analyzer.sweep.columns import Columns, Judged, blocks, columns, judged
from analyzer.sweep.intervals import Blocks, Interval, share
from analyzer.sweep.pool import Pool

LEVELS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
FEW_REQUESTS = 100  # a p99 of fewer is the largest or nearly


@dataclass(frozen=True, slots=True)
class Goodput:
    """What is known of a class at a load point.

    Counts are exact where every request could be judged; else `good` is None and
    the bounds hold. `attainment` and bounds are shares of all requests sent, the
    failed ones with them. `blocks` None: there are no single requests.
    """

    sent: int
    good: int | None
    lower: int
    upper: int
    unevaluable: int
    missed: Mapping[str, int]
    interval: Interval | None
    blocks: Blocks | None
    reason: str = ""

    @property
    def attainment(self) -> float | None:
        """The share of good requests, None when only bounds are known."""
        return self.good / self.sent if self.good is not None and self.sent else None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The least and the largest that the share can be."""
        return (self.lower / self.sent, self.upper / self.sent) if self.sent else None


@dataclass(frozen=True, slots=True)
class Point:
    """A load point's figures; rates are a second of its runs together."""

    pool: Pool
    completed: int
    failed: int
    seconds: float
    output_tokens: float | None
    input_tokens: float | None
    latencies: Mapping[tuple[str, str], float | None]
    requests: Columns | None
    judgement: Judged | None
    goodput: Goodput | None

    @property
    def load(self) -> float:
        """What the load was set to, infinite when all requests came at once."""
        return self.pool.load

    @property
    def sent(self) -> int:
        """Requests measured, failures with them."""
        return self.completed + self.failed

    @property
    def throughput(self) -> float:
        """Answers that succeeded, a second."""
        return self.completed / self.seconds

    def rate_of(self, share_: float | None) -> float | None:
        """Returns the requests a second that a share of those sent is."""
        return None if share_ is None else share_ * self.sent / self.seconds

    @property
    def spread(self) -> float | None:
        """How far apart the throughputs of repeats are, as a share of their mean."""
        rates = [run.completed / run.duration for run in self.pool.runs]
        if len(rates) < 2 or not any(rates):
            return None
        return (max(rates) - min(rates)) / (sum(rates) / len(rates))

    @property
    def turns(self) -> float | None:
        """How many answers' times the runs last, taken together."""
        median = self.latencies.get(("e2e", "p50"))
        return self.seconds / median if median else None


def measure(pool: Pool, slo_class: SloClass | None) -> Point:
    """Returns the figures of *pool*, judged by *slo_class* if there is one."""
    found = columns(pool.runs)
    runs = pool.runs
    goodput = judgement = None
    if slo_class is not None:
        if found is not None:
            judgement = judged(found, slo_class)
        goodput = _goodput(runs, slo_class, found, judgement)
    return Point(
        pool=pool,
        completed=sum(run.completed for run in runs),
        failed=sum(run.failed for run in runs),
        seconds=sum(run.duration for run in runs),
        output_tokens=_total([run.output_tokens for run in runs]),
        input_tokens=_total([run.input_tokens for run in runs]),
        latencies=_latencies(runs, found),
        requests=found,
        judgement=judgement,
        goodput=goodput,
    )


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None


def _latencies(
    runs: Sequence[Run], found: Columns | None
) -> dict[tuple[str, str], float | None]:
    """Returns the quantiles of single requests, else those that a lone file names."""
    result: dict[tuple[str, str], float | None] = {}
    for latency in LATENCIES:
        values = found.latency(latency) if found is not None else np.zeros(0)
        if len(values):
            exact = np.quantile(values, tuple(LEVELS.values())).tolist()
            named: dict[str, float] = dict(zip(LEVELS, exact, strict=True))
        elif len(runs) == 1 and runs[0].completed:  # of no answer a tool writes 0
            told = runs[0].quantiles.get(latency, {})
            named = {name: told[at] for name, at in LEVELS.items() if at in told}
        else:  # quantiles of several runs do not add up
            named = {}
        result.update({(latency, name): named.get(name) for name in LEVELS})
    return result


def _goodput(
    runs: Sequence[Run],
    slo_class: SloClass,
    found: Columns | None,
    judgement: Judged | None,
) -> Goodput:
    if found is not None and judgement is not None and not judgement.unevaluable:
        taken = judgement.taken
        cuts = blocks(found, judgement)
        good = judgement.good[taken]
        return Goodput(
            sent=int(taken.sum()),
            good=int(good.sum()),
            lower=int(good.sum()),
            upper=int(good.sum()),
            unevaluable=0,
            missed=judgement.missed,
            interval=share(good, judgement.score[taken], cuts),
            blocks=cuts,
        )
    if slo_class.match.prompt_tokens is not None and judgement is None:
        sent = sum(run.sent for run in runs)
        reason = "which requests have the class's prompt lengths is not in the file"
        return Goodput(sent, None, 0, sent, sent, {}, None, None, reason)
    return _bounded(runs, slo_class, judgement)


def _bounded(
    runs: Sequence[Run], slo_class: SloClass, judgement: Judged | None
) -> Goodput:
    """Returns bounds from each criterion's own share, by request or by quantile."""
    if judgement is not None:
        sent = int(judgement.taken.sum())
        completed = sent - judgement.missed["error"]
    else:
        sent = sum(run.sent for run in runs)
        completed = sum(run.completed for run in runs)
    marginals: dict[str, Marginal] = {}
    vague = []
    for criterion, threshold in slo_class.good.items():
        least, most = (0, completed)
        if judgement is not None:
            least, most = judgement.met[criterion]
        if least != most and slo_class.match.prompt_tokens is None:
            # Quantiles may tell what single requests do not.
            low, high = _sum(_bracket(run, criterion, threshold) for run in runs)
            least, most = max(least, low), min(most, high)
        if least != most:
            vague.append(criterion)
        marginals[criterion] = Marginal(completed, least, most)
    joint = joint_bounds(float(completed), marginals)
    lower, upper = int(joint.lower), int(joint.upper)
    exact = lower == upper
    return Goodput(
        sent=sent,
        good=lower if exact else None,
        lower=lower,
        upper=upper,
        unevaluable=0 if exact else sent,
        missed={"error": sent - completed},
        interval=None,
        blocks=None,
        reason="" if exact else _why(vague),
    )


def _why(vague: Sequence[str]) -> str:
    if not vague:
        return "bounds: each criterion is known, not which requests met them all"
    return f"bounds: {', '.join(vague)} of single requests is not in the file"


def _sum(parts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    low = high = 0
    for least, most in parts:
        low, high = low + least, high + most
    return low, high


def _bracket(run: Run, criterion: str, threshold: Threshold) -> tuple[int, int]:
    """Returns how many answers of a run met a criterion, at least and at most.

    A quantile lies within one place of its rank, however a tool interpolates.
    """
    number = run.completed
    least, most = 0, number
    for level, seconds in run.quantiles.get(criterion, {}).items():
        place = math.floor(level * max(0, number - 1))
        if seconds <= threshold.seconds:
            least = max(least, place)
        elif not threshold.per_prompt_token:
            most = min(most, place + 2)
    return min(least, number), max(0, most)


def meets(point: Point, slo_class: SloClass) -> bool | None:
    """Whether a point is under the class's target, None when it cannot be told.

    The target is the objective, and the percentiles that the class asks for.
    """
    goodput = point.goodput
    bounds = goodput.bounds if goodput else None
    if bounds is None:
        return None
    verdicts: list[bool | None] = [
        True
        if bounds[0] >= slo_class.objective
        else False
        if bounds[1] < slo_class.objective
        else None
    ]
    for (criterion, level), seconds in slo_class.percentiles.items():
        value = _at(point, criterion, level)
        verdicts.append(None if value is None else value <= seconds)
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _at(point: Point, criterion: str, level: str) -> float | None:
    known = point.latencies.get((criterion, level))
    quantile = percentile(level)
    if known is not None or point.requests is None or quantile is None:
        return known
    values = point.requests.latency(criterion)
    return float(np.quantile(values, quantile)) if len(values) else None

"""A plan: what a replica takes, how many a rate needs, what would help, the cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from analyzer.capacity.settings import EngineConfig
from analyzer.plan.calibration import Twin
from analyzer.plan.demand import Demand
from analyzer.plan.search import SEEDS, Met, Question, Range
from analyzer.plan.settings import PlanError, Settings
from analyzer.plan.what_if import Change, Effect, verdict
from analyzer.slo import SloClass

MOST_REPLICAS = 64  # of a fleet that is simulated; above, rates are divided
MORE_REPLICAS = 3  # tried beyond what dividing gives
DRIFT = 0.25  # of mean lengths, beyond which costs were fitted to something else


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many replicas a rate needs; `share` is what the fleet was simulated to do.

    `number` is the least at which a simulated fleet meets the target with every seed,
    None when none of those tried did. `share` is None where it was not simulated.
    """

    rate: float
    lower: int | None
    number: int | None
    upper: int | None
    share: float | None = None
    good_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What the twin says for one class."""

    slo_class: SloClass
    capacity: Range
    good_tokens: float  # of one replica at its limit, a second
    replicas: Replicas | None
    effects: tuple[Effect, ...]
    doubts: tuple[str, ...]


def plan(
    twin: Twin,
    question: Question,
    changes: Iterable[Change],
    *,
    rate: float | None = None,
    on_step: Callable[[], None] = lambda: None,
) -> Plan:
    """Returns the plan for a class; *on_step* is called after each part of the work.

    The limits of a rate are those of a twin that is slower and quicker by its error.
    """

    def limit(engine: EngineConfig) -> tuple[float, ...]:
        found = question.rates(engine)
        on_step()
        return found

    now = limit(twin.engine)
    slow = limit(twin.slowed(1.0 + twin.error))
    quick = limit(twin.slowed(1.0 / (1.0 + twin.error)))
    capacity = Range(min(slow), median(now), max(quick))
    effects = []
    for change in changes:
        after = limit(change.engine)
        gain = median(after) / median(now) - 1.0 if median(now) else math.nan
        tokens = _good_tokens(change.engine, question, after)
        effects.append(Effect(change, after, gain, verdict(now, after), tokens))
    replicas = None
    if rate is not None:
        replicas = _replicas(twin.engine, question, rate, capacity)
        on_step()
    return Plan(
        question.slo_class,
        capacity,
        _good_tokens(twin.engine, question, now),
        replicas,
        tuple(effects),
        tuple(_doubts(twin, question.demand)),
    )


def _good_tokens(
    engine: EngineConfig, question: Question, at: Sequence[float]
) -> float:
    """Returns the good output tokens a second at the highest rates, on average."""
    return fmean(
        question.run(engine, rate, seed).good_tokens if rate else 0.0
        for rate, seed in zip(at, SEEDS, strict=True)
    )


def _replicas(
    engine: EngineConfig, question: Question, rate: float, capacity: Range
) -> Replicas:
    def needed(each: float) -> int | None:
        return math.ceil(rate / each - 1e-9) if each > 0 else None

    least, likely = needed(capacity.upper), needed(capacity.estimate)
    most = needed(capacity.lower)
    if least is None or likely is None:
        return Replicas(rate, least, None, None)
    if likely > MOST_REPLICAS:
        return Replicas(rate, least, likely, most)
    # Replicas that share a rate have steadier work than one that is alone with it, much
    # so when it comes in bursts, but not more work than one can do.
    kept_up = math.ceil(rate / min(question.saturation(engine, s) for s in SEEDS))
    found: tuple[int, list[Met]] | None = None
    low, high = kept_up, likely + MORE_REPLICAS
    while low <= high:
        # Upwards from what dividing gives; halves once some number does.
        between = (low + high) // 2 if found else high - MORE_REPLICAS
        number = max(low, between)
        runs = _fleet(engine, question, rate, number)
        if runs:
            found, high = (number, runs), number - 1
        else:
            low = number + 1
    if found is None:
        return Replicas(rate, least, None, most)
    number, runs = found
    share = fmean(met.share for met in runs)
    tokens = fmean(met.good_tokens for met in runs)
    top = None if most is None else max(number, most)
    return Replicas(rate, min(least, number), number, top, share, tokens)


def _fleet(
    engine: EngineConfig, question: Question, rate: float, number: int
) -> list[Met]:
    """Returns how *number* replicas do with every seed, nothing if one misses."""
    runs = []
    for seed in SEEDS:
        runs.append(question.run(engine, rate, seed, replicas=number))
        if not runs[-1].met:
            return []
    return runs


def _doubts(twin: Twin, demand: Demand) -> Iterable[str]:
    swept = [request for point in twin.points for request in point.requests]
    for what, here, there in (
        (
            "prompts",
            demand.prompt_tokens,
            sum(r.prompt_tokens for r in swept) / len(swept),
        ),
        (
            "answers",
            demand.output_tokens,
            sum(r.output_tokens for r in swept) / len(swept),
        ),
    ):
        if abs(here / there - 1.0) > DRIFT:
            yield (
                f"{what} have {here:.0f} tokens on average, {there:.0f} in the sweep: "
                "costs of other lengths were never measured; sweep with the trace"
            )
    longest = twin.engine.scheduler.max_model_len
    if demand.longest > longest:
        yield (
            f"some requests have more than the {longest} tokens the server takes: "
            "they count as bad"
        )


def check_trust(twin: Twin, settings: Settings) -> None:
    """Raises PlanError when the twin is none, with what may be the reason."""
    if twin.distrust:
        guessed = "; ".join(settings.assumed)
        hint = f" (assumed: {guessed}; tell with --setting, --page)" if guessed else ""
        raise PlanError(twin.distrust + hint)


def per_million(
    price: float | None, good_tokens: float | None, replicas: int = 1
) -> float | None:
    """Returns the price of a million good output tokens, None when nothing is good.

    *price* is a replica's for an hour, *good_tokens* are those of all a second.
    """
    if price is None or not good_tokens:
        return None
    return price * replicas / (good_tokens * 3600.0) * 1e6

"""A plan as text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from analyzer.plan.calibration import Twin
from analyzer.plan.document import Planned, headroom
from analyzer.plan.plan import Plan, per_million
from analyzer.plan.search import Range
from analyzer.sweep.words import target


def lines(found: Planned) -> Iterator[str]:
    """Yields the text of a plan."""
    yield from _twin(found.twin)
    if found.settings.assumed:
        yield f"Assumed: {'; '.join(found.settings.assumed)}"
    demand = found.demand
    yield (
        f"Workload: {demand.source}; prompts of {demand.prompt_tokens:.0f} and answers "
        f"of {demand.output_tokens:.0f} tokens on average"
    )
    for plan in found.plans:
        yield ""
        yield from _plan(plan, found)
    if found.untried:
        yield ""
        yield (
            f"Not tried, since nobody told what they are: {', '.join(found.untried)} "
            "(--setting, --page)"
        )


def _twin(twin: Twin) -> Iterator[str]:
    def worst(name: str) -> str:
        return f"{max(abs(getattr(miss, name)) for miss in twin.misses):.0%}"

    yield (
        f"Twin: fitted to {len(twin.misses)} loads, off by at most "
        f"{worst('throughput')} in throughput, {worst('ttft')} in TTFT, "
        f"{worst('tpot')} in TPOT"
    )
    unseen = twin.held_out
    yield (
        f"      {unseen.concurrency} at once, predicted from the others: throughput "
        f"{unseen.throughput:+.0%}, TTFT {unseen.ttft:+.0%}, TPOT {unseen.tpot:+.0%}; "
        f"so its times are taken for uncertain by {twin.error:.0%}"
    )


def _plan(plan: Plan, found: Planned) -> Iterator[str]:
    yield f"class {plan.slo_class.name}: {target(plan.slo_class)}"
    capacity = plan.capacity
    if not capacity.estimate:
        yield "  no rate meets the target: it is missed at 1/256 of a full load too"
    cost = per_million(found.price, plan.good_tokens)
    yield f"  one replica takes {_range(capacity)} requests/s{_cost(cost)}"
    yield from _replicas(plan, found)
    if plan.effects:
        yield "  what if, one thing at a time:"
    for effect in plan.effects:
        change = effect.change
        price = found.price if change.measured else change.price
        gain = "" if math.isnan(effect.gain) else f"{effect.gain:+.0%}"
        note = "" if change.measured else "; by data sheets, not measured"
        cost = per_million(price, effect.good_tokens)
        yield (
            f"    {change.name:42} {median(effect.rates):8.3g} requests/s {gain:>6}  "
            f"{effect.verdict}{_cost(cost)}{note}"
        )
    for doubt in plan.doubts:
        yield f"  doubt: {doubt}"


def _replicas(plan: Plan, found: Planned) -> Iterator[str]:
    asked = plan.replicas
    if asked is None:
        return
    if asked.number is None:
        yield f"  for {asked.rate:g} requests/s: no number of replicas that was tried"
        return
    cost = per_million(found.price, asked.good_tokens, asked.number)
    top = asked.upper if asked.upper is not None else "no number suffices"
    spread = f"{asked.lower} … {top}"
    share = (
        "" if asked.share is None else f", {asked.share:.1%} good in a simulated fleet"
    )
    yield (
        f"  for {asked.rate:g} requests/s: {asked.number} replicas ({spread})"
        f"{share}{_cost(cost)}"
    )
    present, room = found.present, headroom(plan, found.present)
    if present is None or room is None:
        return
    if present < asked.number:
        yield f"  {present} replicas are too few by {asked.number - present}"
    else:
        yield f"  {present} replicas have room for {max(0.0, room):.0%} more"


def _range(found: Range) -> str:
    return f"{found.estimate:.3g} ({found.lower:.3g} … {found.upper:.3g})"


def _cost(cost: float | None) -> str:
    return "" if cost is None else f", {cost:.3g} a million good output tokens"

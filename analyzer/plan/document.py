"""A plan as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from analyzer.plan.calibration import Miss, Twin
from analyzer.plan.demand import Demand
from analyzer.plan.plan import Plan, per_million
from analyzer.plan.settings import Settings

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Planned:
    """All that was found: the twin, what it was asked, and a plan for each class.

    *price* is that of a replica for an hour, *present* the replicas there are now.
    """

    settings: Settings
    twin: Twin
    demand: Demand
    plans: Sequence[Plan]
    untried: Sequence[str]
    price: float | None
    present: int | None


def document(found: Planned) -> Row:
    """Returns the plan's fields; null is what is not known."""
    twin, demand = found.twin, found.demand
    return {
        "twin": {
            "loads": [_miss(miss) for miss in twin.misses],
            "held_out": _miss(twin.held_out),
            "error_ratio": twin.error,
            "costs_seconds": {
                **asdict(twin.engine.costs),
                "frontend": twin.engine.frontend_seconds,
            },
            "settings": dict(found.settings.values),
            "assumed": list(found.settings.assumed),
        },
        "workload": {
            "source": demand.source,
            "requests": len(demand.lengths),
            "prompt_tokens_mean": demand.prompt_tokens,
            "output_tokens_mean": demand.output_tokens,
            "arrival_variation": demand.variation,
        },
        "plans": [_plan(plan, found) for plan in found.plans],
        "not_tried": list(found.untried),
    }


def _miss(miss: Miss) -> Row:
    return {
        "concurrency": miss.concurrency,
        "throughput_error_ratio": miss.throughput,
        "ttft_error_ratio": miss.ttft,
        "tpot_error_ratio": miss.tpot,
    }


def headroom(plan: Plan, present: int | None) -> float | None:
    """Returns what the replicas there are could take more, as a share of the rate."""
    if plan.replicas is None or present is None:
        return None
    return present * plan.capacity.estimate / plan.replicas.rate - 1.0


def enough(plan: Plan, present: int | None) -> bool:
    """Whether a rate meets the target at all, and the replicas there are suffice."""
    if plan.replicas is None:
        return plan.capacity.estimate > 0
    number = plan.replicas.number
    return number is not None and (present is None or present >= number)


def _plan(plan: Plan, found: Planned) -> Row:
    asked = plan.replicas
    return {
        "class": plan.slo_class.name,
        "objective": plan.slo_class.objective,
        "capacity": {
            "requests_per_second": asdict(plan.capacity),
            "good_output_tokens_per_second": plan.good_tokens,
            "cost_per_million_good_output_tokens": per_million(
                found.price, plan.good_tokens
            ),
            "headroom_ratio": headroom(plan, found.present),
        },
        "replicas": None
        if asked is None
        else {
            "request_rate": asked.rate,
            "lower": asked.lower,
            "needed": asked.number,
            "upper": asked.upper,
            "present": found.present,
            "attainment": asked.share,
            "cost_per_million_good_output_tokens": per_million(
                found.price, asked.good_tokens, asked.number or 0
            ),
        },
        "what_if": [
            {
                "change": effect.change.name,
                "requests_per_second": median(effect.rates),
                "gain_ratio": None if math.isnan(effect.gain) else effect.gain,
                "verdict": effect.verdict,
                "measured": effect.change.measured,
                "cost_per_million_good_output_tokens": per_million(
                    found.price if effect.change.measured else effect.change.price,
                    effect.good_tokens,
                ),
            }
            for effect in plan.effects
        ],
        "doubts": list(plan.doubts),
    }

"""What several texts say of a target and of a configuration."""

from __future__ import annotations

from collections.abc import Mapping

from analyzer.benchmarks.run import Knob
from analyzer.slo import SloClass
from analyzer.strict import format_duration


def target(slo_class: SloClass) -> str:
    """Returns a class's criteria and objective in words."""
    parts = []
    for criterion, threshold in slo_class.good.items():
        text = f"{criterion} ≤ {format_duration(threshold.seconds)}"
        if threshold.per_prompt_token:
            text += f" + {format_duration(threshold.per_prompt_token)} a prompt token"
        parts.append(text)
    for (criterion, level), seconds in slo_class.percentiles.items():
        parts.append(f"{level} of {criterion} ≤ {format_duration(seconds)}")
    return f"{', '.join(parts)} for {slo_class.objective:.4g} of requests"


def named(config: Mapping[str, Knob]) -> str:
    """Returns a configuration in words."""
    return (
        ", ".join(f"{k}={v}" for k, v in sorted(config.items())) or "one configuration"
    )

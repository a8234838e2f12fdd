"""Panels of latency against its targets, from the exact histograms of request logs."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as d

from builder.panels import About, Query, series
from builder.query import BY_CLASS, CLASS, CLASS_NAME, SITE

SHARES = (0.5, 0.95, 0.99)
MEANING = {
    "ttft": "Time to first token: how long a user stares at nothing.",
    "tpot": "Time per output token after the first: how fast text flows.",
    "e2e": "Time to the last byte: how long a whole answer takes.",
}
CAUSES = {
    "ttft": "Queueing, long prompts or the gateway: see what binds, and the stages.",
    "tpot": "Batches too wide, or prompts in between: see what binds.",
    "e2e": "TTFT plus TPOT times the length of answers: see which of the two grew.",
}


def percentiles(criterion: str) -> d.Panel:
    """Returns percentiles of a criterion over time against what the SLO allows."""
    buckets = (
        f"sum by (le, {BY_CLASS}) "
        f"(slo_class:goodput_request_{criterion}_seconds_bucket:rate5m{{{CLASS}}})"
    )
    lines = [
        Query(
            f"histogram_quantile({share:g}, {buckets})",
            f"p{100 * share:g} {CLASS_NAME}",
        )
        for share in SHARES
    ]
    chosen = f'criterion="{criterion}",{SITE},slo_class=~"$slo_class"'
    allowed = (
        f"max by (slo_class) (criterion:goodput_threshold_seconds:max{{{chosen}}})"
    )
    percentile = (
        "max by (slo_class, percentile) "
        f"(percentile:goodput_threshold_seconds:max{{{chosen}}})"
    )
    return series(
        About(
            f"{criterion.upper()} against target",
            f"{MEANING[criterion]} Percentiles over the whole fleet in five minutes, "
            "from buckets whose bounds include every target.",
            "The percentile of the objective lies under the dashed target.",
            CAUSES[criterion],
        ),
        *lines,
        Query(f"{allowed}\nor {percentile}", "target {{percentile}} {{slo_class}}"),
        unit="s",
        colors=(("^p50", "blue"), ("^p95", "orange"), ("^p99", "purple")),
    )

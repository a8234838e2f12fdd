"""Pieces of PromQL that panels share: selectors by variables, rates, ratios."""

from __future__ import annotations

SITE = 'cluster=~"$cluster",namespace=~"$namespace"'
MODEL = f'{SITE},model=~"$model"'
CLASS = f'{MODEL},slo_class=~"$slo_class"'
INSTANCE = f'{SITE},instance=~"$instance"'
TARGET = f'{INSTANCE},target=~"$target"'
ENGINE = f'{TARGET},model=~"$model"'

# What tells series of different things apart, from a fleet down to one engine.
BY_CLASS = "model, slo_class"
BY_TARGET = "instance, pod, target"
BY_ENGINE = f"{BY_TARGET}, model"
ENGINE_NAME = "{{target}} {{pod}}"
LINES = 20  # that one panel can show of a large fleet
CLASS_NAME = "{{model}} {{slo_class}}"

# Set by Grafana, in milliseconds: the right edge of the picture since 1970, and the
# step between points. The latest minute, and two points at least.
LATEST = (
    "vector(time()) > $__to / 1000 - clamp_min(vector(2 * $__interval_ms / 1000), 60)"
)


def select(metric: str, matchers: str) -> str:
    """Returns the selector of a metric's series, or of a recording's."""
    return f"{metric}{{{matchers}}}"


def rate(metric: str, matchers: str) -> str:
    """Returns the rate of a counter over what Grafana finds enough scrapes."""
    return f"rate({select(metric, matchers)}[$__rate_interval])"


def grown(metric: str, matchers: str) -> str:
    """Returns by how much a counter of rare events grew at each step.

    A rate would make hundreds an hour of a single one.
    """
    return f"increase({select(metric, matchers)}[$__rate_interval])"


def total(labels: str, expr: str) -> str:
    """Returns *expr* summed by *labels*, "" for one sum over everything."""
    return f"sum by ({labels}) ({expr})" if labels else f"sum({expr})"


def ratio(part: str, whole: str) -> str:
    """Returns a share that is absent, not 0, while there is nothing to divide by."""
    return f"{part} / ({whole} > 0)"


def mean(metric: str, matchers: str, labels: str) -> str:
    """Returns the mean of a histogram's observations by *labels*."""
    return ratio(
        total(labels, rate(f"{metric}_sum", matchers)),
        total(labels, rate(f"{metric}_count", matchers)),
    )


def quantile(share: float, metric: str, matchers: str, labels: str = "") -> str:
    """Returns a quantile of one histogram: buckets are summed before, never after."""
    by = f"le, {labels}" if labels else "le"
    buckets = total(by, rate(f"{metric}_bucket", matchers))
    return f"histogram_quantile({share:g}, {buckets})"


def or_none(expr: str, label: str, known: str) -> str:
    """Returns the series of *expr* above 0; 0 as the *label* “none” without such ones.

    *known* is there whenever *expr* could be: without it there is no answer either.
    """
    none = f'label_replace(0 * max({known}), "{label}", "none", "", "")'
    return f"({expr} > 0)\nor on () {none}"


def _last(metric: str, matchers: str) -> str:
    """Returns a gauge's last values in the shown time, also of what has gone since."""
    return f"last_over_time({select(metric, matchers)}[$__range] @ end())"


def hottest(expr: str) -> str:
    """Returns the series of *expr* of the engines in which most requests wait.

    Among those in which none waits, the fullest come first. It is judged once, at the
    end of the shown time, so that a panel shows whole lines.
    """
    waiting = _last("goodput_engine_waiting_requests", ENGINE)
    usage = _last("goodput_engine_kv_cache_usage_ratio", ENGINE)
    order = f"sum by ({BY_TARGET}) ({waiting}) + max by ({BY_TARGET}) ({usage})"
    return f"{expr}\nand on ({BY_TARGET}) topk({LINES}, {order})"


def smaller(first: str, second: str) -> str:
    """Returns the smaller of two vectors with the same labels, series by series."""
    return f"({first} <= {second} or {second})"


def older_days(expr: str, days: int) -> str:
    """Returns *expr*, which has one `OFFSET`, of each of the last days as a series."""
    return "\nor ".join(
        f'label_replace({expr.replace("OFFSET", _offset(day))}, "day", "{day}", "", "")'
        for day in range(days)
    )


def _offset(day: int) -> str:
    return f" offset {day}d" if day else ""

"""Alerts on goodput and capacity: where each fires, falls short, and what it says."""

from __future__ import annotations

from rule_worlds import (
    CLASS,
    FAULT,
    MODEL,
    SCRAPED,
    TARGET,
    URL,
    Case,
    bounded,
    counter,
    engine,
    exact,
    level,
    percentile_bound,
    steps,
    verdicts,
)

KV = {("memory", "kv_capacity"): 0.7, ("none", "headroom"): 0.3}


def request_histogram(
    name: str, within: float, *, le: str, extra: str = "", rate: float = 2.0
) -> dict[str, str]:
    """Returns a histogram of *rate* requests a second, a share *within* the bound."""
    labels = f'{SCRAPED},gateway="edge",model="m",slo_class="interactive"{extra}'
    return {
        f'{name}_bucket{{{labels},le="{le}"}}': counter(rate * within),
        f'{name}_bucket{{{labels},le="+Inf"}}': counter(rate),
        f"{name}_count{{{labels}}}": counter(rate),
    }


def over(minutes: int) -> dict[str, str]:
    """Returns what replaces a log of bad requests alone, when it ends after so long."""
    found = {}
    for name in exact(1.0):
        for kind, before, after in (("good", 0.0, 2.0), ("bad", 2.0, 0.0)):
            if name.startswith(f"goodput_{kind}_requests_total"):
                found[name] = steps((before, minutes), (after, 400))
    return found


BURN = (
    Case(
        "GoodputBudgetBurn",
        {**exact(0.6), **verdicts(KV)},
        exact(0.24),
        ("goodput_bad_requests_total",),
        {**CLASS, "severity": "critical", "slo": "goodput", "constraint": "memory"},
        {
            "summary": "m interactive: the error budget burns 12.0 times too fast; "
            "limit: memory/kv_capacity",
            "constraint": "memory/kv_capacity (70% of the last 5 minutes)",
            "description": "Good requests in the last 5 minutes: 40%; the objective "
            "is 0.95.",
            "advice": "lower --max-num-seqs",
            "runbook_url": f"{URL}/kv_capacity.md",
        },
        name="burn-page",
    ),
    Case(
        "GoodputBudgetBurn",
        exact(0.24),
        exact(0.046),
        ("goodput_good_requests_total",),
        {**CLASS, "severity": "warning", "slo": "goodput", "constraint": "unknown"},
        {
            "summary": "limit: unknown",
            "constraint": "unknown (engines show no limit in the last 5 minutes)",
            "runbook_url": f"{URL}/unknown.md",
        },
        name="burn-ticket",
    ),
    Case(
        "GoodputBudgetBurn",
        exact(1.0, rate=10.5 / 300),
        exact(1.0, rate=9.5 / 1800),
        ("goodput_slo_objective_ratio",),
        {**CLASS, "severity": "critical", "slo": "goodput", "constraint": "unknown"},
        {"summary": "burns 20.0 times too fast"},
        name="burn-few-events",
    ),
    Case(
        "GoodputBudgetBurn",
        exact(0.3),
        exact(0.24),
        ("goodput_bad_requests_total",),
        {**CLASS, "severity": "critical", "slo": "goodput", "constraint": "unknown"},
        {"summary": "burns 6.0 times too fast"},
        name="burn-page-slowly",
    ),
    Case(
        "GoodputBudgetBurn",
        exact(1.0),
        over(32),
        ("goodput_bad_requests_total",),
        {**CLASS, "severity": "critical", "slo": "goodput", "constraint": "unknown"},
        {"summary": "burns 20.0 times too fast"},
        at=66 * 60.0,
        name="burn-until-it-is-over",
    ),
    Case(
        "GoodputBudgetBurn",
        {**exact(0.6), **verdicts({("compute", ""): 0.7, ("none", "headroom"): 0.3})},
        exact(0.24),
        ("goodput_bad_requests_total",),
        {**CLASS, "severity": "critical", "slo": "goodput", "constraint": "compute"},
        {
            "summary": "limit: compute",
            "constraint": "compute (70% of the last 5 minutes)",
            "advice": "See the runbook.",
            "runbook_url": f"{URL}/unknown.md",
        },
        name="burn-without-cause",
    ),
    Case(
        "GoodputBoundBurn",
        {**bounded(0.1, 0.45), **verdicts(KV)},
        bounded(0.1, 0.76),
        ("goodput_engine_criterion_good_events_upper_total",),
        {
            **CLASS,
            "severity": "critical",
            "slo": "goodput_bound",
            "constraint": "memory",
        },
        {
            "summary": "at most 45% of requests are good",
            "description": "between 10% and 45% were good",
        },
    ),
    Case(
        "GoodputBoundUncertain",
        bounded(0.9, 1.0),
        bounded(0.954, 1.0),
        ("goodput_engine_criterion_events_total",),
        {
            **CLASS,
            "severity": "warning",
            "slo": "goodput_bound",
            "constraint": "unknown",
        },
        {"summary": "as few as 90% of requests may be good"},
    ),
    Case(
        "GoodputPercentileMissed",
        request_histogram("goodput_request_ttft_seconds", 0.94, le="1.0"),
        request_histogram("goodput_request_ttft_seconds", 0.951, le="1.0"),
        ("goodput_request_ttft_seconds_bucket",),
        {**CLASS, "severity": "warning", "percentile": "ttft_p95"},
        {"summary": "only 94% of requests within 1s (ttft_p95)"},
    ),
    Case(
        "GoodputPercentileBoundMissed",
        percentile_bound(0.94),
        percentile_bound(0.951),
        ("goodput_engine_percentile_events_total",),
        {**CLASS, "severity": "warning", "percentile": "ttft_p95"},
        {
            "summary": "at most 94% of requests within 1s (ttft_p95)",
            "description": "No request log tells.",
        },
        name="percentile-by-the-engine",
    ),
    Case(
        "GoodputPercentileBoundMissed",
        {**percentile_bound(0.5), **exact(0.0, unevaluable=1.0)},
        request_histogram("goodput_request_ttft_seconds", 0.99, le="1.0"),
        ("goodput_engine_percentile_good_events_upper_total",),
        {**CLASS, "severity": "warning", "percentile": "ttft_p95"},
        {"summary": "at most 50% of requests within 1s (ttft_p95)"},
        name="percentile-left-to-a-log-that-knows",
    ),
    Case(
        "GoodputStageOverBudget",
        request_histogram(
            "goodput_request_stage_seconds", 0.9, le="0.05", extra=',stage="gateway"'
        ),
        request_histogram(
            "goodput_request_stage_seconds", 0.951, le="0.05", extra=',stage="gateway"'
        ),
        ("goodput_request_stage_seconds_count",),
        {**CLASS, "severity": "warning", "stage": "gateway"},
        {"summary": "only 90% of requests within 50ms (stage gateway)"},
    ),
)


def share_case(
    alert: str,
    family: str,
    cause: str,
    *,
    severity: str = "warning",
    least: float = 0.5,
) -> Case:
    """Returns the case of an alert on the time under a verdict."""

    def world(share: float) -> dict[str, str]:
        return verdicts({(family, cause): share, ("none", "headroom"): 1 - share})

    return Case(
        alert,
        world(least + 0.02),
        world(least - 0.02),
        ("goodput_constraint_seconds_total",),
        {
            **MODEL,
            "family": family,
            "cause": cause,
            "severity": severity,
            "constraint": family,
        },
        {
            "summary": f"m: {family}/{cause} for {least * 100 + 2:g}% of half an hour",
            "runbook_url": f"{URL}/{cause}.md",
        },
        at=3000.0,
    )


def preempting(per_second: float) -> dict[str, str]:
    """Returns an engine that finishes two requests a second, and preempts."""
    labels = engine()
    return {
        f"goodput_engine_preemptions_total{labels}": counter(per_second),
        f'goodput_engine_finished_requests_total{labels[:-1]},reason="stop"}}': counter(
            2.0
        ),
    }


def forecast(seconds: float) -> dict[str, str]:
    """Returns the forecast of a rank."""
    labels = engine()[:-1]
    return {f'goodput_kv_cache_exhaustion_seconds{labels},rank="0"}}': level(seconds)}


def throttled(share: float) -> dict[str, str]:
    """Returns a GPU whose clocks are held down for a share of the time."""
    labels = f'{SCRAPED},uuid="GPU-1",gpu_instance="",reason="thermal"'
    return {f"goodput_gpu_throttled_seconds_total{{{labels}}}": counter(share)}


CAPACITY = (
    Case(
        "GoodputKvCacheExhaustion",
        forecast(240),
        forecast(301),
        ("goodput_kv_cache_exhaustion_seconds",),
        {**TARGET, "model": "m", "rank": "0", "severity": "warning"}
        | {"constraint": "memory"},
        {"summary": "m on vllm: the KV cache is full in 4m 0s"},
        at=300.0,
    ),
    Case(
        "GoodputPreemptionThrash",
        preempting(0.42),
        preempting(0.38),
        ("goodput_engine_preemptions_total",),
        {**TARGET, "model": "m", "severity": "warning", "constraint": "memory"},
        {"summary": "0.2 preemptions a finished request"},
        at=900.0,
    ),
    share_case("GoodputKvCacheBound", "memory", "kv_capacity"),
    share_case("GoodputBandwidthBound", "memory", "hbm_bandwidth", severity="info"),
    share_case("GoodputComputeSaturated", "compute", "prefill"),
    share_case("GoodputDecodeSaturated", "compute", "decode"),
    share_case("GoodputQueueingWithRoom", "queueing", "sequence_cap"),
    share_case("GoodputCommunicationBound", "communication", "kv_transfer"),
    share_case("GoodputBurstyTraffic", "traffic", "burst", severity="info", least=0.3),
    Case(
        "GoodputGpuThrottled",
        throttled(0.12),
        throttled(0.09),
        ("goodput_gpu_throttled_seconds_total",),
        {
            "cluster": "eu",
            "namespace": "serving",
            "instance": "10.0.0.7:10555",
            "uuid": "GPU-1",
            "reason": "thermal",
            **FAULT,
        },
        {"summary": "GPU GPU-1: clocks held down by thermal for 12% of the time"},
        at=1800.0,
    ),
)

"""Every alert: where it fires, where it falls just short, and what it says."""

from __future__ import annotations

from rule_worlds import (
    SCRAPED,
    Case,
    bounded,
    counter,
    engine,
    exact,
    level,
    states,
    steps,
    verdicts,
)

MODEL = {"cluster": "eu", "namespace": "serving", "model": "m"}
CLASS = {**MODEL, "slo_class": "interactive"}
INSTANCE = {
    "cluster": "eu",
    "namespace": "serving",
    "job": "goodput",
    "instance": "10.0.0.7:10555",
}
TARGET = {**INSTANCE, "target": "vllm"}
FAULT = {"severity": "warning", "constraint": "fault"}
KV = {("memory", "kv_capacity"): 0.7, ("none", "headroom"): 0.3}
URL = "https://example.com/runbooks"


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


def state_case(alert: str, state: str, severity: str, text: str) -> Case:
    """Returns the case of an alert on one engine's state."""
    return Case(
        alert,
        states(vllm=state, other="serving", third="serving"),
        states(vllm="starting", other="serving", third="serving"),
        ("goodput_engine_state",),
        {**TARGET, "severity": severity, "constraint": "fault"},
        {"summary": text, "runbook_url": f"{URL}/{state}.md"},
        at=600.0,
    )


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
        {"summary": "only 94% of requests within 1s of ttft_p95"},
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
        {"summary": "only 90% of requests within 50ms at stage gateway"},
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


def running(minutes: int) -> dict[str, str]:
    """Returns an engine with requests in work, for so long."""
    labels = engine()[:-1]
    return {
        f'goodput_engine_running_requests{labels},rank="0"}}': level(3, minutes=minutes)
    }


def finishing(rate: float = 2.0) -> dict[str, str]:
    """Returns an engine that finishes requests."""
    labels = engine()[:-1]
    name = f'goodput_engine_finished_requests_total{labels},reason="stop"}}'
    return {name: counter(rate)}


def counted(*parts: tuple[float, int]) -> dict[str, str]:
    """Returns a log that counts so many requests a second for so many minutes."""
    labels = f'{SCRAPED},gateway="edge",model="m",slo_class="interactive"'
    return {f"goodput_requests_total{{{labels}}}": steps(*parts)}


def lines(failures: float, *, reason: str = "no_match") -> dict[str, str]:
    """Returns a log of a hundred lines a second, a share of them unreadable."""
    labels = f'{SCRAPED},gateway="edge"'
    return {
        f"goodput_log_lines_total{{{labels}}}": counter(100.0),
        f'goodput_log_parse_failures_total{{{labels},reason="{reason}"}}': counter(
            100.0 * failures
        ),
    }


def own(name: str, values: str, *labels: str) -> dict[str, str]:
    """Returns a series of the exporter about itself."""
    return {f"{name}{{{','.join((SCRAPED, *labels))}}}": values}


def seen_last(minutes_ago: int) -> dict[str, str]:
    """Returns a GPU exporter scraped with success so long ago, at minute 40."""
    last = 60 * (40 - minutes_ago)
    name = "goodput_target_last_success_timestamp_seconds"
    return own(name, level(last), 'target="node"', 'kind="gpu"')


SOURCES = (
    state_case(
        "GoodputEngineDown", "down", "warning", "vllm: the engine does not answer"
    ),
    state_case("GoodputEngineStalled", "stalled", "critical", "makes no progress"),
    state_case(
        "GoodputEngineStatsDisabled", "stats_disabled", "warning", "are disabled"
    ),
    Case(
        "GoodputEnginesDown",
        states(a="down", b="stalled", c="down", d="serving"),
        states(a="down", b="stalled", c="serving", d="serving"),
        ("goodput_engine_state",),
        {
            "cluster": "eu",
            "namespace": "serving",
            "job": "goodput",
            "severity": "critical",
            "constraint": "fault",
        },
        {"summary": "serving goodput: 75% of the engines are down or stalled"},
        at=600.0,
    ),
    Case(
        "GoodputModelUnserved",
        running(20),
        running(400),
        ("goodput_engine_running_requests",),
        {**MODEL, **FAULT},
        {"summary": "m: no engine is seen that serves it, as one was"},
    ),
    Case(
        "GoodputGpuSourceStale",
        seen_last(20),
        seen_last(4),
        ("goodput_target_last_success_timestamp_seconds",),
        {**INSTANCE, "target": "node", "severity": "warning"},
        {"summary": "node: GPU figures are 20m 0s old"},
    ),
    Case(
        "GoodputGatewaySilent",
        {**finishing(), **counted((2.0, 15), (0.0, 300))},
        counted((2.0, 300)),
        ("goodput_requests_total",),
        {"cluster": "eu", "model": "m", "severity": "warning"},
        {"summary": "m: engines finish requests and no log counts any"},
    ),
    Case(
        "GoodputCoverageBad",
        own("goodput_source_coverage_ratio", level(0.89), 'model="m"'),
        own("goodput_source_coverage_ratio", level(0.91), 'model="m"'),
        ("goodput_source_coverage_ratio",),
        {**INSTANCE, "model": "m", "severity": "warning"},
        {"summary": "m: logs count 89% of what engines finish"},
    ),
    Case(
        "GoodputUnevaluable",
        exact(0.0, unevaluable=0.35),
        exact(0.0, unevaluable=0.32),
        ("goodput_unevaluable_requests_total",),
        {**CLASS, "severity": "warning"},
        {"summary": "m interactive: 35% of requests cannot be judged"},
    ),
    Case(
        "GoodputLogUnreadable",
        lines(0.012),
        lines(0.009),
        ("goodput_log_parse_failures_total",),
        {**INSTANCE, "gateway": "edge", "severity": "warning"},
        {"summary": "edge: 1.2% of lines cannot be read"},
    ),
    Case(
        "GoodputLogLinesLost",
        own(
            "goodput_log_losses_total",
            steps((0.0, 35), (1 / 60, 1), (0.0, 300)),
            'gateway="edge"',
            'reason="truncated"',
        ),
        own(
            "goodput_log_losses_total",
            level(3.0),
            'gateway="edge"',
            'reason="truncated"',
        ),
        ("goodput_log_losses_total",),
        {**INSTANCE, "gateway": "edge", "reason": "truncated", "severity": "info"},
        {"summary": "edge: lines were lost (truncated)"},
    ),
    Case(
        "GoodputDiscoveryFailing",
        own(
            "goodput_discovery_failures_total",
            counter(0.1),
            'entry="fleet"',
            'reason="dns"',
        ),
        own(
            "goodput_discovery_failures_total",
            steps((0.1, 20), (0.0, 300)),
            'entry="fleet"',
            'reason="dns"',
        ),
        ("goodput_discovery_failures_total",),
        {**INSTANCE, "entry": "fleet", "reason": "dns", "severity": "warning"},
        {"summary": "fleet: targets cannot be found (dns)"},
    ),
    Case(
        "GoodputTargetBalanced",
        own(
            "goodput_target_resets_total",
            counter(5 / 900),
            'target="vllm"',
            'kind="engine"',
            'reset="other_process"',
        ),
        own(
            "goodput_target_resets_total",
            counter(2.5 / 900),
            'target="vllm"',
            'kind="engine"',
            'reset="other_process"',
        ),
        ("goodput_target_resets_total",),
        {**TARGET, "kind": "engine", "severity": "warning"},
        {"summary": "vllm: several processes answer at one address"},
    ),
)
EXPORTER = (
    Case(
        "GoodputExporterDown",
        {
            **own("up", f"{level(1, minutes=20)} {level(0)}"),
            **own("goodput_build_info", level(1, minutes=20), 'version="0.1.0"'),
        },
        own("up", level(1)),
        ("up",),
        {**INSTANCE, "severity": "warning"},
        {"summary": "10.0.0.7:10555: goodput-exporter does not answer"},
    ),
    Case(
        "GoodputExporterAbsent",
        own("goodput_build_info", level(1, minutes=20), 'version="0.1.0"'),
        own("goodput_build_info", level(1), 'version="0.1.0"'),
        ("goodput_build_info",),
        {
            "cluster": "eu",
            "namespace": "serving",
            "job": "goodput",
            "severity": "warning",
        },
        {"summary": "serving goodput: no goodput-exporter is left"},
    ),
    Case(
        "GoodputSamplerStuck",
        own("goodput_sampler_missed_cycles_total", counter(0.06)),
        own("goodput_sampler_missed_cycles_total", counter(0.04)),
        ("goodput_sampler_missed_cycles_total",),
        {**INSTANCE, "severity": "warning"},
        {"summary": "the sampler misses its cycles"},
    ),
    Case(
        "GoodputStateNotWritten",
        own("goodput_state_last_write_successful", level(0)),
        own("goodput_state_last_write_successful", level(1)),
        ("goodput_state_last_write_successful",),
        {**INSTANCE, "severity": "warning"},
        {"summary": "counters cannot be written"},
    ),
    Case(
        "GoodputReloadFailed",
        own("goodput_config_last_reload_successful", level(0)),
        own("goodput_config_last_reload_successful", level(1)),
        ("goodput_config_last_reload_successful",),
        {**INSTANCE, "severity": "warning"},
        {"summary": "the configuration was not taken over"},
    ),
    Case(
        "GoodputLabelsDropped",
        own("goodput_label_values_dropped_total", counter(0.1), 'label="model"'),
        own("goodput_label_values_dropped_total", level(7), 'label="model"'),
        ("goodput_label_values_dropped_total",),
        {**INSTANCE, "label": "model", "severity": "info"},
        {"summary": "values of model count under other"},
    ),
)
CASES = (*BURN, *CAPACITY, *SOURCES, *EXPORTER)

"""Alerts on faults: where each fires, where it falls just short, and what it says."""

from __future__ import annotations

from rule_worlds import (
    CLASS,
    FAULT,
    INSTANCE,
    MODEL,
    POOL,
    SCRAPED,
    TARGET,
    URL,
    Case,
    counter,
    engine,
    exact,
    level,
    states,
    steps,
)


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
            **POOL,
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
        "GoodputGpuSourceStale",
        own("goodput_target_up", level(0), 'target="new"', 'kind="gpu"'),
        own("goodput_target_up", level(1), 'target="new"', 'kind="gpu"'),
        ("goodput_target_up",),
        {**INSTANCE, "target": "new", "severity": "warning"},
        {"summary": "new: no GPU figures since the exporter started"},
        name="gpu-source-never-seen",
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
        {**POOL, "severity": "warning"},
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
    *(
        Case(
            "GoodputRulesOutdated",
            own("goodput_slo_objective_ratio", level(other), f'slo_class="{name}"'),
            own("goodput_slo_objective_ratio", level(0.95), 'slo_class="interactive"')
            | own("goodput_slo_objective_ratio", " ".join(["_"] * 400), *unknown),
            ("goodput_slo_objective_ratio",),
            {**POOL, "slo_class": name, "severity": "warning"},
            {"summary": f"{name}: the rules were made for other classes than 1 exp"},
            name=title,
        )
        for title, name, other, unknown in (
            ("rules-for-another-objective", "interactive", 0.9, ('slo_class="x"',)),
            ("rules-without-a-class", "batch", 0.95, ('slo_class="batch"',)),
        )
    ),
    *(
        Case(
            "GoodputRulesOutdated",
            own(metric, level(2 * limit), f'slo_class="interactive",{of}'),
            own(metric, level(limit), f'slo_class="interactive",{of}'),
            (metric,),
            {**POOL, "slo_class": "interactive", "severity": "warning"},
            {"description": "or with a wrong limit"},
            name=f"rules-for-another-{metric.split('_')[2]}",
        )
        for metric, limit, of in (
            (
                "goodput_slo_percentile_threshold_seconds",
                1.0,
                'criterion="ttft",percentile="p95"',
            ),
            ("goodput_slo_stage_budget_seconds", 0.05, 'stage="gateway"'),
        )
    ),
)

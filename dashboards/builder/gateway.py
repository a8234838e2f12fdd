"""Requests as the gateway saw them: verdicts, stages, and whether the log is sound."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as d

from builder import goodput
from builder.board import Board, Line, exporters, slo_classes
from builder.panels import (
    BAD,
    DIM,
    GOOD,
    PLAIN,
    WARN,
    About,
    Query,
    series,
    spread,
    tile,
)
from builder.query import (
    BY_CLASS,
    CLASS,
    INSTANCE,
    MODEL,
    SITE,
    mean,
    or_none,
    quantile,
    rate,
    ratio,
    total,
)
from builder.tables import Column, table_of

NO_LOG = "No request log is read"
LOG = "instance, pod, gateway"
REQUESTS = f"slo_class:goodput_requests:rate5m{{{CLASS}}}"
MISSES = f"criterion:goodput_misses:rate5m{{{CLASS}}}"


def _slowest() -> d.Panel:
    spent = f"slo_class:goodput_request_stage_seconds_sum:rate5m{{{CLASS}}}"
    share = f"sum by (stage) ({spent}) / on () group_left () (sum({spent}) > 0)"
    elsewhere = ((None, WARN),)
    return tile(
        About(
            "Where the time goes",
            "The stage that takes most of the requests' time, and its share: gateway "
            "before the server, serving at it, delivery after it.",
            "serving, with nearly all of it.",
            "gateway: queues, filters, rate limits there. delivery: slow clients.",
            NO_LOG,
        ),
        Query(f"topk(1, {share})", "{{stage}}"),
        unit="percentunit",
        colors=((None, PLAIN),),
        others=tuple(
            (stage, "percentunit", elsewhere) for stage in ("gateway", "delivery")
        ),
    )


def _missed() -> d.Panel:
    whole = f"on ({BY_CLASS}) group_left () (sum by ({BY_CLASS}) ({REQUESTS}) > 0)"
    share = f"sum by ({BY_CLASS}, criterion) ({MISSES}) / {whole}"
    objective = f'slo_class:goodput_objective:max{{{SITE},slo_class=~"$slo_class"}}'
    allowed = f"on (slo_class) group_left () (1 - max by (slo_class) ({objective}))"
    most = f"topk(1, max by (criterion) ({share} > {allowed}))"
    return tile(
        About(
            "Missed most",
            "The criterion that most requests miss, of those that more miss than the "
            "objective of their class allows.",
            "none.",
            "ttft: queueing or prefill. tpot: wide batches. error: the logs. See SLO "
            "for what to do first.",
            NO_LOG,
        ),
        Query(or_none(most, "criterion", REQUESTS), "{{criterion}}"),
        unit="percentunit",
        colors=((None, GOOD), (1e-6, BAD)),
    )


def _coverage() -> d.Panel:
    known = f"goodput_source_coverage_ratio{{{MODEL}}}"
    return tile(
        About(
            "Log against engines",
            "Requests that logs counted over those that engines finished, in "
            "ten minutes; the model that is furthest from 100 %.",
            "90 to 110 %.",
            "Below: traffic goes around the gateway, or lines are lost. Above: two "
            "hops log the same requests; one needs counts: false.",
            "No process sees both a log and its engines",
        ),
        Query(f"max({known})", "most"),
        Query(f"min({known})", "least"),
        unit="percentunit",
        colors=((None, BAD), (0.9, GOOD), (1.1, BAD)),
    )


def _unevaluable() -> d.Panel:
    unknown = f"sum(slo_class:goodput_unevaluable_requests:rate5m{{{CLASS}}})"
    whole = f"sum(slo_class:goodput_requests:rate5m{{{CLASS}}})"
    return tile(
        About(
            "Cannot be judged",
            "Share of counted requests that miss nothing known while a criterion "
            "cannot be known: they are neither good nor bad.",
            "Below 1 %.",
            "The log lacks what a criterion needs: see docs/gateway-setup.md.",
        ),
        Query(ratio(unknown, whole), "of requests"),
        unit="percentunit",
        colors=((None, GOOD), (0.01, WARN), (0.1, BAD)),
    )


def _unreadable() -> d.Panel:
    failures = f'{INSTANCE},reason!="stderr"'
    failed = total("", rate("goodput_log_parse_failures_total", failures))
    lines = total("", rate("goodput_log_lines_total", INSTANCE))
    return tile(
        About(
            "Unreadable lines",
            "Share of the log's lines that gave no record.",
            "0 %.",
            "The format changed: goodput check --live shows a line.",
            "No line comes",
        ),
        Query(ratio(failed, lines), "of lines"),
        unit="percentunit",
        colors=((None, GOOD), (0.001, WARN), (0.01, BAD)),
    )


def _lag() -> d.Panel:
    age = f"time() - max(goodput_log_last_record_timestamp_seconds{{{INSTANCE}}})"
    return tile(
        About(
            "Last request",
            "How long ago the latest request of any log ended.",
            "Seconds, while there is traffic.",
            "Minutes with traffic: the gateway writes elsewhere, or buffers.",
            NO_LOG,
        ),
        Query(age, "ago"),
        unit="s",
        colors=((None, GOOD), (60, WARN), (600, BAD)),
    )


def _verdicts() -> d.Panel:
    def of(name: str) -> str:
        return f"sum(slo_class:goodput_{name}_requests:rate5m{{{CLASS}}})"

    excluded = total("", rate("goodput_excluded_requests_total", INSTANCE))
    return series(
        About(
            "Requests by verdict",
            "Requests that ended a second: good, bad, not to be judged, and excluded "
            "since they say nothing about the serving.",
            "Nearly all good.",
            "bad: see SLO. excluded: see the reasons beside.",
            NO_LOG,
        ),
        Query(of("good"), "good"),
        # A line of 0 would lie on the others, in its colour.
        Query(f"{of('bad')} > 0", "bad"),
        Query(f"{of('unevaluable')} > 0", "cannot be judged"),
        Query(f"{excluded} > 0", "excluded"),
        unit="reqps",
        stack=True,
        colors=(("good", GOOD), ("bad", BAD), ("judged", WARN), ("excluded", DIM)),
    )


def _excluded() -> d.Panel:
    excluded = rate("goodput_excluded_requests_total", INSTANCE)
    return series(
        About(
            "Excluded, by reason",
            "client_abort: left before any threshold had passed. caller_error: 4xx. "
            "policy: statuses that the configuration names.",
            "Few, and steady.",
            "caller_error rises: a client is broken. client_abort rises: users do not "
            "wait; is the SLO too lax?",
            NO_LOG,
        ),
        Query(
            or_none(f"sum by (reason) ({excluded})", "reason", REQUESTS),
            "{{reason}}",
        ),
        unit="reqps",
        stack=True,
    )


def _failed() -> d.Panel:
    misses = f'criterion:goodput_misses:rate5m{{{CLASS},criterion=~"error|abort"}}'
    return series(
        About(
            "Errors and late aborts",
            "Requests that failed, and whose client left after a threshold had passed.",
            "0.",
            "error: the gateway's and the engines' logs. abort: latency drove users "
            "away.",
            NO_LOG,
        ),
        Query(f"sum by (criterion) ({misses})", "{{criterion}}"),
        unit="reqps",
        least=0.1,
        colors=(("error", BAD), ("abort", "purple")),
    )


def _stage() -> d.Panel:
    budget = f'goodput_slo_stage_budget_seconds{{{SITE},slo_class=~"$slo_class"}}'
    allowed = f"max by (slo_class, stage) ({budget})"
    return series(
        About(
            "Stages, p95",
            "The time that 95 % of requests stay below in each stage: gateway before "
            "the server, serving at it, delivery after it. The axis grows tenfold from "
            "line to line. Percentiles do not add up.",
            "Each below its dashed budget.",
            "gateway: queues, filters, rate limits. serving: what binds. delivery: "
            "slow clients.",
            NO_LOG,
        ),
        Query(
            quantile(0.95, "goodput_request_stage_seconds", CLASS, "stage"), "{{stage}}"
        ),
        Query(allowed, "budget {{stage}} {{slo_class}}"),
        unit="s",
        log=True,
    )


def _before() -> d.Panel:
    ours = mean("goodput_request_ttft_seconds", CLASS, "model")
    theirs = mean("goodput_engine_ttft_seconds", MODEL, "model")
    return series(
        About(
            "TTFT: gateway and engine",
            "Mean time to first token as the gateway saw it, and as the engines did. "
            "Of means, unlike percentiles, the difference means something.",
            "The lines lie on each other.",
            "A gap: the time goes in the gateway or on the way, see the stages.",
        ),
        Query(ours, "gateway {{model}}"),
        Query(theirs, "engine {{model}}"),
        unit="s",
    )


def _spread(criterion: str, title: str, act: str) -> d.Panel:
    buckets = f"slo_class:goodput_request_{criterion}_seconds_bucket:rate5m{{{CLASS}}}"
    return spread(
        About(
            title,
            "Requests a second, in five minutes, by how long they took: two bands are "
            "two kinds of requests, or of replicas.",
            "Nearly all in one band, low.",
            act,
        ),
        Query(f"sum by (le) ({buckets})"),
        unit="s",
    )


def _logs() -> d.Panel:
    def by_log(metric: str, matchers: str = INSTANCE) -> str:
        return f"sum by ({LOG}) ({rate(f'goodput_{metric}_total', matchers)})"

    lag = f"max by ({LOG}) (goodput_log_lag_bytes{{{INSTANCE}}})"
    stamp = f"max by ({LOG}) (goodput_log_last_record_timestamp_seconds{{{INSTANCE}}})"
    return table_of(
        About(
            "Logs",
            "A row a configured log: what is read of it, and what is lost.",
            "Nothing unread, no failures, no losses.",
            "Unread bytes that grow: the exporter does not keep up. Losses: the log is "
            "rotated away before it is read.",
            NO_LOG,
        ),
        labels={"gateway": "Log", "instance": "Exporter", "pod": "Pod"},
        columns=[
            Column("Lines/s", by_log("log_lines"), "short", decimals=1),
            Column("Requests/s", by_log("requests"), "reqps"),
            Column(
                "Failures/s",
                by_log("log_parse_failures"),
                "short",
                ((None, GOOD), (0.001, BAD)),
            ),
            Column(
                "Losses/s", by_log("log_losses"), "short", ((None, GOOD), (1e-6, BAD))
            ),
            Column("Unread", lag, "bytes", ((None, GOOD), (1 << 20, WARN))),
            Column("Last request ago", f"time() - {stamp}", "s"),
        ],
        sort_by="Lines/s",
    )


BOARD = Board(
    uid="llm-goodput-gateway",
    title="LLM Goodput: gateway and stages",
    description="Requests as the gateway saw them, the stages of their time, and "
    "whether its log can be trusted.",
    variables=(slo_classes(), exporters()),
    lines=(
        Line(
            4,
            (
                (4, _slowest()),
                (4, _missed()),
                (5, _coverage()),
                (4, _unevaluable()),
                (4, _unreadable()),
                (3, _lag()),
            ),
        ),
        Line(8, ((8, _verdicts()), (8, _failed()), (8, _excluded()))),
        Line(8, ((8, goodput.stages()), (8, _stage()), (8, _before())), title="Stages"),
        Line(
            8,
            (
                (
                    12,
                    _spread("ttft", "TTFT: distribution", "Above the target: see SLO."),
                ),
                (
                    12,
                    _spread(
                        "e2e",
                        "Whole request: distribution",
                        "Long answers, or slow ones.",
                    ),
                ),
            ),
            title="Distributions, and the logs",
        ),
        Line(5, ((24, _logs()),)),
    ),
)

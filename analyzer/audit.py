"""Holds SLO thresholds against an engine's buckets, and its settings against both.

A threshold between two bounds can be judged by nobody: the requests in that bucket
may have met it or not. The audit says how many those are, and what to paste.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from analyzer.finding import Finding
from analyzer.flow import EngineFlow
from analyzer.histogram import Histogram, total
from analyzer.slo import SloClass
from analyzer.strict import format_duration

# criterion → key of --custom-histogram-buckets
FAMILIES = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",
    "e2e": "request_latency",
}
CUSTOM_BUCKETS_SINCE = (0, 32)
SINGLE_TOKEN_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class BucketCheck:
    """One threshold against one histogram.

    `below` and `above` are the neighbouring bounds (equal when the threshold is a
    bound); `undecided` is the share of today's requests between them, None without
    requests or without a histogram.
    """

    slo_class: str
    model: str
    criterion: str
    threshold: float
    below: float | None
    above: float | None
    undecided: float | None

    @property
    def exact(self) -> bool:
        """Whether the threshold is a bound, so that its count is exact."""
        return self.below is not None and self.below == self.above


@dataclass(frozen=True, slots=True)
class Audit:
    """All checks of one engine; `flag` is the argument to paste, "" when none."""

    buckets: tuple[BucketCheck, ...]
    findings: tuple[Finding, ...]
    flag: str


def audit(flow: EngineFlow, *, version: str = "") -> Audit:
    """Returns the audit of the flow's latest page; *version* as `/version` says it."""
    checks: list[BucketCheck] = []
    wanted: dict[str, set[float]] = {}
    histograms: dict[str, Histogram] = {}
    if flow.reading is not None:
        for model in flow.reading.models:
            slo_class, _ = flow.class_of(model)
            found = {s: h for s in FAMILIES if (h := _lifetime(flow, model, s))}
            histograms.update(found)
            for signal in found:
                wanted.setdefault(signal, set())
            if slo_class is not None:
                checks += _bucket_checks(slo_class, model, found, wanted)
    findings = tuple(_findings(flow, checks, version))
    return Audit(tuple(checks), findings, bucket_flag(histograms, wanted))


def _lifetime(flow: EngineFlow, model: str, signal: str) -> Histogram | None:
    if flow.reading is None:
        return None
    return total(flow.reading.histograms(signal, model))


def _bucket_checks(
    slo_class: SloClass,
    model: str,
    histograms: Mapping[str, Histogram],
    wanted: Mapping[str, set[float]],
) -> Iterable[BucketCheck]:
    thresholds = [(c, t.seconds) for c, t in slo_class.good.items()]
    thresholds += [(c, seconds) for (c, _), seconds in slo_class.percentiles.items()]
    for criterion, seconds in dict.fromkeys(thresholds):
        histogram = histograms.get(criterion)
        if histogram is None:
            yield BucketCheck(
                slo_class.name, model, criterion, seconds, None, None, None
            )
            continue
        wanted[criterion].add(seconds)
        below = max((b for b in histogram.bounds if b <= seconds), default=0.0)
        above = min(b for b in histogram.bounds if b >= seconds)
        bracket = histogram.bracket(seconds)
        undecided = None
        if histogram.count:
            undecided = (bracket.upper - bracket.lower) / histogram.count
        yield BucketCheck(
            slo_class.name, model, criterion, seconds, below, above, undecided
        )


def bucket_flag(
    histograms: Mapping[str, Histogram], wanted: Mapping[str, set[float]]
) -> str:
    """Returns the `--custom-histogram-buckets` argument that adds what is missing.

    The engine's present bounds stay, so that old and new histograms share them.
    """
    families: dict[str, list[float]] = {}
    for signal, thresholds in wanted.items():
        finite = histograms[signal].bounds[:-1]
        if not thresholds <= set(finite):
            families[FAMILIES[signal]] = sorted({*finite, *thresholds})
    if not families:
        return ""
    return f"--custom-histogram-buckets '{json.dumps(families)}'"


def _findings(
    flow: EngineFlow, checks: Iterable[BucketCheck], version: str
) -> Iterable[Finding]:
    reading = flow.reading
    if reading is None:
        return
    if reading.prefix is None and reading.frontend:
        yield Finding(
            "stats_disabled",
            "warning",
            "The page has no engine series, so nothing can be judged.",
            "start vLLM without --disable-log-stats",
        )
        return
    yield from _bucket_findings(checks, version)
    for model in reading.models:
        slo_class, reason = flow.class_of(model)
        if slo_class is None:
            yield Finding("no_class", "warning", f"Model {model}: {reason}.")
        yield from _model_findings(flow, model)
    if reading.snapshot.started is None:
        yield Finding(
            "no_start_time",
            "info",
            "The page has no process_start_time_seconds (several API servers): "
            "restarts are inferred from falling counters.",
        )


def _bucket_findings(checks: Iterable[BucketCheck], version: str) -> Iterable[Finding]:
    for check in checks:
        place = f"{check.slo_class}: {check.criterion} ≤ {_latency(check.threshold)}"
        if check.below is None or check.above is None:
            yield Finding(
                "no_histogram",
                "warning",
                f"{place}: the engine has no histogram for it; it is never certain.",
                "use a request log for this criterion",
            )
        elif not check.exact:
            share = (
                "no request yet"
                if check.undecided is None
                else f"{check.undecided:.1%} of the requests so far are undecided"
            )
            yield Finding(
                "threshold_between_bounds",
                "warning",
                f"{place}: lies between the bounds {_latency(check.below)} and "
                f"{_latency(check.above)}; {share}.",
                _buckets_fix(version),
            )


def _buckets_fix(version: str) -> str:
    known = version_tuple(version)
    if known is not None and known < CUSTOM_BUCKETS_SINCE:
        return f"needs vLLM 0.32 or later, this is {version}"
    return "paste the --custom-histogram-buckets argument below"


def _model_findings(flow: EngineFlow, model: str) -> Iterable[Finding]:
    reading = flow.reading
    if reading is None:
        return
    waiting = reading.gauge("waiting", model) or 0.0
    if reading.counter("rejections", model) == 0:
        evidence = f"{waiting:.0f} requests wait and " if waiting else ""
        yield Finding(
            "unbounded_admission",
            "info",
            f"Model {model}: {evidence}no request was ever refused; without a limit "
            "the queue can grow past every latency target.",
            "--max-num-queued-reqs N (and --max-num-queued-tokens N), unless set",
        )
    generated = reading.counter("generation_tokens", model)
    if generated and reading.counter("flops", model) == 0:
        yield Finding(
            "mfu_metrics_off",
            "info",
            f"Model {model}: the engine's estimate of its work stays 0.",
            "--enable-mfu-metrics",
        )
    if reading.counter("draft_tokens", model):
        yield Finding(
            "itl_per_step",
            "info",
            f"Model {model}: speculation is on, so inter-token latency is per step, "
            "not per token; judge by TPOT.",
        )
    singles = flow.ledger.counter(
        "goodput_engine_single_token_requests_total", (model,)
    )
    lengths = _lifetime(flow, model, "generation_length")
    if singles is not None and lengths is not None and lengths.count:
        share = lengths.bracket(1.0).lower / lengths.count
        if share > SINGLE_TOKEN_SHARE:
            yield Finding(
                "single_token_answers",
                "info",
                f"Model {model}: {share:.0%} of the answers have one token; the engine "
                "records their TPOT as 0, which flatters it.",
            )


def version_tuple(version: str) -> tuple[int, int] | None:
    """Returns (major, minor) of a version such as 0.32.0+cpu, None if it is none."""
    parts = version.split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    return int(parts[0]), int(parts[1])


def _latency(seconds: float) -> str:
    return "+Inf" if seconds == float("inf") else format_duration(seconds)


def as_document(found: Audit) -> dict[str, Any]:
    """Returns the audit for JSON."""
    return {
        "buckets": [
            {
                "class": check.slo_class,
                "model": check.model,
                "criterion": check.criterion,
                "threshold_seconds": check.threshold,
                "below_seconds": check.below,
                "above_seconds": check.above,
                "undecided_ratio": check.undecided,
                "exact": check.exact,
            }
            for check in found.buckets
        ],
        "findings": [
            {
                "code": finding.code,
                "severity": finding.severity,
                "message": finding.message,
                "fix": finding.fix,
            }
            for finding in found.findings
        ],
        "custom_histogram_buckets": found.flag,
    }

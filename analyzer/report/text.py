"""A report as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.report.cause import cause_of
from analyzer.report.figures import (
    TOKENS,
    amount,
    grid,
    latency,
    measured,
    moment,
    share,
    span,
)
from analyzer.report.report import Report, Row, records
from analyzer.report.words import MEASURES, STAGES, missed_text
from analyzer.strict import format_duration

TOP = 10


def lines_of(report: Report) -> Iterator[str]:
    """Yields the lines of a report."""
    for part in (
        _period,
        _goodput,
        _causes,
        _misses,
        _budget,
        _percentiles,
        _stages,
        _tenants,
        _worst,
        _constraints,
        _workload,
        _by_prompt,
        _reconciliation,
        _sources,
    ):
        found = list(part(report))
        if found:
            yield from found
            yield ""
    for what, why in report.missing.items():
        yield f"no {what}: {why}"


def _period(report: Report) -> Iterator[str]:
    if report.start is None:
        yield "No request has a time."
        return
    yield (
        f"{moment(report.start)} to {moment(report.end)} UTC, {span(report.seconds)}"
    )


def _goodput(report: Report) -> Iterator[str]:
    rows = records(report["goodput"])
    if not rows:
        yield "No request."
        return
    yield from grid(
        (
            "class",
            "model",
            "requests",
            "good",
            "bad",
            "unevaluable",
            "excluded",
            "share good",
            "objective",
            "good/s",
        ),
        [
            (
                row["class"],
                row["model"],
                amount(row["total"]),
                amount(row["good"]),
                amount(row["bad"]),
                amount(row["unevaluable"]),
                amount(row["excluded"]),
                interval(row),
                share(row["objective"])
                + (" MISSED" if row["missed_objective"] else ""),
                amount(row["good_requests_per_second"]),
            )
            for row in rows
        ],
    )


def _causes(report: Report) -> Iterator[str]:
    for row in records(report["goodput"]):
        sentences = " ".join(cause_of(report, row))
        if sentences:
            yield f"{row['class']} {row['model']}: {sentences}"


def interval(row: Row) -> str:
    """Returns the share of good requests, as an interval where some are not known."""
    if row["lower"] is None or row["lower"] == row["upper"]:
        return share(row["upper"])
    return f"{share(row['lower'])}–{share(row['upper'])}"


def _misses(report: Report) -> Iterator[str]:
    for row in records(report["misses"]):
        if row["requests"]:
            yield (
                f"{row['class']} {row['model']}: {missed_text(row)}: "
                f"{amount(row['requests'])} requests, {share(row['share'])}"
            )
    for row in records(report["reasons"]):
        yield (
            f"{row['class']} {row['model']}: {row['kind']} for {row['reason']}: "
            f"{amount(row['requests'])} requests"
        )


def _budget(report: Report) -> Iterator[str]:
    for row in records(report["budget"]):
        text = (
            f"{row['class']} {row['model']}: {amount(row['bad'])} bad of "
            f"{amount(row['allowed'])} that {share(row['objective'])} allows: "
            f"{share(row['spent'])} of the period's budget, burn rate "
            f"{amount(row['burn_rate'])}"
        )
        if row["exhausted_seconds"] is not None and row["burn_rate"] > 1:
            text += (
                f"; at this rate the budget of {format_duration(row['window_seconds'])}"
                f" lasts {span(row['exhausted_seconds'])}"
            )
        yield text


def _percentiles(report: Report) -> Iterator[str]:
    rows = records(report["percentiles"])
    if not rows:
        return
    yield from grid(
        (
            "class",
            "measure",
            "model",
            "count",
            "mean",
            "p50",
            "p90",
            "p95",
            "p99",
            "max",
        ),
        [
            (
                row["class"],
                MEASURES[row["measure"]],
                row["model"],
                amount(row["count"]),
                *(
                    measured(row["measure"], row[name])
                    for name in ("mean", "p50", "p90", "p95", "p99", "max")
                ),
            )
            for row in rows
        ],
    )
    yield report.percentiles_note
    for row in records(report["targets"]):
        met = {True: "met", False: "MISSED", None: "not known"}[row["met"]]
        yield (
            f"{row['class']} {row['model']}: {row['level']} of "
            f"{MEASURES[row['criterion']]} ≤ {latency(row['threshold'])}: "
            f"{latency(row['value'])}, {share(row['within'])} within: {met}"
        )


def _stages(report: Report) -> Iterator[str]:
    rows = [r for r in records(report["stages"]) if r["verdict"] == "bad"]
    if not rows:
        return
    yield "Where the time of bad requests went:"
    yield from grid(
        ("class", "stage", "model", "requests", "mean", "p95", "share", "longest in"),
        [
            (
                row["class"],
                STAGES[row["stage"]],
                row["model"],
                amount(row["requests"]),
                latency(row["mean"]),
                latency(row["p95"]),
                share(row["share"]),
                amount(row["longest"]),
            )
            for row in rows
        ],
    )


def _tenants(report: Report) -> Iterator[str]:
    rows = records(report["tenants"])
    if len(rows) < 2:
        return
    yield from grid(
        ("tenant", "", "requests", "share good", "prompt tokens", "output tokens"),
        [
            (
                row["tenant"],
                "",
                amount(row["total"]),
                share(row["attainment"]),
                amount(row["prompt_tokens"]),
                amount(row["output_tokens"]),
            )
            for row in rows[:TOP]
        ],
    )
    if len(rows) > TOP:
        yield f"and {len(rows) - TOP} more tenants"


def _worst(report: Report) -> Iterator[str]:
    rows = records(report["worst"])
    if not rows:
        return
    yield f"Worst stretches of {span(report.bin_seconds)}:"
    yield from grid(
        (
            "from",
            "class",
            "model",
            "requests",
            "bad",
            "share good",
            "burn rate",
            "bound by",
        ),
        [
            (
                moment(row["start"]),
                row["class"],
                row["model"],
                amount(row["total"]),
                amount(row["bad"]),
                share(row["attainment"]),
                amount(row["burn_rate"]),
                row["constraint"] or "—",
            )
            for row in rows[:5]
        ],
    )


def _constraints(report: Report) -> Iterator[str]:
    for row in records(report["constraint_shares"]):
        name = f"{row['family']}/{row['cause']}" if row["cause"] else row["family"]
        yield f"{share(row['share']):>8} of the time bound by {name}"


def _workload(report: Report) -> Iterator[str]:
    shape = report.workload
    if not shape:
        return
    yield f"Workload: {amount(shape['requests_per_second'])} requests/s"
    peaks = shape["peak_requests_per_second"]
    if peaks:
        yield "  peak: " + ", ".join(
            f"{amount(p['value'])}/s over {span(p['bin_seconds'])}" for p in peaks
        )
    if shape["burstiness"]:
        yield "  burstiness (1 is Poisson): " + ", ".join(
            f"{amount(b['value'])} at {span(b['bin_seconds'])}"
            for b in shape["burstiness"]
        )
    at_once = shape["concurrency"]
    if at_once["mean"] is not None:
        yield (
            f"  at once: mean {amount(at_once['mean'])}, p95 {amount(at_once['p95'])}, "
            f"at most {amount(at_once['max'])}"
        )
    for name in TOKENS:
        found = shape[name]
        if found["count"]:
            yield (
                f"  {MEASURES[name]}: mean {amount(found['mean'])}, p50 "
                f"{amount(found['p50'])}, p95 {amount(found['p95'])}, p99 "
                f"{amount(found['p99'])}, at most {amount(found['max'])}"
            )


def _by_prompt(report: Report) -> Iterator[str]:
    rows = records(report["by_prompt"])
    if len(rows) < 2:
        return
    yield "TTFT by the prompt's length:"
    yield from grid(
        ("model", "", "tokens", "requests", "p50", "p95"),
        [
            (
                row["model"],
                "",
                f"{amount(row['from_tokens'])}–{amount(row['to_tokens'])}",
                amount(row["count"]),
                latency(row["p50"]),
                latency(row["p95"]),
            )
            for row in rows
        ],
    )


def _reconciliation(report: Report) -> Iterator[str]:
    for row in records(report["reconciliation"]):
        yield reconciled_text(row)


def reconciled_text(row: Row) -> str:
    """Returns in a sentence whether production and a sweep agree."""
    text = f"Sweep, class {row['class']}, curve {row['curve']}: {row['verdict']}"
    if row["attainment"] is not None:
        text += (
            f": {share(row['attainment'])} good, the sweep says "
            f"{share(row['expected'])} ({share(row['lower'])}–{share(row['upper'])}) "
            f"at the same {row['axis'].replace('_', ' ')}, over {row['stretches']} "
            f"stretches with {amount(row['requests'])} requests"
        )
    return text + (f" ({row['notes']})" if row["notes"] else "")


def _sources(report: Report) -> Iterator[str]:
    for row in records(report["sources"]):
        text = f"{row['source']}: {row['format']}"
        if row["lines"] is not None:
            text += (
                f", {amount(row['lines'])} lines, {amount(row['records'])} requests, "
                f"{amount(row['unreadable'])} unreadable"
            )
        yield text
        if row["first_problem"]:
            yield f"  first: {row['first_problem']}"
        if row["error"]:
            yield f"  {row['error']}"

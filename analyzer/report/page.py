"""A report as one HTML file: no script, nothing to load, light, dark and on paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from analyzer.report.cause import cause_of
from analyzer.report.figures import amount, latency, moment, share, span
from analyzer.report.page_html import mark, table
from analyzer.report.page_plots import over_time, reconciliation, workload
from analyzer.report.page_style import STYLE
from analyzer.report.report import Report, Row, records
from analyzer.report.text import interval
from analyzer.report.words import MEASURES, STAGES, missed_text
from analyzer.strict import format_duration

TOP_TENANTS = 25


def page_of(report: Report, *, title: str) -> str:
    """Returns the page of a report."""
    body = "\n".join(part for section in SECTIONS for part in section(report))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><header><h1>{escape(title)}</h1><p>{escape(_period(report))}</p>"
        f"</header>\n<main>\n{body}\n</main></body></html>\n"
    )


def _period(report: Report) -> str:
    if report.start is None:
        return "No request has a time."
    return f"{moment(report.start)} to {moment(report.end)} UTC, {span(report.seconds)}"


def _summary(report: Report) -> Iterator[str]:
    rows = records(report["goodput"])
    if not rows:
        yield "<p>No request was found.</p>"
        return
    cards = []
    for row in rows:
        if not row["total"]:
            continue
        missed = row["missed_objective"]
        verdict = ""
        if row["objective"] is not None:
            said = "objective missed" if missed else "objective"
            verdict = mark(f"{said}: {share(row['objective'])}", bad=bool(missed))
        asked = ", ".join(
            f"{MEASURES[c]} ≤ {limit}"
            for c, limit in report.thresholds.get(row["class"], {}).items()
        )
        cards.append(
            f'<section class="card"><h3>{escape(row["class"])} '
            f"<span>{escape(row['model'])}</span></h3>"
            f'<p class="big">{escape(interval(row))}</p><p>of '
            f"{amount(row['total'])} requests were good</p><p>{verdict}</p>"
            f"<p>{escape(' '.join(cause_of(report, row)))}</p>"
            f'<p class="soft">{escape(asked or "no criteria")}</p></section>'
        )
    yield f'<div class="cards">{"".join(cards)}</div>'


def _goodput(report: Report) -> Iterator[str]:
    rows = records(report["goodput"])
    yield "<h2>Requests</h2>"
    yield table(
        (
            "Class",
            "Model",
            "Requests",
            "Good",
            "Bad",
            "Unevaluable",
            "Excluded",
            "Requests/s",
            "Good/s",
            "Output tokens",
            "Of good requests",
        ),
        [
            (
                row["class"],
                row["model"],
                *(
                    amount(row[k])
                    for k in ("total", "good", "bad", "unevaluable", "excluded")
                ),
                amount(row["requests_per_second"]),
                amount(row["good_requests_per_second"]),
                amount(row["output_tokens"]),
                amount(row["good_output_tokens"]),
            )
            for row in rows
        ],
        names=2,
    )
    misses = [r for r in records(report["misses"]) if r["requests"]]
    if misses:
        yield table(
            ("Class", "Model", "Missed", "Requests", "Share"),
            [
                (
                    row["class"],
                    row["model"],
                    missed_text(row),
                    amount(row["requests"]),
                    share(row["share"]),
                )
                for row in misses
            ],
            names=3,
            caption="Why requests were bad; one may have missed several criteria.",
        )
    reasons = records(report["reasons"])
    if reasons:
        yield table(
            ("Class", "Model", "Verdict", "Because of", "Requests"),
            [
                (r["class"], r["model"], r["kind"], r["reason"], amount(r["requests"]))
                for r in reasons
            ],
            names=4,
            caption="Requests that say nothing about the serving, or cannot be judged.",
        )


def _budget(report: Report) -> Iterator[str]:
    rows = records(report["budget"])
    if not rows:
        return
    yield "<h2>Error budget</h2>"
    yield table(
        (
            "Class",
            "Model",
            "Allowed bad",
            "Bad",
            "Spent of the period's",
            "Burn rate",
            "Lasts at this rate",
        ),
        [
            (
                row["class"],
                row["model"],
                amount(row["allowed"]),
                amount(row["bad"]),
                share(row["spent"]),
                amount(row["burn_rate"]),
                _lasting(row),
            )
            for row in rows
        ],
        names=2,
    )


def _lasting(row: Row) -> str:
    return (
        f"{span(row['exhausted_seconds'])} of {format_duration(row['window_seconds'])}"
    )


def _worst(report: Report) -> Iterator[str]:
    rows = records(report["worst"])
    if not rows:
        return
    bound = any(row["constraint"] for row in rows)
    yield "<h2>Worst stretches</h2>"
    yield table(
        (
            "From (UTC)",
            "Class",
            "Model",
            *(("Bound by",) if bound else ()),
            "Requests",
            "Bad",
            "Share good",
            "Burn rate",
        ),
        [
            (
                moment(row["start"]),
                row["class"],
                row["model"],
                *((row["constraint"] or "—",) if bound else ()),
                amount(row["total"]),
                amount(row["bad"]),
                share(row["attainment"]),
                amount(row["burn_rate"]),
            )
            for row in rows
        ],
        names=4 if bound else 3,
        caption=f"The stretches of {span(report.bin_seconds)} with most bad requests.",
    )


def _latencies(report: Report) -> Iterator[str]:
    rows = [r for r in records(report["percentiles"]) if "tokens" not in r["measure"]]
    if not rows:
        return
    levels = [n for n in ("mean", "p50", "p90", "p95", "p99", "max") if _any(rows, n)]
    yield "<h2>Latencies</h2>"
    yield table(
        ("Class", "Model", "Latency", "Requests", *levels),
        [
            (
                row["class"],
                row["model"],
                MEASURES[row["measure"]],
                amount(row["count"]),
                *(latency(row[name]) for name in levels),
            )
            for row in rows
        ],
        names=3,
    )
    yield f'<p class="soft">{escape(report.percentiles_note)}</p>'
    targets = records(report["targets"])
    if targets:
        yield table(
            ("Class", "Model", "Target", "Found", "Within", "Met"),
            [
                (
                    r["class"],
                    r["model"],
                    _target(r),
                    latency(r["value"]),
                    share(r["within"]),
                    mark(
                        {True: "met", False: "missed", None: "not known"}[r["met"]],
                        bad=None if r["met"] is None else not r["met"],
                    ),
                )
                for r in targets
            ],
            names=3,
        )


def _target(row: Row) -> str:
    name = MEASURES[row["criterion"]]
    return f"{row['level']} of {name} ≤ {latency(row['threshold'])}"


def _any(rows: Sequence[Row], name: str) -> bool:
    return any(row[name] is not None for row in rows)


def _stages(report: Report) -> Iterator[str]:
    rows = records(report["stages"])
    bad = [row for row in rows if row["verdict"] == "bad"]
    if not bad:
        return
    good = {
        (r["class"], r["model"], r["stage"]): r for r in rows if r["verdict"] == "good"
    }
    yield "<h2>Where the time of bad requests went</h2>"
    table_rows = []
    for row in bad:
        usual = good.get((row["class"], row["model"], row["stage"]))
        table_rows.append(
            (
                row["class"],
                row["model"],
                STAGES[row["stage"]],
                amount(row["requests"]),
                latency(row["mean"]),
                latency(usual["mean"]) if usual else "—",
                share(row["share"]),
                amount(row["longest"]),
            )
        )
    yield table(
        (
            "Class",
            "Model",
            "Stage",
            "Requests",
            "Mean, bad",
            "Mean, good",
            "Share of time",
            "Longest stage of",
        ),
        table_rows,
        names=3,
    )


def _tenants(report: Report) -> Iterator[str]:
    rows = records(report["tenants"])
    if not rows:
        return
    yield "<h2>Tenants</h2>"
    yield table(
        (
            "Tenant",
            "Requests",
            "Good",
            "Bad",
            "Share good",
            "Prompt tokens",
            "Output tokens",
            "Of good requests",
        ),
        [
            (
                row["tenant"],
                amount(row["total"]),
                amount(row["good"]),
                amount(row["bad"]),
                share(row["attainment"]),
                amount(row["prompt_tokens"]),
                amount(row["output_tokens"]),
                amount(row["good_output_tokens"]),
            )
            for row in rows[:TOP_TENANTS]
        ],
    )
    if len(rows) > TOP_TENANTS:
        yield f'<p class="soft">{len(rows) - TOP_TENANTS} more in the JSON.</p>'


def _sources(report: Report) -> Iterator[str]:
    yield "<h2>Sources</h2>"
    rows = records(report["sources"])
    if rows:
        yield table(
            ("Source", "Format", "Trouble", "Lines", "Requests", "Unreadable"),
            [
                (
                    row["source"],
                    row["format"],
                    row["error"] or row["first_problem"] or "—",
                    amount(row["lines"]),
                    amount(row["records"]),
                    amount(row["unreadable"]),
                )
                for row in rows
            ],
            names=3,
        )
    for what, why in report.missing.items():
        yield f'<p class="soft">No {escape(what)}: {escape(why)}.</p>'


SECTIONS: tuple[Callable[[Report], Iterator[str]], ...] = (
    _summary,
    over_time,
    _worst,
    _budget,
    _stages,
    _latencies,
    _goodput,
    _tenants,
    workload,
    reconciliation,
    _sources,
)

"""A report as one HTML file: no script, nothing to load, light, dark and on paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from analyzer.report import charts
from analyzer.report.charts import Frame, Layer
from analyzer.report.page_style import STYLE
from analyzer.report.report import Report, Row, records
from analyzer.report.text import (
    MEASURES,
    STAGES,
    amount,
    interval,
    latency,
    missed_text,
    moment,
    share,
    span,
)
from analyzer.strict import format_duration

TOP_TENANTS = 25
FAMILIES = (
    "memory",
    "compute",
    "queueing",
    "communication",
    "traffic",
    "gateway",
    "fault",
    "none",
    "unknown",
)
Cells = Sequence[Sequence[str]]


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


def table(
    heads: Sequence[str], rows: Cells, *, names: int = 1, caption: str = ""
) -> str:
    """Returns a table of text; the first columns are names, the others figures."""
    above = "".join(
        f'<th scope="col"{_figure(i, names)}>{escape(head)}</th>'
        for i, head in enumerate(heads)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_figure(i, names)}>{_cell(cell)}</td>" for i, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    told = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll"><table>{told}<thead><tr>{above}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


class Markup(str):
    """Text that is HTML already; all other text is escaped."""

    __slots__ = ()


def _cell(text: str) -> str:
    return text if isinstance(text, Markup) else escape(text)


def _figure(column: int, names: int) -> str:
    return ' class="n"' if column >= names else ""


def _mark(text: str, *, bad: bool | None) -> Markup:
    """Returns a verdict with a sign, so that colour is not all that tells it."""
    if bad is None:
        return Markup(escape(text))
    style, sign = ("bad", "✗") if bad else ("good-text", "✓")
    return Markup(f'<span class="{style}">{sign} {escape(text)}</span>')


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
            verdict = _mark(f"{said}: {share(row['objective'])}", bad=bool(missed))
        asked = ", ".join(
            f"{MEASURES[c]} ≤ {limit}"
            for c, limit in report.thresholds.get(row["class"], {}).items()
        )
        cards.append(
            f'<section class="card"><h3>{escape(row["class"])} '
            f"<span>{escape(row['model'])}</span></h3>"
            f'<p class="big">{escape(interval(row))}</p><p>of '
            f"{amount(row['total'])} requests were good</p><p>{verdict}</p>"
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


def _over_time(report: Report) -> Iterator[str]:
    rows = records(report["timeline"])
    width = report.bin_seconds
    if not rows or width is None:
        return
    yield "<h2>Over time</h2>"
    starts = sorted({row["start"] for row in rows})
    layers = []
    for name, style in (
        ("good", "good"),
        ("unevaluable", "open"),
        ("bad", "miss"),
    ):
        sums = dict.fromkeys(starts, 0.0)
        for row in rows:
            sums[row["start"]] += row[name] or 0.0
        layers.append(Layer(name, style, [sums[s] for s in starts]))
    yield _legend([("good", "good"), ("unevaluable", "open"), ("bad", "miss")])
    yield charts.stacked(
        starts,
        width,
        layers,
        what=f"Requests in stretches of {span(width)} by verdict",
        show=amount,
    )
    yield f'<p class="soft">Requests in stretches of {span(width)}, by their start.</p>'
    objectives = {
        (r["class"], r["model"]): r["objective"] for r in records(report["goodput"])
    }
    frame = Frame(starts[0], starts[-1] + width, 1.0)
    for key, objective in objectives.items():
        points = [
            (row["start"], row["attainment"])
            for row in rows
            if (row["class"], row["model"]) == key and row["attainment"] is not None
        ]
        if points:
            name = f"{key[0]} {key[1]}"
            yield f"<h3>Share good: {escape(name)}</h3>"
            yield charts.line(
                points,
                what=f"Share of good requests of {name} over time",
                show=lambda v: f"{v:.0%}" if v in (0, 0.25, 0.5, 0.75, 1) else share(v),
                mark=objective,
                frame=frame,
                width=width,
            )
    yield from _constraints(report, frame)


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    items = "".join(
        f'<li><svg viewBox="0 0 12 12"><rect class="{style}" width="12" height="12"/>'
        f"</svg>{escape(name)}</li>"
        for name, style in entries
    )
    return f'<ul class="legend">{items}</ul>'


def _constraints(report: Report, frame: Frame) -> Iterator[str]:
    rows = records(report["constraints"])
    if not rows:
        return
    yield "<h3>What bound the engines</h3>"
    families = [f for f in FAMILIES if any(row["family"] == f for row in rows)]
    yield _legend([(family, f"f-{family}") for family in families])
    lanes: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        lanes.setdefault((row["target"], row["model"], row["rank"]), []).append(row)
    for (target, model, rank), segments in lanes.items():
        name = " ".join(part for part in (target, model, rank) if part)
        yield f'<p class="lane">{escape(name)}</p>'
        yield charts.strips(
            [
                (
                    s["start"],
                    s["end"],
                    f"f-{s['family']}",
                    f"{s['family']}/{s['cause']}" if s["cause"] else s["family"],
                )
                for s in segments
            ],
            frame.left,
            frame.right,
            what=f"What bound {name} over time",
        )
    yield table(
        ("Bound by", "Time", "Share"),
        [
            (
                f"{r['family']}/{r['cause']}" if r["cause"] else r["family"],
                span(r["seconds"]),
                share(r["share"]),
            )
            for r in records(report["constraint_shares"])
        ],
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
                    _mark(
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


def _workload(report: Report) -> Iterator[str]:
    shape = report.workload
    if not shape:
        return
    yield "<h2>Workload</h2>"
    facts = [("Requests/s, mean", amount(shape["requests_per_second"]))]
    facts += (
        (f"Requests/s, peak over {span(p['bin_seconds'])}", amount(p["value"]))
        for p in shape["peak_requests_per_second"]
    )
    facts += (
        (f"Burstiness at {span(b['bin_seconds'])} (1 is Poisson)", amount(b["value"]))
        for b in shape["burstiness"]
    )
    at_once = shape["concurrency"]
    if at_once["mean"] is not None:
        told = (f"{n} {amount(at_once[n])}" for n in ("mean", "p50", "p95", "max"))
        facts.append(("Requests at once", ", ".join(told)))
    for name in ("prompt_tokens", "output_tokens"):
        found = shape[name]
        if found["count"]:
            told = (f"{n} {amount(found[n])}" for n in ("mean", "p50", "p95", "max"))
            label = MEASURES[name]
            facts.append((label[0].upper() + label[1:], ", ".join(told)))
    items = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts
    )
    yield f'<dl class="facts">{items}</dl>'
    yield from _by_prompt(report)


def _by_prompt(report: Report) -> Iterator[str]:
    by_model: dict[str, list[Row]] = {}
    for row in records(report["by_prompt"]):
        by_model.setdefault(row["model"], []).append(row)
    for model, rows in by_model.items():
        yield f"<h3>TTFT by the prompt's length: {escape(model)}</h3>"
        yield _legend([("p50", "usual"), ("p95", "far")])
        yield charts.ranges(
            [
                (
                    f"{row['from_tokens']}–",
                    row["p50"],
                    row["p95"],
                    _prompt_text(row),
                )
                for row in rows
            ],
            what=f"TTFT of {model} by the prompt's length in tokens",
            show=latency,
        )


def _prompt_text(row: Row) -> str:
    return (
        f"{amount(row['from_tokens'])} to {amount(row['to_tokens'])} tokens, "
        f"{amount(row['count'])} requests: p50 {latency(row['p50'])}, "
        f"p95 {latency(row['p95'])}"
    )


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
    _over_time,
    _worst,
    _budget,
    _stages,
    _latencies,
    _goodput,
    _tenants,
    _workload,
    _sources,
)

"""The plots of the report's page: over time, what bound, and by the prompt's length."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from analyzer.report import charts
from analyzer.report.charts import Frame, Layer
from analyzer.report.figures import amount, latency, share, span
from analyzer.report.page_html import legend, table
from analyzer.report.report import Report, Row, ratio, records
from analyzer.report.text import reconciled_text
from analyzer.report.words import MEASURES

MOST_BARS = 800
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


def over_time(report: Report) -> Iterator[str]:
    """Yields requests, shares of good ones and constraints over time."""
    rows = records(report["timeline"])
    width = report.bin_seconds
    if not rows or width is None:
        return
    yield "<h2>Over time</h2>"
    rows, width = _wide_enough(rows, width)
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
    drawn = [layer for layer in layers if any(layer.heights)]
    yield legend([(layer.name, layer.style) for layer in drawn])
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


def _wide_enough(rows: list[Row], width: int) -> tuple[list[Row], int]:
    """Returns rows in bins of which no more than MOST_BARS are drawn, and their width.

    A year of hours would be nine thousand bars, narrower than a pixel.
    """
    begin = min(row["start"] for row in rows)
    number = (max(row["start"] for row in rows) - begin) // width + 1
    wider = width * -(-number // MOST_BARS)
    if wider == width:
        return rows, width
    sums: dict[tuple[float, str, str], Row] = {}
    for row in rows:
        start = row["start"] // wider * wider
        key = start, row["class"], row["model"]
        found = sums.setdefault(
            key,
            {"start": start, "class": row["class"], "model": row["model"]}
            | dict.fromkeys(("good", "bad", "unevaluable"), 0.0),
        )
        for name in ("good", "bad", "unevaluable"):
            found[name] += row[name] or 0.0
    for row in sums.values():
        row["attainment"] = ratio(row["good"], row["good"] + row["bad"])
    return list(sums.values()), wider


def _constraints(report: Report, frame: Frame) -> Iterator[str]:
    rows = records(report["constraints"])
    if not rows:
        return
    yield "<h3>What bound the engines</h3>"
    families = [f for f in FAMILIES if any(row["family"] == f for row in rows)]
    yield legend([(family, f"f-{family}") for family in families])
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


def reconciliation(report: Report) -> Iterator[str]:
    """Yields production's points over the curves of a sweep, and what they say."""
    verdicts = records(report["reconciliation"])
    if not verdicts:
        return
    yield "<h2>Beside the benchmark</h2>"
    rows = records(report["operating_points"])
    for verdict in verdicts:
        yield f"<p>{escape(reconciled_text(verdict))}.</p>"
        key = verdict["class"], verdict["curve"]
        mine = [row for row in rows if (row["class"], row["curve"]) == key]
        if not verdict["points"]:
            continue
        yield _legend_of_points()
        yield charts.overlay(
            [(known["load"], known["expected"]) for known in verdict["points"]],
            [(row["load"], row["attainment"], _point_text(row)) for row in mine],
            what=f"Share good over {verdict['axis']}: production and benchmark",
            show=amount,
        )


def _legend_of_points() -> str:
    return legend([("benchmark", "usual"), ("production", "far")])


def _point_text(row: Row) -> str:
    return (
        f"{charts.stamp(row['start'])} UTC: {share(row['attainment'])} of "
        f"{amount(row['requests'])} good at {amount(row['load'])}"
    )


def _by_prompt(report: Report) -> Iterator[str]:
    by_model: dict[str, list[Row]] = {}
    for row in records(report["by_prompt"]):
        by_model.setdefault(row["model"], []).append(row)
    for model, rows in by_model.items():
        yield f"<h3>TTFT by the prompt's tokens: {escape(model)}</h3>"
        yield legend([("p50", "usual"), ("p95", "far")])
        yield charts.ranges(
            [
                (
                    f"{_short(row['from_tokens'])}–{_short(row['to_tokens'])}",
                    row["p50"],
                    row["p95"],
                    _prompt_text(row),
                )
                for row in rows
            ],
            what=f"TTFT of {model} by the prompt's length in tokens",
            show=latency,
        )


def _short(tokens: int) -> str:
    return str(tokens) if tokens < 10_000 else f"{tokens >> 10}k"


def _prompt_text(row: Row) -> str:
    return (
        f"{amount(row['from_tokens'])} to {amount(row['to_tokens'])} tokens, "
        f"{amount(row['count'])} requests: p50 {latency(row['p50'])}, "
        f"p95 {latency(row['p95'])}"
    )


def workload(report: Report) -> Iterator[str]:
    """Yields the shape of the workload, and TTFT by the prompt's length."""
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

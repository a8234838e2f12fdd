"""The status page's third part: one target in detail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from exporter import page_verdict, svg
from exporter.page_target import SIGNALS, Target, gauge, state_of
from exporter.page_text import (
    Markup,
    absent,
    clock,
    count,
    join,
    left_out,
    name,
    pairs,
    plural,
    seconds,
    table,
    tag,
)

Row = dict[str, Any]
MAX_RANKS = 64  # of one model at one target


def details(target: Target, at: float, *, opened: bool, pictures: bool) -> Markup:
    """Returns a target's details, folded unless *opened*; sparklines if *pictures*."""
    row = target.row
    why = f": {row['reason']}" if row["reason"] else ""
    title = tag("strong", name(row["target"]))
    summary = tag("summary", title, " ", state_of(target), why)
    body = [
        page_verdict.section(target.windows, at),
        *(_model(target, model, at, pictures=pictures) for model in row["models"]),
        tag("h4", "Source"),
        _source(target, at),
        _damaged(row["damaged_lines"]),
        _missing(row["missing"]),
    ]
    return tag(
        "details",
        summary,
        # The id is inside, so that a link to it unfolds the details.
        tag("div", *body, id=target.anchor),
        class_="target",
        open="" if opened else None,
    )


def _source(target: Target, at: float) -> Markup:
    row = target.row
    if row["last_success"] is None:
        page = absent("no page was ever read")
    else:
        age = seconds(max(0.0, at - row["last_success"]))
        page = join([f"{age} ago, ", clock(row["last_success"])])
    took = row["scrape_seconds"]
    facts: list[tuple[str, str]] = [
        ("Address", name(row["url"]) if row["url"] else absent("a recording")),
        ("Last page", page),
        ("Scrape took", absent("not scraped yet") if took is None else seconds(took)),
    ]
    if row["detail"] and row["detail"] not in row["reason"]:
        facts.append(("Last error", tag("bdi", row["detail"])))
    if row["stale"]:
        facts.append(("Stale", row["stale"]))
    if target.source:
        gaps = plural(target.source["gaps"], "gap")
        resets = plural(target.source["resets"], "counter reset")
        facts.append(("So far", f"{gaps}, {resets}"))
    return pairs(facts)


def _model(target: Target, model: Row, at: float, *, pictures: bool) -> Markup:
    if model["class"] is None:
        judged: list[str] = [f" · no class: {model['class_reason']}"]
    else:
        judged = [" · class ", name(model["class"])]
    title = tag("h4", name(model["model"]), tag("span", *judged, class_="soft small"))
    ranks = model["ranks"][:MAX_RANKS]
    tops = {
        signal: svg.top_of([rank.get(f"{signal}_trail", ()) for rank in ranks], at)
        for signal, _ in SIGNALS
    }
    tops["kv_cache_usage"] = 1.0
    heads = ["Rank", *(label for _, label in SIGNALS), "KV max 60 s"]
    caption = (
        "Sparklines: the last 10 minutes, from 0 to the number at the top; shaded "
        "where no page was read."
    )
    rows = [_rank(target, rank, at, tops if pictures else {}) for rank in ranks]
    figures = table(
        heads,
        rows,
        caption=caption if pictures else "",
        class_="ranks stack",
        label="Gauges by rank",
    )
    return join([title, figures, left_out(len(model["ranks"]) - len(ranks), "rank")])


def _rank(target: Target, rank: Row, at: float, tops: Mapping[str, float]) -> Markup:
    title = name(rank["rank"])
    cells = [
        tag("th", title, scope="row", role="rowheader", data_label="Rank"),
        *(
            _cell(target, rank, (signal, label), at, tops.get(signal))
            for signal, label in SIGNALS
        ),
    ]
    peak = rank["kv_cache_usage_max60s"]
    if target.unread or peak is None:
        shown: str = absent(target.why_absent("kv_cache_usage"))
    else:
        shown = gauge("kv_cache_usage", peak)
    cells.append(tag("td", shown, class_="peak", role="cell", data_label="KV max 60 s"))
    return tag("tr", *cells, role="row")


def _cell(
    target: Target, rank: Row, which: tuple[str, str], at: float, top: float | None
) -> Markup:
    """Returns a gauge's value and, up to *top*, its last ten minutes."""
    signal, label = which
    value = rank[signal]
    if target.unread or value is None:
        shown: str = absent(target.why_absent(signal))
    else:
        shown = gauge(signal, value)
    parts = [tag("b", shown)]
    if top is not None:
        trail = rank.get(f"{signal}_trail", ())
        show = partial(gauge, signal)
        picture = svg.sparkline(trail, at=at, top=top, what=label, show=show)
        axis = tag("span", show(top)) + tag("span", "0")
        parts.append(tag("span", picture, class_="plot"))
        parts.append(tag("span", Markup(axis), class_="axis", aria_hidden="true"))
    body = tag("div", *parts, class_="gauge")
    return tag("td", body, role="cell", data_label=label)


def _damaged(lines: Sequence[Row]) -> Markup:
    if not lines:
        return Markup()
    rows = [
        tag(
            "tr",
            tag("th", count(line["line"]), scope="row", role="rowheader"),
            tag("td", line["reason"], role="cell"),
            tag("td", tag("code", name(line["excerpt"])), role="cell"),
            role="row",
        )
        for line in lines
    ]
    heads = ("Line", "Why", "Begins with")
    caption = "The first lines of the last page that could not be read"
    return join([tag("h4", "Damaged lines"), table(heads, rows, caption=caption)])


def _missing(missing: Mapping[str, str]) -> Markup:
    if not missing:
        return Markup()
    rows = [
        tag(
            "tr",
            tag("th", name(signal), scope="row", role="rowheader"),
            tag("td", why, role="cell"),
            role="row",
        )
        for signal, why in missing.items()
    ]
    title = f"{plural(len(missing), 'signal')} missing, and why"
    found = table(("Signal", "Why"), rows, class_="narrow")
    return tag("details", tag("summary", title), found)

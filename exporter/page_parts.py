"""The status page's second part: all targets in one table, then one by one."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.page_details import details
from exporter.page_target import SIGNALS, Target, gauge, state_of
from exporter.page_text import (
    Markup,
    absent,
    join,
    left_out,
    name,
    table,
    tag,
    within,
)

OPEN_TARGETS = 5
PICTURED_RANKS = 400  # beyond them, only the first targets have sparklines
PICTURED_TARGETS = 10
OVERVIEW_BYTES = 500_000
DETAIL_BYTES = 1_350_000


def section(targets: Sequence[Target], at: float) -> Markup:
    """Returns the part of the page about targets."""
    if not targets:
        title = tag("h2", "Targets", id="targets")
        nothing = "No target: the configuration names no engine, or none was found."
        return tag("section", title, tag("p", nothing), aria_labelledby="targets")
    return tag(
        "section",
        tag("h2", f"Targets ({len(targets)})", id="targets"),
        _overview(targets),
        tag("h2", "Details"),
        _all_details(targets, at),
        aria_labelledby="targets",
    )


def _overview(targets: Sequence[Target]) -> Markup:
    numeric = [label for _, label in SIGNALS]
    rows, missed = within(targets, _overview_row, OVERVIEW_BYTES)
    found = table(
        ["Target", "State", *numeric, "Note"],
        rows,
        numeric=numeric,
        class_="overview stack",
        label="Targets, those to look at first",
    )
    return join([found, left_out(missed, "target")])


def _overview_row(target: Target) -> Markup:
    ranks = [rank for model in target.row["models"] for rank in model["ranks"]]
    cells = []
    for signal, label in SIGNALS:
        known = [rank[signal] for rank in ranks if rank[signal] is not None]
        if target.unread or not known:
            shown: str = absent(target.why_absent(signal))
        else:
            whole = max(known) if signal == "kv_cache_usage" else sum(known)
            shown = gauge(signal, whole)
        cells.append(tag("td", shown, class_="n", role="cell", data_label=label))
    link = tag("a", name(target.row["target"]), href=f"#{target.anchor}")
    return tag(
        "tr",
        tag("th", link, scope="row", role="rowheader"),
        tag("td", state_of(target), class_="state", role="cell"),
        *cells,
        tag("td", target.note, class_="note", role="cell"),
        role="row",
    )


def _all_details(targets: Sequence[Target], at: float) -> Markup:
    ranks = sum(len(m["ranks"]) for target in targets for m in target.row["models"])
    few = ranks <= PICTURED_RANKS
    pictured = {
        target.number for target in targets[: None if few else PICTURED_TARGETS]
    }

    def show(target: Target) -> Markup:
        return details(
            target,
            at,
            opened=len(targets) <= OPEN_TARGETS,
            pictures=target.number in pictured,
        )

    kept, missed = within(targets, show, DETAIL_BYTES)
    return join([*kept, left_out(missed, "target's detail")])

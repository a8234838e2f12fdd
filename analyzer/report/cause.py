"""Why requests of a class were bad, in sentences: what a reader wants to know first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from analyzer.report.figures import amount, share
from analyzer.report.report import Report, Row, records
from analyzer.report.words import STAGES, missed_text
from analyzer.verdict import Family


def cause_of(report: Report, row: Row) -> Iterator[str]:
    """Yields why requests of a row of `goodput` were bad, as far as it is known.

    Which criterion most of them missed, where their time went, and what bound the
    engine in the worst stretches when that is the same for more than half of them.
    """
    bad = row["bad"] or 0
    misses = [r for r in _same(report, "misses", row) if r["requests"]]
    if not bad or not misses:
        return
    most = max(misses, key=lambda r: float(r["requests"]))
    which = "all" if most["requests"] == bad else f"{amount(most['requests'])} of them"
    yield f"{amount(bad)} were bad, {which} for {missed_text(most)}."
    stages = [
        r
        for r in _same(report, "stages", row)
        if r["verdict"] == "bad" and r["share"] is not None
    ]
    if stages:
        longest = max(stages, key=lambda r: float(r["share"]))
        yield (
            f"Most of their time went here: {STAGES[longest['stage']]} "
            f"({share(longest['share'])})."
        )
    bound: Counter[str] = Counter()
    for stretch in _same(report, "worst", row):
        bound[stretch["constraint"] or ""] += int(stretch["bad"] or 0)
    for constraint, number in bound.most_common(1):
        known = constraint.partition("/")[0] not in {"", Family.NONE.value}
        if known and number > bound.total() / 2:
            yield f"In the worst stretches engines were bound by {constraint}."


def _same(report: Report, name: str, row: Row) -> list[Row]:
    """Returns the rows of a table that are of the class and model of *row*."""
    return [
        found
        for found in records(report[name])
        if (found["class"], found["model"]) == (row["class"], row["model"])
    ]

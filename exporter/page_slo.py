"""The status page's first part: how many requests were good, in words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from exporter import page_exact, svg
from exporter.page_exact import exact
from exporter.page_text import (
    Markup,
    about,
    absent,
    clock,
    count,
    join,
    name,
    percent,
    table,
    tag,
    threshold,
)

Row = dict[str, Any]
OPEN_CLASSES = 5
NO_LOG = "The exact share needs a request log, and none is read."
WHY_BOUNDS = (
    "The engine counts how many requests met each criterion, not which ones, so two "
    "misses may be one bad request or two."
)


class Outcome(StrEnum):
    """What a share or its bounds say of the objective, the worst first."""

    MISSED = "Missed"
    UNCLEAR = "Cannot tell"
    NONE = "No request finished"
    UNLOGGED = "No request logged"
    UNMEASURED = "Not measured yet"
    MET = "Met"


_GLYPHS = {
    Outcome.MET: ("✓", None),
    Outcome.MISSED: ("✕", "bad"),
    Outcome.UNCLEAR: ("?", "warn"),
    Outcome.NONE: ("–", "soft"),
    Outcome.UNLOGGED: ("–", "soft"),
    Outcome.UNMEASURED: ("–", "soft"),
}


@dataclass(frozen=True, slots=True)
class Judgement:
    """An SLO row, held against its objective.

    *unread* of *served* targets that serve the model give no page now; *read_at* is
    when the last page of any of them was read.
    """

    row: Row
    outcome: Outcome
    why: str
    served: int
    unread: int
    read_at: float | None

    @property
    def all_unread(self) -> bool:
        """Whether no target that serves the model gives a page."""
        return self.served > 0 and self.unread == self.served


def judgements_of(document: Row) -> list[Judgement]:
    """Returns every SLO row that has an objective, judged, the worst first."""
    found = [
        judge(row, document["targets"])
        for row in document["slo"]
        if row["objective"] is not None
    ]
    order = list(Outcome)
    return sorted(found, key=lambda judgement: order.index(judgement.outcome))


def judge(row: Row, targets: Sequence[Row]) -> Judgement:
    """Returns the outcome of an SLO row over the targets that serve its model.

    A row that a request log tells stands whatever the targets do.
    """
    outcome, why = _outcome(row)
    if exact(row):
        return Judgement(row, outcome, why, 0, 0, None)
    serving = [target for target in targets if _serves(target, row)]
    unread = sum(
        1 for target in serving if target["stale"] or target["state"] == "down"
    )
    stamps = [t["last_success"] for t in serving if t["last_success"] is not None]
    if serving and unread == len(serving) and row["bounds"] is not None:
        outcome = Outcome.UNCLEAR
        why = "no target that serves it has answered since"
    return Judgement(row, outcome, why, len(serving), unread, max(stamps, default=None))


def _serves(target: Row, row: Row) -> bool:
    return any(
        model["model"] == row["model"] and model["class"] == row["class"]
        for model in target["models"]
    )


def _outcome(row: Row) -> tuple[Outcome, str]:
    if row["bounds"] is None:
        if exact(row):
            return Outcome.UNLOGGED, ""
        if not row["seconds"]:
            return Outcome.UNMEASURED, "it takes two scrapes"
        return Outcome.NONE, ""
    lower, upper = row["bounds"]
    if lower >= row["objective"]:
        return Outcome.MET, ""
    if upper < row["objective"]:
        return Outcome.MISSED, ""
    if exact(row):
        return Outcome.UNCLEAR, "it depends on those that cannot be judged"
    return Outcome.UNCLEAR, "the bounds straddle the objective"


def section(document: Row, judgements: Sequence[Judgement]) -> Markup:
    """Returns the part of the page about SLO classes."""
    parts = [tag("h2", "Service levels", id="slo")]
    shown = [judgement for judgement in judgements if _told(judgement.row)]
    logged = any(source["source"] == "gateway" for source in document["sources"])
    opened = len(shown) <= OPEN_CLASSES
    parts += [_class(judgement, opened=opened, logged=logged) for judgement in shown]
    parts += _legend([j.row for j in shown if j.row["bounds"]], logged=logged)
    parts += page_exact.unseen([j.row for j in judgements if not _told(j.row)])
    rows = document["slo"]
    parts += [page_exact.classless(row) for row in rows if row["objective"] is None]
    parts += _unjudged(document["targets"], {r["model"] for r in rows if exact(r)})
    if len(parts) == 1:
        parts.append(tag("p", "No model has been seen yet.", class_="soft"))
    return tag("section", *parts, aria_labelledby="slo")


def _told(row: Row) -> bool:
    """Whether there is more to say than that no request was logged."""
    return bool(row["total"] or row["excluded"] or not exact(row))


def _legend(rows: Sequence[Row], *, logged: bool) -> list[Markup]:
    """Returns what the bars mean, and what bounds are when there are some."""
    if not rows:
        return []
    said = ["Bar: solid is certainly good, pale is possibly good, the upright line is "]
    said.append("the objective. ")
    bounded = sum(1 for row in rows if not exact(row))
    if bounded == len(rows):
        said.append(f"These are bounds, not goodput. {WHY_BOUNDS}")
    elif bounded or any(row["engine_bounds"] for row in rows):
        said.append(f"The engine's metrics give bounds, not goodput. {WHY_BOUNDS}")
    if bounded and not logged:
        said.append(f" {NO_LOG}")
    return [tag("p", *said, class_="soft small")]


def _class(judgement: Judgement, *, opened: bool, logged: bool) -> Markup:
    row = judgement.row
    parts = [tag("h3", headline(judgement))]
    if judgement.unread and not judgement.all_unread:
        parts.append(
            tag(
                "p",
                f"{judgement.unread} of the {judgement.served} targets that serve it "
                "give no page now; their part is from before.",
                class_="warn small",
            )
        )
    if row["bounds"] is not None:
        lower, upper = row["bounds"]
        parts.append(svg.bar(lower, upper, row["objective"]))
    if exact(row):
        parts += _exact_details(judgement, opened=opened)
    else:
        parts += _bounds_details(judgement, opened=opened, logged=logged)
    return tag("div", *parts, class_="slo")


def _exact_details(judgement: Judgement, *, opened: bool) -> list[Markup]:
    row = judgement.row
    if not row["total"]:
        return page_exact.left_out_part(row)
    parts = page_exact.judged_part(row)
    if judgement.outcome in (Outcome.MISSED, Outcome.UNCLEAR):
        parts += page_exact.most_missed(row)
    parts.append(_folded("Misses", page_exact.misses(row), opened=opened))
    parts += page_exact.left_out_part(row)
    parts += page_exact.engine_part(row)
    if row["criteria"]:
        parts.append(_folded("The engine's metrics", _criteria(row), opened=False))
    return parts


def _bounds_details(
    judgement: Judgement, *, opened: bool, logged: bool
) -> list[Markup]:
    row = judgement.row
    parts: list[Markup] = []
    if logged and row["total"]:
        said = "No request log has a request of it in this time: the engine's bounds."
        parts.append(tag("p", said, class_="warn small"))
    if judgement.outcome in (Outcome.MISSED, Outcome.UNCLEAR):
        parts += _hardest(row)
    if row["criteria"]:
        parts.append(_folded("Criteria", _criteria(row), opened=opened))
    return parts + (page_exact.left_out_part(row) if row["excluded"] else [])


def _folded(title: str, body: Markup, *, opened: bool) -> Markup:
    return tag("details", tag("summary", title), body, open="" if opened else None)


def headline(judgement: Judgement) -> Markup:
    """Returns the sentence that says how many requests were good, and the outcome."""
    row = judgement.row
    glyph, colour = _GLYPHS[judgement.outcome]
    verdict = tag(
        "strong",
        tag("span", glyph, aria_hidden="true"),
        f"\u00a0{judgement.outcome}",  # no line break after the glyph
        class_=colour,
    )
    why = f": {judgement.why}." if judgement.why else "."
    if row["bounds"] is None:
        period = [] if judgement.why else [" in ", _period(judgement)]
        aim = f" Objective {percent(row['objective'])}."
        return join([_title(row), ": ", verdict, *period, why, aim])
    return join(
        [
            _title(row),
            ": ",
            _share(row),
            f" of {count(row['total'], 1)} ",
            "request was" if row["total"] == 1 else "requests were",
            " good in ",
            _period(judgement),
            page_exact.since_unknown(row) if exact(row) else "",
            f"; objective {percent(row['objective'])}. ",
            verdict,
            why,
        ]
    )


def _title(row: Row) -> Markup:
    return tag("strong", name(row["class"]), " · ", name(row["model"]))


def _share(row: Row) -> str:
    lower, upper = row["bounds"]
    if lower == upper:
        return percent(lower, beside=[row["objective"]])
    low = percent(lower, beside=[row["objective"], upper])
    high = percent(upper, beside=[row["objective"], lower])
    return f"between {low} and {high}"


def _period(judgement: Judgement) -> Markup:
    if judgement.all_unread:
        length = about(judgement.row["seconds"])
        return join([f"the {length} until ", clock(judgement.read_at)])
    return join([page_exact.period(judgement.row)])


def _hardest(row: Row) -> list[Markup]:
    """Returns a sentence on the criterion that the fewest requests met."""
    met = {
        criterion: values["good_upper"] / values["events"]
        for criterion, values in row["criteria"].items()
        if values["events"] and not values["reason"]
    }
    if not met or min(met.values()) >= 1.0:
        return []
    criterion = min(met, key=lambda key: met[key])
    return [
        tag(
            "p",
            "Hardest criterion: ",
            tag("strong", name(criterion)),
            f", {percent(met[criterion])} within "
            f"{_threshold(row['criteria'][criterion])}.",
        )
    ]


def _criteria(row: Row) -> Markup:
    numeric = ("Threshold", "Events", "Certainly good", "Possibly good")
    body = [
        tag(
            "tr",
            tag("th", name(criterion), scope="row", role="rowheader"),
            *(
                tag("td", text, class_="n", role="cell")
                for text in (
                    _threshold(values),
                    count(values["events"], 1),
                    _ratio(values, "good_lower"),
                    _ratio(values, "good_upper"),
                )
            ),
            role="row",
        )
        for criterion, values in row["criteria"].items()
    ]
    found = table(
        ("Criterion", *numeric),
        body,
        numeric=numeric,
        caption="Share of events within the threshold",
        class_="narrow",
    )
    notes = [
        tag("p", name(criterion), f": {values['reason']}.", class_="soft small")
        for criterion, values in row["criteria"].items()
        if values["reason"]
    ]
    return join([found, *notes])


def _ratio(values: Row, key: str) -> str:
    if not values["events"]:
        return absent("no event in this window")
    return percent(values[key] / values["events"])


def _threshold(values: Row) -> str:
    return threshold(values["threshold_seconds"], values["per_prompt_token_seconds"])


def _unjudged(targets: Sequence[Row], logged: Collection[str]) -> list[Markup]:
    """Returns a line a model whose metrics no class judges, with the reason.

    Of the models in *logged* a request log tells.
    """
    found: dict[tuple[str, str], int] = {}
    for target in targets:
        for model in target["models"]:
            if model["class"] is None:
                key = model["model"], model["class_reason"]
                found[key] = found.get(key, 0) + 1
    lines = []
    for (model, reason), number in sorted(found.items()):
        by = " by the engine's metrics" if model in logged else ""
        many = f" ({number} targets)." if number > 1 else "."
        title = tag("strong", name(model))
        lines.append(tag("p", title, f": not judged{by}: {reason}", many))
    return lines

"""The status page's first part: how many requests were good, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from exporter import svg
from exporter.page_text import (
    NNBSP,
    Markup,
    about,
    absent,
    clock,
    count,
    join,
    name,
    percent,
    seconds,
    table,
    tag,
)

Row = dict[str, Any]
OPEN_CLASSES = 5
WHY_BOUNDS = (
    "These are bounds, not goodput. The engine counts how many requests met each "
    "criterion, not which ones, so two misses may be one bad request or two. The "
    "exact share needs a request log, and none is read."
)


class Outcome(StrEnum):
    """What the bounds say of the objective, the worst first."""

    MISSED = "Missed"
    UNCLEAR = "Cannot tell"
    NONE = "No request finished"
    UNMEASURED = "Not measured yet"
    MET = "Met"


_GLYPHS = {
    Outcome.MET: ("✓", None),
    Outcome.MISSED: ("✕", "bad"),
    Outcome.UNCLEAR: ("?", "warn"),
    Outcome.NONE: ("–", "soft"),
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
    """Returns every SLO row of a document, judged, the worst first."""
    found = [judge(row, document["targets"]) for row in document["slo"]]
    order = list(Outcome)
    return sorted(found, key=lambda judgement: order.index(judgement.outcome))


def judge(row: Row, targets: Sequence[Row]) -> Judgement:
    """Returns the outcome of an SLO row over the targets that serve its model."""
    serving = [target for target in targets if _serves(target, row)]
    unread = sum(
        1 for target in serving if target["stale"] or target["state"] == "down"
    )
    stamps = [t["last_success"] for t in serving if t["last_success"] is not None]
    outcome, why = _outcome(row)
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
        if not row["seconds"]:
            return Outcome.UNMEASURED, "it takes two scrapes"
        return Outcome.NONE, ""
    lower, upper = row["bounds"]
    if lower >= row["objective"]:
        return Outcome.MET, ""
    if upper < row["objective"]:
        return Outcome.MISSED, ""
    return Outcome.UNCLEAR, "the bounds straddle the objective"


def section(document: Row, judgements: Sequence[Judgement]) -> Markup:
    """Returns the part of the page about SLO classes."""
    parts = [tag("h2", "Service levels", id="slo")]
    opened = len(judgements) <= OPEN_CLASSES
    parts += [_class(judgement, opened=opened) for judgement in judgements]
    if any(judgement.row["bounds"] for judgement in judgements):
        parts.append(
            tag(
                "p",
                "Bar: solid is certainly good, pale is possibly good, the upright line "
                "is the objective. ",
                WHY_BOUNDS,
                class_="soft small",
            )
        )
    parts += _unjudged(document["targets"])
    if len(parts) == 1:
        parts.append(tag("p", "No model has been seen yet.", class_="soft"))
    return tag("section", *parts, aria_labelledby="slo")


def _class(judgement: Judgement, *, opened: bool) -> Markup:
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
    if judgement.outcome in (Outcome.MISSED, Outcome.UNCLEAR):
        parts += _hardest(row)
    if row["criteria"]:
        parts.append(
            tag(
                "details",
                tag("summary", "Criteria"),
                _criteria(row),
                open="" if opened else None,
            )
        )
    return tag("div", *parts, class_="slo")


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
            f" of {count(row['total'], 1)} requests were good in ",
            _period(judgement),
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
    length = about(judgement.row["seconds"])
    if judgement.all_unread:
        return join([f"the {length} until ", clock(judgement.read_at)])
    return join([f"the last {length}"])


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
    text = _limit(values["threshold_seconds"])
    if values["per_prompt_token_seconds"]:
        text += f" + {_limit(values['per_prompt_token_seconds'])} per prompt token"
    return text


def _limit(value: float) -> str:
    """Returns a configured duration with all its digits, unlike a measured one."""
    if 1.0 <= value < 60.0:
        return f"{value:.6g}{NNBSP}s"
    if 1e-3 <= value < 1.0:
        return f"{value * 1e3:.6g}{NNBSP}ms"
    return seconds(value)


def _unjudged(targets: Sequence[Row]) -> list[Markup]:
    """Returns a line a model that no class judges, with the reason."""
    found: dict[tuple[str, str], int] = {}
    for target in targets:
        for model in target["models"]:
            if model["class"] is None:
                key = model["model"], model["class_reason"]
                found[key] = found.get(key, 0) + 1
    return [
        tag(
            "p",
            tag("strong", name(model)),
            f": not judged: {reason}",
            f" ({number} targets)." if number > 1 else ".",
        )
        for (model, reason), number in sorted(found.items())
    ]

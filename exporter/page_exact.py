"""The status page's words for what a request log tells: exact shares and misses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from exporter.page_text import (
    Markup,
    about,
    count,
    join,
    name,
    percent,
    plural,
    series,
    table,
    tag,
    threshold,
)

Row = dict[str, Any]
FEW = 0.9  # of the engine's requests, below which a log has too few of them
ENOUGH = 20  # requests, below which a share of them says little

EXCLUSIONS = {
    "client_abort": "left by the client before a threshold had passed",
    "caller_error": "with the caller's own error",
    "not_generation": "for something other than generation",
    "policy": "refused by a policy",
}
MISSES = {
    "error": "failed",
    "abort": "client left after a threshold had passed",
}


def exact(row: Row) -> bool:
    """Whether a request log tells of an SLO row, and not the engine."""
    return bool(row["source"] == "gateway")


def period(row: Row) -> str:
    """Returns the time that a row covers, to stand behind "in"."""
    if row["seconds"] is None:
        return "the whole log"
    return f"the last {about(row['seconds'])}"


def since_unknown(row: Row) -> str:
    """Returns why an exact share is an interval, "" when it is none."""
    if not row["unevaluable"]:
        return ""
    share = percent(row["unevaluable"] / row["total"])
    return f", since {share} cannot be judged ({_unknown(row)})"


def _unknown(row: Row) -> str:
    """Returns what is not known of the requests that cannot be judged."""
    names = {part for reason in row["unevaluable_for"] for part in reason.split(", ")}
    criteria = [criterion for criterion in row["thresholds"] if criterion in names]
    said = []
    if criteria:
        unstreamed = row["unevaluable_unstreamed"]
        if unstreamed == row["unevaluable"]:
            whose = " of answers that are not streamed"
        elif 2 * unstreamed > row["unevaluable"]:
            whose = ", mostly of answers that are not streamed"
        else:
            whose = " in the log"
        said.append(f"no {series(criteria, 'or')}{whose}")
    if "outcome" in names:
        said.append("not known whether the answer was complete")
    return "; ".join(said)


def judged_part(row: Row) -> list[Markup]:
    """Returns the share among the requests that can be judged, when not all can."""
    judged = row["good"] + row["bad"]
    if not row["unevaluable"] or not judged:
        return []
    share = percent(row["attainment"], beside=[row["objective"]])
    said = f"Of the {plural(judged, 'request')} that can be judged, {share} were good."
    return [tag("p", said, class_="soft small")]


def engine_part(row: Row) -> list[Markup]:
    """Returns the engine's bounds beside the exact share, and if its counts differ."""
    if row["engine_bounds"] is None:
        return []
    lower, upper = row["engine_bounds"]
    total, covered = row["engine_total"], row["engine_seconds"]
    share = percent(lower)
    if lower != upper:
        low, high = percent(lower, beside=[upper]), percent(upper, beside=[lower])
        share = f"between {low} and {high}"
    said = (
        f"By the engine's metrics alone: {share} of the {plural(total, 'request')} "
        f"that finished in the last {about(covered)}."
    )
    parts = [tag("p", said, class_="soft small")]
    alike = row["seconds"] is not None and covered <= 1.1 * row["seconds"]
    if alike and total >= ENOUGH and row["total"] < FEW * total:
        few = (
            f"The engine finished {plural(total, 'request')} in that time, and the "
            f"logs have {count(row['total'], 1)} of this model and class: the others "
            "pass them by, or are not read yet."
        )
        parts.append(tag("p", few, class_="warn small"))
    return parts


def most_missed(row: Row) -> list[Markup]:
    """Returns a sentence on what most of the requests missed, if any did."""
    missed = row["missed"]
    worst = max(missed, key=lambda criterion: missed[criterion])
    if not missed[worst]:
        return []
    share = percent(missed[worst] / row["total"])
    how = MISSES.get(worst) or f"over {_threshold(row, worst)}"
    said = [f": {how}, {share} of the requests."]
    return [tag("p", "Most missed: ", tag("strong", name(worst)), *said)]


def misses(row: Row) -> Markup:
    """Returns the requests that missed each criterion, failed or were left late."""
    numeric = ("Threshold", "Requests", "Share")
    body = [
        tag(
            "tr",
            tag("th", _named(criterion), scope="row", role="rowheader"),
            tag("td", _threshold(row, criterion), class_="n", role="cell"),
            tag("td", count(number, 1), class_="n", role="cell"),
            tag("td", percent(number / row["total"]), class_="n", role="cell"),
            role="row",
        )
        for criterion, number in row["missed"].items()
    ]
    caption = (
        f"Missed by criterion, of {plural(row['total'], 'request')}; "
        "one may miss several"
    )
    heads = ("Missed", *numeric)
    return table(heads, body, numeric=numeric, caption=caption, class_="narrow")


def _named(criterion: str) -> Markup:
    gloss = MISSES.get(criterion)
    if gloss is None:
        return name(criterion)
    return join([name(criterion), tag("span", f": {gloss}", class_="soft")])


def _threshold(row: Row, criterion: str) -> str:
    limit = row["thresholds"].get(criterion)
    if limit is None:
        return ""
    return threshold(limit["seconds"], limit["per_prompt_token_seconds"])


def left_out_part(row: Row) -> list[Markup]:
    """Returns how many requests do not count, and why; nothing when all do."""
    if not row["excluded"]:
        return []
    said = (
        f"Not counted: {plural(row['excluded'], 'request')} that "
        f"{'says' if row['excluded'] == 1 else 'say'} nothing about the serving "
        f"({reasons(row['excluded_for'], EXCLUSIONS)})."
    )
    return [tag("p", said, class_="soft small")]


def reasons(counts: Mapping[str, float], glosses: Mapping[str, str]) -> str:
    """Returns counts with their reasons in words: 4 with the caller's own error."""
    return ", ".join(
        f"{count(number)} {glosses.get(reason, reason)}"
        for reason, number in counts.items()
    )


def unseen(rows: Sequence[Row]) -> list[Markup]:
    """Returns one line for the classes and models of which no request was logged."""
    groups: dict[str, list[Markup]] = {}
    for row in rows:
        title = join([name(row["class"]), " · ", name(row["model"])])
        groups.setdefault(period(row), []).append(title)
    return [
        tag("p", f"No request logged in {when}: ", join(titles, ", "), ".")
        for when, titles in groups.items()
    ]


def classless(row: Row) -> Markup:
    """Returns a line on a model's requests that no class takes: without objective."""
    title = tag("strong", "no class · ", name(row["model"]))
    said = f": no request that counts in {period(row)}"
    if row["total"]:
        failed = count(row["missed"]["error"], 1)
        said = f": {plural(row['total'], 'request')} in {period(row)}, {failed} failed"
    if row["unevaluable"]:
        said += f", {count(row['unevaluable'], 1)} perhaps incomplete"
    if row["excluded"]:
        said += (
            f"; {count(row['excluded'])} not counted "
            f"({reasons(row['excluded_for'], EXCLUSIONS)})"
        )
    why = " No class takes them, so there is no objective." if row["total"] else ""
    return tag("p", title, f"{said}.{why}")

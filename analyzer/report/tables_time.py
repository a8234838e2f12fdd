"""Tables over time: the timeline, its worst stretches, and what the budget lasts."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analyzer.report.constraints import Constraint, constraint_during
from analyzer.report.report import ratio, table
from analyzer.report.series import LADDER
from analyzer.report.summary import Summary
from analyzer.slo import SloClass

HOUR = 3600
MOST_BINS = 60  # of a period under some hours, whose bins are narrower
WORST = 10


def bin_seconds(seconds: float) -> int:
    """Returns the width of a timeline's bins: an hour, less for a short period."""
    if seconds > MOST_BINS * 300:
        return HOUR
    return next(step for step in LADDER if seconds / step <= MOST_BINS)


def timeline_of(summary: Summary, width: int) -> tuple[pd.DataFrame, int]:
    """Returns the requests by bin, and how wide those are."""
    width = max([width, *(s.at_least(0).seconds for s in summary.timeline.values())])
    rows = []
    for (name, model), series in sorted(summary.timeline.items()):
        bins, values = series.at_least(width).rows
        for number, row in zip(bins.tolist(), values.tolist(), strict=True):
            total, good, bad, unevaluable, tokens = row
            rows.append(
                {
                    "start": number * width,
                    "class": name,
                    "model": model,
                    "total": total,
                    "good": good,
                    "bad": bad,
                    "unevaluable": unevaluable,
                    "attainment": ratio(good, good + bad),
                    "output_tokens": tokens,
                }
            )
    rows.sort(key=lambda row: (row["start"], row["class"], row["model"]))
    return table("timeline", rows), width


def worst(
    timeline: pd.DataFrame,
    width: int,
    classes: dict[str, SloClass],
    constraints: Sequence[Constraint],
) -> pd.DataFrame:
    """Returns the bins in which most requests were bad, with what bound then."""
    rows = []
    for row in timeline.to_dict("records"):
        judged = row["good"] + row["bad"]
        if not row["bad"] or not judged:
            continue
        slo_class = classes.get(row["class"])
        burn = None
        if slo_class is not None and slo_class.objective < 1:
            burn = row["bad"] / judged / (1 - slo_class.objective)
        end = row["start"] + width
        rows.append(
            {
                **{k: row[k] for k in ("class", "model", "total", "good", "bad")},
                "start": row["start"],
                "end": end,
                "attainment": row["attainment"],
                "burn_rate": burn,
                "constraint": constraint_during(constraints, row["start"], end),
            }
        )
    rows.sort(key=lambda row: (-row["bad"], row["start"], row["class"], row["model"]))
    return table("worst", rows[:WORST])


def budget(
    goodput: pd.DataFrame, classes: dict[str, SloClass], seconds: float
) -> pd.DataFrame:
    """Returns how much of each class' error budget is spent.

    `spent` is bad requests over those that the objective allows in the period;
    `window_spent` is the share of the budget of the compliance window, if its traffic
    is like the period's, and `exhausted_seconds` how long that budget lasts so.
    """
    rows = []
    for row in goodput.to_dict("records"):
        slo_class = classes.get(row["class"])
        if slo_class is None or row["bad"] is None:
            continue
        judged = row["good"] + row["bad"]
        allowed = judged * (1 - slo_class.objective)
        burn = ratio(row["bad"], allowed)
        window = slo_class.window_seconds
        rows.append(
            {
                "class": row["class"],
                "model": row["model"],
                "objective": slo_class.objective,
                "window_seconds": window,
                "allowed": allowed,
                "bad": row["bad"],
                "spent": burn,
                "burn_rate": burn,
                "window_spent": None if burn is None else burn * seconds / window,
                "exhausted_seconds": window / burn if burn else None,
            }
        )
    return table("budget", rows)

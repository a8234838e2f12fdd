"""Whether answers stayed as good as they were: scores of an evaluation, A and B.

Reads lm-evaluation-harness results (`results`, with standard errors) and plain JSON of
a number a metric.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from analyzer.compare.sample import CompareError
from analyzer.compare.verdicts import Verdict

SIGNIFICANT = 1.96  # standard errors
TOLERATED = 0.01  # relative, where no error is told


@dataclass(frozen=True, slots=True)
class Score:
    """A metric's value; `error` is its standard error, None when not told."""

    value: float
    error: float | None
    higher_is_better: bool = True


@dataclass(frozen=True, slots=True)
class Change:
    """How one score changed."""

    name: str
    a: Score
    b: Score
    verdict: Verdict


def read_scores(data: bytes, file: str) -> dict[str, Score]:
    """Returns the scores of an evaluation. Raises CompareError."""
    try:
        document = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CompareError(f"{file}: not JSON: {error}") from None
    results = document.get("results")
    if isinstance(results, dict):
        found = dict(_harness(results, document.get("higher_is_better")))
    else:
        found = {
            name: Score(float(value), None)
            for name, value in document.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
    if not found:
        raise CompareError(f"{file}: has no scores")
    return found


def _harness(
    results: Mapping[str, Any], directions: object
) -> Iterator[tuple[str, Score]]:
    for task, metrics in results.items():
        if not isinstance(metrics, dict):
            continue
        for name, value in metrics.items():
            metric, comma, variant = name.partition(",")
            if not comma or metric.endswith("_stderr"):
                continue
            if not isinstance(value, int | float):
                continue
            error = metrics.get(f"{metric}_stderr,{variant}")
            by_task = directions.get(task) if isinstance(directions, dict) else None
            higher = by_task.get(metric, True) if isinstance(by_task, dict) else True
            known = float(error) if isinstance(error, int | float) else None
            yield f"{task} {name}", Score(float(value), known, bool(higher))


def changes(a: Mapping[str, Score], b: Mapping[str, Score]) -> list[Change]:
    """Returns the change of each score that both have. Raises CompareError."""
    shared = [name for name in a if name in b]
    if not shared:
        raise CompareError("the evaluations have no score in common")
    return [
        Change(name, a[name], b[name], _verdict(a[name], b[name])) for name in shared
    ]


def _verdict(a: Score, b: Score) -> Verdict:
    gain = b.value - a.value if a.higher_is_better else a.value - b.value
    if a.error is not None and b.error is not None:
        limit = SIGNIFICANT * math.hypot(a.error, b.error)
    else:
        limit = TOLERATED * abs(a.value)
    if gain > limit:
        return Verdict.BETTER
    return Verdict.WORSE if gain < -limit else Verdict.SAME

"""A report: tables of results, whatever they were made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

Row = dict[str, Any]

# The tables of a report with their columns. Times are Unix seconds, durations seconds.
TABLES: Mapping[str, tuple[str, ...]] = {
    "goodput": (
        "class",
        "model",
        "total",
        "good",
        "bad",
        "unevaluable",
        "excluded",
        "attainment",
        "lower",
        "upper",
        "objective",
        "missed_objective",
        "requests_per_second",
        "good_requests_per_second",
        "prompt_tokens",
        "cached_tokens",
        "output_tokens",
        "good_output_tokens",
        "source",
    ),
    "misses": ("class", "model", "criterion", "threshold", "requests", "share"),
    "reasons": ("class", "model", "kind", "reason", "requests"),
    "budget": (
        "class",
        "model",
        "objective",
        "window_seconds",
        "allowed",
        "bad",
        "spent",
        "burn_rate",
        "window_spent",
        "exhausted_seconds",
    ),
    "tenants": (
        "tenant",
        "total",
        "good",
        "bad",
        "unevaluable",
        "excluded",
        "attainment",
        "prompt_tokens",
        "output_tokens",
        "good_output_tokens",
    ),
    "percentiles": (
        "class",
        "model",
        "measure",
        "count",
        "mean",
        "p50",
        "p90",
        "p95",
        "p99",
        "max",
    ),
    "targets": (
        "class",
        "model",
        "criterion",
        "level",
        "threshold",
        "value",
        "within",
        "met",
    ),
    "stages": (
        "class",
        "model",
        "verdict",
        "stage",
        "requests",
        "mean",
        "p50",
        "p95",
        "share",
        "longest",
        "budget",
        "over_budget",
    ),
    "timeline": (
        "start",
        "class",
        "model",
        "total",
        "good",
        "bad",
        "unevaluable",
        "attainment",
        "output_tokens",
    ),
    "worst": (
        "start",
        "end",
        "class",
        "model",
        "total",
        "good",
        "bad",
        "attainment",
        "burn_rate",
        "constraint",
    ),
    "constraints": ("start", "end", "target", "model", "rank", "family", "cause"),
    "constraint_shares": ("family", "cause", "seconds", "share"),
    "by_prompt": ("model", "from_tokens", "to_tokens", "count", "mean", "p50", "p95"),
    "operating_points": (
        "start",
        "class",
        "curve",
        "axis",
        "load",
        "requests",
        "attainment",
        "expected",
        "lower",
        "upper",
    ),
    "reconciliation": (
        "class",
        "curve",
        "axis",
        "verdict",
        "stretches",
        "requests",
        "attainment",
        "expected",
        "lower",
        "upper",
        "notes",
        "points",
    ),
    "sources": (
        "source",
        "format",
        "lines",
        "records",
        "unreadable",
        "first_problem",
        "error",
    ),
}


@dataclass(frozen=True, slots=True)
class Report:
    """The tables of TABLES, with the period, the workload's shape and what is missing.

    `bin_seconds` is the width of the timeline's rows, `relative_error` that of
    percentiles, None where `percentiles_note` says more. `missing` says of tables
    and figures why there is none.
    """

    start: float | None
    end: float | None
    tables: Mapping[str, pd.DataFrame]
    workload: Row = field(default_factory=dict)
    bin_seconds: int | None = None
    relative_error: float | None = None
    percentiles_note: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)
    thresholds: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> pd.DataFrame:
        return self.tables[name]

    @property
    def seconds(self) -> float | None:
        """The length of the period."""
        if self.start is None or self.end is None:
            return None
        return self.end - self.start

    @property
    def missed(self) -> bool:
        """Whether a class surely missed its objective."""
        return bool((self["goodput"]["missed_objective"] == True).any())  # noqa: E712

    def document(self) -> Row:
        """Returns the report for programs; what has no value is None."""
        return {
            "period": {"start": self.start, "end": self.end, "seconds": self.seconds},
            **{name: records(self[name]) for name in TABLES},
            "workload": self.workload,
            "bin_seconds": self.bin_seconds,
            "relative_error": self.relative_error,
            "percentiles_note": self.percentiles_note,
            "missing": dict(self.missing),
            "thresholds": {k: dict(v) for k, v in self.thresholds.items()},
        }


def table(name: str, rows: list[Row]) -> pd.DataFrame:
    """Returns a table with its columns, however many rows there are."""
    return pd.DataFrame(rows, columns=list(TABLES[name]), dtype=object)


def empty_tables() -> dict[str, pd.DataFrame]:
    """Returns all tables without rows."""
    return {name: table(name, []) for name in TABLES}


def records(frame: pd.DataFrame) -> list[Row]:
    """Returns a table's rows; what has no value is None."""
    return [
        {str(name): _plain(value) for name, value in row.items()}
        for row in frame.to_dict("records")
    ]


def _plain(value: Any) -> Any:  # noqa: ANN401  whatever a table holds
    """Returns a value of Python's own types, whole floats as integers."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return None
        return int(value) if value == int(value) and abs(value) < 1e15 else value
    return value


def ratio(part: float, whole: float) -> float | None:
    """Returns a share, None of nothing."""
    return part / whole if whole else None

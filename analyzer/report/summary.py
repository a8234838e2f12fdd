"""What is kept of a log while it is read: sums that add up, whatever the parts.

The size of a summary does not grow with the log. Summaries of parts of a log, merged
in any grouping, have the counts of the whole; so a cluster tells what one machine
tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.counting import NO_MODEL
from analyzer.gateways.values import LONGEST_LABEL
from analyzer.report.columns import Bools, Columns, Floats, Ints, distinct
from analyzer.report.folding import folded, kept_names, merged
from analyzer.report.series import Series
from analyzer.report.sketch import Sketch
from analyzer.report.verdicts import (
    BAD,
    EXCLUDED,
    EXCLUSIONS,
    GOOD,
    MISSES,
    UNEVALUABLE,
    VERDICTS,
    Judge,
    Verdicts,
    unknown_names,
)
from analyzer.slo import NO_CLASS, SloClass, percentile

COUNTERS = (
    "requests",
    "good",
    "bad",
    "unevaluable",
    "excluded",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "good_output_tokens",
    "unstreamed",
    *(f"missed_{name}" for name in MISSES),
)
MEASURES = ("ttft", "tpot", "max_gap", "e2e")
LENGTHS = ("prompt_tokens", "output_tokens")
# Of a bad request: before it reached the server; there until its first token; its
# output; after the server's last byte. Without a first token serving is one stage.
STAGES = ("gateway", "first_token", "output", "serving", "delivery")
TIMELINE = ("requests", "good", "bad", "unevaluable", "output_tokens")
TIMELINE_BINS = 9000
ARRIVAL_BINS = 1 << 16
MOST_TENANTS = 1000
MOST_MODELS = 50
LONGEST_PROMPT_STEP = 24  # prompts by powers of two, up to 2²⁴ tokens

# Which of MISSES each of their combinations holds.
_BITS = np.arange(1 << len(MISSES))[:, None] >> np.arange(len(MISSES)) & 1

Row = tuple[str, str]  # class and model
Tenant = tuple[str, str, str]  # class, model and tenant


def _timeline() -> Series:
    return Series(len(TIMELINE), TIMELINE_BINS)


def _arrivals() -> Series:
    return Series(3, ARRIVAL_BINS, presence=True)


@dataclass(slots=True)
class Summary:
    """Sums over requests: counters by tenant, and by class and model the rest.

    `first` and `last` are the Unix times of the first start and the last end.
    """

    counters: dict[Tenant, NDArray[np.float64]] = field(default_factory=dict)
    reasons: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    sketches: dict[tuple[str, str, str], Sketch] = field(default_factory=dict)
    stages: dict[tuple[str, str, str, str], Sketch] = field(default_factory=dict)
    longest: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    over_budget: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    within: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    by_prompt: dict[tuple[str, int], Sketch] = field(default_factory=dict)
    timeline: dict[Row, Series] = field(default_factory=dict)
    arrivals: Series = field(default_factory=_arrivals)
    undated: int = 0
    first: float = float("inf")
    last: float = float("-inf")

    def add(self, columns: Columns, verdicts: Verdicts, judge: Judge) -> None:
        """Adds judged requests."""
        if not len(columns):
            return
        names = [*(c.name for c in judge.classes), NO_CLASS]
        models = [judge.served(kind.model) or NO_MODEL for kind in columns.kinds]
        tenants = [kind.tenant[:LONGEST_LABEL] for kind in columns.kinds]
        rows: dict[Tenant, int] = {}
        by_kind = np.empty((len(columns.kinds), len(names)), dtype=np.int64)
        for i, (model, tenant) in enumerate(zip(models, tenants, strict=True)):
            for j, name in enumerate(names):
                by_kind[i, j] = rows.setdefault((name, model, tenant), len(rows))
        place = by_kind[columns.kind, verdicts.slo_class]
        self._count(columns, verdicts, place, list(rows))
        pairs: dict[Row, int] = {}
        to_pair = np.array([pairs.setdefault(r[:2], len(pairs)) for r in rows])
        pair = to_pair[place]
        for number in distinct(pair):
            row = list(pairs)[number]
            chosen = np.flatnonzero(pair == number)
            by_name = {c.name: c for c in judge.classes}
            self._add_row(columns, verdicts, chosen, row, by_name.get(row[0]))
        self._limit_names()

    def _count(
        self, columns: Columns, verdicts: Verdicts, place: Ints, rows: list[Tenant]
    ) -> None:
        code, size = verdicts.code, len(rows)
        by_code = _counted(place, code, len(VERDICTS), size)
        counted = code != EXCLUDED
        output = or_zero(columns.output) * counted
        vague = columns.unstreamed & (code == UNEVALUABLE)
        sums = np.column_stack(
            [
                by_code.sum(1) - by_code[:, EXCLUDED],
                by_code[:, [GOOD, BAD, UNEVALUABLE, EXCLUDED]],
                *(
                    np.bincount(place, weights=weights, minlength=size)
                    for weights in (
                        or_zero(columns.prompt) * counted,
                        or_zero(columns.cached) * counted,
                        output,
                        output * (code == GOOD),
                    )
                ),
                np.bincount(place[vague], minlength=size),
                _counted(place, verdicts.missed, len(_BITS), size) @ _BITS,
            ]
        )
        for i in distinct(place):
            known = self.counters.get(rows[i])
            self.counters[rows[i]] = sums[i] if known is None else known + sums[i]

    def _add_row(
        self,
        columns: Columns,
        verdicts: Verdicts,
        chosen: Ints,
        row: Row,
        slo_class: SloClass | None,
    ) -> None:
        """Adds the requests *chosen*, all of one class and model."""
        code = verdicts.code[chosen]
        self._reasons(verdicts, chosen, row)
        counted = chosen[code != EXCLUDED]
        if not len(counted):
            return
        for name in MEASURES:
            values = getattr(columns, name)[counted]
            self._sketch(row, name).add(values)
            self._within(row, name, values, slo_class)
        self._sketch(row, "prompt_tokens").add(columns.prompt[counted])
        self._sketch(row, "output_tokens").add(columns.output[counted])
        self._by_prompt(columns, counted, row[1])
        for verdict, mark in (("bad", BAD), ("good", GOOD)):
            rows = chosen[code == mark]
            budgets = slo_class.stages if slo_class and mark == BAD else {}
            self._stages(columns, rows, (*row, verdict), budgets)
        self._times(columns, verdicts, counted, row)

    def _reasons(self, verdicts: Verdicts, chosen: Ints, row: Row) -> None:
        code = verdicts.code[chosen]
        gone = verdicts.excluded[chosen[code == EXCLUDED]]
        for i, number in enumerate(np.bincount(gone, minlength=len(EXCLUSIONS))):
            if number:
                self.reasons[(*row, "excluded", EXCLUSIONS[i])] += int(number)
        unknown = verdicts.unknown[chosen[code == UNEVALUABLE]]
        for bits, number in enumerate(np.bincount(unknown)):
            if number:
                name = unknown_names(bits)
                self.reasons[(*row, "unevaluable", name)] += int(number)

    def _sketch(self, row: Row, name: str) -> Sketch:
        key = (*row, name)
        found = self.sketches.get(key)
        if found is None:
            found = self.sketches[key] = Sketch()
        return found

    def _within(
        self, row: Row, name: str, values: Floats, slo_class: SloClass | None
    ) -> None:
        """Counts who meets the thresholds of percentiles: exactly, as they decide."""
        for (criterion, level), limit in (
            slo_class.percentiles.items() if slo_class else ()
        ):
            if criterion == name:
                self.within[(*row, name, level)] += int((values <= limit).sum())

    def _by_prompt(self, columns: Columns, rows: Ints, model: str) -> None:
        prompt, ttft = columns.prompt[rows], columns.ttft[rows]
        known = (prompt >= 1) & ~np.isnan(ttft)
        steps = np.floor(np.log2(prompt[known])).astype(np.int64)
        steps = np.minimum(steps, LONGEST_PROMPT_STEP)
        for step in distinct(steps):
            found = self.by_prompt.setdefault((model, step), Sketch())
            found.add(ttft[known][steps == step])

    def _stages(
        self,
        columns: Columns,
        rows: Ints,
        key: tuple[str, str, str],
        budgets: Mapping[str, float],
    ) -> None:
        """Adds where the time of *rows* went; *key* is class, model and verdict."""
        if not len(rows):
            return
        parts = stage_seconds(columns, rows)
        for stage, seconds in parts.items():
            if not np.isnan(seconds).all():
                self.stages.setdefault((*key, stage), Sketch()).add(seconds)
        for stage, budget in budgets.items():
            if stage != "margin":  # arithmetic only, and nothing to measure
                spent = getattr(columns, stage)[rows]
                self.over_budget[(*key[:2], stage)] += int((spent > budget).sum())
        table = np.stack([np.nan_to_num(parts[s], nan=-1.0) for s in STAGES])
        most = np.argmax(table, axis=0)
        most = most[table.max(axis=0) >= 0]
        if key[2] == "bad":
            for i, number in enumerate(np.bincount(most, minlength=len(STAGES))):
                if number:
                    self.longest[(*key[:2], STAGES[i])] += int(number)

    def _times(
        self, columns: Columns, verdicts: Verdicts, rows: Ints, row: Row
    ) -> None:
        """Adds when *rows* came and how long they stayed."""
        start = columns.start[rows]
        dated = ~np.isnan(start)
        self.undated += int((~dated).sum())
        rows, start = rows[dated], start[dated]
        if not len(rows):
            return
        stay = or_zero(columns.e2e[rows])
        end = start + stay
        self.first = min(self.first, float(start.min()))
        self.last = max(self.last, float(end.max()))
        code = verdicts.code[rows]
        figures = np.stack(
            [
                np.ones(len(rows)),
                code == GOOD,
                code == BAD,
                code == UNEVALUABLE,
                or_zero(columns.output[rows]),
            ],
            1,
        )
        found = self.timeline.get(row)
        if found is None:
            found = self.timeline[row] = _timeline()
        found.add(found.bins_of(start), figures.astype(np.float64))
        self._presence(start, end)

    def _presence(self, start: Floats, end: Floats) -> None:
        series = self.arrivals
        came, left = series.bins_of(start), series.bins_of(end)
        width = series.seconds
        rows = np.zeros((2 * len(start), 3))
        rows[: len(start), 0] = 1.0
        rows[: len(start), 1] = (came + 1) * width - start
        rows[: len(start), 2] = 1.0
        rows[len(start) :, 0] = -1.0
        rows[len(start) :, 1] = end - (left + 1) * width
        series.add(np.concatenate([came, left]), rows)

    def merge(self, other: Summary) -> None:
        """Adds what another summary counted."""
        for tenant, sums in other.counters.items():
            known = self.counters.get(tenant)
            self.counters[tenant] = sums if known is None else known + sums
        for name in ("reasons", "longest", "over_budget", "within"):
            getattr(self, name).update(getattr(other, name))
        for name in ("sketches", "stages", "by_prompt"):
            mine = getattr(self, name)
            for key, sketch in getattr(other, name).items():
                if key in mine:
                    mine[key].merge(sketch)
                else:
                    mine[key] = sketch
        for row, series in other.timeline.items():
            if row in self.timeline:
                self.timeline[row].merge(series)
            else:
                self.timeline[row] = series
        self.arrivals.merge(other.arrivals)
        self.undated += other.undated
        self.first = min(self.first, other.first)
        self.last = max(self.last, other.last)
        self._limit_names()

    def _limit_names(self) -> None:
        """Folds tenants and models beyond their limits into `other`."""
        tenants = {key[2] for key in self.counters}
        if len(tenants) > MOST_TENANTS:
            kept = kept_names(tenants, MOST_TENANTS)
            self.counters = folded(self.counters, 2, kept, np.add)
        models = {key[1] for key in self.counters}
        if len(models) > MOST_MODELS:
            self._fold_models(kept_names(models, MOST_MODELS))

    def _fold_models(self, kept: frozenset[str]) -> None:
        self.counters = folded(self.counters, 1, kept, np.add)
        for name in ("reasons", "longest", "over_budget", "within"):
            whole = folded(getattr(self, name), 1, kept, int.__add__)
            setattr(self, name, Counter(whole))
        self.sketches = folded(self.sketches, 1, kept, merged)
        self.stages = folded(self.stages, 1, kept, merged)
        self.by_prompt = folded(self.by_prompt, 0, kept, merged)
        self.timeline = folded(self.timeline, 1, kept, merged)


def _counted(
    place: Ints, codes: NDArray[np.integer[Any]], count: int, size: int
) -> Ints:
    """Returns how often each of *count* codes came at each of *size* places."""
    joint = place * count + codes
    found: Ints = np.bincount(joint, minlength=count * size).reshape(size, count)
    return found


def or_zero(values: Floats) -> Floats:
    """Returns *values* with 0 for NaN."""
    found: Floats = np.where(np.isnan(values), 0.0, values)
    return found


def stage_seconds(columns: Columns, rows: Ints) -> dict[str, Floats]:
    """Returns the seconds of each stage; NaN where the log cannot tell it."""
    gateway, serving = columns.gateway[rows], columns.serving[rows]
    ttft, delivery = columns.ttft[rows], columns.delivery[rows]
    before = or_zero(gateway)
    end = columns.e2e[rows] - or_zero(delivery)
    first = np.where(ttft >= before, ttft - before, np.nan)
    output = np.where(end >= ttft, end - ttft, np.nan)
    split: Bools = ~np.isnan(first) & ~np.isnan(output)
    return {
        "gateway": gateway,
        "first_token": np.where(split, first, np.nan),
        "output": np.where(split, output, np.nan),
        "serving": np.where(split, np.nan, serving),
        "delivery": delivery,
    }


def level_of(level: str) -> float:
    """Returns the share that a percentile of the configuration asks for."""
    return percentile(level) or 0.0

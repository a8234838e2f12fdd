"""Verdicts on columns of requests: the rules of judgement.py, many rows at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.gateways.record import Outcome
from analyzer.judgement import (
    DOES_NOT_APPLY,
    UNKNOWN,
    Verdict,
    exclusion,
    has_failed,
    is_good,
    takes_kind,
)
from analyzer.report.columns import Bools, Columns, Floats, Ints, Kind, distinct
from analyzer.slo import CRITERIA, SloClass, Threshold

VERDICTS = (Verdict.GOOD, Verdict.BAD, Verdict.UNEVALUABLE, Verdict.EXCLUDED)
GOOD, BAD, UNEVALUABLE, EXCLUDED = range(4)
EXCLUSIONS = ("client_abort", "caller_error", "not_generation", "policy")
MISSES = (*CRITERIA, "error", "abort")


@dataclass(frozen=True, slots=True)
class Verdicts:
    """A verdict a row: `code` points into VERDICTS, `slo_class` into the classes.

    The class after the last is none. `missed` has a bit for each of MISSES;
    `unknown` one for each of CRITERIA that could not be known; `excluded` points
    into EXCLUSIONS where the verdict says so.
    """

    code: NDArray[np.int8]
    slo_class: Ints
    missed: NDArray[np.uint8]
    unknown: NDArray[np.uint8]
    excluded: NDArray[np.int8]

    def reason(self, row: int) -> str:
        """Returns the reason of one row's verdict, in the words of `judge`."""
        code = int(self.code[row])
        if code == EXCLUDED:
            return EXCLUSIONS[int(self.excluded[row])]
        if code == UNEVALUABLE:
            return unknown_names(int(self.unknown[row]))
        return ", ".join(_names(int(self.missed[row]), MISSES))


def unknown_names(bits: int) -> str:
    """Returns what could not be known, as a reason."""
    return ", ".join(_names(bits, CRITERIA)) or "outcome"


def _names(bits: int, names: tuple[str, ...]) -> list[str]:
    return [name for i, name in enumerate(names) if bits >> i & 1]


class Judge:
    """Judges columns under classes; what kinds decide is looked up once a kind."""

    def __init__(
        self,
        classes: tuple[SloClass, ...],
        *,
        aliases: Mapping[str, str],
        policy_statuses: frozenset[int] = frozenset(),
    ) -> None:
        self.classes = classes
        self._aliases = aliases
        self._policy = policy_statuses
        self._candidates: dict[tuple[Any, ...], tuple[int, ...]] = {}

    def served(self, model: str) -> str:
        """Returns the served model that a name means."""
        return self._aliases.get(model, model)

    def judge(self, columns: Columns) -> Verdicts:
        """Returns the verdict on every row."""
        kinds = columns.kinds
        reasons = [exclusion(kind.record(), self._policy) for kind in kinds]
        excluded = _by_kind(
            columns, [EXCLUSIONS.index(r) if r else -1 for r in reasons], np.int8
        )
        failed = _by_kind(columns, [has_failed(k.record()) for k in kinds], np.bool_)
        left = _by_kind(
            columns, [k.outcome is Outcome.CLIENT_ABORT for k in kinds], np.bool_
        )
        vague = _by_kind(
            columns, [k.outcome is Outcome.UNKNOWN for k in kinds], np.bool_
        )
        slo_class = self._classes(columns)
        found = Verdicts(
            np.zeros(len(columns), dtype=np.int8),
            slo_class,
            np.zeros(len(columns), dtype=np.uint8),
            np.zeros(len(columns), dtype=np.uint8),
            excluded,
        )
        for number in distinct(slo_class):
            rows = np.flatnonzero(slo_class == number)
            given = self.classes[number] if number < len(self.classes) else None
            self._judge_rows(
                found, columns, rows, given, failed[rows], left[rows], vague[rows]
            )
        gone = found.excluded >= 0
        found.code[gone] = EXCLUDED
        found.missed[gone] = 0
        found.unknown[gone] = 0
        return found

    def _judge_rows(  # noqa: PLR0917  the flags belong to the rows
        self,
        found: Verdicts,
        columns: Columns,
        rows: Ints,
        slo_class: SloClass | None,
        failed: Bools,
        left: Bools,
        vague: Bools,
    ) -> None:
        """Judges *rows*, all of one class."""
        values = _values(columns, rows)
        limits = _limits(columns, rows, slo_class)
        if "tpot" in limits:
            loose = columns.at_most[rows] & (values["tpot"] > limits["tpot"])
            values["tpot"] = np.where(loose, UNKNOWN, values["tpot"])
        if left.any():
            at_leave = _values_when_left(columns, rows)
            values = {c: np.where(left, at_leave[c], values[c]) for c in values}
        good, bad = is_good(values, limits, failed)
        missed = np.zeros(len(rows), dtype=np.uint8)
        unknown = np.zeros(len(rows), dtype=np.uint8)
        for criterion, limit in limits.items():
            bit = 1 << CRITERIA.index(criterion)
            value = values[criterion]
            missed |= np.where(value > limit, bit, 0).astype(np.uint8)
            lacking = np.isnan(value) | np.isnan(limit)
            unknown |= np.where(lacking, bit, 0).astype(np.uint8)
        late = left & bad
        missed |= np.where(late, 1 << MISSES.index("abort"), 0).astype(np.uint8)
        wrong = failed & bad & ~left
        missed |= np.where(wrong, 1 << MISSES.index("error"), 0).astype(np.uint8)
        code = np.where(bad, BAD, np.where(good & ~vague, GOOD, UNEVALUABLE))
        gone = left & ~bad & (found.excluded[rows] < 0)
        found.excluded[rows[gone]] = EXCLUSIONS.index("client_abort")
        found.code[rows] = code.astype(np.int8)
        found.missed[rows] = np.where(bad, missed, 0)
        found.unknown[rows] = np.where(code == UNEVALUABLE, unknown, 0)

    def _classes(self, columns: Columns) -> Ints:
        """Returns the number of each row's class: the first that takes it."""
        none = len(self.classes)
        by_kind = [self._taken_by(kind) for kind in columns.kinds]
        first = [found[0] if found else none for found in by_kind]
        result = _by_kind(columns, first, np.int64)
        for number, found in enumerate(by_kind):
            if not any(self.classes[c].match.prompt_tokens for c in found):
                continue
            rows = columns.kind == number
            left = rows.copy()
            result[rows] = none
            for candidate in found:
                within = left & _in_range(columns.prompt, self.classes[candidate])
                result[within] = candidate
                left &= ~within
        return result

    def _taken_by(self, kind: Kind) -> tuple[int, ...]:
        """Returns the classes that take a kind, whatever the prompt's length."""
        key = (kind.model, kind.route, kind.tenant, kind.headers)
        known = self._candidates.get(key)
        if known is not None:
            return known
        served = self.served(kind.model)
        names = tuple({served: None, kind.model: None})
        record = kind.record()
        found = tuple(
            i
            for i, slo_class in enumerate(self.classes)
            if takes_kind(slo_class, record, names)
        )
        if len(self._candidates) < _MOST_KNOWN:
            self._candidates[key] = found
        return found


_MOST_KNOWN = 10_000


def _by_kind(columns: Columns, values: list[Any], dtype: Any) -> NDArray[Any]:  # noqa: ANN401
    """Returns a column of what each row's kind has."""
    if not values:
        return np.zeros(0, dtype=dtype)
    found: NDArray[Any] = np.array(values, dtype=dtype)[columns.kind]
    return found


def _in_range(prompt: Floats, slo_class: SloClass) -> Bools:
    limits = slo_class.match.prompt_tokens
    if limits is None:
        return np.ones(len(prompt), dtype=np.bool_)
    return (prompt >= limits[0]) & (prompt <= limits[1])


def _values(columns: Columns, rows: Ints) -> dict[str, Floats]:
    single = columns.output[rows] <= 1
    return {
        "ttft": columns.ttft[rows],
        "tpot": np.where(single, DOES_NOT_APPLY, columns.tpot[rows]),
        "max_gap": np.where(single, DOES_NOT_APPLY, columns.max_gap[rows]),
        "e2e": columns.e2e[rows],
    }


def _values_when_left(columns: Columns, rows: Ints) -> dict[str, Floats]:
    """Returns what had surely passed when the client left; the rest is unknown."""
    elapsed, ttft = columns.e2e[rows], columns.ttft[rows]
    none_came = np.isnan(ttft) & columns.looked[rows]
    return {
        "ttft": np.where(none_came, elapsed, ttft),
        "tpot": np.full(len(rows), UNKNOWN),
        "max_gap": columns.max_gap[rows],
        "e2e": elapsed,
    }


def _limits(
    columns: Columns, rows: Ints, slo_class: SloClass | None
) -> dict[str, Floats]:
    if slo_class is None:
        return {}
    return {
        criterion: _limit(columns, rows, threshold)
        for criterion, threshold in slo_class.good.items()
    }


def _limit(columns: Columns, rows: Ints, threshold: Threshold) -> Floats:
    base = np.full(len(rows), threshold.seconds)
    if not threshold.per_prompt_token:
        return base
    prompt = columns.prompt[rows]
    # The limit is at least the base, so what meets that meets it all.
    within = columns.ttft[rows] <= threshold.seconds
    unknown = np.where(within, base, UNKNOWN)
    grown = threshold.seconds + threshold.per_prompt_token * prompt
    return np.where(np.isnan(prompt), unknown, grown)

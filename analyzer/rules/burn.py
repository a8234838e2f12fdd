"""When spending the error budget is worth an alert: windows and factors.

The burn rate is the share of bad requests over the share that the objective allows
(1 − objective): at 1 the budget lasts exactly its window. The workbook's table for
Site Reliability Engineering asks for an alert when a share of the budget is spent
within a long window, and is still being spent in a short one of a twelfth of it.

A burn rate cannot exceed 1/(1 − objective), where every request is bad: at 90 % that is
10, and the table's 14.4 would never fire. So a factor is held to a share of bad
requests that must alert whatever the budget, half of them for the first page. Such a
share is no matter of the budget any more, so a quarter of an hour of it is enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from analyzer.rules.rule import Severity
from analyzer.slo import SloClass
from analyzer.strict import format_duration

HOUR = 3600.0
DAY = 24 * HOUR
TABLE_WINDOW = 28 * DAY  # shorter budgets have shorter windows in proportion
SHORTEST = HOUR
STEP = 300.0  # windows are whole multiples of the recorded 5 minutes
SHORT_SHARE = 1 / 12


@dataclass(frozen=True, slots=True)
class _Wish:
    """A row of the table: `share` of the budget within `long`, `most` bad share.

    A factor that is held to `most` is looked for within `held`, if that is set.
    """

    severity: Severity
    share: float
    long: float
    most: float
    held: float = 0.0


TABLE = (
    _Wish(Severity.CRITICAL, 0.02, HOUR, 0.5, held=900.0),
    _Wish(Severity.CRITICAL, 0.05, 6 * HOUR, 0.25),
    _Wish(Severity.WARNING, 0.10, DAY, 0.125),
    _Wish(Severity.WARNING, 0.10, 3 * DAY, 0.0625),
)


@dataclass(frozen=True, slots=True)
class BurnRow:
    """One pair of windows: alert when both burn faster than `factor`.

    Windows in seconds; `wanted` is the table's factor, `bad_share` what share of
    requests `factor` means, `spent` the share of the budget gone within `long`.
    """

    severity: Severity
    long: float
    short: float
    factor: float
    wanted: float
    bad_share: float
    spent: float

    def derivation(self, slo_class: SloClass) -> str:
        """Returns in a sentence how the factor follows from the objective."""
        window = format_duration(slo_class.window_seconds)
        highest = 1 / (1 - slo_class.objective)
        text = (
            f"{self.severity}, {format_duration(self.long)} and "
            f"{format_duration(self.short)}: the table asks for {self.wanted:.3g} "
            f"(the highest possible is {highest:.3g})"
        )
        if self.factor < self.wanted:
            text += f", held to {self.factor:.3g}"
            if self.long < SHORTEST:
                text += f" and looked for within {format_duration(self.long)}"
        outage = self.bad_share * self.long
        unit = HOUR if outage > 3 * HOUR else 60
        return (
            f"{text}: more than {self.bad_share:.3g} of requests bad, "
            f"{self.spent:.2g} of the budget of {window} spent; a full outage shows "
            f"after {format_duration(math.ceil(outage / unit) * unit)}"
        )


def burn_rows(slo_class: SloClass) -> tuple[BurnRow, ...]:
    """Returns the pairs of windows for a class, fastest first.

    There is always a ticket. There is no page when the objective is so low that the
    share of bad requests which must page is one that it allows.
    """
    found: list[BurnRow] = []
    for row in _possible(slo_class):
        twin = found[-1] if found else None
        if twin and twin.long == row.long and twin.severity == row.severity:
            found.pop()  # the same windows with a lower factor fire whenever it did
        found.append(row)
    return tuple(found)


def _possible(slo_class: SloClass) -> Iterator[BurnRow]:
    window, allowed = slo_class.window_seconds, 1 - slo_class.objective
    for wish in TABLE:
        scale = min(1.0, window / TABLE_WINDOW)
        long = max(SHORTEST, math.ceil(wish.long * scale / STEP) * STEP)
        reference = max(window, TABLE_WINDOW)
        wanted = wish.share * reference / wish.long
        factor = min(wanted, max(1.0, wish.most / allowed))
        if factor < wanted and wish.held:
            long = wish.held
        last = wish is TABLE[-1]
        if factor <= 1 and not last:
            continue  # such a pace is what the objective allows
        yield BurnRow(
            severity=wish.severity,
            long=long,
            short=max(STEP, math.ceil(long * SHORT_SHARE / STEP) * STEP),
            factor=factor,
            wanted=wanted,
            bad_share=factor * allowed,
            spent=factor * long / window,
        )


def refusal(slo_class: SloClass) -> str:
    """Returns why no page can be derived for a class, "" when one is."""
    if any(row.severity is Severity.CRITICAL for row in burn_rows(slo_class)):
        return ""
    return (
        f"class {slo_class.name}: an objective of {slo_class.objective:g} allows "
        f"{1 - slo_class.objective:g} of requests to be bad, so no share of bad "
        f"requests up to {TABLE[0].most:g} is worth a page; there are tickets only"
    )

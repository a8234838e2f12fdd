"""The distinct kinds of the rows of a table, each described once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from analyzer.gateways.values import SENTINELS
from analyzer.report.columns import Bools, Floats, Ints, Kind, coded
from analyzer.report.json_table import Table

MOST_STATUS = 999


def kinds_of(
    table: Table,
    texts: Sequence[str],
    status: Floats,
    marks: Sequence[Bools],
    describe: Callable[[int], tuple[Kind, tuple[bool, ...]]],
) -> tuple[tuple[Kind, ...], Ints, list[Bools]]:
    """Returns the distinct kinds, each row's, and columns of what else is described.

    Rows that have *texts*, *status* (NaN for none) and *marks* in common are told by
    one of them: *describe* says of a row its kind and some truths.
    """
    code = np.clip(np.nan_to_num(status, nan=-1.0), -1, MOST_STATUS + 1)
    first, group = coded(
        [
            (code.astype(np.int64) + 1, MOST_STATUS + 3),
            *((mark.astype(np.int64), 2) for mark in marks),
            *(table.codes(name) for name in texts),
        ]
    )
    kinds: dict[Kind, int] = {}
    places, truths = [], []
    for row in first.tolist():
        kind, found = describe(row)
        places.append(kinds.setdefault(kind, len(kinds)))
        truths.append(found)
    flags = np.array(truths, dtype=np.bool_).reshape(len(truths), -1)
    by_row = np.array(places, dtype=np.int64)[group]
    return tuple(kinds), by_row, [flags[group, i] for i in range(flags.shape[1])]


def headers_of(
    table: Table, row: int, members: dict[str, str]
) -> tuple[tuple[str, str], ...]:
    """Returns the headers of a row, but no sentinels; *members* hold their values."""
    given = ((name, table.text(member, row)) for name, member in members.items())
    return tuple((n, v) for n, v in given if v is not None and v not in SENTINELS)


def outside(values: Floats, most: float) -> Bools:
    """Returns where a value is below 0 or above *most*."""
    found: Bools = (values < 0) | (values > most)
    return found


def uncounted(values: Floats, most: int) -> Bools:
    """Returns where a value is no whole number from 0 to *most*."""
    found: Bools = outside(values, most)
    found |= (values != np.floor(values)) & ~np.isnan(values)
    return found


def nothing(rows: int) -> Floats:
    """Returns a column of unknown numbers."""
    return np.full(rows, np.nan)


def never(rows: int) -> Bools:
    """Returns a column of no."""
    return np.zeros(rows, dtype=np.bool_)

"""Columns of texts to numbers and times, as gateways write them.

What is not surely read as the record parser reads it is marked odd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analyzer.gateways.values import EARLIEST, LATEST, SENTINELS
from analyzer.report.columns import Bools, Floats

_SENTINELS = pa.array(SENTINELS)
_DECIMAL = r"^-?[0-9]{1,18}(\.[0-9]{0,18})?$"
_WHOLE = r"^[0-9]{1,15}$"
_STAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?"
_GO_UNITS = (("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9), ("s", 1.0))


def numbers(column: Any, *, whole: bool = False) -> tuple[Floats, Bools]:  # noqa: ANN401  pyarrow has no types
    """Returns the numbers that texts mean, and odd rows; NaN for a sentinel or null.

    With *whole* a fraction is odd too.
    """
    told = pc.if_else(pc.is_in(column, value_set=_SENTINELS), None, column)
    return _cast(
        told, pa.int64() if whole else pa.float64(), _WHOLE if whole else _DECIMAL
    )


def _cast(told: Any, kind: Any, shape: str) -> tuple[Floats, Bools]:  # noqa: ANN401
    """Returns *told* as numbers, of which those of another *shape* are odd."""
    odd = np.zeros(len(told), dtype=np.bool_)
    try:
        found = pc.cast(told, kind)
    except pa.ArrowInvalid:
        fits = pc.fill_null(pc.match_substring_regex(told, shape), True)
        odd = ~fits.to_numpy(zero_copy_only=False)
        found = pc.cast(pc.if_else(fits, told, None), kind)
    values: Floats = pc.cast(found, pa.float64()).to_numpy(zero_copy_only=False)
    known = found.is_valid().to_numpy(zero_copy_only=False)
    return values, odd | known & ~np.isfinite(values)


def stamps(column: Any, *, zone: bool) -> tuple[Floats, Bools]:  # noqa: ANN401
    """Returns the Unix times of ISO 8601 stamps, and odd rows; NaN for null.

    With *zone* they must end in Z, else they have none and are of UTC. A `/` for a `-`
    is allowed. Digits beyond the microsecond are dropped, as datetime drops them.
    """
    told = column if zone else pc.replace_substring(column, "/", "-")
    kind = pa.timestamp("ns", "UTC" if zone else None)
    odd = np.zeros(len(column), dtype=np.bool_)
    try:
        found = pc.cast(told, kind)
    except pa.ArrowInvalid:
        shape = _STAMP + ("Z$" if zone else "$")
        fits = pc.fill_null(pc.match_substring_regex(told, shape), True)
        odd = ~fits.to_numpy(zero_copy_only=False)
        try:
            found = pc.cast(pc.if_else(fits, told, None), kind)
        except pa.ArrowInvalid:  # such as a 30th of February
            every = column.is_valid().to_numpy(zero_copy_only=False)
            return np.full(len(column), np.nan), every
    known = found.is_valid().to_numpy(zero_copy_only=False)
    whole = pc.fill_null(pc.cast(found, pa.int64()), 0).to_numpy()
    seconds: Floats = np.where(known, whole // 1000 / 1e6, np.nan)
    return seconds, odd | known & ~((seconds >= EARLIEST) & (seconds <= LATEST))


def go_durations(column: Any) -> tuple[Floats, Bools]:  # noqa: ANN401
    """Returns the seconds of numbers or of durations of one unit as Go prints them.

    Then odd rows; NaN for null. A number is one of seconds.
    """
    seconds = np.full(len(column), np.nan)
    left = column.is_valid().to_numpy(zero_copy_only=False)
    for unit, scale in _GO_UNITS:
        ends = pc.fill_null(pc.ends_with(column, unit), False)
        rows = np.flatnonzero(ends.to_numpy(zero_copy_only=False) & left)
        if len(rows):
            chosen = column.take(pa.array(rows))
            told = pc.utf8_slice_codeunits(chosen, 0, -len(unit))
            values, odd = _cast(told, pa.float64(), _DECIMAL)
            seconds[rows] = values * scale
            left[rows] = odd
    rows = np.flatnonzero(left)
    if len(rows):
        values, odd = _cast(column.take(pa.array(rows)), pa.float64(), _DECIMAL)
        seconds[rows] = values
        left[rows] = odd
    return seconds, left


def is_sentinel(column: Any) -> Bools:  # noqa: ANN401
    """Returns where a text is one that stands for none."""
    found: Bools = pc.is_in(column, value_set=_SENTINELS).to_numpy(zero_copy_only=False)
    return found


def contains(column: Any, parts: Sequence[str]) -> Bools:  # noqa: ANN401
    """Returns where a text contains any of *parts*."""
    found = np.zeros(len(column), dtype=np.bool_)
    for part in parts:
        here = pc.fill_null(pc.match_substring(column, part), False)
        found |= here.to_numpy(zero_copy_only=False)
    return found

"""Many requests as columns of numbers, with what they have in common told once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analyzer.gateways.record import Outcome, RequestRecord, TtftKind

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Kind:
    """What many requests share: everything about them that is no measurement."""

    route: str
    tenant: str
    model: str
    headers: tuple[tuple[str, str], ...]
    status: int | None
    outcome: Outcome

    def record(self) -> RequestRecord:
        """Returns a record of this kind, for the rules that look at no number."""
        return RequestRecord(
            route=self.route,
            tenant=self.tenant,
            model=self.model,
            headers=dict(self.headers),
            status=self.status,
            outcome=self.outcome,
        )


@dataclass(frozen=True, slots=True)
class Columns:
    """Requests in the order of their log; NaN is what is not known.

    Names and units are those of RequestRecord: times in seconds, `start` in Unix
    seconds. `kind` points into `kinds`; `looked` is whether somebody looked for a
    first token, `unstreamed` whether the answer surely was no stream. `ids` are the
    requests' ids, empty when nobody asked for them.
    """

    kinds: tuple[Kind, ...]
    kind: Ints
    start: Floats
    ttft: Floats
    tpot: Floats
    max_gap: Floats
    e2e: Floats
    prompt: Floats
    output: Floats
    cached: Floats
    gateway: Floats
    serving: Floats
    delivery: Floats
    looked: Bools
    at_most: Bools
    unstreamed: Bools
    ids: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.kind)


NUMBERS = (
    "start",
    "ttft",
    "tpot",
    "max_gap",
    "e2e",
    "prompt",
    "output",
    "cached",
    "gateway",
    "serving",
    "delivery",
)
_MOST_JOINT = 1 << 62

FLAGS = ("looked", "at_most", "unstreamed")


def columns_of(records: Iterable[RequestRecord], *, ids: bool = False) -> Columns:
    """Returns *records* as columns, with their ids when they are asked for."""
    kinds: dict[Kind, int] = {}
    codes: list[int] = []
    rows: list[tuple[float | None, ...]] = []
    names: list[str] = []
    for record in records:
        kind = Kind(
            record.route,
            record.tenant,
            record.model,
            tuple(record.headers.items()),
            record.status,
            record.outcome,
        )
        codes.append(kinds.setdefault(kind, len(kinds)))
        rows.append(_numbers(record))
        if ids:
            names.append(record.request_id)
    shape = (len(rows), len(NUMBERS) + len(FLAGS))
    table = np.array(rows, dtype=np.float64).reshape(shape)
    flags = table[:, len(NUMBERS) :] > 0
    found: dict[str, Any] = {
        **{name: table[:, i].copy() for i, name in enumerate(NUMBERS)},
        **{name: flags[:, i].copy() for i, name in enumerate(FLAGS)},
    }
    by_row = np.array(codes, dtype=np.int64)
    return Columns(tuple(kinds), by_row, **found, ids=tuple(names))


def _numbers(record: RequestRecord) -> tuple[float | None, ...]:
    return (
        record.start,
        record.ttft,
        record.tpot,
        record.max_gap,
        record.e2e,
        record.prompt_tokens,
        record.completion_tokens,
        record.cached_tokens,
        record.gateway_time,
        record.serving_time,
        record.delivery_time,
        record.ttft_kind is not TtftKind.NONE,
        record.tpot_at_most,
        record.stream is False,
    )


def replaced(columns: Columns, at: Ints, by: Columns) -> Columns:
    """Returns *columns* with the rows *at* those places replaced *by* others."""
    kinds = {kind: i for i, kind in enumerate(columns.kinds)}
    places = [kinds.setdefault(kind, len(kinds)) for kind in by.kinds]
    changed: dict[str, Any] = {}
    for name in (*NUMBERS, *FLAGS):
        changed[name] = getattr(columns, name).copy()
        changed[name][at] = getattr(by, name)
    kind = columns.kind.copy()
    kind[at] = np.array(places, dtype=np.int64)[by.kind]
    ids = list(columns.ids)
    if ids:
        for place, name in zip(at.tolist(), by.ids, strict=True):
            ids[place] = name
    return Columns(tuple(kinds), kind, **changed, ids=tuple(ids))


def taken(columns: Columns, keep: Bools) -> Columns:
    """Returns the rows that *keep* marks."""
    chosen = {name: getattr(columns, name)[keep] for name in ("kind", *NUMBERS, *FLAGS)}
    ids = columns.ids
    if ids:
        ids = tuple(name for name, kept in zip(ids, keep.tolist(), strict=True) if kept)
    return Columns(columns.kinds, **chosen, ids=ids)


def coded(parts: Sequence[tuple[Ints, int]]) -> tuple[Ints, Ints]:
    """Returns the places of the distinct combinations of codes, and each row's.

    Each part is a column of codes from 0 and how many there are.
    """
    joint, size = np.zeros(len(parts[0][0]), dtype=np.int64), 1
    for codes, count in parts:
        if size * count > _MOST_JOINT:
            joint, known = pd.factorize(joint)
            size = len(known)
        joint, size = joint * max(count, 1) + codes, size * max(count, 1)
    found = pd.factorize(joint)[0].astype(np.int64, copy=False)
    # Codes count up as they come: a new one is where the greatest so far grows.
    known = np.maximum.accumulate(found)
    return np.flatnonzero(np.diff(known, prepend=-1)), found


def distinct(codes: Ints) -> list[int]:
    """Returns the distinct ones of small codes from 0, ascending."""
    return np.flatnonzero(np.bincount(codes)).tolist()

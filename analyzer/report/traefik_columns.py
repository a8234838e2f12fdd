"""Traefik's JSON lines to columns, as gateways/traefik.py reads them.

As for Envoy: formulas are those of the record parser, and a line of another shape is
marked odd, for the parser to read.
"""

from __future__ import annotations

import numpy as np

from analyzer.gateways.record import Outcome
from analyzer.gateways.values import (
    DAY,
    LONGEST_LABEL,
    failed_status,
    path_of,
    streamed,
    text,
)
from analyzer.report.columns import Bools, Columns, Kind
from analyzer.report.json_table import Members, Table
from analyzer.report.kinds import (
    MOST_STATUS,
    headers_of,
    kinds_of,
    never,
    nothing,
    outside,
    uncounted,
)

STATUSES = ("DownstreamStatus", "OriginStatus")
TIMES = ("Duration", "OriginDuration")
NUMBERS = (*STATUSES, *TIMES, "RetryAttempts")
CONTENT_TYPE, MODEL = "downstream_Content-Type", "request_X-Model"
TENANT, PATH, START = "request_X-Tenant-Id", "RequestPath", "StartUTC"
TEXTS = (CONTENT_TYPE, MODEL, TENANT, PATH)
ID = "request_X-Request-Id"
MOST_RETRIES = 1 << 20


def _header_members(headers: tuple[str, ...]) -> dict[str, str]:
    return {name: f"request_{name.title()}" for name in headers}


def members(_head: bytes, headers: tuple[str, ...], *, ids: bool) -> Members:
    """Returns the members that are read, with *headers* those of the classes."""
    texts = [*TEXTS, START, *_header_members(headers).values(), *([ID] if ids else [])]
    return Members(
        {**dict.fromkeys(NUMBERS, "DOUBLE"), **dict.fromkeys(texts, "VARCHAR")}
    )


def columns(
    table: Table, _head: bytes, headers: tuple[str, ...], *, ids: bool
) -> tuple[Columns, Bools]:
    """Returns a table's requests, and which rows the record parser must read."""
    number = {name: table.number(name) for name in NUMBERS}
    start, odd = table.stamp(START, zone=True)
    for name in TIMES:
        odd |= outside(number[name], DAY * 1e9)
    for name in (*STATUSES, "RetryAttempts"):
        most = MOST_STATUS if name in STATUSES else MOST_RETRIES
        odd |= uncounted(number[name], most)
    status, took = number["DownstreamStatus"], number["Duration"]
    odd |= np.isnan(status) | np.isnan(took)
    seen = number["OriginStatus"] > 0
    given = _header_members(headers)

    def describe(row: int) -> tuple[Kind, tuple[bool, ...]]:
        code = int(status[row]) if status[row] > 0 else None
        whole = Outcome.OK if seen[row] else Outcome.UNKNOWN
        kind = Kind(
            path_of(text(table.text(PATH, row))),
            text(table.text(TENANT, row)),
            text(table.text(MODEL, row))[:LONGEST_LABEL],
            headers_of(table, row, given),
            code,
            failed_status(code) or whole,
        )
        return kind, (streamed(table.text(CONTENT_TYPE, row)) is False,)

    texts = (*TEXTS, *given.values())
    kinds, kind, (unstreamed,) = kinds_of(table, texts, status, [seen], describe)
    at_server, rows = number["OriginDuration"], len(table)
    names = table.texts(ID) if ids else ()
    found = Columns(
        kinds,
        kind,
        start=start,
        ttft=nothing(rows),
        tpot=nothing(rows),
        max_gap=nothing(rows),
        e2e=took * 1e-9,
        prompt=nothing(rows),
        output=nothing(rows),
        cached=nothing(rows),
        gateway=nothing(rows),
        serving=np.where(at_server > 0, at_server * 1e-9, np.nan),
        delivery=nothing(rows),
        looked=never(rows),
        at_most=never(rows),
        unstreamed=unstreamed,
        ids=tuple(text(name) for name in names),
    )
    return found, odd

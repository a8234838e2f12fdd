"""Caddy's JSON lines to columns, as gateways/caddy.py reads them.

As for Envoy: formulas are those of the record parser, and a line of another shape is
marked odd, for the parser to read.
"""

from __future__ import annotations

import numpy as np

from analyzer.gateways.caddy import ACCESS
from analyzer.gateways.record import Outcome
from analyzer.gateways.values import (
    DAY,
    EARLIEST,
    LATEST,
    LONGEST_LABEL,
    failed_status,
    path_of,
    streamed,
)
from analyzer.report.columns import Bools, Columns, Floats, Kind
from analyzer.report.json_table import Members, Table, quoted
from analyzer.report.kinds import (
    MOST_STATUS,
    headers_of,
    kinds_of,
    never,
    nothing,
    outside,
    uncounted,
)

TEXTS = ("logger", "uri", "tenant", "model", "content_type")
NUMBERS = ("status", "up_latency_ms", "up_duration_ms", "retries")
HEADERS = {"model": "X-Model", "tenant": "X-Tenant-Id"}
ID = "request_id", "X-Request-Id"
MOST_RETRIES = 1 << 20


def members(_head: bytes, headers: tuple[str, ...], *, ids: bool) -> Members:
    """Returns the members that are read, with *headers* those of the classes."""
    wanted = {**HEADERS, **{f"header_{h}": h.title() for h in headers}}
    if ids:
        wanted[ID[0]] = ID[1]
    lists = ", ".join(f"{quoted(name)} VARCHAR[]" for name in set(wanted.values()))
    texts = dict.fromkeys(("logger", "ts", "duration"), "VARCHAR")
    types = {
        **dict.fromkeys(NUMBERS, "DOUBLE"),
        **texts,
        "resp_headers": 'STRUCT("Content-Type" VARCHAR[])',
        "request": f"STRUCT(uri VARCHAR, headers STRUCT({lists}))",
    }
    picks = {
        **{name: name for name in (*NUMBERS, *texts)},
        "content_type": 'resp_headers."Content-Type"[1]',
        "uri": "request.uri",
        **{n: f"request.headers.{quoted(h)}[1]" for n, h in wanted.items()},
    }
    return Members(types, picks)


def columns(
    table: Table, _head: bytes, headers: tuple[str, ...], *, ids: bool
) -> tuple[Columns, Bools]:
    """Returns a table's requests, and which rows the record parser must read."""
    number = {name: table.number(name) for name in NUMBERS}
    took, odd = table.go_duration("duration")
    odd |= np.isnan(took) | outside(took, DAY)
    end, strange = _ends(table)
    odd |= strange
    for name in ("up_latency_ms", "up_duration_ms"):
        odd |= outside(number[name], DAY * 1e3)
    for name, most in (("status", MOST_STATUS), ("retries", MOST_RETRIES)):
        odd |= uncounted(number[name], most)
    status = number["status"]
    odd |= ~(status > 0)
    e2e = np.where(took > 0, took, np.nan)
    known = took > 0
    given = {h: f"header_{h}" for h in headers}

    def describe(row: int) -> tuple[Kind, tuple[bool, ...]]:
        code = int(status[row]) if status[row] > 0 else None
        whole = Outcome.OK if known[row] else Outcome.UNKNOWN
        logger = table.text("logger", row)
        kind = Kind(
            path_of(table.text("uri", row) or ""),
            table.text("tenant", row) or "",
            (table.text("model", row) or "")[:LONGEST_LABEL],
            headers_of(table, row, given),
            code,
            failed_status(code) or whole,
        )
        return kind, (
            streamed(table.text("content_type", row)) is False,
            logger is not None and not logger.startswith(ACCESS),
        )

    texts = (*TEXTS, *given.values())
    kinds, kind, truths = kinds_of(table, texts, status, [known], describe)
    rows = len(table)
    names = table.texts(ID[0]) if ids else ()
    found = Columns(
        kinds,
        kind,
        start=end - np.where(known, took, 0.0),
        ttft=nothing(rows),
        tpot=nothing(rows),
        max_gap=nothing(rows),
        e2e=e2e,
        prompt=nothing(rows),
        output=nothing(rows),
        cached=nothing(rows),
        gateway=nothing(rows),
        serving=number["up_duration_ms"] * 1e-3,
        delivery=nothing(rows),
        looked=never(rows),
        at_most=never(rows),
        unstreamed=truths[0],
        ids=names,
    )
    return found, odd | truths[1]


def _ends(table: Table) -> tuple[Floats, Bools]:
    """Returns the Unix times of `ts`: seconds as a number, or a date; and odd rows."""
    seconds, odd = table.decimal("ts")
    if odd.all():
        return table.stamp("ts", zone=False)
    return seconds, odd | ~((seconds >= EARLIEST) & (seconds <= LATEST))

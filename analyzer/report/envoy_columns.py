"""Envoy's JSON lines to columns, as gateways/envoy.py reads them one by one.

DuckDB reads the members of the usual shape; formulas are those of the record parser.
A line of another shape is marked odd, and the parser reads it.
"""

from __future__ import annotations

import numpy as np

from analyzer.gateways.envoy_text import outcome_of
from analyzer.gateways.values import (
    DAY,
    EARLIEST,
    EVENT_STREAM,
    LATEST,
    LONGEST_LABEL,
    MOST_TOKENS,
    SENTINELS,
    path_of,
)
from analyzer.report.columns import Bools, Columns, Floats, Ints, Kind, coded
from analyzer.report.json_table import Members, Table

TIMES = (
    "us_ds_rx_end",
    "us_us_tx_end",
    "us_us_rx_body_beg",
    "us_us_rx_end",
    "us_ds_tx_end",
    "tok_max_gap_us",
)
TOKENS = ("completion_tokens", "prompt_tokens", "cached_tokens", "tok_events")
TEXTS = (
    "response_flags",
    "path",
    "content_type",
    "sse_error",
    "tenant",
    "llm_model",
    "model_hdr",
)
NUMBERS = (
    *TIMES,
    *TOKENS,
    "duration",
    "response_code",
    "start_epoch",
    "tok_first_us",
    "tok_last_us",
)
MEMBERS = {
    **dict.fromkeys(NUMBERS, "DOUBLE"),
    **dict.fromkeys(TEXTS, "VARCHAR"),
    "tok_done": "BOOLEAN",
}
# Of the Lua filter, beside tok_first_us, which tells that it is there.
LUA = frozenset(("tok_done", "tok_events", "tok_last_us", "tok_max_gap_us"))
ID = "x_request_id"


def members(head: bytes, headers: tuple[str, ...], *, ids: bool) -> Members:
    """Returns the members that are read, with *headers* those of the classes.

    Those of the Lua filter only when the *head* of the log has them.
    """
    found = {**MEMBERS, **{h.replace("-", "_"): "VARCHAR" for h in headers}}
    if not _has_lua(head):
        found = {name: kind for name, kind in found.items() if name not in LUA}
    return Members({**found, ID: "VARCHAR"} if ids else found)


def _has_lua(head: bytes) -> bool:
    return b'"tok_first_us"' in head


def columns(
    table: Table, head: bytes, headers: tuple[str, ...], *, ids: bool
) -> tuple[Columns, Bools]:
    """Returns a table's requests, and which rows the record parser must read.

    *head* is the begin of the lines: what members they have.
    """
    lua = _has_lua(head)
    number = {name: table.number(name) for name in NUMBERS if lua or name not in LUA}
    kinds, kind, stream, flagged, odd = _kinds(table, number, headers, lua=lua)
    odd |= _out_of_range(number)
    if not lua and not np.isnan(number["tok_first_us"]).all():
        odd[:] = True  # a filter that came later is read line by line
    start = number["start_epoch"]
    odd |= ~((start >= EARLIEST) & (start <= LATEST))
    first = number["us_us_rx_body_beg"] * 1e-6
    # Null, and a member that is missing, are not told apart here.
    if lua:
        odd |= (stream | flagged) & np.isnan(number["tok_first_us"])
    else:
        odd |= stream & np.isnan(first)
    tokens = number["completion_tokens"]
    e2e, end = number["us_ds_tx_end"] * 1e-6, number["us_us_rx_end"] * 1e-6
    e2e = np.where(np.isnan(e2e), number["duration"] * 1e-3, e2e)
    looked = stream.copy()
    gap = np.full(len(start), np.nan)
    counted = np.zeros(len(start), dtype=np.bool_)
    if lua:
        first, tpot, gap, events = _read_tokens(number, start)
        counted = stream & np.isnan(tokens) & ~np.isnan(events)
        tokens = np.where(stream & np.isnan(tokens), events, tokens)
    else:
        last = np.where(np.isnan(end), e2e, end)
        tpot = np.where(
            (tokens > 1) & (last >= first), _ratio(last - first, tokens - 1), np.nan
        )
    gateway, serving, delivery = _stages(number)
    nothing = np.full(len(start), np.nan)
    found = Columns(
        kinds,
        kind,
        start,
        np.where(stream, first, nothing),
        np.where(stream, tpot, nothing),
        np.where(stream, gap, nothing),
        e2e,
        number["prompt_tokens"],
        tokens,
        number["cached_tokens"],
        gateway,
        serving,
        delivery,
        looked,
        counted,
        ~stream & table.present("content_type"),
        table.texts(ID) if ids else (),
    )
    if ids:
        odd |= ~table.present(ID)
    return found, odd


def _kinds(
    table: Table, number: dict[str, Floats], headers: tuple[str, ...], *, lua: bool
) -> tuple[tuple[Kind, ...], Ints, Bools, Bools, Bools]:
    """Returns the distinct kinds, each row's, and which rows are streams.

    Then those with response flags, and odd ones.
    """
    code = np.nan_to_num(number["response_code"], nan=-1.0).astype(np.int64)
    named = np.clip(code, -1, 1000) + 1
    done = table.flag("tok_done") if lua else ~np.isnan(number["completion_tokens"])
    texts = [*TEXTS, *(h.replace("-", "_") for h in headers)]
    first, kind = coded(
        [
            (named, 1002),
            (done.astype(np.int64), 2),
            *(table.codes(name) for name in texts),
        ]
    )
    kinds: dict[Kind, int] = {}
    places, streams, marked, odds = [], [], [], []
    for row in first.tolist():
        flags = table.text("response_flags", row)
        status = int(code[row])
        path = table.text("path", row)
        content = table.text("content_type", row)
        given = {h: table.text(h.replace("-", "_"), row) or "" for h in headers}
        outcome = outcome_of(
            max(status, 0) if status >= 0 else None,
            flags,
            error=table.text("sse_error", row) is not None,
            complete=bool(done[row]),
        )
        model = table.text("llm_model", row) or table.text("model_hdr", row) or ""
        found = Kind(
            path_of(path or ""),
            table.text("tenant", row) or "",
            model[:LONGEST_LABEL],
            tuple((h, v) for h, v in given.items() if v not in SENTINELS),
            status if status > 0 else None,
            outcome,
        )
        places.append(kinds.setdefault(found, len(kinds)))
        streams.append(content is not None and content.startswith(EVENT_STREAM))
        marked.append(flags != "-")
        odds.append(flags is None or status < 0 or not path)
    to_kind = np.array(places, dtype=np.int64)
    return (
        tuple(kinds),
        to_kind[kind],
        np.array(streams, dtype=np.bool_)[kind],
        np.array(marked, dtype=np.bool_)[kind],
        np.array(odds, dtype=np.bool_)[kind],
    )


def _out_of_range(number: dict[str, Floats]) -> Bools:
    """Returns the rows with a value that is none, which the parser refuses."""
    odd = (number["duration"] < 0) | (number["duration"] > DAY * 1e3)
    for name in TIMES:
        if name in number:
            odd |= (number[name] < 0) | (number[name] > DAY * 1e6)
    for name in (*TOKENS, "response_code"):
        if name not in number:
            continue
        value = number[name]
        most = 999 if name == "response_code" else MOST_TOKENS
        odd |= (
            (value < 0) | (value > most) | (value != np.floor(value)) & ~np.isnan(value)
        )
    return odd


def _stages(number: dict[str, Floats]) -> tuple[Floats, Floats, Floats]:
    """Returns the time before the server, there, and after its last byte."""
    sent, uploaded = number["us_us_tx_end"], number["us_ds_rx_end"]
    end, out = number["us_us_rx_end"], number["us_ds_tx_end"]
    return (
        np.maximum(sent - uploaded, 0.0) * 1e-6,
        np.where(end >= sent, (end - sent) * 1e-6, np.nan),
        np.where(out >= end, (out - end) * 1e-6, np.nan),
    )


def _read_tokens(
    number: dict[str, Floats], start: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Returns TTFT, TPOT, the largest gap and events, as the Lua filter saw them."""
    first, last = number["tok_first_us"], number["tok_last_us"]
    ttft = first * 1e-6 - start
    ttft = np.where((ttft >= 0) & (ttft <= DAY), ttft, np.nan)
    events = number["tok_events"]
    told = number["completion_tokens"]
    tokens = np.where(np.isnan(told), events, told)
    output = (last - first) * 1e-6
    sane = ~np.isnan(ttft) & (output >= 0) & (output <= DAY) & (tokens > 1)
    tpot = np.where(sane, _ratio(output, tokens - 1), np.nan)
    gap = np.where(
        ~np.isnan(ttft) & (events > 1), number["tok_max_gap_us"] * 1e-6, np.nan
    )
    return ttft, tpot, gap, events


def _ratio(a: Floats, b: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = a / b
    return found

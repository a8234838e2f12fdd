"""nginx's JSON lines to columns, as gateways/nginx.py reads them.

As for Envoy: formulas are those of the record parser, and a line of another shape,
such as one of several attempts, is marked odd, for the parser to read.
"""

from __future__ import annotations

import numpy as np
from msgspec import UNSET

from analyzer.gateways.nginx import CLOCK_GRAIN, Line, outcome_of
from analyzer.gateways.values import (
    DAY,
    EARLIEST,
    EVENT_STREAM,
    LATEST,
    LONGEST_LABEL,
    MOST_TOKENS,
    path_of,
    text,
)
from analyzer.report.columns import Bools, Columns, Floats, Ints, Kind
from analyzer.report.json_table import Members, Table
from analyzer.report.kinds import (
    MOST_STATUS,
    headers_of,
    kinds_of,
    never,
    outside,
)

SECONDS = ("request_time", "upstream_response_time", "upstream_header_time")
MILLISECONDS = ("ttft_ms", "last_token_ms", "end_ms", "max_gap_ms")
STAMPS = ("t_first_chunk", "t_last_chunk", "t_end")
TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "sse_events")
FILTERED = ("saw_done", "sse_error")
TEXTS = (
    "request_completion",
    "tenant",
    "model_hdr",
    "model",
    "uri",
    "up_content_type",
    *FILTERED,
)
ID = "x_request_id"
_LISTS = (", ", " : ")


def _header_members(headers: tuple[str, ...]) -> dict[str, str]:
    return {name: "http_" + name.replace("-", "_") for name in headers}


def members(_head: bytes, headers: tuple[str, ...], *, ids: bool) -> Members:
    """Returns the members that are read, with *headers* those of the classes."""
    texts = [*TEXTS, *SECONDS, *MILLISECONDS, *STAMPS, *TOKENS]
    texts += ["msec", "status", "upstream_addr"]
    texts += [*_header_members(headers).values(), *([ID] if ids else [])]
    return Members(dict.fromkeys(texts, "VARCHAR"))


def columns(
    table: Table, head: bytes, headers: tuple[str, ...], *, ids: bool
) -> tuple[Columns, Bools]:
    """Returns a table's requests, and which rows the record parser must read.

    *head* is the begin of the lines: what members they have.
    """
    number, odd = _numbers(table)
    tried = table.present("upstream_addr") & ~table.is_sentinel("upstream_addr")
    odd |= table.contains("upstream_addr", _LISTS)
    odd |= table.is_sentinel("msec")  # which the parser reads with more patience
    for name in ("upstream_response_time", "upstream_header_time"):
        number[name] = np.where(tried, number[name], np.nan)
    told, strange = _told(table, head)
    odd |= strange
    usage = ~np.isnan(number["completion_tokens"])
    kinds, kind, (stream, unstreamed) = _kinds(
        table, number["status"], usage, told, _header_members(headers)
    )
    e2e, end = number["request_time"], number["msec"]
    start = np.where((end >= EARLIEST) & (end <= LATEST), end - e2e, np.nan)
    looked = stream & told["saw_done"]
    counted = looked & ~usage & ~np.isnan(number["sse_events"])
    tokens = np.where(counted, number["sse_events"], number["completion_tokens"])
    first, last = _outputs(number, start, e2e)
    ttft = np.where(looked, first, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(looked & (tokens > 1), (last - first) / (tokens - 1), np.nan)
    gateway, delivery = _around(number, start, e2e)
    if ids:
        odd |= ~table.present(ID) | table.is_sentinel(ID)
    found = Columns(
        kinds,
        kind,
        start=start,
        ttft=ttft,
        tpot=tpot,
        max_gap=np.where(tokens > 1, number["max_gap_ms"], np.nan),
        e2e=e2e,
        prompt=number["prompt_tokens"],
        output=tokens,
        cached=number["cached_tokens"],
        gateway=gateway,
        serving=number["upstream_response_time"],
        delivery=delivery,
        looked=looked,
        at_most=counted,
        unstreamed=unstreamed,
        ids=table.texts(ID) if ids else (),
    )
    return found, odd


def _told(table: Table, head: bytes) -> tuple[dict[str, bool], Bools]:
    """Returns which words of a filter the log has, and rows that lack one of them.

    Null, and a member that is missing, are not told apart in a row.
    """
    told, odd = {}, never(len(table))
    for name in FILTERED:
        present = table.present(name)
        told[name] = f'"{name}"'.encode() in head or bool(present.any())
        odd |= ~present & told[name]
    return told, odd


def _kinds(
    table: Table,
    status: Floats,
    usage: Bools,
    told: dict[str, bool],
    given: dict[str, str],
) -> tuple[tuple[Kind, ...], Ints, list[Bools]]:
    """Returns the kinds, each row's, and where the answer surely was a stream or not.

    *usage* is where the tokens were told, *given* the members of headers.
    """

    def describe(row: int) -> tuple[Kind, tuple[bool, ...]]:
        code = int(status[row]) if status[row] > 0 else None
        path = path_of(table.text("uri", row) or "")
        content = text(table.text("up_content_type", row))
        stream = content.startswith(EVENT_STREAM) if content else None
        done, error = (table.text(n, row) if told[n] else UNSET for n in FILTERED)
        line = Line(
            request_completion=table.text("request_completion", row),
            saw_done=done,
            sse_error=error,
        )
        model = text(table.text("model", row)) or text(table.text("model_hdr", row))
        kind = Kind(
            path,
            text(table.text("tenant", row)),
            model[:LONGEST_LABEL],
            headers_of(table, row, given),
            code,
            outcome_of(line, code, path, stream=stream, usage=bool(usage[row])),
        )
        return kind, (stream is True, stream is False)

    texts = (*TEXTS, *given.values())
    return kinds_of(table, texts, status, [usage], describe)


def _numbers(table: Table) -> tuple[dict[str, Floats], Bools]:
    """Returns numbers, durations in seconds and stamps as written, and odd rows."""
    found: dict[str, Floats] = {}
    odd = never(len(table))
    for name in (*SECONDS, *MILLISECONDS, *STAMPS, *TOKENS, "msec", "status"):
        whole = name in TOKENS or name == "status"
        value, strange = table.decimal(name, whole=whole)
        odd |= strange
        if name in MILLISECONDS:
            value *= 1e-3
        if name in SECONDS or name in MILLISECONDS:
            odd |= outside(value, DAY)
        elif whole:
            odd |= outside(value, MOST_STATUS if name == "status" else MOST_TOKENS)
        found[name] = value
    return found, odd | np.isnan(found["request_time"])


def _outputs(
    number: dict[str, Floats], start: Floats, e2e: Floats
) -> tuple[Floats, Floats]:
    """Returns when the first and the last token came, in seconds since the start."""
    first, last = number["ttft_ms"], number["last_token_ms"]
    last = np.where(last < first, np.nan, last)
    begun = number["t_first_chunk"] * 1e-3 - start
    ended = number["t_last_chunk"] * 1e-3 - start
    sane = (begun >= -CLOCK_GRAIN) & (begun <= ended) & (ended <= e2e + CLOCK_GRAIN)
    by_clock = np.isnan(first)
    return (
        np.where(by_clock, np.where(sane, np.maximum(begun, 0.0), np.nan), first),
        np.where(by_clock, np.where(sane, np.maximum(ended, 0.0), np.nan), last),
    )


def _around(
    number: dict[str, Floats], start: Floats, e2e: Floats
) -> tuple[Floats, Floats]:
    """Returns the time before the server that answered, and after its last byte."""
    end, serving = number["end_ms"], number["upstream_response_time"]
    end = np.where(np.isnan(end), number["t_end"] * 1e-3 - start, end)
    sane = (end >= serving - CLOCK_GRAIN) & (end <= e2e + CLOCK_GRAIN)
    return (
        np.where(sane, np.maximum(end - serving, 0.0), np.nan),
        np.where(sane, np.maximum(e2e - end, 0.0), np.nan),
    )

"""The middleware's JSON lines to columns, as gateways/middleware.py reads them.

As for Envoy: formulas are those of the record parser, and a line of another shape is
marked odd, for the parser to read.
"""

from __future__ import annotations

import msgspec
import numpy as np

from analyzer.gateways.middleware import FORMAT, OUTCOMES, TOKENS, VERSION
from analyzer.gateways.record import Outcome, TokensKind
from analyzer.gateways.values import DAY, EARLIEST, LATEST, LONGEST_LABEL, MOST_TOKENS
from analyzer.report.columns import Bools, Columns, Floats, Ints, Kind, coded
from analyzer.report.json_table import Members, Table

TIMES = (
    "request_body_s",
    "ttft_s",
    "last_content_s",
    "max_gap_s",
    "done_s",
    "end_s",
    "disconnect_s",
    "elapsed_s",
    "header_s",
)
COUNTS = ("choices", "prompt_tokens", "cached_tokens", "completion_tokens")
NUMBERS = (*TIMES, *COUNTS, "version", "start", "status")
TEXTS = (
    "format",
    "tenant",
    "route",
    "model",
    "response_model",
    "outcome",
    "tokens_kind",
    "streamed",
    "stream",
    "unread",
    "headers",
)
ID = "request_id"


def members(_head: bytes, _headers: tuple[str, ...], *, ids: bool) -> Members:
    """Returns the members that are read."""
    texts = (*TEXTS, ID) if ids else TEXTS
    return Members(
        {**dict.fromkeys(NUMBERS, "DOUBLE"), **dict.fromkeys(texts, "VARCHAR")}
    )


def columns(
    table: Table, _head: bytes, _headers: tuple[str, ...], *, ids: bool
) -> tuple[Columns, Bools]:
    """Returns a table's requests, and which rows the record parser must read."""
    number = {name: table.number(name) for name in NUMBERS}
    kinds, kind, flags, odd = _kinds(table, number)
    for name in TIMES:
        odd |= (number[name] < 0) | (number[name] > DAY)
    for name in (*COUNTS, "status"):
        value = number[name]
        most = 999 if name == "status" else MOST_TOKENS
        broken = (value != np.floor(value)) & ~np.isnan(value)
        odd |= (value < 0) | (value > most) | broken
    start = number["start"]
    odd |= ~((start >= EARLIEST) & (start <= LATEST)) | (number["version"] != VERSION)
    ttft = np.where(flags["streamed"], number["ttft_s"], np.nan)
    last, tokens = number["last_content_s"], number["completion_tokens"]
    seen = ~np.isnan(ttft) & ~np.isnan(last) & (tokens > 1)
    single = np.isnan(number["choices"]) | (number["choices"] <= 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        between = (last - ttft) / (tokens - 1)
    end, uploaded = number["end_s"], number["request_body_s"]
    nothing = np.full(len(start), np.nan)
    found = Columns(
        kinds,
        kind,
        start,
        ttft,
        np.where(seen & single & (last >= ttft), between, nothing),
        np.where(seen, number["max_gap_s"], nothing),
        _end(number, flags),
        number["prompt_tokens"],
        tokens,
        number["cached_tokens"],
        nothing,
        np.where(end >= uploaded, end - uploaded, nothing),
        nothing,
        flags["streamed"] & (~flags["unread"] | ~np.isnan(ttft)),
        flags["counted"],
        flags["unstreamed"],
        table.texts(ID) if ids else (),
    )
    return found, odd


def _end(number: dict[str, Floats], flags: dict[str, Bools]) -> Floats:
    """Returns when each request ended, as that depends on how it did."""
    done, end = number["done_s"], number["end_s"]
    left, elapsed = number["disconnect_s"], number["elapsed_s"]
    at_mark = ~np.isnan(left) & ~np.isnan(done)
    whole = np.where(at_mark | np.isnan(end), done, end)
    gone = flags["aborted"] & ~np.isnan(left)
    other = np.where(gone, left, np.where(np.isnan(end), elapsed, end))
    return np.where(flags["ok"], whole, other)


def _kinds(
    table: Table, number: dict[str, Floats]
) -> tuple[tuple[Kind, ...], Ints, dict[str, Bools], Bools]:
    """Returns the distinct kinds, each row's, flags by name, and odd rows."""
    status = np.nan_to_num(number["status"]).astype(np.int64)
    first, row_kind = coded(
        [
            (np.clip(status, 0, 1000), 1001),
            *(table.codes(name) for name in TEXTS),
        ]
    )
    kinds: dict[Kind, int] = {}
    places, odds = [], []
    flags: dict[str, list[bool]] = {
        name: []
        for name in ("streamed", "unread", "counted", "unstreamed", "ok", "aborted")
    }
    for row in first.tolist():
        text = {name: table.text(name, row) for name in TEXTS}
        outcome = OUTCOMES.get(text["outcome"] or "", Outcome.UNKNOWN)
        model = text["model"] or text["response_model"] or ""
        code = int(status[row])
        headers = _headers_of(text["headers"])
        kind = Kind(
            text["route"] or "",
            text["tenant"] or "",
            model[:LONGEST_LABEL],
            tuple((headers or {}).items()),
            code or None,
            outcome,
        )
        places.append(kinds.setdefault(kind, len(kinds)))
        stream = text["streamed"] if text["streamed"] is not None else text["stream"]
        odds.append(text["format"] != FORMAT or headers is None)
        flags["streamed"].append(text["streamed"] == "true")
        flags["unread"].append(text["unread"] is not None)
        counted = TOKENS.get(text["tokens_kind"] or "") is TokensKind.COUNTED
        flags["counted"].append(counted)
        flags["unstreamed"].append(stream == "false")
        flags["ok"].append(outcome is Outcome.OK)
        flags["aborted"].append(outcome is Outcome.CLIENT_ABORT)
    by_row = {n: np.array(f, dtype=np.bool_)[row_kind] for n, f in flags.items()}
    kind_of = np.array(places, dtype=np.int64)[row_kind]
    return tuple(kinds), kind_of, by_row, np.array(odds, dtype=np.bool_)[row_kind]


def _headers_of(text: str | None) -> dict[str, str] | None:
    """Returns the request headers in a member, None when it holds something else."""
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        return None

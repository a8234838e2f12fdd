"""Random lines of each format that DuckDB reads: equal to the record parser's."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from columns_read import read, rows
from recorded_logs import parsed

from analyzer.gateways.record import LineProblem
from analyzer.gateways.values import go_duration, rfc3339
from analyzer.report.columns import coded, columns_of
from analyzer.report.text_values import go_durations, numbers, stamps

HEADERS = ("x-priority", "x-tenant-id")
SECONDS = ("-", "", None, "0.000", "0.012", "1.500", "30.25")
NAMES = ("", "-", None, "a", "b", "é")
PATHS = ("", "/v1/completions", "/v1/chat/completions?k=1", "/health")
TYPES = (None, "", "-", "text/event-stream; charset=utf-8", "application/json")


def middleware_line(rng: random.Random) -> bytes:
    """Returns a line of the middleware with members as chance has it."""
    seconds = [None, None, 0.0, 0.01, 0.25, 1.5, 30.0]
    times = (
        *("request_body_s", "header_s", "ttft_s", "last_content_s", "max_gap_s"),
        *("done_s", "end_s", "disconnect_s", "elapsed_s"),
    )
    counts = ("prompt_tokens", "cached_tokens", "completion_tokens", "choices")
    return json.dumps(
        {
            "format": rng.choice(["goodput-request"] * 20 + ["other"]),
            "version": rng.choice([1] * 20 + [2]),
            "seq": 1,
            "request_id": rng.choice(["a", "b", "é"]),
            "tenant": rng.choice([None, "t"]),
            "headers": rng.choice([None, {}, {"x-priority": "high", "x-b": "2"}]),
            "route": rng.choice([None, "/v1/completions", "/health"]),
            "model": rng.choice([None, "", "m"]),
            "response_model": rng.choice([None, "r"]),
            "start": rng.choice([1.79e9, 1.79e9 + 0.123456, 5.0]),
            "status": rng.choice([None, 0, 200, 429, 500]),
            "outcome": rng.choice(
                ["ok", "client_abort", "http_error", "exception", "new", None]
            ),
            "streamed": rng.choice([None, True, False]),
            "stream": rng.choice([None, True, False]),
            "tokens_kind": rng.choice(["usage", "counted", None]),
            "unread": rng.choice([None, "gzip"]),
            **{name: rng.choice(seconds) for name in times},
            **{name: rng.choice([None, 0, 1, 2, 50]) for name in counts},
        }
    ).encode()


def mostly(rng: random.Random, usual: Any, *odd: Any) -> Any:  # noqa: ANN401
    """Returns *usual* most times, else one of the others."""
    return rng.choice(odd) if rng.random() < 0.03 else usual


def traefik_line(rng: random.Random) -> bytes:
    """Returns a line of Traefik with members as chance has it."""
    fraction = rng.choice(["", ".5", f".{rng.randrange(10**9):09}"])
    stamp = f"2026-11-29T14:15:{rng.randrange(60):02}{fraction}Z"
    line = {
        "DownstreamStatus": mostly(rng, rng.choice([0, 200, 499, 504, 500]), None, 1e4),
        "Duration": mostly(rng, rng.choice([0, 516393719, 12]), None, -1, "7", 1e20),
        "OriginDuration": rng.choice([0, 516393719, None]),
        "OriginStatus": rng.choice([0, 200, 502, None]),
        "RequestPath": rng.choice(PATHS),
        "RetryAttempts": mostly(rng, rng.choice([0, 2, None]), -1, 1.5),
        "StartUTC": mostly(
            rng, stamp, None, "", "then", stamp[:-1], "1999-01-01T00:00Z"
        ),
        "downstream_Content-Type": rng.choice(TYPES),
        "request_X-Model": rng.choice(NAMES),
        "request_X-Request-Id": rng.choice(NAMES),
        "request_X-Tenant-Id": rng.choice(NAMES),
        "request_X-Priority": rng.choice(NAMES),
    }
    return json.dumps({k: v for k, v in line.items() if rng.random() < 0.99}).encode()


def caddy_line(rng: random.Random) -> bytes:
    """Returns a line of Caddy with members as chance has it."""
    seconds = rng.randrange(60)
    by_date = rng.random() < 0.5
    stamp: Any = 1795961866 + rng.random()
    if by_date:
        stamp = f"2026/11/29 14:17:{seconds:02}.{rng.randrange(1000):03}"
    took: Any = rng.choice([0, 0.085017626, 12.5])
    if by_date:
        took = rng.choice(["0s", "527.875612ms", "1.5s", "930.5µs", "17ns", "1m2.5s"])

    def names() -> Any:  # noqa: ANN401
        return rng.choice([["a"], ["b", "c"], [], None, ["é"]])

    line = {
        "logger": mostly(rng, "http.log.access.log0", None, "tls", "http.log.access"),
        "ts": mostly(rng, stamp, None, "then", 5, 1795961866152.5),
        "duration": mostly(rng, took, None, -1, "long", 1e9),
        "status": mostly(rng, rng.choice([200, 499, 502]), 0, None, 1000, 2.5),
        "request": mostly(
            rng,
            {
                "uri": rng.choice(PATHS),
                "headers": {
                    "X-Request-Id": names(),
                    "X-Tenant-Id": names(),
                    "X-Model": names(),
                    "X-Priority": names(),
                },
            },
            None,
            {},
        ),
        "resp_headers": rng.choice(
            [None, {}, {"Content-Type": [rng.choice(TYPES) or "text/html"]}]
        ),
        "retries": rng.choice([0, 1, None]),
        "up_duration_ms": mostly(rng, rng.choice([527.741832, 0, None]), -1),
        "up_latency_ms": rng.choice([5.4001589999999995, None]),
        "uuid": "x",
    }
    return json.dumps(line).replace('"uuid"', '"uuid": "x", "uuid"').encode()


def nginx_line(rng: random.Random) -> bytes:
    """Returns a line of nginx with members as chance has it."""
    begin = 1795961058 + rng.randrange(10**6) / 1e3
    first, last = rng.randrange(500), rng.randrange(400, 1500)
    took = max(first, last) / 1e3 + rng.choice([0.0, 0.002, 0.2])
    several = rng.random() < 0.03
    line = {
        "msec": mostly(rng, f"{begin + took:.3f}", None, "-", "5.0", 1795961058.5),
        "request_time": mostly(rng, f"{took:.3f}", None, "-", "-1", "x", 1.5),
        "request_completion": rng.choice(["OK", "", "-", None]),
        "x_request_id": rng.choice(NAMES),
        "request_id": "own",
        "tenant": rng.choice(NAMES),
        "model_hdr": rng.choice(NAMES),
        "uri": rng.choice(PATHS),
        "status": mostly(rng, rng.choice(["200", "499", "504", "000", 502]), "-", "x"),
        "upstream_addr": rng.choice(["-", "", None, "127.0.0.1:80", "unix:/s"]),
        "upstream_header_time": rng.choice(SECONDS),
        "upstream_response_time": mostly(rng, rng.choice(SECONDS), "1e9", "x"),
        "up_content_type": rng.choice(TYPES),
        "t_first_chunk": mostly(rng, f"{begin * 1e3 + first:.0f}", "-", "nan", ""),
        "t_last_chunk": mostly(rng, f"{begin * 1e3 + last:.0f}", "-", None, "1"),
        "t_end": rng.choice(["-", f"{begin * 1e3 + last + 2:.0f}", None]),
        "max_gap_ms": rng.choice(["28", "-", None, "1.5"]),
        "sse_events": rng.choice(["5", "-", "", None, "1"]),
        "model": rng.choice(NAMES),
        "prompt_tokens": mostly(rng, rng.choice(["411", "-", None]), "1.5", 1e15),
        "cached_tokens": rng.choice(["64", "-", None]),
        "completion_tokens": rng.choice(["20", "-", None, "1", 0]),
        "saw_done": mostly(rng, rng.choice(["1", "0", "-", ""]), None),
        "sse_error": mostly(rng, rng.choice(["", "-", "boom"]), None),
        "http_x_priority": rng.choice(NAMES),
    }
    if several:
        line["upstream_addr"] = "127.0.0.1:80, 127.0.0.1:81"
        line["upstream_header_time"] = "-, 0.5"
        line["upstream_response_time"] = "0.001, 0.7"
    if rng.random() < 0.5:
        shift = rng.choice(["132", "-", "900"])
        line |= {
            "ttft_ms": shift,
            "last_token_ms": "809",
            "end_ms": rng.choice(SECONDS),
        }
    return json.dumps(line).encode()


LINES = {
    "caddy": caddy_line,
    "middleware": middleware_line,
    "nginx": nginx_line,
    "traefik": traefik_line,
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", LINES)
def test_lines_are_their_records(name: str, seed: int, tmp_path: Path) -> None:
    """Any combination of what they may hold, read by DuckDB and by the parser."""
    rng = random.Random(seed)
    data = b"".join(LINES[name](rng) + b"\n" for _ in range(2000))
    path = tmp_path / "requests.jsonl"
    path.write_bytes(data)
    records, reasons = parsed(data, HEADERS)
    assert records
    found, lines = read(path, headers=HEADERS)
    assert rows(found) == rows([columns_of(records, ids=True)])
    assert sum(lines.problems.values()) == len(reasons)
    assert lines.parsed < lines.lines * 0.8


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("missing", [["saw_done", "sse_error"], ["sse_error"]])
def test_nginx_without_a_filters_members(
    missing: list[str], share: float, tmp_path: Path
) -> None:
    """What a line does not hold is not told, which is other than null.

    That may be every line, or those from before the filter was there.
    """
    rng = random.Random(7)
    lines = [json.loads(nginx_line(rng)) for _ in range(500)]
    for line in lines[: int(share * len(lines))]:
        for name in missing:
            line.pop(name)
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    path = tmp_path / "requests.jsonl"
    path.write_bytes(data)
    found, _ = read(path)
    assert rows(found) == rows([columns_of(parsed(data)[0], ids=True)])


def test_a_log_of_which_every_line_is_odd_is_left_to_the_parser(tmp_path: Path) -> None:
    """Tables would only cost time, and nothing is read twice into the report."""
    line = b'{"response_code":200,"response_flags":"-","duration":5,"path":"/v1"}\n'
    path = tmp_path / "access.log"
    path.write_bytes(line * 1000)
    found, lines = read(path)
    assert sum(map(len, found)) == lines.lines == lines.parsed == 1000


TEXTS = (
    *("1", "0.5", "-3", "1e3", "-", "", None, "nan", "inf", "1e400", "x", " 1", "1_0"),
    *("0x1", "+5", "1.", ".5", "12345678901234567890", "1795961058.763"),
)


@pytest.mark.parametrize("whole", [True, False])
def test_numbers_in_texts_are_pythons_or_odd(*, whole: bool) -> None:
    """What is not marked odd has the value that Python reads, to the bit."""
    values, odd = numbers(pa.array(TEXTS, pa.string()), whole=whole)
    for text, value, strange in zip(TEXTS, values.tolist(), odd.tolist(), strict=True):
        if text in ("", "-", None):
            assert np.isnan(value)
            assert not strange
        elif not strange:
            assert value == (int(text) if whole else float(text))
    assert not odd[:1].any()


STAMPS = (
    *("2026-11-29T14:15:34.024881015Z", "2026-11-29T14:15:34Z", "2026-11-29T14:15Z"),
    *("2026-11-29 14:15:34.9999999Z", "2026-11-29T15:15:34+01:00", "then", None, ""),
    *("2026-02-30T00:00:00Z", "1969-01-01T00:00:00Z", "2026-11-29T14:15:34"),
)


@pytest.mark.parametrize("stamp", STAMPS)
def test_stamps_are_those_of_the_record_parser_or_odd(stamp: str | None) -> None:
    """Alone and among others, which may be read in another way."""
    for others in ([], [STAMPS[0], "then"]):
        found, odd = stamps(pa.array([stamp, *others], pa.string()), zone=True)
        if stamp is None:
            assert np.isnan(found[0])
        elif not odd[0]:
            assert found[0] == rfc3339(stamp)
    assert stamps(pa.array([STAMPS[0]]), zone=True)[1].tolist() == [False]


def test_durations_of_go_are_those_of_the_record_parser_or_odd() -> None:
    """Of one unit at once, of several by the parser."""
    texts = ["1.5s", "402.008912ms", "3µs", "7ns", "1m2s", "", "-1s", "2h", "s", "1.s"]
    values, odd = go_durations(pa.array(texts))
    for text, value, strange in zip(texts, values.tolist(), odd.tolist(), strict=True):
        if strange:
            continue
        try:
            wanted = go_duration(text)
        except LineProblem:
            assert value < 0  # which is out of range
        else:
            assert value == wanted
    assert odd.tolist()[:5] == [False, False, False, False, True]


def test_kinds_stay_apart_however_many_codes_there_are() -> None:
    """The product of the numbers of codes may be larger than an integer."""
    chance = np.random.default_rng(3)
    columns = [chance.integers(0, 1 << 20, 300) for _ in range(6)]
    columns = [np.concatenate([column, column[:100]]) for column in columns]
    first, group = coded([(column, 1 << 20) for column in columns])
    assert len(first) == 300
    assert group[:100].tolist() == group[300:].tolist()
    assert all((column[first][group] == column).all() for column in columns)

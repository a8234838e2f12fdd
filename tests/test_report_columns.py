"""Columns of requests: equal to the records, and judged as those are."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
from columns_read import read, rows
from gateway_truth import SLOS
from hypothesis import given
from hypothesis import strategies as st
from recorded_logs import NAMES, content, parsed, unpacked

from analyzer.config_gateways import GatewaySource
from analyzer.gateways.record import Outcome, RequestRecord, TtftKind
from analyzer.judgement import class_for, judge
from analyzer.report.columns import columns_of
from analyzer.report.decode import Decoder
from analyzer.report.verdicts import VERDICTS, Judge
from analyzer.slo import Match, SloClass, Threshold
from analyzer.sources.log_blocks import pieces_of
from analyzer.sources.log_lines import PEEKED, READ_BYTES, LineFinder


@pytest.mark.parametrize("name", NAMES)
def test_columns_of_a_log_are_its_records(name: str, tmp_path: Path) -> None:
    """Whether DuckDB reads it or the parser, every number is the same to the bit."""
    records, reasons = parsed(content(name), ("x-tenant-id",))
    wanted = rows([columns_of(records, ids=True)])
    path = unpacked(name, tmp_path)
    for fast in (True, False):
        found, lines = read(path, fast=fast, headers=("x-tenant-id",))
        assert rows(found) == wanted
        assert sum(lines.problems.values()) == len(reasons)
        assert lines.records == len(records)


def test_most_lines_of_envoy_need_no_parser(tmp_path: Path) -> None:
    """The quick way is the usual one; what is odd is left to the parser."""
    path = unpacked("episodes/ramp-a", tmp_path)
    (piece,) = pieces_of(path, GatewaySource("log"), ())
    decoder = Decoder(piece.source, ())
    sizes = [size for _, size in decoder.read(piece)]
    decoder.close()
    assert sum(sizes) == path.stat().st_size
    assert decoder.lines.records > 0
    assert decoder.lines.parsed < 0.1 * decoder.lines.records


def test_a_filter_that_came_to_envoy_later_is_seen(tmp_path: Path) -> None:
    """Members that the begin of a log does not have are read where they are."""
    data = content("episodes/ramp-a") + content("gateway/envoy-lua")
    path = tmp_path / "access.log"
    path.write_bytes(data)
    assert b'"tok_first_us"' not in data[:PEEKED]
    found, _ = read(path)
    assert rows(found) == rows([columns_of(parsed(data)[0], ids=True)])


@pytest.mark.parametrize("size", [20_000, 70_001])
def test_a_log_in_pieces_is_the_whole_log(size: int, tmp_path: Path) -> None:
    """Wherever a file is cut, each line is read once, in order."""
    path = unpacked("episodes/overload-a", tmp_path)
    whole, _ = read(path)
    assert rows(read(path, size=size)[0]) == rows(whole)


BROKEN = (
    b"garbage",
    b"",
    b" ",
    b'{"response_code":200',
    b'{"response_code":"abc","response_flags":"-"}',
    b'{"response_code":200,"response_flags":"-","duration":-5}',
    b'{"response_code":200,"response_flags":"-","duration":""}',
    b'{"response_code":200,"response_flags":"-","path":"\xff\xfe"}',
    b'{"response_code":200,"response_flags":"-","duration":5,"duration":6}',
    b'["response_code", 200]',
    b'{"a":1}{"b":2}',
    b'{"response_code":0,"response_flags":"DC","us_ds_tx_end":1e300}',
    b'{"x":' * 3000,
)


@pytest.mark.parametrize("line", BROKEN)
@pytest.mark.parametrize("place", [0, 3, 200, -1])
def test_a_broken_line_costs_no_other(line: bytes, place: int, tmp_path: Path) -> None:
    """What the parser says of the other lines is said, and the line has its reason."""
    lines = content("episodes/overload-a").removesuffix(b"\n").split(b"\n")
    lines.insert(place if place >= 0 else len(lines), line)
    data = b"\n".join(lines) + b"\n"
    records, reasons = parsed(data)
    path = tmp_path / "access.log"
    path.write_bytes(data)
    found, counted = read(path)
    assert rows(found) == rows([columns_of(records, ids=True)])
    assert sum(counted.problems.values()) == len(reasons)
    assert counted.lines == len(lines)
    if reasons:
        assert counted.first is not None
        assert counted.first[0] == lines.index(line) + 1


def test_an_endless_line_is_one_that_is_too_long(tmp_path: Path) -> None:
    """However long, it is told once, and what follows it counts."""
    good = content("episodes/kv-a").splitlines(keepends=True)
    path = tmp_path / "access.log"
    path.write_bytes(good[0] + b"{" * (40 << 20) + b"\n" + good[1])
    found, lines = read(path)
    assert sum(map(len, found)) == 2
    assert lines.problems["too_long"] == 1
    assert lines.lines == 3
    assert lines.first is not None
    assert lines.first[0] == 2


def test_compressed_framed_and_unended_logs_are_read_alike(tmp_path: Path) -> None:
    """A log in .gz, in a container runtime's frames or cut at its end is the same."""
    data = content("episodes/kv-a")
    wanted = rows([columns_of(parsed(data)[0], ids=True)])
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(data))
    assert rows(read(packed)[0]) == wanted
    stamp = b"2026-11-29T10:00:00.000000001Z stdout F "
    framed = tmp_path / "framed.log"
    framed.write_bytes(b"".join(stamp + line + b"\n" for line in data.splitlines()))
    assert rows(read(framed)[0]) == wanted
    docker = tmp_path / "docker.log"
    docker.write_text(
        "".join(
            json.dumps({"log": line + "\n", "stream": "stdout", "time": "t"}) + "\n"
            for line in data.decode().splitlines()
        )
    )
    assert rows(read(docker)[0]) == wanted
    unended = tmp_path / "unended.log"
    unended.write_bytes(data.removesuffix(b"\n"))
    assert rows(read(unended)[0]) == wanted


def test_lines_are_found_by_their_number(tmp_path: Path) -> None:
    """Wherever reading cuts them: short ones, empty ones, and such as are longer."""
    rng = random.Random(5)
    lines = [b"x" * rng.choice([0, 1, 80, 1500, READ_BYTES + 3]) for _ in range(400)]
    path = tmp_path / "log"
    path.write_bytes(b"".join(line + b"\n" for line in lines) + b"no newline")
    with LineFinder(path, 0) as finder:
        place = 0
        while place < len(lines):
            count = min(rng.randint(1, 90), len(lines) - place)
            rows = np.array(sorted(rng.sample(range(count), min(count, 7))))
            wanted = [lines[place + row] for row in rows.tolist()]
            assert finder.take(count, rows) == wanted
            place += count
            assert finder.position == sum(map(len, lines[:place])) + place


SECONDS = st.none() | st.sampled_from([0.0, 0.01, 0.05, 0.1, 0.3, 1.0, 1.5, 30.0])
RECORDS = st.builds(
    RequestRecord,
    route=st.sampled_from(["", "/v1/completions", "/health", "/v1/embeddings"]),
    tenant=st.sampled_from(["a", "b", ""]),
    model=st.sampled_from(["m", "alias", "other", ""]),
    headers=st.sampled_from([{}, {"x-priority": "high"}, {"x-priority": "low"}]),
    stream=st.sampled_from([True, False, None]),
    status=st.sampled_from([None, 200, 400, 404, 408, 429, 499, 500, 503]),
    outcome=st.sampled_from(list(Outcome)),
    ttft=SECONDS,
    ttft_kind=st.sampled_from(list(TtftKind)),
    tpot=SECONDS,
    max_gap=SECONDS,
    e2e=SECONDS,
    prompt_tokens=st.none() | st.sampled_from([0, 1, 99, 100, 101, 5000]),
    completion_tokens=st.none() | st.integers(0, 3),
    tpot_at_most=st.booleans(),
)


def slo(name: str, match: Match, good: dict[str, Threshold]) -> SloClass:
    """Returns a class."""
    return SloClass(name, match, good, 0.9, 3600.0)


CLASSES = (
    slo(
        "short",
        Match(models=("m",), prompt_tokens=(0.0, 100.0)),
        {"ttft": Threshold(0.3), "tpot": Threshold(0.05)},
    ),
    slo(
        "high",
        Match(headers={"x-priority": ("high",)}),
        {"ttft": Threshold(0.1, 0.001), "max_gap": Threshold(0.3)},
    ),
    slo("long", Match(prompt_tokens=(101.0, 1e9)), {"e2e": Threshold(1.0)}),
    slo(
        "tenant",
        Match(tenants=("a",), routes=("/v1/*", "")),
        {"ttft": Threshold(0.3), "e2e": Threshold(1.5)},
    ),
)


@given(st.lists(RECORDS, max_size=30))
def test_columns_are_judged_as_single_records(records: list[RequestRecord]) -> None:
    """Class, verdict, misses and reason are those of the rules for one record."""
    aliases = {"alias": "m"}
    policy = frozenset({429})
    found = Judge(CLASSES, aliases=aliases, policy_statuses=policy).judge(
        columns_of(records)
    )
    for i, record in enumerate(records):
        served = aliases.get(record.model, record.model)
        names = tuple({served: None, record.model: None})
        slo_class = class_for(record, CLASSES, names)
        wanted = judge(record, slo_class, policy_statuses=policy)
        number = int(found.slo_class[i])
        assert (CLASSES[number] if number < len(CLASSES) else None) == slo_class
        assert VERDICTS[found.code[i]] is wanted.verdict
        assert found.reason(i) == (wanted.reason or ", ".join(wanted.misses))


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_request_is_judged_alike(name: str) -> None:
    """On real logs as on made-up ones, under every class of the accuracy tests."""
    records = parsed(content(name))[0]
    columns = columns_of(records)
    for slo_class in SLOS.values():
        found = Judge((slo_class,), aliases={}).judge(columns)
        wanted = [judge(record, slo_class) for record in records]
        assert [VERDICTS[c] for c in found.code] == [w.verdict for w in wanted]
        assert np.array_equal(found.slo_class, np.zeros(len(records)))

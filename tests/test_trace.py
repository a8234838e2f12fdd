"""A trace has the workload's shape and nothing of its owners."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from recorded_logs import content, packed, parsed

from analyzer.cli import main
from analyzer.gateways.record import Outcome, RequestRecord
from analyzer.report.columns import columns_of
from analyzer.report.trace import STYLES, Collector, Style, Workload, rounded
from analyzer.report.verdicts import Judge

NAME = "episodes/ramp-a"
VLLM, AIPERF = STYLES


def run(*arguments: object) -> Result:
    """Runs `goodput trace`."""
    return CliRunner().invoke(main, ["trace", *map(str, arguments)])


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a trace."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def collected(
    records: list[RequestRecord], *, k: int = 1, key: bytes = b"k"
) -> Workload:
    """Returns the workload of requests."""
    judge = Judge((), aliases={})
    collector = Collector(judge, key=key)
    columns = columns_of(records)
    collector.add(columns, judge.judge(columns))
    return collector.workload(k=k)


def request(
    start: float,
    prompt: int | None,
    output: int | None,
    **given: Any,  # noqa: ANN401  fields of a record
) -> RequestRecord:
    """Returns one request."""
    return RequestRecord(
        start=1.7e9 + start,
        prompt_tokens=prompt,
        completion_tokens=output,
        outcome=given.pop("outcome", Outcome.OK),
        **given,
    )


def test_a_trace_has_the_arrivals_and_the_lengths(tmp_path: Path) -> None:
    """Order and gaps are the log's, sums of lengths as well, times begin at 0."""
    target = tmp_path / "trace.jsonl"
    done = run(packed(NAME), "-o", target, "--k", "5")
    assert done.exit_code == 0, done.output
    rows = lines_of(target)
    records = sorted(parsed(content(NAME))[0], key=lambda r: r.start or 0.0)
    first = records[0].start or 0.0
    assert rows[0]["timestamp"] == 0
    assert [row["timestamp"] for row in rows] == pytest.approx(
        [(r.start or 0.0) - first for r in records], abs=0.00051
    )
    for name, wanted in (
        ("input_length", sum(r.prompt_tokens or 0 for r in records)),
        ("output_length", sum(r.completion_tokens or 0 for r in records)),
    ):
        assert sum(row[name] for row in rows) == pytest.approx(wanted, rel=0.005)


def test_nothing_of_the_owners_is_in_a_trace(tmp_path: Path) -> None:
    """No tenant, request id, model, path, address or absolute time."""
    target = tmp_path / "trace.jsonl"
    run(packed(NAME), "-o", target)
    text = target.read_text()
    for record in parsed(content(NAME))[0]:
        for hidden in (record.tenant, record.request_id, record.model, record.backend):
            assert not hidden or hidden not in text
        assert str(int(record.start or 0)) not in text
    assert {tuple(row) for row in lines_of(target)} == {
        ("timestamp", "input_length", "output_length", "hash_ids", "class", "group")
    }


def test_without_the_key_a_group_cannot_be_found_out() -> None:
    """Equal keys give equal groups, other keys give others."""
    records = [request(n, 10, 10, tenant="acme") for n in range(20)]
    one, same = (collected(records, key=b"a" * 32).groups[0] for _ in range(2))
    other = collected(records, key=b"b" * 32).groups[0]
    assert one == same != other


@given(st.lists(st.integers(0, 300), max_size=80), st.integers(1, 12))
def test_no_length_stands_out(values: list[int], k: int) -> None:
    """At least k share every value, none leaves its neighbours', the sum stays."""
    found = rounded(np.array(values, dtype=np.float64), k).tolist()
    if len(values) >= k:
        assert all(count >= k for count in Counter(found).values())
    assert len(found) == len(values)
    order = np.argsort(values, kind="stable")
    assert all(
        a <= b
        for a, b in zip(*(np.array(found)[order][i:] for i in (0, 1)), strict=False)
    )
    assert abs(sum(found) - sum(values)) <= 0.5 * len(values)
    if k == 1:
        assert found == values


def test_rare_tenants_and_classes_are_joined() -> None:
    """A tenant with fewer than k requests is one of the others."""
    records = [request(n, 10, 10, tenant="big") for n in range(10)]
    records += [request(20 + n, 10, 10, tenant=f"rare-{n}") for n in range(5)]
    groups = Counter(collected(records, k=3).groups)
    assert sorted(groups.values()) == [5, 10]
    assert groups["other"] == 5


def test_cached_tokens_make_prompts_begin_alike() -> None:
    """As many whole blocks as were cached are those of the tenant; others are new."""
    records = [
        request(0, 64, 5, tenant="a", cached_tokens=0),
        request(1, 64, 5, tenant="a", cached_tokens=40),
        request(2, 50, 5, tenant="a", cached_tokens=40),
        request(3, 64, 5, tenant="b", cached_tokens=40),
    ]
    workload = collected(records)
    rows = [json.loads(line) for line in workload.lines(VLLM, 16)]
    ids = [row["hash_ids"] for row in rows]
    assert [len(i) for i in ids] == [4, 4, 4, 4]
    assert ids[1][:2] == ids[2][:2]
    assert not set(ids[1][:2]) & set(ids[3])
    seen = Counter(i for row in ids for i in row)
    assert sum(count > 1 for count in seen.values()) == 2
    assert workload.shape()["cached_share"] == pytest.approx(120 / 242)


def test_a_request_without_lengths_came_all_the_same() -> None:
    """Refused and left requests are demand: they get another one's lengths."""
    records = [request(n, 100 + n, 10, outcome=Outcome.OK) for n in range(5)]
    records.append(request(9, None, None, status=503, outcome=Outcome.HTTP_ERROR))
    records.append(request(10, None, None, status=400, outcome=Outcome.HTTP_ERROR))
    records.append(request(11, 7, 7, route="/v1/embeddings"))
    workload = collected(records)
    assert len(workload) == 6
    assert workload.imputed == 1
    assert workload.prompt[-1] in range(100, 105)
    assert workload.output[-1] == 10


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.name)
def test_each_tool_reads_its_own_units(style: Style) -> None:
    """Vllm reads seconds and needs blocks to make prompts of; aiperf milliseconds."""
    records = [request(0, 1000, 5), request(1.5, 30, 5)]
    rows = [
        json.loads(line) for line in collected(records).lines(style, style.block_tokens)
    ]
    assert rows[1]["timestamp"] == (1.5 if style is VLLM else 1500)
    for row in rows:
        blocks = -(-row["input_length"] // style.block_tokens)
        assert len(row["hash_ids"]) == blocks
        assert all(isinstance(i, int) for i in row["hash_ids"])


def test_only_one_models_requests_may_be_wanted(tmp_path: Path) -> None:
    """--model leaves out the others; a model nobody asked for is a failure."""
    target = tmp_path / "trace.jsonl"
    assert run(packed(NAME), "-o", target, "--model", "demo-small").exit_code == 0
    assert len(lines_of(target)) == len(parsed(content(NAME))[0])
    assert run(packed(NAME), "-o", target, "--model", "nobody").exit_code == 3


def test_a_weak_key_is_refused(tmp_path: Path) -> None:
    """A key of few bytes could be guessed: usage."""
    key = tmp_path / "key"
    key.write_bytes(b"short")
    done = run(packed(NAME), "-o", tmp_path / "t", "--key-file", key)
    assert done.exit_code == 2
    assert "16 to 64 bytes" in done.stderr

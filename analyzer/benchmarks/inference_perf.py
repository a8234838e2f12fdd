"""Reports of inference-perf: a file a stage, and one of all single requests.

`stage_N_lifecycle_metrics.json` is a load point. The file of single requests does
not say to which stage each belongs; stages follow each other, so the order of their
starts does, when the counts add up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import PurePath
from typing import Any

import msgspec

from analyzer.benchmarks.run import BenchmarkError, Problem, Requests, Run
from analyzer.benchmarks.values import (
    Document,
    figure,
    member,
    number,
    part,
    span,
    whole,
)

_LATENCIES = {
    "ttft": "time_to_first_token",
    "tpot": "time_per_output_token",
    "itl": "inter_token_latency",
    "e2e": "request_latency",
}
_STAGE = re.compile(r"stage_([0-9]+)_lifecycle_metrics\.json\Z")
_QUANTILE = re.compile(r"p([0-9.]+)\Z")


class _Response(msgspec.Struct):
    output_tokens: float | None = None
    server_usage: dict[str, Any] | None = None
    output_token_times: list[float] = []
    chunk_times: list[float] = []


class _Info(msgspec.Struct):
    input_tokens: float | None = None
    response_metrics: _Response | None = None


class _Request(msgspec.Struct):
    """What is read of one request; prompts and answers are skipped."""

    start_time: float
    end_time: float
    info: _Info
    error: dict[str, Any] | None = None


def recognises(document: Document) -> bool:
    """Whether a document is the report of a stage, or of all."""
    return "load_summary" in document and "successes" in document


def is_total(file: str) -> bool:
    """Whether a report is over all stages, so no load point of its own."""
    return PurePath(file).name == "summary_lifecycle_metrics.json"


def stage(file: str) -> int | None:
    """Returns the number of the stage that a file is of, by its name."""
    match = _STAGE.search(file)
    return int(match[1]) if match else None


def read(document: Document, file: str) -> Run:
    """Returns the run of one stage. Raises BenchmarkError."""
    asked = member(document, "load_summary", dict[str, Any]) or {}
    good = member(document, "successes", dict[str, Any]) or {}
    bad = member(document, "failures", dict[str, Any]) or {}
    completed, failed = number(good.get("count")), number(bad.get("count"))
    if completed is None:
        raise BenchmarkError("successes.count: is missing")
    latency = part(good, "latency")
    return Run(
        file=file,
        place="",
        tool="inference-perf",
        duration=span(
            figure(document, "benchmark_time_seconds"), "benchmark_time_seconds"
        ),
        completed=int(completed),
        failed=int(failed or 0),
        concurrency=number(asked.get("concurrency")),
        request_rate=number(asked.get("requested_rate")),
        input_tokens=number(part(good, "prompt_tokens").get("total")),
        output_tokens=number(part(good, "output_tokens").get("total")),
        quantiles={
            ours: _quantiles(part(latency, theirs))
            for ours, theirs in _LATENCIES.items()
            if part(latency, theirs)
        },
    )


def with_requests(
    runs: Sequence[Run], data: bytes, file: str
) -> tuple[list[Run], Problem | None]:
    """Returns the stages of one folder with their single requests, if they add up."""
    try:
        listed = whole(data, list[_Request])
    except BenchmarkError as error:
        return list(runs), Problem(file, "", str(error))
    stages = sorted(runs, key=lambda run: stage(run.file) or 0)
    if len(listed) != sum(run.sent for run in stages):
        message = f"{len(listed)} requests, the stages given have other counts"
        return list(runs), Problem(file, "", message)
    listed.sort(key=lambda request: request.start_time)
    result, at = [], 0
    for run in stages:
        own = listed[at : at + run.sent]
        at += run.sent
        result.append(replace(run, requests=_requests(own)))
    return result, None


def _requests(listed: Sequence[_Request]) -> Requests:
    requests = Requests()
    for item in listed:
        response = item.info.response_metrics or _Response()
        times = response.chunk_times or response.output_token_times
        usage = number((response.server_usage or {}).get("completion_tokens"))
        first, last = (times[0], times[-1]) if times else (None, None)
        tokens = response.output_tokens if usage is None else usage
        tpot = None
        if first is not None and last is not None and tokens and tokens > 1:
            tpot = (last - first) / (tokens - 1)
        requests.add(
            failed=item.error is not None,
            start=item.start_time,
            ttft=None if first is None else first - item.start_time,
            tpot=tpot,
            e2e=item.end_time - item.start_time,
            gaps=[b - a for a, b in pairwise(times)],
            prompt_tokens=item.info.input_tokens,
            output_tokens=tokens,
        )
    return requests


def _quantiles(listed: Mapping[str, Any]) -> dict[float, float]:
    found = {}
    for level, value in listed.items():
        match = _QUANTILE.match(level)
        seconds = number(value)
        if seconds is not None and match:
            found[float(match[1]) / 100] = seconds
        elif seconds is not None and level == "median":
            found[0.5] = seconds
    return dict(sorted(found.items()))

"""Reports of guidellm: one file with a list of benchmarks, a load point each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from analyzer.benchmarks.run import BenchmarkError, Knob, Problem, Requests, Run
from analyzer.benchmarks.values import Document, member, number, part, span

_STATES = ("successful", "errored")  # what is incomplete was cut by the tool itself
_LATENCIES = {
    "ttft": ("time_to_first_token_ms", 1e-3),
    # Theirs of this name is E2E over all tokens; the gaps' mean is our TPOT.
    "tpot": ("inter_token_latency_ms", 1e-3),
    "e2e": ("request_latency", 1.0),
}


class _Request(msgspec.Struct):
    """What is read of one request; prompts and answers are skipped."""

    request_start_time: float | None = None
    request_latency: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    time_to_first_token_ms: float | None = None
    inter_token_latency_ms: float | None = None


class _Benchmark(msgspec.Struct):
    config: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    requests: dict[str, list[_Request] | None] = {}
    duration: float | None = None
    start_time: float | None = None


def recognises(document: Document) -> bool:
    """Whether a document is a guidellm report."""
    return "benchmarks" in document


def read(document: Document, file: str) -> Iterator[Run | Problem]:
    """Yields a run for each benchmark of a report, or what is wrong with it."""
    benchmarks = member(document, "benchmarks", list[msgspec.Raw])
    for index, raw in enumerate(benchmarks or ()):
        place = f"benchmarks[{index}]"
        try:
            benchmark = msgspec.json.decode(raw, type=_Benchmark)
            yield _run(benchmark, file, place)
        except (msgspec.DecodeError, BenchmarkError, RecursionError) as error:
            yield Problem(file, place, str(error))


def _run(benchmark: _Benchmark, file: str, place: str) -> Run:
    totals = part(benchmark.metrics, "request_totals")
    completed, failed = (number(totals.get(state)) for state in _STATES)
    if completed is None or failed is None:
        raise BenchmarkError("metrics.request_totals: is missing")
    requests = _requests(benchmark.requests)
    if requests is not None and len(requests) != completed + failed:
        requests = None  # the report was told to keep a sample of them only
    # Until 0.5 these lay in other places of the document.
    strategy = part(benchmark.config, "strategy") or part(
        part(benchmark.config, "profile"), "strategy"
    )
    streams = number(strategy.get("streams"))
    if strategy.get("type_") == "synchronous":
        streams = 1.0
    backend = part(benchmark.config, "backend")
    duration = span(benchmark.duration, "duration")
    cut = number(totals.get("incomplete")) or 0
    return Run(
        file=file,
        place=place,
        tool="guidellm",
        duration=duration,
        completed=int(completed),
        failed=int(failed),
        model=str(backend.get("model") or ""),
        concurrency=streams,
        request_rate=number(strategy.get("rate")),
        config=_labels(benchmark.config),
        input_tokens=_total(benchmark.metrics, "prompt_token_count"),
        output_tokens=_total(benchmark.metrics, "output_token_count"),
        requests=requests,
        quantiles=_quantiles(benchmark.metrics),
        began="" if benchmark.start_time is None else f"{benchmark.start_time:.6f}",
        notes=(f"{cut:g} requests were cut off at its end",) if cut else (),
    )


def _requests(by_state: Mapping[str, list[_Request] | None]) -> Requests | None:
    requests = Requests()
    for state in _STATES:
        for item in by_state.get(state) or ():
            ttft, gap = item.time_to_first_token_ms, item.inter_token_latency_ms
            requests.add(
                failed=state != "successful",
                start=item.request_start_time,
                ttft=None if ttft is None else ttft / 1000,
                tpot=None if gap is None else gap / 1000,
                e2e=item.request_latency,
                prompt_tokens=item.prompt_tokens,
                output_tokens=item.output_tokens,
            )
    return requests if len(requests) else None


def _total(metrics: Mapping[str, Any], name: str) -> float | None:
    return number(part(part(metrics, name), "successful").get("total_sum"))


def _quantiles(metrics: Mapping[str, Any]) -> dict[str, dict[float, float]]:
    found: dict[str, dict[float, float]] = {}
    for latency, (name, factor) in _LATENCIES.items():
        listed = part(part(part(metrics, name), "successful"), "percentiles")
        for level, value in listed.items():
            seconds = number(value)
            if seconds is not None and level[1:].isdigit():
                quantile = float(f"0.{level[1:]}")
                found.setdefault(latency, {})[quantile] = seconds * factor
    return found


def _labels(config: Mapping[str, Any]) -> dict[str, Knob]:
    labels = part(config, "labels")
    return {k: v for k, v in labels.items() if isinstance(v, str | int | float)}

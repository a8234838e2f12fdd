"""Results of `vllm bench serve` and `vllm bench sweep`, and SGLang's `bench_serving`.

SGLang's began as a copy and still shares the words. vLLM's plain file leaves each
request's E2E in; TTFT and TPOT of single requests need `--save-detailed`
(`--output-details` in SGLang).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from analyzer.benchmarks.run import UNKNOWN, BenchmarkError, Knob, Requests, Run
from analyzer.benchmarks.values import Document, count, figure, load, member, span

T = TypeVar("T")
# Words of the tools' own; any other scalar is a knob: --metadata, or an override of
# `vllm bench sweep`.
_OWN = re.compile(
    r"(mean|median|std|p[0-9.]+)_.*|total_.*|probe_.*|ramp_up_.*"
    r"|(request|input|output|total_token|input_sequence)_(throughput|goodput|lens)"
    r"|date|endpoint_type|backend|(model|tokenizer)_id|num_prompts|run_number"
    r"|duration|completed|failed|ttfts|itls|latencies|start_times|queue_times"
    r"|errors|generated_texts|rtfx|request_rate|max_concurrency|concurrency"
    r"|max_output_tokens_per_s|max_concurrent_requests"
    r"|server_info|accept_length|cached_tokens.*|goodput_slos_ms|slo_attainment.*"
    r"|(sharegpt|random)_.*_len|random_range_ratio|dataset_name|total_throughput"
)
# A word of the tools' that tells configurations apart when it is given.
_KNOBS = ("label", "tag", "burstiness")
_DEFAULTS: Mapping[str, Knob] = {"burstiness": 1.0}
_LATENCIES = (
    ("ttft", "ttft"),
    ("tpot", "tpot"),
    ("itl", "itl"),
    ("e2e", "e2el"),
    ("e2e", "e2e_latency"),
)
_QUANTILE = re.compile(r"p([0-9.]+)_(.*)_ms\Z")


def recognises(document: Document) -> bool:
    """Whether a document is one of these results."""
    return "request_throughput" in document and "duration" in document


def read(document: Document, file: str, place: str) -> Run:
    """Returns the run of one result. Raises BenchmarkError."""
    sglang = "dataset_name" in document or "median_e2e_latency_ms" in document
    completed = count(document, "completed")
    if completed is None:
        raise BenchmarkError("completed: is missing")
    requests = _requests(document, sglang=sglang)
    failed = count(document, "failed")
    prompts = count(document, "num_prompts")
    if requests is not None:
        found = sum(requests.failed)
        if len(requests) - found != completed:
            raise BenchmarkError(
                f"{len(requests) - found} answers are listed, {completed} completed"
            )
        failed = found if failed is None else failed
    if failed is None:  # older than this count
        failed = max(0, prompts - completed) if prompts is not None else 0
    if requests is not None and len(requests) != completed + failed:
        raise BenchmarkError(
            f"{len(requests)} requests are listed, {completed + failed} are counted"
        )
    return Run(
        file=file,
        place=place,
        tool="sglang bench_serving" if sglang else "vllm bench serve",
        duration=span(figure(document, "duration"), "duration"),
        completed=completed,
        failed=failed,
        model=member(document, "model_id", str) or "",
        concurrency=load(document, "max_concurrency"),
        request_rate=load(document, "request_rate"),
        config=_config(document),
        input_tokens=figure(document, "total_input_tokens"),
        output_tokens=figure(document, "total_output_tokens"),
        requests=requests,
        quantiles=_quantiles(document),
        reported_goodput=figure(document, "request_goodput"),
        began=member(document, "date", str) or "",
        notes=_notes(document),
    )


def _requests(document: Document, *, sglang: bool) -> Requests | None:
    """Returns the single requests, None for a plain file that has not even E2E.

    vLLM's gaps add up to E2E, which older files do not have. SGLang's do not: an
    answer of several tokens may have none, and those of one chunk are evened out.
    """
    ttfts = member(document, "ttfts", list[float])
    latencies = member(document, "latencies", list[float])
    if ttfts is None and latencies is None:
        return None
    number = len(ttfts if ttfts is not None else latencies or ())
    itls = _column(document, "itls", list[msgspec.Raw], number)
    inputs = _column(document, "input_lens", list[float], number)
    outputs = _column(document, "output_lens", list[float], number)
    errors = _column(document, "errors", list[str], number)
    starts = _column(document, "start_times", list[float], number)
    _same("latencies", latencies, number)
    if ttfts is None and errors is None and (count(document, "failed") or 0) > 0:
        return None  # nothing tells which of the E2E are failures'
    told = [bool(error) for error in errors or ()] or [False] * number
    # A failure without words has no tokens; an answer without tokens may be no failure.
    empty_failed = number - sum(told) != count(document, "completed")
    requests = Requests()
    for index in range(number):
        gaps = _gaps(itls[index]) if itls else array("d")
        ttft = ttfts[index] if ttfts else None
        tokens = outputs[index] if outputs else None
        e2e = latencies[index] if latencies else None
        if not sglang and e2e is None and ttft is not None and itls is not None:
            e2e = ttft + sum(gaps)
        requests.add(
            failed=told[index] or (empty_failed and tokens == 0),
            start=starts[index] if starts else None,
            ttft=ttft,
            e2e=e2e,
            gaps=gaps,
            max_gap=UNKNOWN if sglang else None,
            prompt_tokens=inputs[index] if inputs else None,
            output_tokens=tokens,
        )
    return requests


def _gaps(raw: msgspec.Raw) -> array[float]:
    """Returns the gaps of one answer: a row at a time, since a file has millions."""
    try:
        return array("d", msgspec.json.decode(raw, type=list[float]))
    except msgspec.DecodeError as error:
        raise BenchmarkError(f"itls: {error}") from None


def _column(
    document: Document, name: str, wanted: type[list[T]], number: int
) -> list[T] | None:
    column = member(document, name, wanted)
    _same(name, column, number)
    return column


def _same(name: str, column: Sequence[object] | None, number: int) -> None:
    if column is not None and len(column) != number:
        raise BenchmarkError(f"{name}: has {len(column)} entries of {number}")


def _notes(document: Document) -> tuple[str, ...]:
    if "ramp_up_strategy" not in document:
        return ()
    return ("its rate ramped up, so that it is of no one load",)


def _config(document: Document) -> dict[str, Knob]:
    config: dict[str, Knob] = {}
    for name, raw in document.items():
        if name not in _KNOBS and _OWN.fullmatch(name):
            continue
        value = msgspec.json.decode(raw)
        if isinstance(value, bool):
            value = str(value).lower()
        known = isinstance(value, str | int | float) and value != ""
        if known and value != _DEFAULTS.get(name):
            config[name] = value
    return config


def _quantiles(document: Document) -> dict[str, dict[float, float]]:
    words = {word: latency for latency, word in _LATENCIES}
    found: dict[str, dict[float, float]] = {}
    for name in document:
        match = _QUANTILE.match(name)
        if match is None or match[2] not in words:
            continue
        value = figure(document, name)
        if value is not None:
            found.setdefault(words[match[2]], {})[float(match[1]) / 100] = value / 1000
    for latency, word in _LATENCIES:
        value = figure(document, f"median_{word}_ms")
        if value is not None:
            found.setdefault(latency, {})[0.5] = value / 1000
    return {latency: dict(sorted(by.items())) for latency, by in found.items()}

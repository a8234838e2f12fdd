"""Any benchmark's file → its load points; what is broken is named, the rest counts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from analyzer.benchmarks import aiperf, guidellm, inference_perf, table, vllm_bench
from analyzer.benchmarks.run import BenchmarkError, Problem, Requests, Run
from analyzer.benchmarks.table import FieldMap
from analyzer.benchmarks.values import Document

TOOLS = (
    "vllm bench serve and sweep, SGLang bench_serving, guidellm, aiperf, "
    "inference-perf, or CSV with --fields"
)
_BARE = re.compile(rb'("(?:[^"\\]|\\.)*")|-?\bInfinity\b|\bNaN\b', re.DOTALL)
_PROBLEMS = 20  # lines told one by one; what follows is counted


def read_runs(
    data: bytes, file: str, fields: FieldMap | None = None
) -> Iterator[Run | Problem]:
    """Yields the load points in the bytes of one file, and what is wrong with it.

    A file is one JSON document, a list of them, or one a line (`--append-result`).
    """
    if not data.strip():
        yield Problem(file, "", "is empty")
        return
    try:
        if fields is not None and data.lstrip()[:1] not in b"{[":
            yield from table.read(data, file, fields)
            return
        data = _without_infinities(data)
        documents = _documents(data)
        if isinstance(documents, Problem):
            yield from _lines(data, file, documents.message)
        elif documents and aiperf.recognises_line(documents[0]):
            yield from _lines(data, file, "")
        else:
            for index, document in enumerate(documents):
                place = f"[{index}]" if len(documents) > 1 else ""
                yield from _read(document, file, place)
    except BenchmarkError as error:
        yield Problem(file, "", str(error))


def _without_infinities(data: bytes) -> bytes:
    """Returns JSON with null for the bare NaN and Infinity that Python writes."""
    if b"NaN" not in data and b"Infinity" not in data:
        return data
    return _BARE.sub(lambda match: match[1] or b"null", data)


def _documents(data: bytes) -> Sequence[Document] | Problem:
    try:
        if data.lstrip()[:1] == b"[":
            return msgspec.json.decode(data, type=list[dict[str, msgspec.Raw]])
        return [msgspec.json.decode(data, type=dict[str, msgspec.Raw])]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Problem("", "", str(error))


def _lines(data: bytes, file: str, why_not_whole: str) -> Iterator[Run | Problem]:
    """Yields what the lines of a file hold, each a document of its own."""
    requests, spans, faults, found = Requests(), [], 0, 0
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        place = f"line {number}"
        try:
            document = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
            if aiperf.recognises_line(document):
                spans.append(aiperf.read_record(line, requests))
            else:
                yield from _read(document, file, place)
            found += 1
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            faults += 1
            if found and faults <= _PROBLEMS:
                yield Problem(file, place, f"not JSON: {error}")
        except BenchmarkError as error:
            faults += 1
            if faults <= _PROBLEMS:
                yield Problem(file, place, str(error))
    if not found:
        foreign = data.lstrip()[:1] not in b"{["
        message = f"no benchmark's result (known: {TOOLS})"
        if not foreign:
            message = f"not JSON: {why_not_whole}"
        yield Problem(file, "", message, foreign=foreign)
    elif faults > _PROBLEMS:
        yield Problem(file, "", f"{faults - _PROBLEMS} more lines cannot be read")
    if spans and len(requests):
        yield _of_records(requests, spans, file)


def _of_records(
    requests: Requests, spans: list[tuple[float, float]], file: str
) -> Run | Problem:
    duration = max(end for _, end in spans) - min(begin for begin, _ in spans)
    if not duration > 0:
        return Problem(file, "", "its requests took no time")
    failed = sum(requests.failed)
    return Run(
        file=file,
        place="",
        tool="aiperf",
        duration=duration,
        completed=len(requests) - failed,
        failed=failed,
        requests=requests,
        notes=("the load is not known without profile_export_aiperf.json",),
    )


def _read(document: Document, file: str, place: str) -> Iterator[Run | Problem]:
    try:
        if aiperf.recognises(document):
            yield aiperf.read(document, file)
        elif vllm_bench.recognises(document):
            yield vllm_bench.read(document, file, place)
        elif inference_perf.recognises(document):
            if inference_perf.is_total(file):
                message = "is over all stages, so no load point"
                yield Problem(file, place, message, foreign=True)
            else:
                yield inference_perf.read(document, file)
        elif guidellm.recognises(document):
            yield from guidellm.read(document, file)
        elif _names_failure(document):
            yield Problem(file, place, "tells of a run that failed")
        else:
            message = f"no benchmark's result (known: {TOOLS})"
            yield Problem(file, place, message, foreign=True)
    except BenchmarkError as error:
        yield Problem(file, place, str(error))


def _names_failure(document: Mapping[str, object]) -> bool:
    """Whether `vllm bench sweep` wrote it for a run that did not succeed."""
    return "error_type" in document and "error" in document

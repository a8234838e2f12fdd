"""Finds out what a side of a comparison is, and reads it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from analyzer.compare import from_engine, from_report, from_requests, from_sweep
from analyzer.compare.sample import CompareError, Side
from analyzer.compare.span import Span
from analyzer.config import Config
from analyzer.config_gateways import GatewaySource
from analyzer.report.requests_csv import COLUMNS
from analyzer.slo import SloClass
from analyzer.sources.log_file import log_path
from analyzer.sources.recording import SCRAPES, holds
from analyzer.sweep.files import MAX_BYTES, read_files
from analyzer.sweep.judge import curves_by_class

HEAD_BYTES = 1 << 16


def read_side(
    path: Path, config: Config, classes: Sequence[SloClass], span: Span
) -> Side:
    """Returns one side: a recording, a log, a report, requests, or benchmark results.

    Raises CompareError.
    """
    name = str(path)
    try:
        if path.is_dir():
            log = log_path(path)
            if log is not None:
                return _log(name, log, config, span)
            if holds(path, SCRAPES):
                return from_engine.engine_side(name, path, config, span)
            return _benchmarks(name, path, classes, span)
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise CompareError(f"{name}: cannot be read: {error.strerror}") from None
    if not head.strip():
        raise CompareError(f"{name}: is empty")
    if head.startswith(",".join(COLUMNS).encode()):
        return from_requests.csv_side(name, path, span)
    if head.lstrip()[:1] not in b"{[":
        return _log(name, path, config, span)
    known = _document(path, head)
    if known is None:
        return _log(name, path, config, span)
    if from_report.recognises(known):
        return from_report.report_side(name, path.read_bytes(), span)
    if from_sweep.recognises(known):
        _no_range(name, span)
        return from_sweep.document_side(name, path.read_bytes())
    return _benchmarks(name, path, classes, span)


def _document(path: Path, head: bytes) -> dict[str, msgspec.Raw] | None:
    """Returns the members of a JSON file, {} of a benchmark's, None for a log's."""
    if path.stat().st_size > MAX_BYTES:
        return None
    first = head.split(b"\n", 1)[0]
    try:
        found = msgspec.json.decode(first, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = None  # a document over several lines, or a line longer than the head
    if found is not None and b"\n" in head.strip():
        benchmark = {"request_throughput", "metrics"} & set(found)
        return {} if benchmark else None  # a line a request: a log
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _log(name: str, path: Path, config: Config, span: Span) -> Side:
    source = config.gateways[0] if config.gateways else GatewaySource("gateway")
    side = from_requests.log_side(name, [path], config, source, span)
    if not side.samples:
        what = "in its range" if span.limited else "that counts"
        raise CompareError(f"{name}: has no request {what}")
    return side


def _benchmarks(name: str, path: Path, classes: Sequence[SloClass], span: Span) -> Side:
    _no_range(name, span)
    runs, problems = read_files([path])
    curves, more = curves_by_class(runs, classes)
    if not any(curves):
        reason = str(problems[0]) if problems else f"{name}: no benchmark's result"
        raise CompareError(reason)
    return from_sweep.curves_side(name, curves, map(str, [*problems, *more]))


def _no_range(name: str, span: Span) -> None:
    if span.limited:
        raise CompareError(f"{name}: benchmark results have no range of time")

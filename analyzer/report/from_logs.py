"""Reports logs and recordings: finds the files, reads them, and shows how far it is."""

from __future__ import annotations

import glob
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import click

from analyzer.config import Config
from analyzer.config_gateways import GatewaySource
from analyzer.report.constraints import Constraint
from analyzer.report.report import Report, Row
from analyzer.report.requests_csv import RequestsFile
from analyzer.report.run import (
    OnBytes,
    Part,
    Rules,
    ignore_bytes,
    run_here,
    run_on_cluster,
)
from analyzer.report.summary import Summary
from analyzer.report.tables import report_of
from analyzer.report.trace import Collector, Workload
from analyzer.slo import matched_headers
from analyzer.sources.log_blocks import LogError, Piece, pieces_of, size_of

if TYPE_CHECKING:
    from analyzer.sweep.curve import Curve

NO_CONSTRAINTS = (
    "request logs do not tell what bound the engine; a recording or --prometheus does"
)


class NothingRead(ValueError):  # noqa: N818  it is nobody's error
    """No log could be read; the text says why, one sentence a log."""


def report_logs(
    names: Sequence[str],
    config: Config,
    source: GatewaySource,
    *,
    requests_file: Path | None = None,
    scheduler: str | None = None,
    curves: Sequence[Sequence[Curve]] = (),
    replicas: int = 1,
) -> Report:
    """Returns the report of logs, patterns of names, and recordings.

    Beside the *curves* of a sweep, each of one server, when there are any.

    Raises NothingRead when none can be read, and ClusterError.
    """
    rules = rules_of(config, source)
    paths, constraints, errors = _found(names, config)
    pieces = _pieces(paths, source, config, errors)
    readable = [piece for piece in pieces if size_of(piece)]
    if errors and not readable and not constraints:
        raise NothingRead("; ".join(errors.values()))
    summary = Summary()
    parts: list[Part] = []
    rows = RequestsFile(requests_file, rules.judge()) if requests_file else None
    try:
        with progress(readable) as on_bytes:
            if scheduler is None:
                found = run_here(
                    readable,
                    rules,
                    on_bytes=on_bytes,
                    on_columns=rows.add if rows else None,
                )
            else:
                found = run_on_cluster(readable, rules, scheduler, on_bytes=on_bytes)
            for part in found:
                summary.merge(part.summary)
                part.summary = Summary()
                parts.append(part)
    finally:
        if rows is not None:
            rows.close()
    parts += [Part(Piece(path, source), error=text) for path, text in errors.items()]
    parts += [Part(piece) for piece in pieces if piece not in readable]
    return report_of(
        summary,
        config.slo_classes,
        parts=parts,
        constraints=constraints,
        missing={} if constraints else {"constraints": NO_CONSTRAINTS},
        beside=_beside(summary, curves, replicas),
    )


def _beside(
    summary: Summary, curves: Sequence[Sequence[Curve]], replicas: int
) -> tuple[list[Row], list[Row]]:
    """Returns production's stretches beside *curves*, and a verdict on each curve."""
    if not curves:
        return [], []
    # As for recordings: most reports have no sweep beside them.
    from analyzer.report.reconcile import reconciled  # noqa: PLC0415

    return reconciled(summary, curves, replicas)


def trace_logs(
    names: Sequence[str],
    config: Config,
    source: GatewaySource,
    *,
    key: bytes,
    model: str,
    k: int,
) -> tuple[Workload, list[str]]:
    """Returns the anonymised workload of logs, and a sentence for what is not read.

    Raises NothingRead when none can be read.
    """
    rules = rules_of(config, source)
    paths, _, errors = _found(names, config, verdicts=False)
    pieces = _pieces(paths, source, config, errors)
    readable = [piece for piece in pieces if size_of(piece)]
    if errors and not readable:
        raise NothingRead("; ".join(errors.values()))
    collector = Collector(rules.judge(), key=key, model=model)
    said = list(errors.values())
    with progress(readable) as on_bytes:
        for part in run_here(
            readable, rules, on_bytes=on_bytes, on_columns=collector.add
        ):
            said += [part.error] if part.error else []
    return collector.workload(k=k), said


def _pieces(
    paths: Sequence[Path],
    source: GatewaySource,
    config: Config,
    errors: dict[Path, str],
) -> list[Piece]:
    """Returns the pieces of logs; what is wrong with one is added to *errors*."""
    pieces: list[Piece] = []
    headers = matched_headers(config.slo_classes)
    for path in paths:
        try:
            pieces += pieces_of(path, source, headers) or [Piece(path, source)]
        except LogError as error:
            errors[path] = str(error)
    return pieces


def rules_of(config: Config, source: GatewaySource) -> Rules:
    """Returns how requests are judged by a configuration."""
    aliases = {alias: name for e in config.engines for alias, name in e.aliases.items()}
    return Rules(config.slo_classes, aliases, frozenset(source.policy_statuses))


def _found(
    names: Sequence[str], config: Config, *, verdicts: bool = True
) -> tuple[list[Path], list[Constraint], dict[Path, str]]:
    """Returns the logs that *names* mean, verdicts of recordings, and errors."""
    paths: list[Path] = []
    constraints: list[Constraint] = []
    errors: dict[Path, str] = {}
    for name in names:
        path = Path(name)
        if path.is_dir():
            # Who has logs only need not load all that reads engines.
            from analyzer.report import recordings  # noqa: PLC0415

            try:
                log, found = recordings.read_recording(path, config, verdicts=verdicts)
            except recordings.RecordingError as error:
                errors[path] = str(error)
                continue
            constraints += found
            paths += [log] if log is not None else []
            continue
        if path.exists():
            paths.append(path)
            continue
        matches = glob.glob(name, recursive=True)  # noqa: PTH207  absolute ones too
        matched = sorted(Path(match) for match in matches)
        paths += [match for match in matched if match.is_file()]
        if not matched:
            errors[path] = f"{name}: no such file, and no file matches"
    return list(dict.fromkeys(paths)), constraints, errors


@contextmanager
def progress(pieces: Sequence[Piece]) -> Iterator[OnBytes]:
    """Shows a progress bar on a terminal while the pieces are read."""
    size = sum(size_of(piece) for piece in pieces)
    if not sys.stderr.isatty():
        yield ignore_bytes
        return
    with click.progressbar(length=size, label="reading", file=sys.stderr) as bar:
        lock = Lock()

        def on_bytes(read: int) -> None:
            with lock:  # threads tell it
                bar.update(read)

        yield on_bytes

"""Samples of request logs, recordings, and the requests that a report wrote as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from analyzer.compare.sample import (
    CompareError,
    Sample,
    Side,
    attainment,
    figures,
    lengths,
)
from analyzer.compare.span import Span
from analyzer.config import Config
from analyzer.config_gateways import GatewaySource
from analyzer.report.columns import Columns
from analyzer.report.requests_csv import COLUMNS
from analyzer.report.run import Rules, run_here
from analyzer.report.verdicts import BAD, GOOD, MISSES, UNEVALUABLE, Verdicts
from analyzer.slo import NO_CLASS, SloClass, matched_headers
from analyzer.sources.log_blocks import LogError, pieces_of
from analyzer.sweep.intervals import Bools, Floats, cut

MOST_REQUESTS = 20_000_000
_ERROR = MISSES.index("error")
_FIELDS = ("start", "ttft", "tpot", "max_gap", "e2e", "prompt", "output")


@dataclass(slots=True)
class _Rows:
    """Columns of one class and model, in pieces."""

    parts: dict[str, list[Floats]] = field(default_factory=dict)

    def add(self, **columns: Floats) -> None:
        for name, values in columns.items():
            self.parts.setdefault(name, []).append(values)

    def joined(self, name: str) -> Floats:
        return np.concatenate(self.parts[name])


def log_side(
    name: str, paths: Sequence[Path], config: Config, source: GatewaySource, span: Span
) -> Side:
    """Returns the requests of logs by class and model. Raises CompareError."""
    classes = config.slo_classes
    aliases = {alias: m for e in config.engines for alias, m in e.aliases.items()}
    rules = Rules(classes, aliases, frozenset(source.policy_statuses))
    judge = rules.judge()
    found: dict[str, _Rows] = {}

    def collect(columns: Columns, verdicts: Verdicts) -> None:
        models = np.array([judge.served(kind.model) for kind in columns.kinds])
        counted = np.isin(verdicts.code, (GOOD, BAD, UNEVALUABLE))
        counted &= span.holds(columns.start)
        keys = verdicts.slo_class * len(models) + columns.kind
        for key in np.unique(keys[counted]).tolist():
            number, kind = divmod(key, len(models))
            rows = counted & (keys == key)
            slo_class = classes[number].name if number < len(classes) else NO_CLASS
            found.setdefault(f"{slo_class} {models[kind]}".strip(), _Rows()).add(
                **{name: getattr(columns, name)[rows] for name in _FIELDS},
                code=verdicts.code[rows].astype(float),
                failed=(verdicts.missed[rows] >> _ERROR & 1).astype(float),
            )

    warnings = []
    try:
        headers = matched_headers(classes)
        pieces = [piece for path in paths for piece in pieces_of(path, source, headers)]
    except LogError as error:
        raise CompareError(str(error)) from None
    for part in run_here(pieces, rules, on_columns=collect):
        warnings += [part.error] if part.error else []
    by_name = {slo_class.name: slo_class for slo_class in classes}
    samples = {
        key: _sample(rows, by_name.get(key.partition(" ")[0]), span)
        for key, rows in sorted(found.items())
    }
    return Side(name, "requests", samples, tuple(warnings))


def csv_side(name: str, path: Path, span: Span) -> Side:
    """Returns the requests of a report's CSV by class and model.

    The verdicts are those of the report. Raises CompareError.
    """
    found: dict[str, _Rows] = {}
    rows: dict[str, list[tuple[float, ...]]] = {}
    for number, row in enumerate(_csv_rows(path)):
        if number >= MOST_REQUESTS:
            raise CompareError(f"{path}: more than {MOST_REQUESTS} requests")
        code = {"good": GOOD, "bad": BAD, "unevaluable": UNEVALUABLE}.get(
            row["verdict"]
        )
        if code is None:
            continue
        rows.setdefault(f"{row['class']} {row['model']}".strip(), []).append(
            (
                *(_number(row[f]) for f in ("start", "ttft_seconds", "tpot_seconds")),
                _number(row["e2e_seconds"]),
                float(code),
                float("error" in row["reason"]),
            )
        )
    for key, listed in rows.items():
        table = np.array(listed, dtype=np.float64)
        table = table[span.holds(table[:, 0])]
        if len(table):
            unknown = np.full(len(table), np.nan)
            found[key] = _Rows()
            found[key].add(
                start=table[:, 0],
                ttft=table[:, 1],
                tpot=table[:, 2],
                e2e=table[:, 3],
                code=table[:, 4],
                failed=table[:, 5],
                max_gap=unknown,
                prompt=unknown,
                output=unknown,
            )
    return Side(
        name,
        "requests",
        {key: _sample(found[key], None, span) for key in sorted(found)},
    )


def _csv_rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise CompareError(f"{path}: not the CSV that goodput report writes")
        try:
            for row in reader:
                if None in row or None in row.values():
                    raise CompareError(f"{path}: line {reader.line_num}: is cut")
                yield row
        except csv.Error as error:
            raise CompareError(f"{path}: line {reader.line_num}: {error}") from None


def _number(text: str) -> float:
    try:
        return float(text) if text else np.nan
    except ValueError:
        return np.nan


def _sample(rows: _Rows, slo_class: SloClass | None, span: Span) -> Sample:
    order = np.argsort(rows.joined("start"), kind="stable")
    table = {name: rows.joined(name)[order] for name in rows.parts}
    start, e2e, failed = table["start"], table["e2e"], table["failed"] > 0
    ends = start + np.where(np.isnan(e2e), 0.0, e2e)
    known = ~np.isnan(start)
    seconds = span.seconds(start[known], ends[known])
    arriving = span.seconds(start[known], start[known])
    judged: Bools = table["code"] != UNEVALUABLE
    scores = _scores(table, slo_class, failed)
    in_flight = float(np.nansum(e2e)) / seconds if seconds else len(start)
    blocks = cut([scores], [in_flight])
    kept = cut([scores[judged]], [in_flight * judged.mean()]) if len(judged) else blocks
    named = {"prompt_tokens": table["prompt"], "output_tokens": table["output"]}
    workload = {name: lengths(values) for name, values in named.items()}
    unjudged = int((~judged).sum())
    return Sample(
        requests=len(start),
        seconds=seconds,
        attainment=attainment(table["code"][judged] == GOOD, scores[judged], kept),
        latencies=figures(
            {name: table[name] for name in ("ttft", "tpot", "e2e")}, ~failed, blocks
        ),
        workload={name: found for name, found in workload.items() if found},
        rate=len(start) / arriving if arriving else None,
        throughput=float((~failed).sum()) / seconds if seconds else None,
        blocks=kept.number,
        reason=f"{unjudged} requests could not be judged" if unjudged else "",
    )


def _scores(
    table: dict[str, Floats], slo_class: SloClass | None, failed: Bools
) -> Floats:
    """Returns how near each request came to its limits; without a class, its E2E."""
    score = np.zeros(len(failed))
    for criterion, threshold in (slo_class.good if slo_class else {}).items():
        limit = threshold.seconds + threshold.per_prompt_token * np.nan_to_num(
            table["prompt"]
        )
        score = np.fmax(score, table[criterion] / limit)
    if slo_class is None:
        score = np.fmax(score, table["e2e"])
    return np.where(failed, np.inf, score)

"""Reads benchmark files from the disk, with what lies beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from analyzer.benchmarks import aiperf, inference_perf
from analyzer.benchmarks.read import read_runs
from analyzer.benchmarks.run import Problem, Run
from analyzer.benchmarks.table import FieldMap

MAX_BYTES = 1 << 30
AIPERF_RECORDS = "profile_export.jsonl"
INFERENCE_PERF_REQUESTS = "per_request_lifecycle_metrics.json"


def read_files(
    paths: Sequence[Path], fields: FieldMap | None = None
) -> tuple[list[Run], list[Problem]]:
    """Returns the runs of all files and what is wrong with some; each file once.

    A folder stands for the .json and .jsonl files in it. Single requests that aiperf
    and inference-perf write beside their results are read with them.
    """
    runs: list[Run] = []
    problems: list[Problem] = []
    listed = list(dict.fromkeys(_expanded(paths)))
    folders = {p.parent for p in listed if p.name == "profile_export_aiperf.json"}
    stages: dict[Path, list[Run]] = {}
    for path in listed:
        if path.name == INFERENCE_PERF_REQUESTS:
            stages.setdefault(path.parent, [])
            continue
        if path.name == AIPERF_RECORDS and path.parent in folders:
            continue
        for item in _read(path, fields):
            if isinstance(item, Problem):
                if not (item.foreign and path not in paths):
                    problems.append(item)
            elif item.tool == "inference-perf":
                stages.setdefault(path.parent, []).append(item)
            elif item.tool == "aiperf" and path.name != AIPERF_RECORDS:
                run, problem = _with_records(item, path.parent / AIPERF_RECORDS)
                runs.append(run)
                problems += [problem] if problem else []
            else:
                runs.append(item)
    for folder, found in stages.items():
        detailed, problem = _with_stages(found, folder / INFERENCE_PERF_REQUESTS)
        runs += detailed
        problems += [problem] if problem else []
    return runs, problems


def _expanded(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            inside = sorted(
                p for p in path.iterdir() if p.suffix in {".json", ".jsonl"}
            )
            yield from inside
        else:
            yield path


def _read(path: Path, fields: FieldMap | None) -> Iterator[Run | Problem]:
    data = _bytes(path)
    if isinstance(data, Problem):
        yield data
    else:
        yield from read_runs(data, str(path), fields)


def _bytes(path: Path) -> bytes | Problem:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        return Problem(str(path), "", f"cannot be read: {error.strerror or error}")
    if len(data) > MAX_BYTES:
        return Problem(str(path), "", f"is larger than {MAX_BYTES >> 30} GiB")
    return data


def _with_records(run: Run, path: Path) -> tuple[Run, Problem | None]:
    if not path.is_file():
        return run, None
    problem = None
    for item in _read(path, None):
        if isinstance(item, Run) and item.requests is not None:
            return aiperf.with_requests(run, item.requests, str(path))
        problem = item if isinstance(item, Problem) else problem
    return run, problem


def _with_stages(runs: list[Run], path: Path) -> tuple[list[Run], Problem | None]:
    if not path.is_file():
        return runs, None
    if not runs:
        message = "single requests without the reports of their stages"
        return runs, Problem(str(path), "", message)
    data = _bytes(path)
    if isinstance(data, Problem):
        return runs, data
    return inference_perf.with_requests(runs, data, str(path))

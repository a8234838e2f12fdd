"""Runs put together: repeats of one load point, and the configurations they are of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from analyzer.benchmarks.run import Knob, Problem, Run

CONCURRENCY, REQUEST_RATE = "concurrency", "request_rate"


@dataclass(frozen=True, slots=True)
class Pool:
    """Runs at one load of one configuration."""

    config: Mapping[str, Knob]
    axis: str
    load: float
    runs: tuple[Run, ...]


def unique(runs: Iterable[Run]) -> tuple[list[Run], list[Problem]]:
    """Returns *runs* without those that are in several files, and which files repeat.

    `vllm bench sweep` writes every run into a file of its own and into a summary.
    """
    seen: dict[tuple[object, ...], Run] = {}
    repeats: dict[str, int] = {}
    for run in runs:
        key = (
            run.began,
            run.duration,
            run.completed,
            run.failed,
            run.concurrency,
            run.request_rate,
            run.output_tokens,
        )
        if key in seen:
            repeats[run.file] = repeats.get(run.file, 0) + 1
        else:
            seen[key] = run
    problems = [
        Problem(file, "", f"{number} of its runs are in other files too, counted once")
        for file, number in repeats.items()
    ]
    return list(seen.values()), problems


def by_folder(runs: Sequence[Run]) -> list[Run]:
    """Returns *runs* with their folder as a knob, where nothing else tells apart.

    Loads that are in several folders, with the same knobs, are of configurations
    that the files do not name.
    """
    folders: dict[tuple[object, ...], set[str]] = {}
    for run in runs:
        folders.setdefault(_key(run), set()).add(_folder(run))
    if all(len(found) == 1 for found in folders.values()):
        return list(runs)
    return [
        replace(run, config={**run.config, "directory": _folder(run)}) for run in runs
    ]


def _folder(run: Run) -> str:
    return PurePath(run.file).parent.name or "."


def _key(run: Run) -> tuple[object, ...]:
    return (*sorted(run.config.items()), run.concurrency, run.request_rate)


def pools(runs: Sequence[Run]) -> list[list[Pool]]:
    """Returns the curves in *runs*: pools of one configuration and axis, by load.

    A finite request rate is an open loop's load; its limit of concurrency, if any,
    is a knob. Without either, all requests come at once.
    """
    curves: dict[tuple[object, ...], dict[float, Pool]] = {}
    for run in runs:
        config = dict(run.config)
        if run.request_rate is not None:
            axis, load = REQUEST_RATE, run.request_rate
            if run.concurrency is not None:
                config["max_concurrency"] = run.concurrency
        else:
            axis = CONCURRENCY
            load = math.inf if run.concurrency is None else run.concurrency
        key = (axis, *sorted((k, str(v)) for k, v in config.items()))
        curve = curves.setdefault(key, {})
        known = curve.get(load)
        before = known.runs if known else ()
        curve[load] = Pool(config, axis, load, (*before, run))
    return [
        [curve[load] for load in sorted(curve)]
        for _, curve in sorted(curves.items(), key=lambda item: str(item[0]))
    ]

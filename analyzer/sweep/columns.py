"""The requests of one load point as columns, and what `is_good` says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analyzer.benchmarks.run import Requests, Run
from analyzer.judgement import DOES_NOT_APPLY, is_good
from analyzer.slo import SloClass
from analyzer.sweep.intervals import Blocks, Bools, Floats, cut

_NAMES = ("ttft", "tpot", "max_gap", "e2e", "prompt_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class Columns:
    """Requests of one or several runs, each run's in the order they began.

    NaN is not known. `bounds` has where each run begins, and the end; `seconds` how
    long each took. `gaps` are all waits between outputs of answers that succeeded.
    """

    ttft: Floats
    tpot: Floats
    max_gap: Floats
    e2e: Floats
    prompt_tokens: Floats
    output_tokens: Floats
    failed: Bools
    gaps: Floats
    bounds: tuple[int, ...]
    seconds: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.failed)

    def latency(self, name: str) -> Floats:
        """Returns a latency of the answers that succeeded; `itl` is every gap."""
        if name == "itl":
            return self.gaps
        values: Floats = getattr(self, name)[~self.failed]
        return values[~np.isnan(values)]


def columns(runs: Sequence[Run]) -> Columns | None:
    """Returns the single requests of *runs*, None unless every run has them."""
    listed = [run.requests for run in runs]
    if not listed or any(requests is None for requests in listed):
        return None
    parts = [_ordered(requests) for requests in listed if requests is not None]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in _NAMES}
    return Columns(
        **joined,
        failed=np.concatenate([part["failed"] for part in parts]).astype(bool),
        gaps=np.concatenate([np.asarray(r.gaps) for r in listed if r is not None]),
        bounds=tuple(np.cumsum([0, *(len(part["failed"]) for part in parts)]).tolist()),
        seconds=tuple(run.duration for run in runs),
    )


def _ordered(requests: Requests) -> dict[str, Floats]:
    begin = np.asarray(requests.start, dtype=np.float64)
    order = np.argsort(begin, kind="stable")  # NaN stays last, in the file's order
    return {
        name: np.asarray(getattr(requests, name), dtype=np.float64)[order]
        for name in (*_NAMES, "failed")
    }


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on each request of a class; neither good nor bad is unevaluable.

    `score` is how near a request came to its limits: 1 is at one, infinite a failure.
    `taken` says which requests are the class's own.
    """

    good: Bools
    bad: Bools
    score: Floats
    taken: Bools
    missed: dict[str, int]
    met: dict[str, tuple[int, int]]

    @property
    def unevaluable(self) -> int:
        """How many requests of the class cannot be judged."""
        return int((self.taken & ~self.good & ~self.bad).sum())


def judged(requests: Columns, slo_class: SloClass) -> Judged:
    """Returns what *slo_class* says of each request; its range of prompts counts.

    `met` has for each criterion how many requests surely and possibly met it.
    """
    taken = np.ones(len(requests), dtype=bool)
    if slo_class.match.prompt_tokens is not None:
        low, high = slo_class.match.prompt_tokens
        taken = (requests.prompt_tokens >= low) & (requests.prompt_tokens <= high)
    single = requests.output_tokens <= 1
    values = {
        "ttft": requests.ttft,
        "tpot": np.where(single, DOES_NOT_APPLY, requests.tpot),
        "max_gap": np.where(single, DOES_NOT_APPLY, requests.max_gap),
        "e2e": requests.e2e,
    }
    limits = {
        criterion: threshold.seconds
        + threshold.per_prompt_token * requests.prompt_tokens
        if threshold.per_prompt_token
        else np.float64(threshold.seconds)
        for criterion, threshold in slo_class.good.items()
    }
    good, bad = is_good(values, limits, requests.failed)
    counted = taken & ~requests.failed
    missed, met, score = {}, {}, np.zeros(len(requests))
    for criterion, limit in limits.items():
        value = values[criterion]
        over, within = counted & (value > limit), counted & (value <= limit)
        missed[criterion] = int(over.sum())
        met[criterion] = (int(within.sum()), int((counted & ~over).sum()))
        score = np.fmax(score, value / limit)
    missed["error"] = int((taken & requests.failed).sum())
    score = np.where(requests.failed, np.inf, score)
    return Judged(good & taken, bad & taken, score, taken, missed, met)


def blocks(requests: Columns, judgement: Judged) -> Blocks:
    """Returns the blocks of time of the requests that a class takes."""
    scores, in_flight = [], []
    for index, seconds in enumerate(requests.seconds):
        part = slice(requests.bounds[index], requests.bounds[index + 1])
        taken = judgement.taken[part]
        scores.append(judgement.score[part][taken])
        at_once = float(np.nansum(requests.e2e[part][taken])) / seconds
        in_flight.append(at_once)
    return cut(scores, in_flight)

"""One measured load point as a benchmark's file tells it: base units, no judgement."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

UNKNOWN = math.nan
LATENCIES = ("ttft", "tpot", "itl", "e2e")
Knob = str | float


@dataclass(slots=True)
class Requests:
    """Columns of single requests, all of the same length, but `gaps`.

    Seconds and tokens; NaN is not known. `start` has any origin. `gaps` holds the
    waits between outputs of all answers that succeeded, one after the other.
    """

    start: array[float] = field(default_factory=lambda: array("d"))
    ttft: array[float] = field(default_factory=lambda: array("d"))
    tpot: array[float] = field(default_factory=lambda: array("d"))
    max_gap: array[float] = field(default_factory=lambda: array("d"))
    e2e: array[float] = field(default_factory=lambda: array("d"))
    prompt_tokens: array[float] = field(default_factory=lambda: array("d"))
    output_tokens: array[float] = field(default_factory=lambda: array("d"))
    failed: array[int] = field(default_factory=lambda: array("b"))
    gaps: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.failed)

    def add(
        self,
        *,
        failed: bool,
        start: float | None = None,
        ttft: float | None = None,
        e2e: float | None = None,
        tpot: float | None = None,
        gaps: Iterable[float] = (),
        max_gap: float | None = None,
        prompt_tokens: float | None = None,
        output_tokens: float | None = None,
    ) -> None:
        """Adds one request; without a *tpot* it follows from the other times."""
        between = gaps if isinstance(gaps, array) else array("d", gaps)
        if tpot is None and not failed:
            tpot = _tpot(ttft, e2e, output_tokens)
        if max_gap is None and between:
            max_gap = max(between)
        self.start.append(_known(start))
        self.ttft.append(_known(ttft))
        self.tpot.append(_known(tpot))
        self.max_gap.append(_known(max_gap))
        self.e2e.append(_known(e2e))
        self.prompt_tokens.append(_known(prompt_tokens))
        self.output_tokens.append(_known(output_tokens))
        self.failed.append(failed)
        if not failed:
            self.gaps.extend(between)


def _known(value: float | None) -> float:
    return UNKNOWN if value is None else value


def _tpot(
    ttft: float | None, e2e: float | None, output_tokens: float | None
) -> float | None:
    if ttft is None or e2e is None or output_tokens is None or output_tokens <= 1:
        return None
    return (e2e - ttft) / (output_tokens - 1)


@dataclass(frozen=True, slots=True)
class Run:
    """One load point of one file.

    `concurrency` and `request_rate` are what the client was told, None for no limit.
    `config` holds knobs that the file names and that tell configurations apart.
    `quantiles` maps a latency to seconds by quantile, for files without single
    requests; where there are some, `requests` decides. `sent` counts what was
    measured, failures in it. `reported_goodput` is the tool's own, at thresholds that
    the file does not name.
    """

    file: str
    place: str
    tool: str
    duration: float
    completed: int
    failed: int
    model: str = ""
    concurrency: float | None = None
    request_rate: float | None = None
    config: Mapping[str, Knob] = field(default_factory=dict)
    input_tokens: float | None = None
    output_tokens: float | None = None
    requests: Requests | None = None
    quantiles: Mapping[str, Mapping[float, float]] = field(default_factory=dict)
    reported_goodput: float | None = None
    began: str = ""
    notes: tuple[str, ...] = ()

    @property
    def sent(self) -> int:
        """Requests measured, failures among them."""
        return self.completed + self.failed


@dataclass(frozen=True, slots=True)
class Problem:
    """What could not be read, and where: `file: place: what is wrong`.

    `foreign` says that the file is none of a benchmark's: in a folder it is passed by.
    """

    file: str
    place: str
    message: str
    foreign: bool = False

    def __str__(self) -> str:
        return ": ".join(p for p in (self.file, self.place, self.message) if p)


class BenchmarkError(ValueError):
    """A document that gives no run, with the reason in one sentence."""

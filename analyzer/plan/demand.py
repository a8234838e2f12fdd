"""What a server is asked in production: lengths, and how evenly requests come."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from random import Random
from statistics import fmean

import msgspec

from analyzer.capacity.arrivals import gamma
from analyzer.capacity.workload import Request
from analyzer.plan.settings import PlanError

LEAST_REQUESTS = 30
MOST_REQUESTS = 1_000_000
MOST_TOKENS = 1_000_000  # of a request, either way
MOST_ANSWER = 20_000  # tokens on average; more would take hours to simulate
MOST_TIME = 1e18
POISSON = 1.0
MOST_VARIATION = 5.0  # of gaps
PAUSE = 100.0  # times the mean of the shorter gaps
MOST_PAUSES = 500  # gaps for each
WINDOWS = (2, 5, 10, 20, 50)  # mean requests in each
LEAST_WINDOWS = 10


@dataclass(frozen=True, slots=True)
class Demand:
    """Pairs of prompt and output tokens to draw from, and the gaps' variation.

    `variation` is the coefficient of variation of the time between two requests: 1
    for independent clients, more for bursts. `source` says where all this is from.
    """

    lengths: Sequence[tuple[int, int]]
    variation: float
    source: str

    @property
    def prompt_tokens(self) -> float:
        """The mean of prompts."""
        return fmean(prompt for prompt, _ in self.lengths)

    @property
    def output_tokens(self) -> float:
        """The mean of answers."""
        return fmean(output for _, output in self.lengths)

    @property
    def longest(self) -> int:
        """The most tokens of a request, prompt and answer together."""
        return max(prompt + output for prompt, output in self.lengths)

    def requests(self, rate: float, number: int, seed: int) -> list[Request]:
        """Returns *number* requests, *rate* of them a second; the seed is all chance.

        The same seed gives the same requests at every rate, only closer together; at
        an infinite one all come at once.
        """
        rng = Random(seed)  # noqa: S311 - simulated chance, no secret
        drawn = rng.choices(self.lengths, k=number)
        arrivals = islice(gamma(rng, rate, cv=self.variation), number)
        return [
            Request(at, arrival, prompt, output)
            for at, (arrival, (prompt, output)) in enumerate(
                zip(arrivals, drawn, strict=True)
            )
        ]


def of_points(points: Iterable[Sequence[Request]]) -> Demand:
    """Returns the demand of a benchmark: its lengths, from independent clients."""
    lengths = [(r.prompt_tokens, r.output_tokens) for point in points for r in point]
    return Demand(lengths, POISSON, "the lengths of the sweep, Poisson arrivals")


class _Line(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int


def of_trace(lines: Iterable[bytes], name: str, *, tick: float) -> Demand:
    """Returns the demand of a trace as `goodput trace` writes it.

    *tick* is the seconds of its `timestamp`. Raises PlanError with file and line.
    """
    lengths, stamps = [], []
    for at, row in enumerate(_rows(lines, name), 1):
        if at > MOST_REQUESTS:
            raise PlanError(f"{name}: more than {MOST_REQUESTS} requests")
        lengths.append((max(1, row.input_length), max(1, row.output_length)))
        stamps.append(row.timestamp * tick)
    if len(lengths) < LEAST_REQUESTS:
        raise PlanError(f"{name}: {len(lengths)} requests; {LEAST_REQUESTS} are needed")
    answer = fmean(output for _, output in lengths)
    if answer > MOST_ANSWER:
        raise PlanError(
            f"{name}: answers of {answer:.0f} tokens on average are not simulated"
        )
    variation = _variation(stamps)
    told = "as even as chance" if variation == POISSON else "bursts as in it"
    return Demand(lengths, variation, f"{name} ({len(lengths)} requests, {told})")


def _rows(lines: Iterable[bytes], name: str) -> Iterator[_Line]:
    decoder = msgspec.json.Decoder(_Line)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = decoder.decode(line)
        except (msgspec.DecodeError, ValueError) as error:
            raise PlanError(f"{name}: line {number}: {error}") from None
        lengths = (row.input_length, row.output_length)
        if not abs(row.timestamp) < MOST_TIME or min(lengths) < 0:
            raise PlanError(f"{name}: line {number}: no time or length")
        if max(lengths) > MOST_TOKENS:
            raise PlanError(
                f"{name}: line {number}: more than {MOST_TOKENS} tokens in a request"
            )
        yield row


def _variation(stamps: list[float]) -> float:
    """Returns the variation of the gaps, at least that of independent clients.

    From the dispersion of counts in neighbouring windows, as gaps of that variation
    would have it (Allan factor), since the deviation of the gaps themselves takes a
    night without requests for a burst after it. A steadier trace is one of few
    clients that wait for their answers, which says nothing of a higher rate.
    """
    inorder = [later - earlier for earlier, later in pairwise(sorted(stamps))]
    gaps = sorted(inorder)
    means = [total / at for at, total in enumerate(accumulate(gaps), 1)]
    while len(means) > 1 and gaps[len(means) - 1] > PAUSE * means[-2]:
        means.pop()
    mean = means[-1] or fmean(gaps)
    # The few longest are when nobody was there; many would be what lies between bursts.
    longest = gaps[max(len(means), len(gaps) - len(gaps) // MOST_PAUSES) - 1]
    even = [mean if gap > longest else gap for gap in inorder]
    stamps = list(accumulate(even, initial=0.0))
    found = POISSON
    for each in WINDOWS if mean > 0 else ():
        windows = len(stamps) / each
        # What chance allows: three deviations of the factor of a Poisson process.
        if windows >= LEAST_WINDOWS:
            factor = _dispersion(stamps, each * mean)
            if factor > 1.0 + 3.0 * math.sqrt(3.0 / windows):
                found = max(found, factor)
    return min(MOST_VARIATION, math.sqrt(found))


def _dispersion(stamps: Sequence[float], width: float) -> float:
    """Returns the Allan factor of counts in windows of *width* seconds from 0 on.

    1 for Poisson arrivals, whether or not their rate changes slowly.
    """
    counts = Counter(int(stamp / width) for stamp in stamps)
    last = max(counts)
    squares = total = 0
    for window, count in counts.items():
        after = counts.get(window + 1, 0)
        if window < last:
            squares += (after - count) ** 2
            total += after + count
        if window and window - 1 not in counts:
            squares += count**2
            total += count
    return squares / total if total else 1.0

"""Requests to simulate: how long they are, what they share, and when they come.

All chance comes from a `random.Random` that the caller seeds.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks for, and how patient it is.

    `arrival` is in seconds of the simulation's clock. `output_tokens` is where the
    model stops by itself; `max_tokens` (default: the same) cuts it shorter. Requests
    with the same `prefix` have the first `prefix_tokens` of their prompts in common.
    The client leaves `patience` seconds after its arrival, or with the output that
    brings it to `leaves_after` tokens, unless it was answered in full by then.
    """

    number: int
    arrival: float
    prompt_tokens: int
    output_tokens: int
    max_tokens: int | None = None
    tenant: str = ""
    prefix: Hashable = None
    prefix_tokens: int = 0
    patience: float = math.inf
    leaves_after: int | None = None

    def __post_init__(self) -> None:
        asked = self.output_tokens if self.max_tokens is None else self.max_tokens
        shortest = min(self.prompt_tokens, self.output_tokens, asked)
        if shortest < 1 or self.prefix_tokens < 0:
            raise ValueError(f"a request has at least one token each way: {self}")
        if self.prefix_tokens > self.prompt_tokens:
            raise ValueError(f"the shared prefix is longer than the prompt: {self}")


class Lengths(Protocol):
    """A distribution of token counts."""

    def draw(self, rng: Random) -> int:
        """Returns one length, at least 1."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same length."""

    tokens: int

    def draw(self, rng: Random) -> int:
        """Returns the length; nothing is drawn from *rng*."""
        del rng
        return self.tokens


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every length from `low` to `high`, both included, equally often."""

    low: int
    high: int

    def draw(self, rng: Random) -> int:
        """Returns one length."""
        return rng.randint(self.low, self.high)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Lengths around `median` whose logarithm has the deviation `sigma`.

    Held to `low` … `high`. Prompts and answers of chat traffic have 0.7 to 1.2.
    """

    median: float
    sigma: float
    low: int = 1
    high: int = 1_000_000

    def draw(self, rng: Random) -> int:
        """Returns one length."""
        drawn = round(self.median * math.exp(rng.gauss(0.0, self.sigma)))
        return min(self.high, max(self.low, drawn))


@dataclass(frozen=True, slots=True)
class Mix:
    """One tenant's requests: their lengths, prefixes and patience.

    `prefixes` prompts heads (system prompts) of `prefix_tokens` are shared, each
    equally often. `patience` is the mean of an exponential distribution; a share of
    `leavers` leaves after `leaves_after` tokens.
    """

    prompt: Lengths
    output: Lengths
    tenant: str = ""
    max_tokens: int | None = None
    prefixes: int = 0
    prefix_tokens: int = 0
    patience: float = math.inf
    leavers: float = 0.0
    leaves_after: int | None = None

    def requests(
        self, rng: Random, arrivals: Iterable[float], *, first: int = 0
    ) -> Iterator[Request]:
        """Yields a request at each arrival, numbered from *first*.

        The shared head comes on top of the prompt that was drawn.
        """
        for number, arrival in zip(count(first), arrivals, strict=False):
            yield self.request(rng, number, arrival)

    def request(self, rng: Random, number: int, arrival: float) -> Request:
        """Returns one request at *arrival* (seconds)."""
        prompt, output = self.prompt.draw(rng), self.output.draw(rng)
        prefix: Hashable = None
        shared = self.prefix_tokens if self.prefixes else 0
        if shared:
            prefix = (self.tenant, rng.randrange(self.prefixes))
        patience = self.patience
        if math.isfinite(patience):
            patience = rng.expovariate(1.0 / patience)
        leaves_after = self.leaves_after
        if leaves_after is not None and rng.random() >= self.leavers:
            leaves_after = None
        return Request(
            number,
            arrival,
            prompt + shared,
            output,
            self.max_tokens,
            self.tenant,
            prefix,
            shared,
            patience,
            leaves_after,
        )

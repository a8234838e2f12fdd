"""Whether a server holds its headers back until the first token, learnt per route.

vLLM sends headers at once, SGLang (since April 2026) with the first token. Where they
come late the time to the headers is the time to the first token, and a log that knows
no more can be judged by it. That is never assumed: it takes streamed answers whose
first body byte or token was seen too, on the same route of the same log.
"""

from __future__ import annotations

from analyzer.gateways.format import FormatMemory
from analyzer.gateways.values import LONGEST_LABEL
from analyzer.judgement import is_generation

TOGETHER = 0.005  # seconds between headers and first output that are no wait
TELLING = 0.05  # an output sooner than this says nothing, as both come at once
ENOUGH = 20
REMEMBERED = 64
SHARE = 0.95
MOST_ROUTES = 64


class HeaderHabits:
    """Whether headers came with the first output, for the last answers of each route.

    Bounded: generation routes only, the first 64 of them.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}

    def saw(self, route: str, header_time: float, first_output: float) -> None:
        """Takes a streamed answer's times to its headers and to its first output."""
        together = first_output - header_time <= TOGETHER
        if together and first_output < TELLING:
            return
        count, bits = self._seen.get(route, (0, 0))
        if not count and (
            len(self._seen) >= MOST_ROUTES
            or len(route) > LONGEST_LABEL
            or not is_generation(route)
        ):
            return
        kept = (bits << 1 | together) & ((1 << REMEMBERED) - 1)
        self._seen[route] = (min(count + 1, REMEMBERED), kept)

    def routes(self) -> list[tuple[str, int, bool | None]]:
        """Returns each route, how many of its answers told, and what they tell."""
        return [(route, n, self.late(route)) for route, (n, _) in self._seen.items()]

    def memory(self) -> FormatMemory:
        """Returns what was learnt, for `recall` after a restart."""
        return FormatMemory(habits=dict(self._seen))

    def recall(self, memory: FormatMemory) -> None:
        """Goes on from what was learnt before."""
        self._seen = dict(memory.habits)

    def late(self, route: str) -> bool | None:
        """Whether headers come with the first token; None until that is known."""
        count, bits = self._seen.get(route, (0, 0))
        if count < ENOUGH:
            return None
        return bits.bit_count() >= SHARE * count

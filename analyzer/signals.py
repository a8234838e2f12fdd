"""A derived number with its state: absent is not 0, stale is not saturated."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """What a value is worth."""

    PRESENT = "present"
    ABSENT = "absent"
    STALE = "stale"
    PROXY = "proxy"  # another quantity stands in for it
    BOUNDED = "bounded"  # the truth lies between two known values


@dataclass(frozen=True, slots=True)
class Signal:
    """A number in base units, or the reason why there is none.

    `value` is None unless the state is present, stale or proxy; `lower` and `upper`
    are set when it is bounded. `reason` says why a value is not simply present.
    """

    value: float | None
    state: State
    reason: str = ""
    lower: float | None = None
    upper: float | None = None

    def __bool__(self) -> bool:
        """Whether the number can be used as it is."""
        return self.state is State.PRESENT


def present(value: float) -> Signal:
    """Returns a value that was measured."""
    return Signal(value, State.PRESENT)


def absent(reason: str) -> Signal:
    """Returns the lack of a value, with its reason."""
    return Signal(None, State.ABSENT, reason)


def stale(value: float | None, reason: str) -> Signal:
    """Returns a value whose source has stopped updating it."""
    return Signal(value, State.STALE, reason)


def proxy(value: float, reason: str) -> Signal:
    """Returns another quantity's value in place of one that nobody publishes."""
    return Signal(value, State.PROXY, reason)


def bounded(lower: float, upper: float, reason: str) -> Signal:
    """Returns the two values the truth lies between."""
    return Signal(None, State.BOUNDED, reason, lower, upper)

"""Adds up for how long a GPU's clocks were held down, and by what.

Counters of the same reason overlap, so that they are never added: the one that grew
most counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from analyzer.gpus.derive import throttle_shares
from analyzer.gpus.fields import Field
from analyzer.gpus.page import GpuPage, RawDevice
from analyzer.gpus.trace import Span
from analyzer.signals import Signal, State, absent, bounded, present

COUNTERS: Mapping[str, tuple[Field, ...]] = {
    "power": (Field.POWER_SECONDS, Field.POWER_CAP_SECONDS),
    "thermal": (
        Field.THERMAL_SECONDS,
        Field.SW_THERMAL_SECONDS,
        Field.HW_THERMAL_SECONDS,
    ),
    "hardware": (Field.BRAKE_SECONDS,),
    "sync_boost": (Field.SYNC_BOOST_SECONDS, Field.SYNC_BOOST_EVENT_SECONDS),
}
# A page may show at once what came about since the refresh before the last page.
LATE_SECONDS = 60.0
ONCE = "the counter was read once; a share takes the next change of the figures"


@dataclass(slots=True)
class BoardCounters:
    """The throttle counters of a board as read last, at *at* (Unix seconds)."""

    at: float
    seconds: dict[str, float] = field(default_factory=dict)


def counters(device: RawDevice, at: float) -> BoardCounters:
    """Returns the throttle counters on a page."""
    known = {
        found.value: device.values[found]
        for fields in COUNTERS.values()
        for found in fields
        if found in device.values
    }
    return BoardCounters(at, known)


def grown(before: BoardCounters | None, now: BoardCounters) -> dict[str, float]:
    """Returns the seconds that each reason with a counter added since *before*.

    A counter that fell began anew with the driver, and one that grew by more than
    the time that passed was misread: both add nothing.
    """
    result: dict[str, float] = {}
    for reason, fields in COUNTERS.items():
        known = [name for name in fields if name in now.seconds]
        if not known:
            continue
        most = 0.0
        if before is not None:
            possible = now.at - before.at + LATE_SECONDS
            steps = (
                now.seconds[name] - before.seconds.get(name, now.seconds[name])
                for name in known
            )
            most = max((step for step in steps if 0 <= step <= possible), default=0.0)
        result[reason] = most
    return result


def integrated(shares: Mapping[str, Signal], seconds: float) -> dict[str, float]:
    """Returns the seconds under each reason of which only a share or state is told."""
    return {
        reason: share.value * max(0.0, seconds)
        for reason, share in shares.items()
        if share.value is not None
    }


def shares(
    device: RawDevice,
    page: GpuPage,
    *,
    growth: Mapping[str, float],
    span: Span | None,
    known: Mapping[str, Signal],
) -> dict[str, Signal]:
    """Returns the share of time under each reason: from counters, else as told.

    *growth* is what counters added over *span*; between two refreshes of the figures
    there is none, and what was *known* before holds.
    """
    found = throttle_shares(device, page)
    for reason, seconds in growth.items():
        if span is None or span.most <= 0:
            if reason in known:
                found[reason] = known[reason]
            elif found[reason].state is State.ABSENT:
                found[reason] = absent(ONCE)
            continue
        high = min(1.0, seconds / span.least) if span.least > 0 else 1.0
        low = min(1.0, seconds / span.most)
        found[reason] = (
            present(low)
            if low == high
            else bounded(low, high, "how old the first page's figures were is unknown")
        )
    return found

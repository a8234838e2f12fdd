"""The wall clock of a simulated site, which may go faster than ours."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """Maps simulated seconds to Unix time: from `begin` on, `speed` of them a second.

    Latencies keep their simulated length; only the moments of their ends are ours.
    """

    begin: float
    speed: float = 1.0

    def wall(self, simulated: float) -> float:
        """Returns the Unix time of a simulated moment."""
        return self.begin + simulated / self.speed

    def simulated(self, wall: float) -> float:
        """Returns the simulated moment of a Unix time."""
        return (wall - self.begin) * self.speed

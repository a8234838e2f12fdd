"""A limit on how many values of a label are kept apart."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager, nullcontext

OTHER = "other"


class LabelCap:
    """Admits label values up to a limit; the rest is `other`, and counted.

    Reserved values, those a configuration names, always have their place, and so
    has `other`, beside the limit. With a *lock*, threads may share the places.
    """

    def __init__(
        self,
        limit: int,
        reserved: Iterable[str] = (),
        *,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self._admitted: set[str] = set()
        self._dropped = 0
        self._lock = lock or nullcontext()  # for what changes; to look takes none
        self.reserve(reserved, limit)

    def admit(self, value: str) -> str:
        """Returns *value*, or `other` when its place is taken."""
        if value in self._reserved or value in self._admitted:
            return value
        with self._lock:
            # Somebody else may just have asked for it.
            if value in self._admitted or len(self._admitted) < self._places:
                self._admitted.add(value)
                return value
            self._dropped += 1
        return OTHER

    def known(self, value: str) -> str:
        """Returns *value* if it has a place already, else `other`; claims none."""
        if value in self._reserved or value in self._admitted:
            return value
        with self._lock:
            self._dropped += 1
        return OTHER

    def retain(self, values: Collection[str]) -> None:
        """Frees the places of all but *values*, for what nobody shows any more."""
        with self._lock:
            self._admitted.intersection_update(values)

    def reserve(self, reserved: Iterable[str], limit: int) -> None:
        """Takes over another configuration's names and limit; who is in stays in."""
        with self._lock:
            named = frozenset(reserved)
            self._reserved = named | {OTHER}
            self._places = limit - len(named)

    def take_dropped(self) -> int:
        """Returns how many values went to `other` since the last call."""
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        return dropped

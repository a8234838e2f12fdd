"""Lets one thread at a time do a job that others want done as well."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Flight:
    """A job that is done once for all who ask for it at the same time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._flying = False

    @property
    def flying(self) -> bool:
        """Whether somebody is at it."""
        return self._flying

    def run(self, job: Callable[[], None], *, patience: float) -> None:
        """Does *job*, or waits for who is at it, for at most *patience* seconds."""
        with self._changed:
            if self._flying:
                self._changed.wait_for(lambda: not self._flying, patience)
                return
            self._flying = True
        try:
            job()
        finally:
            with self._changed:
                self._flying = False
                self._changed.notify_all()

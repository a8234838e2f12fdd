"""Ends a program in order: the first wish to end waits for what is in work."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from types import FrameType

LOOK_SECONDS = 0.1  # between two looks for a signal
ABORT_SECONDS = 1.0


class Ending:
    """Ctrl-C and SIGTERM as a wish to end; has `close()`.

    The first one waits for what is in work, the second one does not. A signal may
    come just before a wait begins, or to another thread, and its handler runs when
    the main thread next does something: so that never waits for long.
    """

    def __init__(self) -> None:
        self._wishes = 0
        self._before = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGINT, signal.SIGTERM)
        }

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._wishes += 1

    def sleep(self, seconds: float) -> bool:
        """Sleeps, and returns whether somebody wishes to end, which ends it."""
        until = time.monotonic() + seconds
        while not self._wishes and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_SECONDS))
        return self._wishes > 0

    def wait(self, flight: Future[None], abort: Callable[[], None]) -> None:
        """Waits for *flight*, until somebody wishes to end for the second time.

        Then *abort* is called, which should end it soon. Raises what went wrong.
        """
        while not wait((flight,), LOOK_SECONDS).done:
            if self._wishes > 1:
                abort()
                if not wait((flight,), ABORT_SECONDS).done:
                    return
        flight.result()

    def close(self) -> None:
        """Gives the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)


def flying(work: Callable[[], None]) -> Future[None]:
    """Returns *work* as a thread does it.

    A daemon, since a connection that is being opened cannot be aborted.
    """
    flight: Future[None] = Future()

    def fly() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  raised where it is waited for
            flight.set_exception(error)
        else:
            flight.set_result(None)

    Thread(target=fly, daemon=True).start()
    return flight

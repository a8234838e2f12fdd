"""Follows the addresses of a DNS name: the A and AAAA records of a headless service.

The system's resolver answers, so /etc/hosts and search domains count as everywhere. It
tells "no such name" (EAI_NONAME) and "no address" (EAI_NODATA) from failures
(EAI_AGAIN for SERVFAIL and silent servers, EAI_FAIL for those that refuse). It knows no
deadline, hence a thread for each look-up.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from analyzer.config_discovery import DnsSd
from analyzer.targets import Fault, Found, Look

LOOKUP_SECONDS = 10.0
# What the name service says when it has answered, and there is nothing.
NOTHING = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))

Resolve = Callable[..., list[Any]]


class TargetName:
    """The targets behind one DNS name; `look` never waits.

    *resolve* is called like `socket.getaddrinfo`; *wake* when it has answered. An
    answer that fails or does not come keeps the targets that there were.
    """

    def __init__(
        self, config: DnsSd, resolve: Resolve, wake: Callable[[], None]
    ) -> None:
        self.config = config
        self.found: tuple[Found, ...] = ()
        self.settled = False
        self._resolve = resolve
        self._wake = wake
        self._lookup: Future[list[Any]] | None = None
        self._refresh_at = 0.0
        self._give_up_at = 0.0

    def look(self, now: float) -> Look:
        """Takes in an answer that came, and asks anew every *refresh*.

        While the resolver hangs it is not asked again; that it hangs is told at every
        refresh. *now* is monotonic.
        """
        lookup = self._lookup
        if lookup is not None and lookup.done():
            self._lookup = None
            return self._take(lookup)
        if lookup is None and now >= self._refresh_at:
            self._refresh_at = now + self.config.refresh
            self._give_up_at = now + LOOKUP_SECONDS
            self._lookup = self._ask()
        elif lookup is not None and now >= self._give_up_at:
            self._give_up_at = now + max(self.config.refresh, LOOKUP_SECONDS)
            fault = Fault("timeout", f"{self.config.name}: no answer")
            return Look(changed=False, faults=(fault,))
        return Look(changed=False)

    def _take(self, lookup: Future[list[Any]]) -> Look:
        try:
            answers = lookup.result()
        except (OSError, UnicodeError) as error:
            if not isinstance(error, socket.gaierror) or error.errno not in NOTHING:
                fault = Fault("dns", f"{self.config.name}: {error}")
                return Look(changed=False, faults=(fault,))
            answers = []
        hosts = sorted(
            {address[0] for *_, address in answers},
            key=lambda host: (":" in host, _number(host)),
        )
        port = self.config.port
        self.found = tuple(
            Found(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
            for host in hosts
        )
        self.settled = True
        return Look(changed=True)

    def _ask(self) -> Future[list[Any]]:
        future: Future[list[Any]] = Future()
        future.add_done_callback(lambda _: self._wake())
        config = self.config

        def ask() -> None:
            try:
                answers = self._resolve(
                    config.name, config.port, type=socket.SOCK_STREAM
                )
            except (OSError, UnicodeError) as error:
                future.set_exception(error)
            else:
                future.set_result(answers)

        # A daemon: the process need not wait for it at its end.
        threading.Thread(target=ask, name="look-up", daemon=True).start()
        return future

    def forget_missing(self) -> None:
        """Asks anew at the next look."""
        self._refresh_at = 0.0


def _number(host: str) -> int:
    return int(ipaddress.ip_address(host.partition("%")[0]))

"""Follows the addresses of a DNS name: the A and AAAA records of a headless service.

The system's resolver answers, so /etc/hosts and search domains count as everywhere. It
tells "no such name" (EAI_NONAME) and "no address" (EAI_NODATA) from failures
(EAI_AGAIN for SERVFAIL and silent servers, EAI_FAIL). Asked for both families at once,
glibc says EAI_NODATA although one answer was SERVFAIL, so each is asked on its own. The
resolver knows no deadline, hence a thread for each look-up.
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

FAMILIES = (socket.AF_INET, socket.AF_INET6)

Resolve = Callable[..., list[Any]]
# Of each family: its addresses, or why there is no answer.
_Answer = dict[int, list[str] | OSError]


class TargetName:
    """The targets behind one DNS name; `look` never waits.

    *resolve* is called like `socket.getaddrinfo`; *wake* when it has answered. A family
    whose answer fails or does not come keeps the targets that it had. `faults` is what
    is wrong now.
    """

    def __init__(
        self, config: DnsSd, resolve: Resolve, wake: Callable[[], None]
    ) -> None:
        self.config = config
        self.faults: tuple[Fault, ...] = ()
        self.settled = False
        self._hosts: dict[int, list[str]] = {}
        self._resolve = resolve
        self._wake = wake
        self._lookup: Future[_Answer] | None = None
        self._refresh_at = 0.0
        self._give_up_at = 0.0

    @property
    def waiting(self) -> bool:
        """Whether an answer is still to be expected."""
        return self._lookup is not None and not self.faults

    @property
    def found(self) -> tuple[Found, ...]:
        """The targets, IPv4 first, by address."""
        port = self.config.port
        return tuple(
            Found(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
            for family in FAMILIES
            for host in self._hosts.get(family, ())
        )

    def look(self, now: float) -> Look:
        """Takes in an answer that came, and asks anew every *refresh*.

        While the resolver hangs it is not asked again; that it hangs is told at every
        refresh. *now* is monotonic.
        """
        lookup = self._lookup
        if lookup is not None and lookup.done():
            self._lookup = None
            return self._take(lookup.result())
        if lookup is None and now >= self._refresh_at:
            self._refresh_at = now + self.config.refresh
            self._give_up_at = now + LOOKUP_SECONDS
            self._lookup = self._ask()
        elif lookup is not None and now >= self._give_up_at:
            self._give_up_at = now + max(self.config.refresh, LOOKUP_SECONDS)
            self.faults = (Fault("timeout", f"{self.config.name}: no answer"),)
            return Look(changed=False, faults=self.faults)
        return Look(changed=False)

    def _take(self, answer: _Answer) -> Look:
        failures: list[OSError] = []
        for family, hosts in answer.items():
            if not isinstance(hosts, OSError):
                self._hosts[family] = sorted(set(hosts), key=_order)
            elif isinstance(hosts, socket.gaierror) and hosts.errno in NOTHING:
                self._hosts[family] = []
            else:
                failures.append(hosts)
        self.settled = self.settled or not failures
        self.faults = tuple(
            Fault("dns", f"{self.config.name}: {failure.strerror or failure}")
            for failure in failures[:1]
        )
        return Look(changed=True, faults=self.faults)

    def _ask(self) -> Future[_Answer]:
        future: Future[_Answer] = Future()
        future.add_done_callback(lambda _: self._wake())
        name, port = self.config.name, self.config.port

        def ask() -> None:
            answer: _Answer = {}
            for family in FAMILIES:
                try:
                    found = self._resolve(
                        name, port, family=family, type=socket.SOCK_STREAM
                    )
                    answer[family] = [address[0] for *_, address in found]
                except OSError as error:
                    answer[family] = error
            future.set_result(answer)

        # A daemon: the process need not wait for it at its end.
        threading.Thread(target=ask, name="look-up", daemon=True).start()
        return future

    def refresh(self) -> None:
        """Asks anew at the next look."""
        self._refresh_at = 0.0


def _order(host: str) -> int:
    return int(ipaddress.ip_address(host.partition("%")[0]))

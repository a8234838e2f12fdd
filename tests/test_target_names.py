"""DNS names: which answers change the targets, and which keep them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from running_exporter import wait_for

from analyzer.config_discovery import DnsSd
from analyzer.sources.target_names import LOOKUP_SECONDS, TargetName
from analyzer.targets import Look

CONFIG = DnsSd("vllm.example", 8000, refresh=30.0)
Answer = list[str] | OSError


class Resolver:
    """Answers like `socket.getaddrinfo` what the test puts into `v4` and `v6`."""

    def __init__(self) -> None:
        self.v4: Answer = []
        self.v6: Answer = socket.gaierror(socket.EAI_NODATA, "No address")
        self.asked: list[tuple[str, int, int]] = []
        self.open = threading.Event()
        self.open.set()

    def __call__(
        self,
        name: str,
        port: int,
        *,
        family: int,
        type: int,  # noqa: A002
    ) -> list[Any]:
        """Returns the addresses of the family, or raises its error."""
        self.asked.append((name, port, family))
        assert self.open.wait(10)
        answer = self.v4 if family == socket.AF_INET else self.v6
        if isinstance(answer, OSError):
            raise answer
        return [(family, type, 6, "", (host, port)) for host in answer]


@pytest.fixture
def resolver() -> Iterator[Resolver]:
    """A resolver that lets go of its callers at the end."""
    found = Resolver()
    yield found
    found.open.set()


@pytest.fixture
def woken() -> threading.Event:
    """Set when an answer has come."""
    return threading.Event()


@pytest.fixture
def name(resolver: Resolver, woken: threading.Event) -> TargetName:
    """A name that nobody has asked for yet."""
    return TargetName(CONFIG, resolver, woken.set)


@pytest.fixture
def ask(name: TargetName, woken: threading.Event) -> Callable[[float], Look]:
    """Asks at a time, waits for the answer and takes it in."""

    def look(now: float) -> Look:
        woken.clear()
        assert name.look(now) == Look(changed=False)
        assert woken.wait(10)
        return name.look(now)

    return look


def addresses(name: TargetName) -> list[str]:
    """Returns the addresses of the targets."""
    return [found.address for found in name.found]


def test_every_address_is_a_target(
    name: TargetName, resolver: Resolver, ask: Callable[[float], Look]
) -> None:
    """By number, each once, IPv4 before IPv6, whatever order the answer has."""
    resolver.v4 = ["10.0.0.10", "10.0.0.9", "10.0.0.10"]
    resolver.v6 = ["fd00::10", "fd00::9"]
    assert ask(0.0) == Look(changed=True)
    assert addresses(name) == [
        "10.0.0.9:8000",
        "10.0.0.10:8000",
        "[fd00::9]:8000",
        "[fd00::10]:8000",
    ]
    assert resolver.asked == [
        ("vllm.example", 8000, socket.AF_INET),
        ("vllm.example", 8000, socket.AF_INET6),
    ]


def test_it_is_asked_again_at_every_refresh(
    name: TargetName, resolver: Resolver, ask: Callable[[float], Look]
) -> None:
    """And not in between."""
    ask(0.0)
    for now in (1.0, 29.0):
        assert name.look(now) == Look(changed=False)
    assert len(resolver.asked) == 2
    ask(30.0)
    assert len(resolver.asked) == 4
    name.refresh()
    ask(31.0)
    assert len(resolver.asked) == 6


@pytest.mark.parametrize("code", [socket.EAI_NONAME, socket.EAI_NODATA])
def test_no_such_name_means_no_targets(
    name: TargetName, resolver: Resolver, ask: Callable[[float], Look], code: int
) -> None:
    """A headless service without pods ends its targets and is no failure."""
    resolver.v4 = ["10.0.0.1"]
    ask(0.0)
    resolver.v4 = resolver.v6 = socket.gaierror(code, "none")
    assert ask(30.0) == Look(changed=True)
    assert name.found == ()
    assert name.settled


@pytest.mark.parametrize("code", [socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_SYSTEM])
def test_a_failure_keeps_the_targets_and_is_counted(
    name: TargetName, resolver: Resolver, ask: Callable[[float], Look], code: int
) -> None:
    """SERVFAIL, a silent server and a broken resolver say nothing about targets."""
    resolver.v4 = ["10.0.0.1"]
    ask(0.0)
    resolver.v4 = resolver.v6 = socket.gaierror(code, "try again")
    for now in (30.0, 60.0):
        look = ask(now)
        assert [fault.reason for fault in look.faults] == ["dns"]
        assert name.faults == look.faults
        assert look.faults[0].detail == "vllm.example: try again"
        assert addresses(name) == ["10.0.0.1:8000"]
    resolver.v4, resolver.v6 = ["10.0.0.2"], []
    assert ask(90.0).faults == name.faults == ()
    assert addresses(name) == ["10.0.0.2:8000"]


def test_each_family_stands_for_itself(
    name: TargetName, resolver: Resolver, ask: Callable[[float], Look]
) -> None:
    """SERVFAIL for A beside "no address" for AAAA ends no IPv4 target.

    Asked for both at once the system would say that there is no address.
    """
    resolver.v4, resolver.v6 = ["10.0.0.1"], ["fd00::1"]
    ask(0.0)
    resolver.v4 = socket.gaierror(socket.EAI_AGAIN, "try again")
    resolver.v6 = socket.gaierror(socket.EAI_NODATA, "no address")
    look = ask(30.0)
    assert [fault.reason for fault in look.faults] == ["dns"]
    assert addresses(name) == ["10.0.0.1:8000"]


def test_a_resolver_that_hangs_is_asked_once_and_told(
    name: TargetName, resolver: Resolver, woken: threading.Event
) -> None:
    """Its silence counts at every refresh; an answer that comes late still counts."""
    resolver.v4 = ["10.0.0.1"]
    resolver.open.clear()
    name.look(0.0)
    assert name.waiting
    assert name.look(LOOKUP_SECONDS - 1.0) == Look(changed=False)
    look = name.look(LOOKUP_SECONDS)
    assert [fault.reason for fault in look.faults] == ["timeout"]
    assert not name.waiting
    assert name.look(LOOKUP_SECONDS + 29.0).faults == ()
    look = name.look(LOOKUP_SECONDS + 30.0)
    assert [fault.reason for fault in look.faults] == ["timeout"]
    wait_for(lambda: resolver.asked)
    assert len(resolver.asked) == 1
    resolver.open.set()
    assert woken.wait(10)
    assert name.look(50.0) == Look(changed=True)
    assert addresses(name) == ["10.0.0.1:8000"]
    assert name.faults == ()


def test_the_system_s_resolver_is_asked() -> None:
    """A real look-up of localhost gives the loopback address."""
    woken = threading.Event()
    name = TargetName(DnsSd("localhost", 8000), socket.getaddrinfo, woken.set)
    name.look(0.0)
    assert woken.wait(30)
    name.look(0.0)
    assert "127.0.0.1:8000" in addresses(name)
    assert set(addresses(name)) <= {"127.0.0.1:8000", "[::1]:8000"}
    assert name.settled

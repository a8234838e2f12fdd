"""Finds the targets of `file_sd` files and DNS names, and tells when they change."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from analyzer.config_discovery import FileSd
from analyzer.config_sources import EngineGroup, EngineSource
from analyzer.sources.target_files import TargetFiles
from analyzer.sources.target_names import Resolve, TargetName
from analyzer.targets import Fault, engine_sources

logger = logging.getLogger(__name__)

POLL_SECONDS = 2.0
FIRST_SECONDS = 2.0


@dataclass(slots=True)
class _Entry:
    """One entry of the configuration, what finds its targets, and those it found."""

    group: EngineGroup
    finder: TargetFiles | TargetName
    sources: tuple[EngineSource, ...] = ()
    refused: tuple[Fault, ...] = ()
    logged: set[Fault] = field(default_factory=set)


class Discovery:
    """Follows the discovered entries in a thread of its own; has `close()`.

    *on_change* is called in that thread after the targets changed. Whatever hangs, a
    file system or a resolver, holds up nothing but itself.
    """

    def __init__(
        self,
        on_change: Callable[[], None],
        *,
        resolve: Resolve = socket.getaddrinfo,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._on_change = on_change
        self._resolve = resolve
        self._poll_seconds = poll_seconds
        self._groups: tuple[EngineGroup, ...] = ()
        self._entries: dict[str, _Entry] = {}  # the thread's own
        self._sources: tuple[EngineSource, ...] = ()
        self._counts: Mapping[str, int] = {}
        self._pending: AbstractSet[str] = frozenset()
        self._failures: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()  # guards what is handed over, never held for long
        self._asked = 0  # configurations given
        self._done = 0  # and looked at
        self._waiting = False  # for an answer that may come at any moment
        self._handed = threading.Condition(self._lock)
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="discovery", daemon=True)

    @property
    def sources(self) -> tuple[EngineSource, ...]:
        """The targets of all entries, as they were found last."""
        return self._sources

    @property
    def counts(self) -> Mapping[str, int]:
        """How many targets each entry has."""
        return self._counts

    @property
    def pending(self) -> AbstractSet[str]:
        """The entries of which not every target can be known yet."""
        return self._pending

    def take_failures(self) -> Mapping[tuple[str, str], int]:
        """Returns how often each entry failed for each reason since the last call."""
        with self._lock:
            taken, self._failures = self._failures, Counter()
        return taken

    def configure(self, groups: tuple[EngineGroup, ...]) -> None:
        """Takes over a configuration; files that have gone are forgotten.

        Waits a moment for what can be found at once, so that who asked sees it.
        """
        names = {group.name for group in groups}
        with self._lock:
            self._groups = groups
            self._pending = (self._pending & names) | (names - self._counts.keys())
            self._counts = {name: self._counts.get(name, 0) for name in names}
            self._asked += 1
        self._wake.set()
        if self._thread.is_alive():
            self._wait()

    def start(self) -> None:
        """Starts looking, and waits a moment for what can be found at once."""
        self._thread.start()
        self._wait()

    def _wait(self) -> None:
        with self._handed:
            self._handed.wait_for(
                lambda: self._done == self._asked and not self._waiting, FIRST_SECONDS
            )

    def _run(self) -> None:
        while not self._closed:
            try:
                self._look()
            except Exception:  # else no target is found any more, until a restart
                logger.exception("discovery failed")
            self._wake.wait(self._pause())
            self._wake.clear()

    def _pause(self) -> float | None:
        """Returns how long to sleep: for ever when there is nothing to find."""
        refreshes = [entry.group.found_by.refresh for entry in self._entries.values()]
        return min(self._poll_seconds, *refreshes) if refreshes else None

    def _look(self) -> None:
        """Looks at every entry once, and tells when their targets are others."""
        with self._lock:
            groups, asked = self._groups, self._asked
        anew = asked != self._done
        if anew:
            known = self._entries
            self._entries = {g.name: self._entry(g, known.get(g.name)) for g in groups}
        failures: Counter[tuple[str, str]] = Counter()
        for name, entry in self._entries.items():
            look = entry.finder.look(time.monotonic())
            faults = look.faults
            if look.changed:
                found = engine_sources(entry.group, entry.finder.found)
                entry.sources, entry.refused = found
                faults += entry.refused
            failures.update((name, fault.reason) for fault in faults)
            _log(entry)
        self._hand_over(asked, failures)

    def _entry(self, group: EngineGroup, known: _Entry | None) -> _Entry:
        """Returns the entry of *group*, which goes on where it means the same."""
        found_by = group.found_by
        if known is not None and _place(known.group) == _place(group):
            known.group = group
            known.finder.config = found_by
            known.finder.refresh()
            return known
        if isinstance(found_by, FileSd):
            return _Entry(group, TargetFiles(found_by))
        return _Entry(group, TargetName(found_by, self._resolve, self._wake.set))

    def _hand_over(self, asked: int, failures: Counter[tuple[str, str]]) -> None:
        entries = self._entries
        sources = tuple(s for entry in entries.values() for s in entry.sources)
        with self._lock:
            changed = sources != self._sources
            self._sources = sources
            self._failures.update(failures)
            if asked == self._asked:
                self._counts = {n: len(entry.sources) for n, entry in entries.items()}
                self._pending = {n for n, e in entries.items() if not e.finder.settled}
        if changed:
            self._on_change()
        with self._handed:
            self._done = asked
            self._waiting = any(entry.finder.waiting for entry in entries.values())
            self._handed.notify_all()

    def close(self) -> None:
        """Ends the thread; a look-up or a read that hangs is left to end by itself."""
        self._closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(1.0)


def _place(group: EngineGroup) -> object:
    """Returns what an entry must have in common with another to mean the same."""
    found_by = group.found_by
    if isinstance(found_by, FileSd):
        return found_by.files
    return found_by.name, found_by.port


def _log(entry: _Entry) -> None:
    """Logs the begin and the end of each fault."""
    now = {*entry.finder.faults, *entry.refused}
    for fault in now - entry.logged:
        logger.warning(
            "targets not found entry=%s reason=%s error=%r",
            entry.group.name,
            fault.reason,
            fault.detail,
        )
    if entry.logged and not now:
        logger.info("targets found again entry=%s", entry.group.name)
    entry.logged = now

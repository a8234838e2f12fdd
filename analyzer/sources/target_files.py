"""Follows the files of a `file_sd` entry and keeps the last good targets of each."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from analyzer.config_discovery import FileSd
from analyzer.strict import MAX_BYTES, ConfigError
from analyzer.targets import Fault, Found, Look, parse_targets

MAX_FILES = 1000  # of one entry
_Stamp = tuple[int, int, int]


@dataclass(slots=True)
class _File:
    """What is known of one file: its state when it was read, and its last targets."""

    stamp: _Stamp | None = None
    digest: bytes = b""
    found: tuple[Found, ...] = ()
    good: bool = False  # it could be used once
    unread: Fault | None = None
    malformed: Fault | None = None

    @property
    def fault(self) -> Fault | None:
        """What is wrong with it now."""
        return self.unread or self.malformed


class TargetFiles:
    """The targets in the files of one entry; `look` reads what has changed.

    A file that vanished, cannot be read or is malformed keeps the targets it had.
    `faults` is what is wrong now.
    """

    waiting = False  # a look ends with what there is

    def __init__(self, config: FileSd) -> None:
        self.config = config
        self.faults: tuple[Fault, ...] = ()
        self._files: dict[Path, _File] = {}
        self._looked = False
        self._refresh_at = 0.0
        self._forget = False

    @property
    def settled(self) -> bool:
        """Whether every file that is there could be used once."""
        return self._looked and all(file.good for file in self._files.values())

    @property
    def found(self) -> tuple[Found, ...]:
        """The targets of all files, in the order of the configuration."""
        return tuple(found for file in self._files.values() for found in file.found)

    def look(self, now: float) -> Look:
        """Reads the files that are new or another, and all of them every *refresh*.

        Other means by modification time, size and inode; *now* is monotonic. A fault
        is told when it is new and then at every refresh.
        """
        thorough = now >= self._refresh_at
        if thorough:
            self._refresh_at = now + self.config.refresh
        before = [(path, file.found) for path, file in self._files.items()]
        if self._forget:
            self._files = {p: file for p, file in self._files.items() if p.exists()}
            self._forget = False
        told = []
        paths, too_many = self._paths()
        known, self._files = self._files, {}
        for path in paths:
            file = self._files[path] = known.get(path) or _File()
            past = file.fault
            _look_at(path, file, thorough=thorough)
            if file.fault is not None and (thorough or file.fault != past):
                told.append(file.fault)
        self.faults = tuple(f.fault for f in self._files.values() if f.fault)
        if too_many:
            fault = Fault("too_many", f"more than {MAX_FILES} files")
            self.faults += (fault,)
            told += [fault] if thorough else []
        self._looked = True
        after = [(path, file.found) for path, file in self._files.items()]
        return Look(changed=thorough or before != after, faults=tuple(told))

    def refresh(self) -> None:
        """Reads all files at the next look, and forgets those that are not there."""
        self._refresh_at = 0.0
        self._forget = True

    def _paths(self) -> tuple[list[Path], bool]:
        """Returns the files by order, vanished ones too, and whether it cut some."""
        paths: dict[Path, None] = {}
        for text in self.config.files:
            path = Path(text)
            if "*" in path.name:
                matching = {p for p in self._files if _matches(p, path)}
                matching.update(_listed(path))
                paths.update(dict.fromkeys(sorted(matching)))
            else:
                paths[path] = None
        return list(paths)[:MAX_FILES], len(paths) > MAX_FILES


def _listed(pattern: Path) -> list[Path]:
    try:
        with os.scandir(pattern.parent) as entries:
            found = [pattern.parent / entry.name for entry in entries]
    except (OSError, ValueError):  # a name that no folder can have
        return []
    return [path for path in found if _matches(path, pattern)]


def _matches(path: Path, pattern: Path) -> bool:
    """Whether *pattern* means *path*; files of a leading dot are an editor's."""
    begin, _, end = pattern.name.partition("*")
    name = path.name
    return (
        path.parent == pattern.parent
        and name.startswith(begin)
        and name.endswith(end)
        and len(name) >= len(begin) + len(end)
        and (bool(begin) or not name.startswith("."))
    )


def _look_at(path: Path, file: _File, *, thorough: bool) -> None:
    """Brings *file* up to date with what is at *path*."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # reading a pipe would never end
            file.unread = Fault("unreadable", f"{path}: not a regular file")
            return
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if stamp == file.stamp and file.unread is None and not thorough:
            return
        with path.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        file.unread = Fault("missing", f"{path}: not there")
        return
    except (OSError, ValueError) as error:
        file.unread = Fault("unreadable", f"{path}: {error}")
        return
    file.stamp, file.unread = stamp, None
    digest = hashlib.sha256(data).digest()
    if digest == file.digest:
        return
    file.digest = digest
    try:
        file.found = parse_targets(data, str(path))
    except ConfigError as error:
        file.malformed = Fault("malformed", str(error))
        return
    file.malformed = None
    file.good = True

"""Where the reader of log files stands: plain values that outlive the process."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Self

from analyzer.gateways.framing import FramingState

HEAD_BYTES = 1024
ANCHOR_BYTES = 256


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The digest of some bytes and how many they are."""

    length: int = 0
    digest: bytes = b""

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Returns the fingerprint of *data*."""
        if not data:
            return cls()
        return cls(len(data), hashlib.blake2b(data, digest_size=16).digest())

    def matches(self, data: bytes) -> bool:
        """Whether *data* are the bytes that this was made of. None match anything."""
        return self == Fingerprint.of(data)


@dataclass(frozen=True, slots=True)
class FilePosition:
    """How far one file was read, and how to know it again under any name.

    Device and inode find it quickly, but an inode may be another file's tomorrow:
    the first bytes (`head`) and those before the offset (`anchor`) decide. `offset`
    is where the next line begins, in uncompressed bytes; with `skipping` it lies in
    a line that is not passed on. `size` and `mtime_ns` are from the last look.
    """

    path: bytes
    device: int
    inode: int
    offset: int = 0
    skipping: bool = False
    size: int = 0
    mtime_ns: int = 0
    head: Fingerprint = field(default_factory=Fingerprint)
    anchor: Fingerprint = field(default_factory=Fingerprint)


@dataclass(frozen=True, slots=True)
class LogPosition:
    """One log: its path as configured or matched, and its unfinished files.

    The oldest file comes first. `base` is the path of the last live file with all
    symbolic links followed.
    """

    path: bytes
    base: bytes
    framing: FramingState
    files: tuple[FilePosition, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """All that a reader of log files remembers. Paths are bytes as on the disk.

    `looked_at` is when the patterns were last matched, in Unix seconds: a log that
    was not there then is new, and so are rotated files of it written since.
    """

    patterns: tuple[str, ...] = ()
    looked_at: float = 0.0
    logs: tuple[LogPosition, ...] = ()

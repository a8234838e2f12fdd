"""Keeps totals on disk: written whole and atomically, before they are published."""

from __future__ import annotations

import contextlib
import fcntl
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from analyzer.flow import Memory
from analyzer.gpus.flow import GpuMemory
from analyzer.ledger import Ledger
from exporter.request_log import LogMemory

FILE = "state.bin"
LOCK = "lock"
MAX_BYTES = 256 << 20
_MAGIC = b"goodput-state-1\n"


class StorageError(Exception):
    """A storage path that cannot be used; the text names it."""


@dataclass(frozen=True, slots=True)
class State:
    """All that outlives the process: targets, logs, GPUs, and our own counters."""

    targets: Mapping[str, Memory] = field(default_factory=dict)
    logs: Mapping[str, LogMemory] = field(default_factory=dict)
    process: Ledger = field(default_factory=Ledger)
    gpus: Mapping[str, GpuMemory] = field(default_factory=dict)


class Store:
    """The state in one directory, held by one process at a time.

    Raises StorageError when the directory cannot be used or another process has it.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        self._written: bytes | None = None
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = (directory / LOCK).open("w", encoding="ascii")
        except OSError as error:
            raise StorageError(f"{directory}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise StorageError(
                f"{directory}: in use by another process (lock file {LOCK})"
            ) from error

    def load(self) -> tuple[State, str]:
        """Returns the state on disk and "", or an empty one and why.

        A file that cannot be read is kept beside under another name.
        """
        try:
            with self._path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return State(), ""
        except OSError as error:
            return State(), f"{self._path}: {error.strerror}; counters start at 0"
        try:
            return _decode(data), ""
        except ValueError as error:
            aside = self._path.with_suffix(".damaged")
            with contextlib.suppress(OSError):
                self._path.replace(aside)
            return (
                State(),
                f"{self._path}: {error}; kept as {aside.name}, counters start at 0",
            )

    def encode(self, state: State) -> bytes:
        """Returns *state* as `save` writes it; cheap enough to do under a lock."""
        payload = msgspec.msgpack.encode(state)
        return _MAGIC + zlib.crc32(payload).to_bytes(4, "big") + payload

    def save(self, data: bytes) -> None:
        """Writes what `encode` gave; it is on disk when this returns.

        Raises StorageError when it cannot be written.
        """
        if data == self._written:
            return
        temporary = self._path.with_suffix(".new")
        try:
            # Lines of a log may be in it, while nobody knows their format.
            with open(temporary, "wb", opener=_private) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
            directory = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise StorageError(f"{self._path}: {error.strerror}") from error
        self._written = data

    def close(self) -> None:
        """Lets another process have the directory."""
        self._lock.close()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _decode(data: bytes) -> State:
    """Returns the state in *data*. Raises ValueError when it is not one."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES} bytes")
    if not data.startswith(_MAGIC):
        raise ValueError("not a state file of this version")
    checksum, payload = data[len(_MAGIC) :][:4], data[len(_MAGIC) + 4 :]
    if zlib.crc32(payload).to_bytes(4, "big") != checksum:
        raise ValueError("damaged (checksum)")
    try:
        return msgspec.msgpack.decode(payload, type=State)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a state of this version: {error}") from error

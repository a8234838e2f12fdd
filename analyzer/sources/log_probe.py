"""Looks at a request log from outside: its files, and the last lines of each."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analyzer.log_audit import Chunk
from analyzer.sources.rotated_files import UNREADABLE, live_paths, series

SAMPLE_BYTES = 4 << 20  # of all files of a log together
FEWEST_BYTES = 64 << 10  # of each
MOST_FILES = 20  # that lines are read from, the last written ones


@dataclass(frozen=True, slots=True)
class FileState:
    """One file of a log: `state` is read, empty, missing or unreadable, and why.

    `rotated` are the names beside it that it was rotated into, old to new. An empty
    file's lines are those of the newest of them, which is `read_from`. Times are Unix
    seconds; `taken` counts the bytes read.
    """

    path: str
    state: str
    detail: str = ""
    size: int | None = None
    written: float | None = None
    rotated: tuple[str, ...] = ()
    read_from: str = ""
    taken: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """The files of a log, those of which nothing is read too, and the last lines."""

    files: tuple[FileState, ...]
    chunks: tuple[Chunk, ...]


def sample(pattern: str, max_bytes: int = SAMPLE_BYTES) -> Sample:
    """Returns what *pattern* matches now, and of about *max_bytes* the last lines.

    Of many files the last written ones are read. Files are only read, never held.
    """
    paths = sorted(live_paths(pattern), key=_written, reverse=True)
    share = max(FEWEST_BYTES, max_bytes // max(1, min(len(paths), MOST_FILES)))
    files: list[FileState] = []
    chunks: list[Chunk] = []
    for number, path in enumerate(paths):
        file, chunk = _look(path, share if number < MOST_FILES else 0)
        files.append(file)
        if chunk is not None:
            chunks.append(chunk)
    return Sample(tuple(files), tuple(chunks))


def _written(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return 0.0


def _look(path: str, max_bytes: int) -> tuple[FileState, Chunk | None]:
    """Returns a file's state and its last lines, None when it has none."""
    entries = series(os.path.realpath(path))
    rotated = [entry for entry in entries if not entry.live]
    names = tuple(Path(entry.path).name for entry in rotated)
    try:
        found = Path(path).stat()
        if not stat.S_ISREG(found.st_mode):
            return FileState(path, "unreadable", "not a regular file"), None
        source = path
        readable = [e.path for e in rotated if not e.path.endswith(UNREADABLE)]
        if not found.st_size and readable:
            source = readable[-1]
        chunk, taken = _tail(source, max_bytes)
    except FileNotFoundError:
        return FileState(path, "missing", _nearest(path), rotated=names), None
    except (OSError, EOFError, zlib.error) as error:
        detail = getattr(error, "strerror", None) or str(error)
        return FileState(path, "unreadable", detail, rotated=names), None
    state = FileState(
        path,
        "read" if found.st_size else "empty",
        size=found.st_size,
        written=found.st_mtime,
        rotated=names,
        read_from="" if source == path else Path(source).name,
        taken=taken,
    )
    return state, chunk if chunk.lines else None


def _nearest(path: str) -> str:
    """Returns which folder on the way to a missing file is not there."""
    for parent in reversed(Path(path).parents):
        if not parent.exists():
            return f"the folder {parent} is not there"
    return "no such file"


def _tail(path: str, max_bytes: int) -> tuple[Chunk, int]:
    """Returns the whole lines at the end of a file, and how many bytes were read.

    Of a compressed file those at its begin: its end costs all of it. Raises OSError.
    """
    written = Path(path).stat().st_mtime
    if path.endswith(".gz"):
        with gzip.open(path) as archive:
            data = archive.read(max_bytes)
        return Chunk(_lines(data), whole=True, written=None), len(data)
    with Path(path).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        begin = max(0, size - max_bytes)
        file.seek(begin)
        data = file.read(max_bytes)
    lines = _lines(data)
    return Chunk(lines[1:] if begin else lines, not begin, written), len(data)


def _lines(data: bytes) -> Sequence[bytes]:
    """Returns the lines that have their newline."""
    return data.split(b"\n")[:-1]

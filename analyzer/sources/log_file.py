"""The request log of a recording: read back whole, or followed while recording."""

from __future__ import annotations

import gzip
import lzma
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from analyzer.sources.recording import RecordingError
from analyzer.sources.rotated_files import live_paths

LOG = "access.log"
CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 20
MAX_FILES = 256  # of one log that are followed at once
MAX_OLDER = 3  # files that stood at a path before, still read


def log_path(directory: Path) -> Path | None:
    """Returns where a recording keeps its request log, plain or compressed."""
    for name in (LOG, f"{LOG}.gz", f"{LOG}.xz"):
        if (directory / name).is_file():
            return directory / name
    return None


def read_lines(path: Path) -> Iterator[bytes]:
    """Yields the lines of a log without their newlines.

    A line over 1 MiB comes cut; a damaged archive raises RecordingError.
    """
    try:
        with _open(path) as file:
            while line := file.readline(MAX_LINE_BYTES):
                yield line.removesuffix(b"\n")
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise RecordingError(f"{path}: cannot be read: {error}") from error


def _open(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path))
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.open(path))
    return path.open("rb")


class LogCopy:
    """Copies what is added to the log *name* from now on, over rotations by rename.

    *source* may be a pattern: then the lines of all its files become one file, those
    of files that come later from their begin. Lines keep the frame that a container
    runtime gave them. `take` is to be called now and then; it copies whole lines only.
    """

    def __init__(self, name: str, source: Path, directory: Path) -> None:
        self.name = name
        self._pattern = str(source)
        self._target = (directory / LOG).open("xb")
        self._files = {
            path: _Follower(Path(path), at_end=True)
            for path in live_paths(self._pattern)[:MAX_FILES]
        }

    def take(self) -> None:
        """Copies what was written since the last call."""
        for path in live_paths(self._pattern):
            if path not in self._files and self._has_room():
                self._files[path] = _Follower(Path(path), at_end=False)
        for file in self._files.values():
            file.drain(self._target)
        self._target.flush()

    def _has_room(self) -> bool:
        """Whether one more file may be followed; forgets those that are gone if not."""
        if len(self._files) >= MAX_FILES:
            gone = [path for path in self._files if not Path(path).exists()]
            for path in gone:
                self._files.pop(path).close()
        return len(self._files) < MAX_FILES

    def close(self) -> None:
        """Copies the rest and closes all files."""
        try:
            self.take()
        finally:
            for file in self._files.values():
                file.close()
            self._target.close()


class _Follower:
    """One path of a log, with the files that stood there before.

    Those are read on for a while: a writer may go on in one that was renamed.
    """

    def __init__(self, path: Path, *, at_end: bool) -> None:
        self._path = path
        self._files: list[_Reader] = []
        if at_end:
            self._open(at_end=True)

    def _open(self, *, at_end: bool) -> None:
        """Opens what stands at the path unless it is open, or nothing is there."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return
        if self._files and self._files[-1].identity == (found.st_dev, found.st_ino):
            return
        self._files.append(_Reader(self._path, at_end=at_end))

    def drain(self, target: BinaryIO) -> None:
        """Writes the whole lines that were added since the last call to *target*."""
        for file in self._files:
            file.drain(target)
        self._open(at_end=False)
        for file in self._files[-1:]:
            file.drain(target)
        while len(self._files) > MAX_OLDER + 1:
            self._files.pop(0).close()

    def close(self) -> None:
        """Closes all files."""
        for file in self._files:
            file.close()
        self._files.clear()


class _Reader:
    """An open file, and the begin of a line whose end was not written yet."""

    def __init__(self, path: Path, *, at_end: bool) -> None:
        self._file = path.open("rb")
        if at_end:
            self._file.seek(0, os.SEEK_END)
        found = os.fstat(self._file.fileno())
        self.identity = (found.st_dev, found.st_ino)
        self._rest = b""

    def drain(self, target: BinaryIO) -> None:
        """Writes the whole lines that were added to *target*."""
        while data := self._file.read(CHUNK_BYTES):
            lines, newline, rest = (self._rest + data).rpartition(b"\n")
            target.write(lines + newline)
            self._rest = rest

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

"""The request log of a recording: read back whole, or followed while recording."""

from __future__ import annotations

import gzip
import lzma
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from analyzer.sources.recording import RecordingError

LOG = "access.log"
CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 20


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

    `take` is to be called now and then; it copies whole lines only.
    """

    def __init__(self, name: str, source: Path, directory: Path) -> None:
        self.name = name
        self._source = source
        self._target = (directory / LOG).open("xb")
        self._file: BinaryIO | None = None
        self._rest = b""
        if source.exists():
            self._file = source.open("rb")
            self._file.seek(0, os.SEEK_END)

    def take(self) -> None:
        """Copies what was written since the last call."""
        if self._file is None:
            if not self._source.exists():
                return
            self._file = self._source.open("rb")
        self._drain(self._file)
        if self._replaced(self._file):
            self._file.close()
            self._file = None
            self.take()

    def _drain(self, file: BinaryIO) -> None:
        while data := file.read(CHUNK_BYTES):
            lines, newline, rest = (self._rest + data).rpartition(b"\n")
            self._target.write(lines + newline)
            self._rest = rest
        self._target.flush()

    def _replaced(self, file: BinaryIO) -> bool:
        try:
            now = self._source.stat()
        except FileNotFoundError:
            return False
        before = os.fstat(file.fileno())
        return (now.st_dev, now.st_ino) != (before.st_dev, before.st_ino)

    def close(self) -> None:
        """Copies the rest and closes both files."""
        try:
            self.take()
        finally:
            if self._file is not None:
                self._file.close()
            self._target.close()

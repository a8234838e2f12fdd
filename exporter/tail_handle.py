"""Opens a log file for reading at any place, also a compressed one."""

from __future__ import annotations

import gzip
import io
import os
import stat
import zlib

from analyzer.sources.rotated_files import GZIP, UNREADABLE, Identity


class ArchiveError(Exception):
    """A compressed file that cannot be read; `reason` is the label of the loss."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Handle:
    """An open regular file; its bytes are those after decompression.

    Raises OSError when *path* cannot be opened, also when it is a folder or a pipe,
    and ArchiveError when its compression is not known.
    """

    __slots__ = ("_archive", "_fd", "_raw", "identity", "path")

    def __init__(self, path: str) -> None:
        if path.endswith(UNREADABLE):
            raise ArchiveError(
                "unknown_archive", f"{path}: only {GZIP} files can be read"
            )
        # Without O_NONBLOCK, opening a pipe waits for a writer.
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(self._fd)
            raise OSError(None, "not a regular file", path)
        self.path = path
        self.identity: Identity = (found.st_dev, found.st_ino)
        self._raw: io.FileIO | None = None
        self._archive: gzip.GzipFile | None = None
        if path.endswith(GZIP):
            self._raw = io.FileIO(self._fd, closefd=False)
            self._archive = gzip.GzipFile(fileobj=self._raw, mode="rb")

    @property
    def archive(self) -> bool:
        """Whether the file is compressed. Nobody writes to it any more."""
        return self._archive is not None

    def stat(self) -> os.stat_result:
        """Returns the file's status, of the compressed bytes."""
        return os.fstat(self._fd)

    def read_at(self, at: int, size: int) -> bytes:
        """Returns up to *size* bytes from *at*, fewer at the end of the file only.

        For an archive, *at* is where the last read ended, or 0. Raises OSError and,
        for a damaged archive, ArchiveError.
        """
        if self._archive is None:
            return os.pread(self._fd, size, at)
        pieces: list[bytes] = []
        try:
            if self._archive.tell() != at:
                self._archive.seek(at)
            while size > 0 and (piece := self._archive.read1(size)):
                pieces.append(piece)
                size -= len(piece)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            if not pieces:
                raise ArchiveError(
                    "damaged_archive", f"{self.path}: {error}"
                ) from error
        return b"".join(pieces)

    def length(self) -> int:
        """Returns the size in bytes; an archive's as it says, which is a hint only."""
        size = os.fstat(self._fd).st_size
        if self._archive is None:
            return size
        return int.from_bytes(os.pread(self._fd, 4, max(0, size - 4)), "little")

    def data_start(self) -> int:
        """Returns where the first data is: after a hole at the begin, if there is one.

        A writer without O_APPEND leaves a hole when its file is truncated.
        """
        if self._archive is not None:
            return 0
        try:
            return os.lseek(self._fd, 0, os.SEEK_DATA)
        except OSError:  # an empty file, or a filesystem that cannot tell
            return 0

    def close(self) -> None:
        """Closes the file."""
        if self._archive is not None:
            self._archive.close()
        os.close(self._fd)

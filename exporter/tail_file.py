"""Reads the lines of one log file, and knows the file again by its content."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace

from analyzer.sources.rotated_files import Identity
from exporter.tail_handle import Handle
from exporter.tail_lines import LineSplitter
from exporter.tail_position import ANCHOR_BYTES, HEAD_BYTES, FilePosition, Fingerprint


class Truncated(Exception):  # noqa: N818  it is an event, and handled
    """The file no longer holds what was read from it."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some lines, and how many bytes were worked through to get them."""

    lines: list[bytes]
    work: int


class LogFile:
    """One file from its position on; closed at first, until `attach`.

    Before the bytes of a read are believed, the file's first bytes and those before
    the offset are compared with what they were. So a file that was truncated and has
    grown beyond the offset again is noticed, unless it holds the same bytes at both.
    """

    def __init__(self, place: FilePosition, *, max_line_bytes: int) -> None:
        self._place = place
        self._handle: Handle | None = None
        self._max = max_line_bytes
        self._splitter = LineSplitter(max_line_bytes)
        self._head = b""
        self._anchor = b""
        self._behind = 0  # of an archive: bytes before the offset not yet passed
        self.path = os.fsdecode(place.path)
        self.identity: Identity = (place.device, place.inode)
        self.offset = place.offset
        self.size = place.size
        self.mtime_ns = place.mtime_ns
        self.ended = False
        self.truncated = False
        self.torn = False  # truncated, and only half of a line was not read
        self.grown_at = 0.0
        self._moved = False  # whether the position is another than `_place`

    @classmethod
    def begin(
        cls, handle: Handle, *, at_end: bool, max_line_bytes: int, now: float
    ) -> LogFile:
        """Returns an open file that nothing was read from yet."""
        found = handle.stat()
        place = FilePosition(
            os.fsencode(handle.path),
            *handle.identity,
            offset=found.st_size if at_end else handle.data_start(),
            size=found.st_size,
            mtime_ns=found.st_mtime_ns,
        )
        file = cls(place, max_line_bytes=max_line_bytes)
        file.attach(handle, now)
        return file

    @property
    def is_open(self) -> bool:
        """Whether the file can be read."""
        return self._handle is not None

    @property
    def archive(self) -> bool:
        """Whether it is read from a compressed file."""
        return self._handle is not None and self._handle.archive

    @property
    def known(self) -> bool:
        """Whether it can be told from other files by its content."""
        return self.position().head.length > 0

    @property
    def untouched(self) -> bool:
        """Whether it held nothing at the last look."""
        return self.size == 0 and self.offset == 0 and not self.known

    @property
    def lag(self) -> int:
        """Bytes not read yet; an unfinished line does not count."""
        if self.ended:
            return 0
        return max(0, self.size - self.offset - len(self._splitter.rest))

    def quiet_since(self, moment: float) -> bool:
        """Whether all of it was read, and nothing came since *moment*."""
        if self._handle is None or self.grown_at > moment:
            return False
        if self._handle.archive:
            return self.ended
        end = self.offset + len(self._splitter.rest)
        return self._handle.stat().st_size == end

    @property
    def has_rest(self) -> bool:
        """Whether it ends in an unfinished line."""
        return bool(self._splitter.rest)

    def position(self) -> FilePosition:
        """Returns where to go on after a restart."""
        if self._handle is None:
            return self._place
        if not self._moved:
            return self._place
        self._moved = False
        path = os.fsencode(self.path)
        device, inode = self.identity
        if self._behind:
            self._place = replace(self._place, path=path, device=device, inode=inode)
        else:
            self._place = FilePosition(
                path=path,
                device=device,
                inode=inode,
                offset=self.offset,
                skipping=self._splitter.skipping,
                size=self.size,
                mtime_ns=self.mtime_ns,
                head=Fingerprint.of(self._head),
                anchor=Fingerprint.of(self._anchor),
            )
        return self._place

    def fits(self, handle: Handle) -> bool:
        """Whether *handle* holds what was read here, and may hold more.

        Of an archive only the head is compared; the rest shows when it is read.
        """
        place = self.position()
        if not place.head.matches(handle.read_at(0, place.head.length)):
            return False
        if handle.archive:
            return place.head.length > 0
        if handle.stat().st_size < place.offset:
            return False
        length = place.anchor.length
        return place.anchor.matches(handle.read_at(place.offset - length, length))

    def attach(self, handle: Handle, now: float) -> None:
        """Reads on from *handle*, at the same offset."""
        place = self.position()
        head = handle.read_at(0, HEAD_BYTES)
        length = 0 if handle.archive else min(ANCHOR_BYTES, place.offset)
        anchor = handle.read_at(place.offset - length, length) if length else b""
        self.close()
        self._handle = handle
        self.path = handle.path
        self.identity = handle.identity
        # Where reading began by the size alone, it may have been inside a line.
        inside = place.anchor.length == 0 and not anchor.endswith(b"\n")
        inside = inside and anchor.strip(b"\0") != b""
        self._splitter = LineSplitter(self._max, skipping=place.skipping or inside)
        self._head = head
        self._anchor = anchor
        self._behind = place.offset if handle.archive else 0
        self.size = handle.length()
        self.grown_at = now
        self.ended = False
        self.truncated = False
        self.torn = False
        self._moved = True
        if handle.archive:
            self.mtime_ns = handle.stat().st_mtime_ns

    def learn(self) -> None:
        """Looks at the first bytes of an open file that had none before."""
        if self._handle is not None and not self._handle.archive and not self._head:
            with suppress(OSError):
                self._head = self._handle.read_at(0, HEAD_BYTES)
                self._moved = True

    def read(self, limit: int, now: float) -> Chunk:
        """Returns the lines in the next *limit* bytes, none at the end of the file.

        Raises Truncated, ArchiveError and OSError.
        """
        if self._handle is None:
            return Chunk([], 0)
        if self._handle.archive:
            return self._read_archive(self._handle, limit, now)
        found = self._handle.stat()
        end = self.offset + len(self._splitter.rest)
        if found.st_size == end and found.st_mtime_ns == self.mtime_ns:
            return Chunk([], 0)
        if found.st_size < end:
            if found.st_size < self.offset or not self._intact(self._handle):
                self.truncated = True
                raise Truncated
            self._splitter.rest = b""  # the writer took its unfinished line back
            end = self.offset
        data = self._handle.read_at(end, min(limit, found.st_size - end))
        if not self._intact(self._handle):
            self.truncated = True
            raise Truncated
        self.size = found.st_size
        self.mtime_ns = found.st_mtime_ns
        self._moved = True
        if not data:
            return Chunk([], 0)
        hole = b"\0" in data or self._splitter.rest.startswith(b"\0")
        lines = self._advance(data, now)
        if hole:  # begins of lines may be what is left of it
            lines = [line.lstrip(b"\0") for line in lines]
        return Chunk(lines, len(data))

    def _intact(self, handle: Handle) -> bool:
        head = handle.read_at(0, HEAD_BYTES)
        length = len(self._anchor)
        if (
            not head.startswith(self._head)
            or handle.read_at(self.offset - length, length) != self._anchor
        ):
            return False
        self._head = head
        return True

    def _read_archive(self, handle: Handle, limit: int, now: float) -> Chunk:
        if self._behind:
            size = min(limit, self._behind)
            data = handle.read_at(self.offset - self._behind, size)
            self._behind -= len(data)
            self._moved = True
            self._anchor = (self._anchor + data)[-ANCHOR_BYTES:]
            anchor = self._place.anchor
            seen = self._anchor[-anchor.length :] if anchor.length else b""
            if not data or (not self._behind and not anchor.matches(seen)):
                raise Truncated
            return Chunk([], len(data))
        data = handle.read_at(self.offset + len(self._splitter.rest), limit)
        if not data:
            self.ended = True
            return Chunk([], 0)
        return Chunk(self._advance(data, now), len(data))

    def _advance(self, data: bytes, now: float) -> list[bytes]:
        """Splits *data*, which stands behind the unfinished line, and moves on."""
        rest = self._splitter.rest
        lines = self._splitter.feed(data)
        self.grown_at = now
        self._moved = True
        left = len(self._splitter.rest)
        begin = self.offset
        self.offset += len(rest) + len(data) - left
        if self.offset > begin:
            taken = len(data) - left
            tail = data[max(0, taken - ANCHOR_BYTES) : taken]
            if len(tail) < ANCHOR_BYTES:
                tail = (self._anchor + rest + tail)[-ANCHOR_BYTES:]
            self._anchor = tail
        return lines

    def take_too_long(self) -> int:
        """Returns how many lines were too long since this was last asked."""
        return self._splitter.take_too_long()

    def finish(self) -> list[bytes]:
        """Returns the unfinished line, once nobody writes to the file any more."""
        rest = self._splitter.rest
        lines = self._splitter.finish()
        self._moved = True
        self.offset += len(rest)
        self._anchor = (self._anchor + rest)[-ANCHOR_BYTES:]
        return lines

    def close(self) -> None:
        """Closes the file; `attach` opens it again."""
        if self._handle is not None:
            self._place = self.position()
            self._handle.close()
            self._handle = None
            self._splitter = LineSplitter(self._max)

"""Request logs in pieces that can be read apart, and pieces in blocks of whole lines.

A plain file falls into ranges of bytes; one that is compressed, or whose lines are
wrapped by a container runtime, or whose format remembers lines, is read as one.
"""

from __future__ import annotations

import gzip
import lzma
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, cast

from analyzer.config_gateways import GatewaySource
from analyzer.gateways.detect import AUTO, detect
from analyzer.gateways.framing import Framing, FramingState, Unframer, recognise

PIECE_BYTES = 128 << 20
BLOCK_BYTES = 16 << 20
MAX_LINE_BYTES = 1 << 20
HEAD_BYTES = 1 << 20
COMPRESSED = (".gz", ".xz")
REMEMBERING = frozenset(("litellm",))  # formats whose lines lean on lines before


class LogError(ValueError):
    """A log that cannot be read; the text names the file and the place."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a log: bytes from *begin* up to *end*, the lines that begin there.

    None as the end is that of the file. `source` says the format and the framing.
    """

    path: Path
    source: GatewaySource
    begin: int = 0
    end: int | None = None

    @property
    def plain(self) -> bool:
        """Whether the file holds lines as they were written, and nothing else."""
        framed = Framing(self.source.framing) is not Framing.PLAIN
        return not framed and self.path.suffix not in COMPRESSED


@dataclass(frozen=True, slots=True)
class Block:
    """Whole messages with their newlines; `read` bytes of the file were read for it.

    `errors` are messages of a container's standard error, `too_long` ones dropped.
    """

    data: bytes
    read: int
    errors: tuple[bytes, ...] = ()
    too_long: int = 0


def pieces_of(
    path: Path,
    source: GatewaySource,
    headers: Sequence[str],
    *,
    piece_bytes: int = PIECE_BYTES,
) -> list[Piece]:
    """Returns the pieces of a log, with its format and framing found by its begin.

    Raises LogError when the log cannot be read or its format is not recognised.
    """
    head = _head(path)
    if not head:
        return []
    framing = Framing(source.framing)
    if framing is Framing.AUTO:
        framing = recognise(head[0])
    messages = Unframer(FramingState(framing)).feed(head)
    found = source.format
    if found == AUTO:
        known = detect([*messages.messages, *messages.errors], headers)
        if known is None:
            raise LogError(
                f"{path}: no known format recognises the first {len(head)} lines; "
                "name one with --config.file and --gateway"
            )
        found = known.name
    plain = framing in (Framing.AUTO, Framing.PLAIN)
    framed = Framing.PLAIN if plain else framing
    told = replace(source, format=found, framing=framed.value)
    if path.suffix in COMPRESSED or not plain or found in REMEMBERING:
        return [Piece(path, told)]
    size = path.stat().st_size
    if size <= piece_bytes:
        return [Piece(path, told)]
    edges = [*range(0, size - piece_bytes // 2, piece_bytes), size]
    return [Piece(path, told, begin, end) for begin, end in pairwise(edges)]


def size_of(piece: Piece) -> int:
    """Returns how many bytes of its file a piece takes."""
    end = piece.path.stat().st_size if piece.end is None else piece.end
    return end - piece.begin


def _head(path: Path) -> list[bytes]:
    """Returns the lines at the begin of a log."""
    try:
        with opened(path) as (file, _):
            data = file.read(HEAD_BYTES)
    except UNREADABLE as error:
        raise LogError(f"{path}: cannot be read: {_reason(error)}") from error
    lines = data.split(b"\n")
    if len(lines) > 1:
        lines.pop()  # cut, or empty behind the last newline
    return [line.removesuffix(b"\r") for line in lines if line]


UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Gives the open file, decompressed by its suffix, and the file as it lies there.

    The latter's position says how far reading has come.
    """
    with path.open("rb") as raw:
        if path.suffix == ".gz":
            with gzip.open(raw) as file:
                yield cast(BinaryIO, file), raw
        elif path.suffix == ".xz":
            with lzma.open(raw) as file:
                yield cast(BinaryIO, file), raw
        else:
            yield raw, raw


def blocks(piece: Piece) -> Iterator[Block]:
    """Yields a piece's messages in blocks. Raises LogError where reading ends early."""
    place = piece.begin
    try:
        if Framing(piece.source.framing) is Framing.PLAIN:
            for data, read in _plain(piece):
                place += len(data)
                yield Block(data, read)
            return
        unframer = Unframer(FramingState(Framing(piece.source.framing)))
        for data, read in _plain(piece):
            place += len(data)
            found = unframer.feed(data.removesuffix(b"\n").split(b"\n"))
            yield Block(
                _lines(found.messages),
                read,
                tuple(found.errors),
                found.too_long,
            )
        rest = unframer.flush()
        yield Block(_lines(rest.messages), 0, tuple(rest.errors), rest.too_long)
    except UNREADABLE as error:
        raise LogError(
            f"{piece.path}: cannot be read beyond byte {place}"
            f"{' of its content' if piece.path.suffix in COMPRESSED else ''}: "
            f"{_reason(error)}"
        ) from error


def _lines(messages: Iterable[bytes]) -> bytes:
    """Returns messages as lines; a newline inside one would be two."""
    return b"".join(message.replace(b"\n", b" ") + b"\n" for message in messages)


def whole_lines(piece: Piece) -> tuple[int, int]:
    """Returns from which byte up to which the lines of a plain piece are.

    They begin in the piece; the last one may end behind it. What follows the last
    newline of a file is not among them. Raises LogError.
    """
    try:
        with piece.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = _line_at(file, piece.begin)
            end = size if piece.end is None else _line_at(file, min(piece.end, size))
            if end == size:
                end = _last_newline(file, begin, end)
    except OSError as error:
        raise LogError(f"{piece.path}: cannot be read: {_reason(error)}") from error
    return begin, max(begin, end)


def _line_at(file: BinaryIO, place: int) -> int:
    """Returns where the first line begins at *place* or behind it."""
    if place:
        file.seek(place - 1)
        while (part := file.readline(MAX_LINE_BYTES)) and not part.endswith(b"\n"):
            pass
        return file.tell()
    return 0


def _last_newline(file: BinaryIO, begin: int, end: int) -> int:
    """Returns the place behind the last newline before *end*, *begin* for none."""
    while end > begin:
        start = max(begin, end - MAX_LINE_BYTES)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return begin


def _plain(piece: Piece) -> Iterator[tuple[bytes, int]]:
    """Yields whole lines, some MiB of them, and how much of the file they took.

    What lacks its newline gets one.
    """
    begin, end = piece.begin, piece.end
    if piece.plain:
        begin = whole_lines(piece)[0]
        end = None if end is None else whole_lines(replace(piece, begin=end))[0]
    with opened(piece.path) as (file, raw):
        file.seek(begin)
        position, rest, seen = begin, b"", raw.tell()
        while end is None or position < end:
            wanted = BLOCK_BYTES if end is None else min(BLOCK_BYTES, end - position)
            data = file.read(wanted)
            if not data:
                break
            position += len(data)
            cut = data.rfind(b"\n") + 1
            if not cut:
                # What is longer than a line may be is told, and need not be whole.
                rest = (rest + data)[: MAX_LINE_BYTES + 1]
                continue
            before, seen = seen, raw.tell()
            yield b"".join((rest, memoryview(data)[:cut])), seen - before
            rest = data[cut:]
        if rest:
            yield rest + b"\n", raw.tell() - seen

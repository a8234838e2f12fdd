"""Blocks of a log to columns: by DuckDB where that is quicker, else line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from analyzer.config_gateways import GatewaySource
from analyzer.gateways.detect import format_for
from analyzer.gateways.record import LineProblem, RequestRecord
from analyzer.report import (
    caddy_columns,
    envoy_columns,
    middleware_columns,
    nginx_columns,
    traefik_columns,
)
from analyzer.report.columns import Bools, Columns, columns_of, replaced, taken
from analyzer.report.json_table import JsonReader, Members, Misread, Readers
from analyzer.sources.log_blocks import (
    MAX_LINE_BYTES,
    Piece,
    blocks,
    whole_lines,
)
from analyzer.sources.log_lines import PEEKED, LineFinder, lines_at

FEWEST = 64  # lines for which a table is worth its while
MOST_ODD = 0.9  # share of odd rows; of a log with more each line is parsed anyway


@dataclass(frozen=True, slots=True)
class Way:
    """How a table of a format becomes columns: members to read, and formulas."""

    members: Callable[..., Members]
    columns: Callable[..., tuple[Columns, Bools]]


WAYS = {
    "caddy": Way(caddy_columns.members, caddy_columns.columns),
    "envoy": Way(envoy_columns.members, envoy_columns.columns),
    "middleware": Way(middleware_columns.members, middleware_columns.columns),
    "nginx": Way(nginx_columns.members, nginx_columns.columns),
    "traefik": Way(traefik_columns.members, traefik_columns.columns),
}


@dataclass(slots=True)
class Lines:
    """What became of lines: how many, why some gave no record, and the first such.

    `first` is the number of that line, from 1, and what is wrong with it. `parsed`
    are those that the record parser read.
    """

    lines: int = 0
    records: int = 0
    parsed: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    first: tuple[int, str] | None = None

    def problem(self, found: LineProblem, line: int) -> None:
        """Notes a line that gave no record."""
        self.problems[found.reason] += 1
        if self.first is None:
            self.first = line, str(found)


class Decoder:
    """Reads one piece of a log, block by block, in order."""

    def __init__(
        self,
        source: GatewaySource,
        headers: Sequence[str],
        *,
        ids: bool = False,
        fast: bool = True,
        readers: Readers | None = None,
    ) -> None:
        found = format_for(source, headers)
        if found is None:
            raise ValueError("the format of a piece must be known")
        self._format = found
        self._headers = tuple(headers)
        self._ids = ids
        self._readers = Readers() if readers is None else readers
        self._way = WAYS.get(found.name) if fast else None
        self._reader = self._readers.take() if self._way is not None else None
        self.lines = Lines()

    def read(
        self, piece: Piece, *, ranges: bool = True
    ) -> Iterator[tuple[list[Columns], int]]:
        """Yields a piece's requests in order, and how far reading has come, in bytes.

        With *ranges* DuckDB reads the file by itself where it can, which is quickest,
        and Misread may come at any time: then what was given is void, and the blocks
        have to be read. Raises LogError where the file cannot be read further.
        """
        if ranges and self._reader is not None and self._way and piece.plain:
            yield from self._read_range(piece, self._reader, self._way)
        else:
            yield from self._read_blocks(piece)

    def _read_blocks(self, piece: Piece) -> Iterator[tuple[list[Columns], int]]:
        for block in blocks(piece):
            found = self._read(block.data)
            if block.errors:
                found.append(self._parse(block.errors, "stderr"))
            self.lines.lines += block.too_long
            self.lines.problems["too_long"] += block.too_long
            yield [columns for columns in found if len(columns)], block.read
        yield [self._finish()], 0

    def _read_range(
        self, piece: Piece, reader: JsonReader, way: Way
    ) -> Iterator[tuple[list[Columns], int]]:
        begin, end = whole_lines(piece)
        with LineFinder(piece.path, begin) as finder:
            skipped = 0
            head = finder.peek()
            if not head.startswith(b"{"):
                raise Misread
            members = way.members(head, self._headers, ids=self._ids)
            tables = reader.read_range(piece.path, begin, end, members)
            for table, size in tables if begin < end else ():
                columns, odd = way.columns(table, head, self._headers, ids=self._ids)
                if odd.mean() > MOST_ODD:
                    raise Misread
                lines: list[bytes] = []
                waiting, skipped = skipped, skipped + len(table)
                if odd.any():
                    lines = finder.take(skipped, np.flatnonzero(odd) + waiting)
                    skipped = 0
                yield [self._mended(columns, odd, lines)], size
        if piece.end is None or end < piece.end:
            # A last line without its newline.
            yield from self._read_blocks(replace(piece, begin=end))

    def _finish(self) -> Columns:
        """Returns what waited for later lines: none will come."""
        held = self._format.held()
        self.lines.records += len(held)
        return columns_of(held, ids=self._ids)

    def close(self) -> None:
        """Gives back what reading needed."""
        if self._reader is not None:
            self._readers.give(self._reader)
            self._reader = None

    def _read(self, data: bytes) -> list[Columns]:
        """Reads lines; where a table cannot, it halves them to find out which."""
        count = data.count(b"\n")
        reader, way = self._reader, self._way
        if reader is None or way is None or count < FEWEST or not data.startswith(b"{"):
            return [self._parse(_split(data))]
        head = data[:PEEKED]
        members = way.members(head, self._headers, ids=self._ids)
        table = reader.read(data, count, members)
        if table is not None:
            columns, odd = way.columns(table, head, self._headers, ids=self._ids)
            if odd.mean() > MOST_ODD:
                self.close()
                return [self._parse(_split(data))]
            return [self._mended(columns, odd, lines_at(data, np.flatnonzero(odd)))]
        middle = data.find(b"\n", len(data) // 2) + 1
        if not 0 < middle < len(data):
            return [self._parse(_split(data))]
        return [*self._read(data[:middle]), *self._read(data[middle:])]

    def _mended(self, columns: Columns, odd: Bools, lines: list[bytes]) -> Columns:
        """Returns the rows of a table, the odd ones as the record parser reads them."""
        at = np.flatnonzero(odd)
        kept = np.ones(len(columns), dtype=np.bool_)
        records: list[RequestRecord] = []
        for row, line in zip(at.tolist(), lines, strict=True):
            record = self._record(line, self.lines.lines + row + 1)
            if record is None:
                kept[row] = False
            else:
                records.append(record)
        self.lines.lines += len(columns)
        self.lines.records += int(kept.sum())
        if len(at):
            by = columns_of(records, ids=self._ids)
            columns = replaced(columns, at[kept[at]], by)
        return columns if kept.all() else taken(columns, kept)

    def _parse(self, lines: Sequence[bytes], problem: str = "") -> Columns:
        """Reads lines one by one; no record counts as its reason or as *problem*."""
        records = []
        for line in lines:
            record = self._record(line, self.lines.lines + 1, problem)
            self.lines.lines += 1
            if record is not None:
                records.append(record)
        self.lines.records += len(records)
        return columns_of(records, ids=self._ids)

    def _record(
        self, line: bytes, number: int, problem: str = ""
    ) -> RequestRecord | None:
        self.lines.parsed += 1
        try:
            if len(line) <= MAX_LINE_BYTES:
                return self._format.parse(line)
            wrong = LineProblem("too_long", f"more than {MAX_LINE_BYTES} bytes")
        except LineProblem as found:
            wrong = found
        if problem:
            self.lines.problems[problem] += 1
        else:
            self.lines.problem(wrong, number)
        return None


def _split(data: bytes) -> list[bytes]:
    return data.removesuffix(b"\n").split(b"\n") if data else []

"""JSON lines as a table of typed columns, read by DuckDB."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import numpy as np
from fsspec import AbstractFileSystem

from analyzer.report.columns import Bools, Floats, Ints
from analyzer.report.text_values import (
    contains,
    go_durations,
    is_sentinel,
    numbers,
    stamps,
)
from analyzer.sources.log_blocks import MAX_LINE_BYTES
from analyzer.sources.log_lines import READ_BYTES, newlines_in

MEMORY = "256MB"
SCHEME = "range"
ROWS = 25_000  # a table has at most about as many


@dataclass(frozen=True, slots=True)
class Members:
    """What is read of a line: top-level members with their types in DuckDB.

    With *picks* the columns of a table are those SQL expressions over the members,
    else the members themselves.
    """

    types: Mapping[str, str]
    picks: Mapping[str, str] = field(default_factory=dict)


class Table:
    """The members of a block of lines; a row a line, in their order."""

    def __init__(self, table: Any) -> None:  # noqa: ANN401  pyarrow has no types
        self._columns = {
            name: column.combine_chunks() if hasattr(column, "chunks") else column
            for name, column in zip(table.schema.names, table.columns, strict=True)
        }
        self._rows = int(table.num_rows)
        self._coded: dict[str, Any] = {}

    def __len__(self) -> int:
        return self._rows

    def number(self, name: str) -> Floats:
        """Returns a numeric member, NaN where it is null or missing."""
        found: Floats = self._columns[name].to_numpy(zero_copy_only=False)
        return found

    def flag(self, name: str) -> Bools:
        """Returns where a truth value is true."""
        column = self._columns[name].fill_null(False)
        found: Bools = column.to_numpy(zero_copy_only=False)
        return found

    def present(self, name: str) -> Bools:
        """Returns where a member is neither null nor missing."""
        found: Bools = self._columns[name].is_valid().to_numpy(zero_copy_only=False)
        return found

    def is_sentinel(self, name: str) -> Bools:
        """Returns where a text is one that stands for none."""
        return is_sentinel(self._columns[name])

    def contains(self, name: str, parts: Sequence[str]) -> Bools:
        """Returns where a text contains any of *parts*."""
        return contains(self._columns[name], parts)

    def texts(self, name: str) -> tuple[str, ...]:
        """Returns a text of every row, "" for none."""
        return tuple(self._columns[name].fill_null("").to_pylist())

    def decimal(self, name: str, *, whole: bool = False) -> tuple[Floats, Bools]:
        """Returns a number that is written as text, and which rows hold other text.

        NaN stands for null and for a sentinel. With *whole* a fraction is other text.
        """
        return numbers(self._columns[name], whole=whole)

    def stamp(self, name: str, *, zone: bool) -> tuple[Floats, Bools]:
        """Returns Unix times of a text with ISO 8601 stamps, and odd rows."""
        return stamps(self._columns[name], zone=zone)

    def go_duration(self, name: str) -> tuple[Floats, Bools]:
        """Returns the seconds of a text with Go's durations, and odd rows."""
        return go_durations(self._columns[name])

    def codes(self, name: str) -> tuple[Ints, int]:
        """Returns the code of each row's text, and how many there are; null has one."""
        encoded = self._encoded(name)
        codes: Ints = encoded.indices.to_numpy().astype(np.int64)
        return codes, len(encoded.dictionary)

    def text(self, name: str, row: int) -> str | None:
        """Returns one row's text, None for none."""
        encoded = self._encoded(name)
        value: str | None = encoded.dictionary[encoded.indices[row].as_py()].as_py()
        return value

    def _encoded(self, name: str) -> Any:  # noqa: ANN401
        found = self._coded.get(name)
        if found is None:
            column = self._columns[name]
            found = column.dictionary_encode(null_encoding="encode")
            self._coded[name] = found
        return found


class JsonReader:
    """Reads JSON lines into tables; each thread needs its own."""

    def __init__(self) -> None:
        self._ranges = _Ranges()

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        found = duckdb.connect()
        found.execute("SET threads = 1")
        found.execute(f"SET memory_limit = '{MEMORY}'")
        found.register_filesystem(self._ranges)
        return found

    def _arrow(self, source: Any, members: Members) -> Any:  # noqa: ANN401  pyarrow has no types
        found = self._connection.read_json(
            source,
            columns=dict(members.types),
            format="newline_delimited",
            maximum_object_size=2 * MAX_LINE_BYTES,
        )
        if members.picks:
            picks = (f"{sql} AS {quoted(name)}" for name, sql in members.picks.items())
            found = found.project(", ".join(picks))
        return found.to_arrow_reader(ROWS)

    def read(self, data: bytes, lines: int, members: Members) -> Table | None:
        """Returns a block of that many lines as a table.

        None when a line is no JSON object or a member has a value of another type:
        which line it is has to be found by reading less.
        """
        try:
            table = self._arrow(io.BytesIO(data), members).read_all()
        except duckdb.Error:
            return None
        # A blank line is a line, and none to DuckDB.
        return Table(table) if table.num_rows == lines else None

    def read_range(
        self, path: Path, begin: int, end: int, members: Members
    ) -> Iterator[tuple[Table, int]]:
        """Yields a range of a file as tables, with how many bytes were read for each.

        Raises Misread where `read` would give None, which may be at the end.
        """
        rows = read = 0
        seen = self._ranges.seen = Seen()
        try:
            name = f"{SCHEME}://{begin}-{end}{path.absolute()}"
            for batch in self._arrow(name, members):
                before, read = read, seen.bytes
                rows += int(batch.num_rows)
                yield Table(batch), read - before
        except duckdb.Error as error:
            raise Misread from error
        if rows != seen.lines:
            raise Misread

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()


def quoted(name: str) -> str:
    """Returns a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


class Readers:
    """Readers that are used again by any thread: to open one takes 30 ms."""

    def __init__(self) -> None:
        self._free: deque[JsonReader] = deque()

    def take(self) -> JsonReader:
        """Returns a reader that nobody uses."""
        try:
            return self._free.pop()
        except IndexError:
            return JsonReader()

    def give(self, reader: JsonReader) -> None:
        """Takes a reader back."""
        self._free.append(reader)

    def close(self) -> None:
        """Closes all readers that were given back."""
        while self._free:
            self._free.pop().close()


class Misread(Exception):  # noqa: N818  it is nobody's error
    """Lines of which DuckDB makes no rows: blank ones, or broken ones."""


@dataclass(slots=True)
class Seen:
    """What DuckDB was given of a range so far."""

    bytes: int = 0
    lines: int = 0


class _Range(io.RawIOBase):
    """Some bytes of a file as if they were all of it."""

    def __init__(self, path: str, begin: int, end: int, seen: Seen) -> None:
        super().__init__()
        self._seen = seen
        self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115  closed below
        self._begin, self._size, self._at = begin, end - begin, 0

    def readable(self) -> bool:
        """Whether it can be read: it can."""
        return True

    def seekable(self) -> bool:
        """Whether it can go elsewhere: it can."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Goes to a place and returns it."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        """Returns the place."""
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Returns the next bytes, READ_BYTES at most: DuckDB asks again."""
        left = self._size - self._at
        wanted = min(READ_BYTES, left if size < 0 else min(size, left))
        data = os.pread(self._file.fileno(), wanted, self._begin + self._at)
        self._at += len(data)
        # DuckDB takes every byte once, in order.
        self._seen.bytes += len(data)
        self._seen.lines += newlines_in(data)
        return data

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        super().close()


class _Ranges(AbstractFileSystem):  # type: ignore[misc]
    """Ranges of local files for DuckDB: `range://BEGIN-END/path`."""

    protocol: ClassVar[str] = SCHEME
    cachable: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.seen = Seen()

    def info(self, path: str, **_options: Any) -> dict[str, Any]:  # noqa: ANN401
        """Returns the size of a range."""
        _, begin, end = _parsed(path)
        return {"name": path, "size": end - begin, "type": "file"}

    def _open(self, path: str, mode: str = "rb", **_options: Any) -> _Range:  # noqa: ANN401, ARG002
        return _Range(*_parsed(path), self.seen)

    def exists(self, path: str, **_options: Any) -> bool:  # noqa: ANN401, ARG002
        """Whether a range is there: who asks has read it before."""
        return True

    def glob(self, path: str, **_options: Any) -> list[str]:  # noqa: ANN401
        """Returns the one range; characters of patterns are those of its name."""
        return [path]

    def modified(self, path: str) -> datetime:
        """Returns when the file changed."""
        return datetime.fromtimestamp(Path(_parsed(path)[0]).stat().st_mtime, UTC)


def _parsed(path: str) -> tuple[str, int, int]:
    """Returns the file and the range of a path."""
    given = path.removeprefix(f"{SCHEME}://")
    place, slash, name = given.partition("/")
    begin, _, end = place.partition("-")
    return slash + name, int(begin), int(end)

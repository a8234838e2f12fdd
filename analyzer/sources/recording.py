"""A recording on disk: `scrapes/NNNN.prom` with `scrapes/index.csv`, and its config.

The scrapes may also stand in `scrapes.tar.xz` beside (or instead of) the folder.
"""

from __future__ import annotations

import csv
import io
import lzma
import math
import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_SCRAPE_BYTES = 64 << 20
INDEX_COLUMNS = ("n", "time", "status", "seconds", "bytes")
SCRAPES = "scrapes"
GPU_SCRAPES = "gpu"
_NUMBER = re.compile(r"[0-9]{1,9}")
_REASONS = {
    "URLError": "refused",
    "ConnectionRefusedError": "refused",
    "TimeoutError": "timeout",
    "timeout": "timeout",
}


class RecordingError(ValueError):
    """A recording that cannot be read; the text names the file and the place."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """One line of the index: when, how long (seconds), and the page or why none."""

    at: float
    seconds: float
    text: str | None
    reason: str = ""


def holds(directory: Path, folder: str) -> bool:
    """Whether a recording has scrapes of this kind."""
    index, archive = directory / folder / "index.csv", f"{folder}.tar.xz"
    return index.is_file() or (directory / archive).is_file()


def read_scrapes(directory: Path, folder: str = SCRAPES) -> Iterator[Scrape]:
    """Yields the scrapes of a recording in the order of its index.

    Raises RecordingError when there is no index or a line of it is not one.
    """
    archive = directory / f"{folder}.tar.xz"
    if (directory / folder / "index.csv").is_file():
        yield from _read(_folder_opener(directory / folder), str(directory / folder))
    elif archive.is_file():
        try:
            with tarfile.open(archive, "r:*") as opened:
                yield from _read(_archive_opener(opened, folder), str(archive))
        except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
            reason = str(error).partition("\n")[0].rstrip(": ") or "cut short"
            raise RecordingError(
                f"{archive}: not a readable archive: {reason}"
            ) from error
    else:
        raise RecordingError(
            f"{directory}: no recording: neither {folder}/index.csv nor {archive.name}"
        )


Opener = Callable[[str], bytes | None]


def _folder_opener(folder: Path) -> Opener:
    def read(name: str) -> bytes | None:
        try:
            with (folder / name).open("rb") as file:
                return file.read(MAX_SCRAPE_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RecordingError(f"{folder / name}: {error.strerror}") from error

    return read


def _archive_opener(archive: tarfile.TarFile, folder: str) -> Opener:
    members = {
        member.name.removeprefix("./").removeprefix(f"{folder}/"): member
        for member in archive.getmembers()
        if member.isfile()
    }

    def read(name: str) -> bytes | None:
        member = members.get(name)
        file = archive.extractfile(member) if member else None
        return None if file is None else file.read(MAX_SCRAPE_BYTES + 1)

    return read


def _read(read: Opener, place: str) -> Iterator[Scrape]:
    index = read("index.csv")
    if index is None:
        raise RecordingError(f"{place}: no index.csv")
    for number, row in enumerate(_rows(index, f"{place}/index.csv"), 2):
        where = f"{place}/index.csv: line {number}"
        at = _number(row.get("time"), f"{where}: time")
        seconds = _number(row.get("seconds") or "0", f"{where}: seconds")
        status = row.get("status") or ""
        n = row.get("n") or ""
        if not _NUMBER.fullmatch(n):
            raise RecordingError(f"{where}: n must be a number, got {n[:40]!r}")
        if status == "200":
            yield _page(read, place, int(n), at, seconds)
        else:
            reason = _REASONS.get(status, status)
            yield Scrape(
                at, seconds, None, "http_status" if status.isdigit() else reason
            )


def _rows(index: bytes, where: str) -> Iterator[dict[str, str | None]]:
    """Yields the rows of an index that has the columns we need."""
    rows = csv.DictReader(io.StringIO(index.decode("utf-8", "replace")))
    wanted = {"n", "time", "status"}
    try:
        if not wanted <= set(rows.fieldnames or ()):
            names = ", ".join(sorted(wanted))
            raise RecordingError(f"{where}: needs the columns {names}")
        yield from rows
    except csv.Error as error:
        raise RecordingError(f"{where}: line {rows.line_num + 1}: {error}") from error


def _page(read: Opener, place: str, n: int, at: float, seconds: float) -> Scrape:
    name = f"{n:04d}.prom"
    data = read(name)
    if data is None:
        raise RecordingError(f"{place}/{name}: is in the index but not there")
    if len(data) > MAX_SCRAPE_BYTES:
        return Scrape(at, seconds, None, "too_large")
    return Scrape(at, seconds, data.decode("utf-8", "replace"))


def _number(text: str | None, where: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise RecordingError(f"{where} must be a number, got {(text or '')[:40]!r}")
    return value


class Recorder:
    """Writes a recording; every scrape is on disk before its line in the index.

    Raises RecordingError when *directory* already holds one.
    """

    def __init__(self, directory: Path, folder: str = SCRAPES) -> None:
        archive = directory / f"{folder}.tar.xz"
        if archive.exists():
            raise RecordingError(f"{archive}: there is a recording already")
        self._folder = directory / folder
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / "index.csv"
        try:
            self._index = path.open("x", encoding="utf-8", newline="")
        except FileExistsError:
            raise RecordingError(f"{path}: there is a recording already") from None
        self._writer = csv.writer(self._index)
        self._writer.writerow(INDEX_COLUMNS)
        self._index.flush()  # a recording that is killed early has its columns
        self.count = 0

    def add(self, at: float, seconds: float, page: bytes | None, reason: str) -> None:
        """Writes one scrape, *page* as received, or the reason why there is none."""
        size = 0
        if page is not None:
            size = len(page)
            (self._folder / f"{self.count:04d}.prom").write_bytes(page)
        status = "200" if page is not None else reason
        self._writer.writerow((self.count, f"{at:.3f}", status, f"{seconds:.4f}", size))
        self._index.flush()
        self.count += 1

    def close(self) -> None:
        """Closes the index."""
        self._index.close()

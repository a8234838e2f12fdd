"""Finds the files of a log, and those it was rotated into, in their order."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from pathlib import Path, PurePath

GZIP = ".gz"
UNREADABLE = (".bz2", ".xz", ".zst", ".zip", ".lz4")
ARCHIVES = (GZIP, *UNREADABLE)

Identity = tuple[int, int]  # device and inode

# What rotation puts into a name: a counter, a date or both. logrotate writes .1 or
# -20261129, kubelet .20261129-141048, Python .2026-11-29_14-10; lumberjack and Caddy
# write -2026-11-29T14-10-48.123 before the extension, Caddy -size or so after that.
_STAMP = r"(?P<stamp>\d(?:[\dT:._+-]*\d)?)Z?(?:-(?:size|time|manual))?"
_ARCHIVE = r"(?P<archive>" + "|".join(map(re.escape, ARCHIVES)) + r")?"
_AFTER = re.compile(rf"[._-]{_STAMP}{_ARCHIVE}")
_OLD = re.compile(rf"[._-](?:old|prev){_ARCHIVE}")
_COUNTER_DIGITS = 5
_EPOCH_DIGITS = (10, 13, 16, 19)  # seconds to nanoseconds

Rank = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file that holds a part of a log. `live` is the one that stands at its path."""

    path: str
    identity: Identity
    mtime_ns: int
    size: int
    archive: bool = False
    live: bool = False


def matching(pattern: str) -> list[str]:
    """Returns what *pattern* matches; a plain path also when nothing is there."""
    if not glob.has_magic(pattern):
        return [pattern]
    found = glob.glob(pattern, recursive=True)  # noqa: PTH207  Path wants it relative
    return sorted(path for path in found if not is_archive(path))


def live_paths(pattern: str) -> list[str]:
    """Returns what *pattern* matches, without what those were rotated into."""
    found = matching(pattern)
    return [p for p in found if not any(rotated_from(p, other) for other in found)]


def rank(name: str, base: str) -> Rank | None:
    """Returns the order of *name* among the rotated files of *base*.

    Ranks of one kind sort from old to new. None for a name of another file: a counter
    before the extension must follow a dot, since `app-1.log` stands beside `app.log`.
    """
    if name.startswith(base):
        found = _AFTER.fullmatch(name, len(base))
        if found:
            return _rank(found["stamp"])
        return ("counter", -1) if _OLD.fullmatch(name, len(base)) else None
    extension = PurePath(base).suffix
    stem = base.removesuffix(extension)
    plain = _plain_name(name)
    if not (extension and name.startswith(stem) and plain.endswith(extension)):
        return None
    found = _AFTER.fullmatch(plain, len(stem), len(plain) - len(extension))
    order = _rank(found["stamp"]) if found else None
    if order is None or (order[0] == "counter" and name[len(stem)] != "."):
        return None
    return order


def _rank(stamp: str) -> Rank:
    digits = re.sub(r"\D", "", stamp)
    if stamp.isdigit() and len(stamp) <= _COUNTER_DIGITS:
        return "counter", -int(stamp)
    if digits.startswith(("19", "20")) and len(digits) >= 8:
        return "date", int(digits.ljust(24, "0")[:24])
    if stamp.isdigit() and len(stamp) in _EPOCH_DIGITS:
        return "epoch", int(stamp.ljust(19, "0"))
    return "other", 0


def _plain_name(name: str) -> str:
    """Returns *name* without the ending of a compressed file."""
    for ending in ARCHIVES:
        if name.endswith(ending):
            return name[: -len(ending)]
    return name


def is_archive(path: str) -> bool:
    """Whether the name says that the file is compressed."""
    return path.endswith(ARCHIVES)


def rotated_from(path: str, base: str) -> bool:
    """Whether *path* is named like a rotated file of *base*, in the same folder."""
    if not path.startswith(base.removesuffix(PurePath(base).suffix)):
        return False
    folder, name = os.path.split(path)
    base_folder, base_name = os.path.split(base)
    return folder == base_folder and rank(name, base_name) is not None


def series(base: str, *, live: bool = True) -> list[Entry]:
    """Returns the rotated files of *base* from old to new, then *base* itself.

    The order is that of the names where all are of one kind, else that of the last
    write. Where a file and its archive are both there, the archive is not finished
    or not needed, and left out. A folder that cannot be read has no files.
    """
    folder, base_name = os.path.split(base)
    stem = base_name.removesuffix(PurePath(base_name).suffix)
    ranked: dict[str, tuple[Rank, Entry]] = {}
    try:
        with os.scandir(folder) as found:
            names = [entry.name for entry in found if entry.name.startswith(stem)]
    except OSError:
        names = []
    for name in sorted(names):  # a file comes before its archive
        order = rank(name, base_name)
        entry = _entry(f"{folder}/{name}") if order else None
        if order is not None and entry is not None:
            ranked.setdefault(_plain_name(name), (order, entry))
    kinds = {order[0] for order, _ in ranked.values()}
    if len(kinds) == 1 and "other" not in kinds:
        entries = [entry for _, entry in sorted(ranked.values(), key=itemgetter(0))]
    else:
        entries = [entry for _, entry in ranked.values()]
        entries.sort(key=attrgetter("mtime_ns"))
    last = _entry(base, live=live)
    return [*entries, last] if last is not None else entries


def _entry(path: str, *, live: bool = False) -> Entry | None:
    try:
        found = Path(path).stat()
    except OSError:  # renamed a moment ago
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return Entry(
        path,
        (found.st_dev, found.st_ino),
        found.st_mtime_ns,
        found.st_size,
        archive=is_archive(path) and not live,
        live=live,
    )


def same_files(first: Sequence[Entry], second: Sequence[Entry]) -> bool:
    """Whether two looks saw the same files under the same names."""
    return [(e.path, e.identity) for e in first] == [
        (e.path, e.identity) for e in second
    ]

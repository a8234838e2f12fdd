"""Opens the files of a log that nothing was read from yet."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from analyzer.gateways.framing import Framing
from analyzer.sources.rotated_files import Entry
from exporter.tail_file import LogFile
from exporter.tail_handle import ArchiveError, Handle
from exporter.tail_position import FilePosition


@dataclass(frozen=True, slots=True)
class Rules:
    """What all logs of a reader share; `grace` in seconds.

    `room` says whether one more file may be open, besides so many that are not
    counted yet.
    """

    framing: Framing
    max_line_bytes: int
    grace: float
    room: Callable[[int], bool]


def regular(path: str) -> os.stat_result:
    """Returns the status of *path*. Raises OSError unless it is a regular file."""
    found = Path(path).stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(None, "not a regular file", path)
    return found


def opened(handle: Handle, rules: Rules, now: float, *, at_end: bool) -> LogFile:
    """Returns the file of *handle*, to be read from its end or its begin."""
    return LogFile.begin(
        handle, at_end=at_end, max_line_bytes=rules.max_line_bytes, now=now
    )


def closed(entry: Entry, rules: Rules, *, at_end: bool) -> LogFile:
    """Returns *entry* as a file that is to be opened later."""
    place = FilePosition(
        os.fsencode(entry.path),
        *entry.identity,
        offset=entry.size if at_end else 0,
        size=entry.size,
        mtime_ns=entry.mtime_ns,
    )
    return LogFile(place, max_line_bytes=rules.max_line_bytes)


def open_all(
    entries: Iterable[Entry], rules: Rules, now: float
) -> list[LogFile] | None:
    """Returns *entries* as files to be read from their begin; None when one has moved.

    What cannot be opened now, or for which there is no room, is left closed.
    """
    files: list[LogFile] = []
    for entry in entries:
        try:
            handle = Handle(entry.path)
        except FileNotFoundError:
            break
        except (OSError, ArchiveError):
            files.append(closed(entry, rules, at_end=False))
            continue
        try:
            files.append(opened(handle, rules, now, at_end=False))
        except (OSError, ArchiveError):
            handle.close()
            files.append(closed(entry, rules, at_end=False))
            continue
        if handle.identity != entry.identity:
            break
        if not rules.room(sum(file.is_open for file in files[:-1])):
            files[-1].close()
    else:
        return files
    for file in files:
        file.close()
    return None

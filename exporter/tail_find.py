"""Finds log files again under new names, and those that came after them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from analyzer.sources.rotated_files import Entry, Identity, is_archive, series
from exporter.tail_file import LogFile
from exporter.tail_handle import ArchiveError, Handle

SECOND_NS = 1_000_000_000
ARCHIVE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Newer:
    """The files after the newest one that was read, old to new.

    `gap` when that one is not among the rotated files any more, although others
    are: some may have come and been deleted.
    """

    entries: tuple[Entry, ...]
    gap: bool = False


def look(base: str, old_base: str, since_ns: int) -> list[Entry]:
    """Returns all files of a log, old to new, each once.

    When a symbolic link points to another *base* now, the files of the old one come
    first, and of the new one those written since.
    """
    entries = series(base)
    if base != old_base:
        fresh = [e for e in entries if e.live or e.mtime_ns >= since_ns]
        entries = series(old_base, live=False) + fresh
    last = {entry.identity: entry for entry in entries}
    return [entry for entry in entries if last[entry.identity] is entry]


def find_again(
    file: LogFile, entries: Sequence[Entry], taken: Collection[Identity]
) -> Handle | None:
    """Returns *file* opened where it is now: by its inode, else by its content.

    Raises OSError when what has its inode is there but cannot be opened.
    """
    free = [entry for entry in entries if entry.identity not in taken]
    for entry in free:
        if entry.identity != file.identity:
            continue
        try:
            handle = Handle(entry.path)
        except (FileNotFoundError, ArchiveError):
            continue
        if _holds(handle, file) or (
            # Never read yet, so nothing else is known of it.
            handle.archive and is_archive(file.path) and not file.known
        ):
            return handle
        handle.close()
    return next(filter(None, (copy_of(file, entry) for entry in free)), None)


def copy_of(file: LogFile, entry: Entry) -> Handle | None:
    """Returns *entry* opened when it holds what *file* held.

    A copy was last written when *file* was, or later; some tools keep that time in
    whole seconds, and archives that of when they were begun.
    """
    slack = ARCHIVE_SECONDS if entry.archive else 0
    if entry.mtime_ns // SECOND_NS + slack < file.mtime_ns // SECOND_NS:
        return None
    if not file.known:
        return None
    try:
        handle = Handle(entry.path)
    except (OSError, ArchiveError):
        return None
    if _holds(handle, file):
        return handle
    handle.close()
    return None


def is_at(file: LogFile, path: str) -> bool:
    """Whether *path* can be opened and holds what *file* held."""
    try:
        handle = Handle(path)
    except (OSError, ArchiveError):
        return False
    found = _holds(handle, file)
    handle.close()
    return found


def _holds(handle: Handle, file: LogFile) -> bool:
    try:
        return file.fits(handle)
    except (OSError, ArchiveError):
        return False


def unread(files: Sequence[LogFile], entries: Sequence[Entry]) -> Newer:
    """Returns the files that came after the newest of *files*.

    Without those that are read as *files* already: they were deleted, perhaps, after
    they had been copied or compressed.
    """
    newest = files[-1]
    place = _place(newest, entries)
    gap = False
    if place is not None:
        newer = tuple(entries[place + 1 :])
    else:
        gap = newest.known and any(not entry.live for entry in entries)
        newer = written_since(newest.mtime_ns, entries)
    known = {file.identity for file in files}
    there = {entry.identity for entry in entries}
    deleted = [f for f in files if f.is_open and f.known and f.identity not in there]
    return Newer(
        tuple(
            entry
            for entry in newer
            if entry.identity not in known
            and not any(is_at(file, entry.path) for file in deleted)
        ),
        gap,
    )


def filled(empty: Sequence[LogFile], entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Returns the files written since those of *empty*, which held nothing, were made.

    And those of them that hold nothing still: their writer may be late.
    """
    written = written_since(empty[0].mtime_ns + 1, entries)
    still = {file.identity for file in empty}
    return tuple(
        entry
        for entry in entries
        if entry in written or (entry.identity in still and not entry.size)
    )


def written_since(mtime_ns: int, entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Returns the live file and the rotated ones that were written since then."""
    return tuple(e for e in entries if e.live or e.mtime_ns >= mtime_ns)


def _place(file: LogFile, entries: Sequence[Entry]) -> int | None:
    for index, entry in enumerate(entries):
        if entry.identity == file.identity:
            return index
    for index, entry in enumerate(entries):  # compressed, or copied
        if not entry.live and (handle := copy_of(file, entry)):
            handle.close()
            return index
    return None

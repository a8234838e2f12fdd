"""Follows one log through its rotations: each line of each of its files once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from analyzer.gateways.framing import Framing, FramingState, Unframed, Unframer
from analyzer.sources.rotated_files import UNREADABLE, Entry, same_files, series
from exporter.tail_batch import Tally
from exporter.tail_file import LogFile, Truncated
from exporter.tail_find import (
    Newer,
    filled,
    find_again,
    look,
    unread,
    written_since,
)
from exporter.tail_handle import ArchiveError, Handle
from exporter.tail_open import Rules, closed, open_all, opened, regular
from exporter.tail_position import LogPosition

LOOKS = 5


class Log:
    """One path and the files that stood there, from the oldest unfinished one on.

    A file that was rotated away is read before the next one, and stays open until
    nobody writes to it: a newer file has content, and this one was quiet for a grace.
    """

    def __init__(self, place: LogPosition, rules: Rules) -> None:
        self.path = os.fsdecode(place.path)
        self.problem = ""
        self._gone_at: float | None = None
        self._rules = rules
        self._base = os.fsdecode(place.base) or self.path
        framing = place.framing
        if rules.framing is not Framing.AUTO:
            framing = replace(framing, framing=rules.framing)
        self._unframer = Unframer(framing, max_message_bytes=rules.max_line_bytes)
        self.files = [
            LogFile(file, max_line_bytes=rules.max_line_bytes) for file in place.files
        ]
        self._sought = not self.files
        self._since_ns = 0

    @classmethod
    def new(cls, path: str, rules: Rules) -> Log:
        """Returns a log of which nothing was read yet."""
        return cls(LogPosition(os.fsencode(path), b"", FramingState()), rules)

    @property
    def position(self) -> LogPosition:
        """Where to go on after a restart."""
        return LogPosition(
            os.fsencode(self.path),
            os.fsencode(self._base),
            self._unframer.state,
            tuple(file.position() for file in self.files),
        )

    @property
    def open_files(self) -> int:
        """How many files it holds open."""
        return sum(file.is_open for file in self.files)

    @property
    def gone(self) -> bool:
        """Whether nothing stands at its path now."""
        return self._gone_at is not None

    @property
    def lag(self) -> int:
        """Bytes not read yet, in all its files."""
        return sum(file.lag for file in self.files)

    def begin(self, *, at_end: bool, now: float) -> None:
        """Begins with the file that stands there now, at its end or its begin.

        Rotated files of before are left alone. Where the live one is missing or empty,
        what is appended to the newest rotated one is read: its writer may be there.
        """
        self._base = os.path.realpath(self.path)
        entries = series(self._base)
        first_of_two = len(entries) > 1 and entries[-1].live and not entries[-1].size
        for entry in entries[-2:] if first_of_two else entries[-1:]:
            if not entry.archive:
                self.files.append(self._begun(entry, now, at_end=at_end))

    def _begun(self, entry: Entry, now: float, *, at_end: bool) -> LogFile:
        at_end = at_end or not entry.live
        if not self._rules.room(self.open_files):
            return closed(entry, self._rules, at_end=at_end)
        try:
            return opened(Handle(entry.path), self._rules, now, at_end=at_end)
        except OSError as error:
            self._found_problem(error)
            return closed(entry, self._rules, at_end=at_end)

    def follow(self, now: float, since_ns: int, tally: Tally) -> None:
        """Looks what stands at the path now, and opens what is new.

        Rotated files from before *since_ns* do not belong to a log first seen now.
        """
        self._since_ns = since_ns
        try:
            live = regular(self.path)
        except OSError as error:
            self._gone_at = now if self._gone_at is None else self._gone_at
            self._found_problem(error)
            if not self._sought:
                self._extend(now, tally)
            return
        self._gone_at = None
        self.problem = ""
        newest = self.files[-1] if self.files else None
        same = newest is not None and newest.identity == (live.st_dev, live.st_ino)
        if newest and same and newest.untouched and newest.mtime_ns != live.st_mtime_ns:
            # It was empty. Now it has its first lines, or had some that were copied
            # and truncated since: then the copies stand beside.
            newest.close()
            tally.truncations += max(0, self._extend(now, tally) - 1)
        elif not (same and all(file.is_open for file in self.files)):
            first = not self.files
            tally.rotations += self._extend(now, tally) - first

    def _found_problem(self, error: OSError) -> None:
        self.problem = error.strerror or str(error)

    def _extend(self, now: float, tally: Tally) -> int:
        """Finds closed files again and adds those that came since the newest one.

        Files are renamed while we look; only what two looks agree on is believed.
        Returns how many files were added.
        """
        for file in self.files:
            file.learn()
        # An empty file cannot be known again: its inode may be another's now. What it
        # holds by now is found as a new file, where it stands in the order.
        empty = [file for file in self.files if not file.is_open and file.untouched]
        before = self.files
        self.files = [file for file in before if file not in empty]
        base = self._base if self.gone else os.path.realpath(self.path)
        for _ in range(LOOKS):
            entries = look(base, self._base, self._since_ns)
            missing = self._reopen(entries, now)
            held = [file for file in self.files if file not in missing]
            if held:
                newer = unread(held, entries)
            elif missing or not empty:
                since = max((file.mtime_ns for file in missing), default=self._since_ns)
                newer = Newer(written_since(since, entries))
            else:
                newer = Newer(filled(empty, entries))
            fresh = open_all(newer.entries, self._rules, now)
            again = look(base, self._base, self._since_ns)
            if fresh is not None and same_files(entries, again):
                break
            for file in fresh or ():
                file.close()
        else:
            self.files = before
            return 0
        self._sought = True
        self._base = base
        if newer.gap and fresh:
            tally.lost["rotated_out"] += 1
        for file in missing:
            self._give_up(file, tally)
        self.files += fresh
        return len(fresh)

    def _reopen(self, entries: Sequence[Entry], now: float) -> list[LogFile]:
        """Opens closed files where they are now; returns those that are nowhere."""
        missing = []
        for file in self.files:
            if file.is_open:
                continue
            if not self._rules.room(0):
                self.problem = "too many open files"
                continue
            taken = {other.identity for other in self.files if other.is_open}
            try:
                handle = find_again(file, entries, taken)
                if handle is None:
                    missing.append(file)
                else:
                    file.attach(handle, now)
            except OSError as error:
                self._found_problem(error)
        return missing

    def _give_up(self, file: LogFile, tally: Tally) -> None:
        """Drops a file that is nowhere.

        Nothing is lost with one that was empty, or replaced and read to its end.
        """
        superseded = file is not self.files[-1]
        self.files.remove(file)
        if file.path.endswith(UNREADABLE):
            tally.lost["unknown_archive"] += 1
        elif file.truncated:
            if file.lag:
                tally.lost["torn_line" if file.torn else "truncated"] += 1
        elif file.lag or (file.known and not superseded):
            tally.lost["file_gone"] += 1

    def read(self, limit: int, now: float, tally: Tally) -> tuple[list[bytes], int]:
        """Returns the next messages and how many bytes were worked through for them.

        No work means that all that is there was read.
        """
        for file in list(self.files):
            try:
                chunk = file.read(limit, now)
            except Truncated:
                self._truncated(file, now, tally)
                return [], 1
            except ArchiveError as error:
                tally.lost[error.reason] += 1
                return self._finish(file, tally), 1
            except OSError as error:
                self._found_problem(error)
                continue
            tally.too_long += file.take_too_long()
            if chunk.work:
                return self._unframe(chunk.lines, tally), chunk.work
        return [], 0

    def _truncated(self, file: LogFile, now: float, tally: Tally) -> None:
        """Goes on with the copy of a truncated file, then with what it holds now."""
        archive = file.archive
        file.torn = file.has_rest and not file.lag
        file.close()
        if archive:  # its head was ours, but not what follows
            self.files.remove(file)
            tally.lost["file_gone"] += 1
            return
        self._extend(now, tally)
        tally.truncations += 1

    def retire(self, now: float, tally: Tally) -> list[bytes]:
        """Closes files that nobody writes to any more; returns their last messages.

        Call it after all was read.
        """
        messages: list[bytes] = []
        quiet_since = now - self._rules.grace
        # In order, so that none between two that are held was forgotten already.
        for file in [file for file in self.files[:-1] if file.is_open]:
            newer = self.files[self.files.index(file) + 1 :]
            replaced = any(other.size > 0 for other in newer)
            done = file.ended or file.quiet_since(quiet_since)
            if not (replaced and done):
                break
            messages += self._finish(file, tally)
        if self._gone_at is not None and self._gone_at <= quiet_since:
            still = [file for file in self.files if file.is_open]
            if still and all(file.quiet_since(quiet_since) for file in still):
                for file in still:
                    messages += self._unframe(file.finish(), tally)
                    file.close()
                messages += _counted(self._unframer.flush(), tally)
        return messages

    def release(self, file: LogFile) -> None:
        """Gives a file away, to the log under whose path it stands now."""
        self.files.remove(file)

    def take(self, files: Sequence[LogFile]) -> None:
        """Adds files that belong before its own."""
        self.files = [*files, *self.files]

    def _finish(self, file: LogFile, tally: Tally) -> list[bytes]:
        lines = file.finish()
        file.close()
        self.files.remove(file)
        return self._unframe(lines, tally)

    def _unframe(self, lines: list[bytes], tally: Tally) -> list[bytes]:
        return _counted(self._unframer.feed(lines), tally)

    def close(self) -> None:
        """Closes all files; the position stays as it is."""
        for file in self.files:
            file.close()


def _counted(found: Unframed, tally: Tally) -> list[bytes]:
    tally.misframed += found.misframed
    tally.too_long += found.too_long
    tally.errors += found.errors
    return found.messages

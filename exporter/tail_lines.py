"""Splits bytes that arrive in pieces into lines, with bounded memory."""

from __future__ import annotations


class LineSplitter:
    """Keeps an unfinished line until its newline comes.

    A line longer than *max_line_bytes* is dropped up to its newline and counted in
    `too_long` as soon as it is that long. With *skipping* the first bytes belong to
    a line that is not passed on.
    """

    __slots__ = ("_max", "rest", "skipping", "too_long")

    def __init__(self, max_line_bytes: int, *, skipping: bool = False) -> None:
        self._max = max_line_bytes
        self.rest = b""
        self.skipping = skipping
        self.too_long = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the lines that *data* completes, without their newlines."""
        lines = data.split(b"\n")
        longest_possible = len(self.rest) + len(data)
        last = lines.pop()
        if lines:
            if self.skipping:
                self.skipping = False
                del lines[0]
            else:
                lines[0] = self.rest + lines[0]
            self.rest = last
        elif not self.skipping:
            self.rest += last
        if longest_possible > self._max:
            lines = self._without_too_long(lines)
        return lines

    def _without_too_long(self, lines: list[bytes]) -> list[bytes]:
        kept = [line for line in lines if len(line) <= self._max]
        self.too_long += len(lines) - len(kept)
        if len(self.rest) > self._max:
            self.too_long += 1
            self.rest = b""
            self.skipping = True
        return kept

    def finish(self) -> list[bytes]:
        """Returns the unfinished line, if there is one, since no more will come."""
        lines = [self.rest] if self.rest else []
        self.rest = b""
        self.skipping = False
        return lines

    def take_too_long(self) -> int:
        """Returns how many lines were dropped since this was last asked."""
        count, self.too_long = self.too_long, 0
        return count

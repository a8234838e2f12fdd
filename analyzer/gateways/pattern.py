"""Patterns of custom log formats, matched in linear time.

Python's own engine can take hours for one line (`(a+)+`, but also `.*.*.*x`), holds the
interpreter meanwhile and cannot be interrupted, so a test for nested quantifiers would
not do. RE2 has no such patterns: it takes a time proportional to the line, and refuses
what it cannot match so (backreferences, look-around).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from analyzer.gateways.record import LineProblem

LONGEST_PATTERN = 4096
LONGEST_LINE = 64 << 10
MAX_MEMORY = 8 << 20

Match = Callable[[bytes], tuple[str | None, ...]]


class PatternError(ValueError):
    """A pattern that cannot be used; the text says why."""


def compile_pattern(pattern: str) -> tuple[Match, tuple[str, ...]]:
    """Returns a matcher of lines and the names of its groups.

    The pattern may match anywhere in a line. The matcher returns the texts of the named
    groups, and raises LineProblem for a line without a match. Raises PatternError.
    """
    try:
        re2 = importlib.import_module("re2")
    except ImportError:
        raise PatternError(
            "needs google-re2, which matches in linear time: "
            "pip install 'llm-goodput[pattern]'"
        ) from None
    if len(pattern) > LONGEST_PATTERN:
        raise PatternError(f"is longer than {LONGEST_PATTERN} characters")
    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.log_errors = False
    options.encoding = re2.Options.Encoding.UTF8
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        told = error.args[0] if error.args else "not a pattern"
        told = told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
        raise PatternError(f"is no pattern of RE2: {told}") from None
    groups, places = tuple(compiled.groupindex), tuple(compiled.groupindex.values())
    if not groups:
        raise PatternError("needs named groups such as (?P<status>[0-9]+)")

    def match(line: bytes) -> tuple[str | None, ...]:
        if len(line) > LONGEST_LINE:
            raise LineProblem("too_long", f"longer than {LONGEST_LINE} bytes")
        if not line.isascii():  # RE2 matches no byte that is not UTF-8
            line = line.decode("utf-8", "replace").encode()
        found = compiled.search(line)
        if found is None:
            raise LineProblem("no_match", "the pattern does not match")
        texts: tuple[bytes | None, ...] = found.group(0, *places)[1:]
        return tuple(None if text is None else text.decode() for text in texts)

    return match, groups

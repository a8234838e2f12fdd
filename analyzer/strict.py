"""Strict reading of YAML: every value is checked where it stands, with its path.

Any fault raises `ConfigError`, whose text is `file: path: what is wrong, got value`.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Collection, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 1 << 20
SHOWN_CHARACTERS = 60
UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)\Z")
_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


class ConfigError(ValueError):
    """A configuration that cannot be used; `path` names the place in the file."""

    def __init__(self, path: str, message: str, file: str = "") -> None:
        self.path = path
        self.message = message
        self.file = file
        super().__init__(": ".join(part for part in (file, path, message) if part))


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice instead of keeping the last one."""

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)  # type: ignore[no-untyped-call]
            if not isinstance(key, Hashable):
                continue
            if key in seen:
                mark = key_node.start_mark
                raise ConfigError(
                    f"line {mark.line + 1}", f"key {shown(key)} is given twice"
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def load(path: Path) -> Node:
    """Returns the root of the YAML file at *path*.

    Raises ConfigError when it cannot be read, is larger than 1 MiB or is not YAML.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            "", f"cannot be read: {error.strerror or error}", str(path)
        ) from error
    return parse(data, str(path))


def parse(data: bytes | str, file: str = "") -> Node:
    """Returns the root of a YAML document, the environment's variables at hand."""
    if len(data) > MAX_BYTES:
        raise ConfigError("", f"larger than {MAX_BYTES} bytes", file)
    try:
        value = yaml.load(data, Loader=_Loader)  # noqa: S506  a SafeLoader of ours
    except ConfigError as error:
        raise ConfigError(error.path, error.message, file) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(place, f"not YAML: {error.problem}", file) from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ConfigError("", f"not YAML: {reason}", file) from None
    return Node(value, "", file)


def shown(value: object) -> str:
    """Returns *value* as an error message quotes it, cut when long."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


class Node:
    """One value of a document, with the path that leads to it."""

    __slots__ = ("file", "path", "value")

    def __init__(self, value: Any, path: str, file: str) -> None:
        self.value = value
        self.path = path
        self.file = file

    def error(self, message: str) -> ConfigError:
        """Returns an error that names this place."""
        return ConfigError(self.path, message, self.file)

    def _wanted(self, what: str) -> ConfigError:
        return self.error(f"must be {what}, got {shown(self.value)}")

    def mapping(
        self, *, required: Collection[str] = (), optional: Collection[str] = ()
    ) -> Mapping[str, Node]:
        """Returns the members of a mapping that may hold these keys and no others."""
        members = self.members()
        known = (*required, *optional)
        for name in members:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f", did you mean {near[0]!r}" if near else ""
                listed = ", ".join(sorted(known))
                raise members[name].error(f"unknown key{hint} (known: {listed})")
        for name in required:
            if name not in members:
                raise self._child(name).error("is missing")
        return members

    def members(self) -> Mapping[str, Node]:
        """Returns the members of a mapping with any text keys."""
        if not isinstance(self.value, dict):
            raise self._wanted("a mapping")
        result = {}
        for key, value in self.value.items():
            if not isinstance(key, str):
                raise self.error(f"keys must be text, got {shown(key)}")
            result[key] = Node(value, self._child(key).path, self.file)
        return result

    def _child(self, name: str) -> Node:
        path = f"{self.path}.{name}" if self.path else name
        return Node(None, path, self.file)

    def items(self, *, at_most: int = 1000) -> Iterator[Node]:
        """Yields the members of a list."""
        if not isinstance(self.value, list):
            raise self._wanted("a list")
        if len(self.value) > at_most:
            raise self.error(f"has {len(self.value)} entries, at most {at_most}")
        for index, value in enumerate(self.value):
            yield Node(value, f"{self.path}[{index}]", self.file)

    def text(self, *, pattern: str = "", what: str = "text") -> str:
        """Returns text with `$(VAR)` replaced from the environment."""
        if not isinstance(self.value, str) or not self.value:
            raise self._wanted(what)

        def variable(match: re.Match[str]) -> str:
            found = os.environ.get(match[1])
            if found is None:
                raise self.error(f"environment variable {match[1]} is not set")
            return found

        text = _VARIABLE.sub(variable, self.value)
        if pattern and not re.fullmatch(pattern, text):
            raise self._wanted(what)
        return text

    def texts(self) -> tuple[str, ...]:
        """Returns one text or a list of them, at least one."""
        if isinstance(self.value, str):
            return (self.text(),)
        found = tuple(node.text() for node in self.items())
        if not found:
            raise self._wanted("text or a list of texts")
        return found

    def choice(self, options: Collection[str]) -> str:
        """Returns one of *options*."""
        if self.value not in options:
            raise self._wanted("one of " + ", ".join(options))
        return str(self.value)

    def boolean(self) -> bool:
        """Returns true or false."""
        if not isinstance(self.value, bool):
            raise self._wanted("true or false")
        return self.value

    def number(self, *, what: str = "a number") -> float:
        """Returns a finite number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self._wanted(what)
        if not math.isfinite(self.value):
            raise self._wanted(what)
        return float(self.value)

    def ratio(self) -> float:
        """Returns a number strictly between 0 and 1."""
        value = self.number(what="a ratio between 0 and 1")
        if not 0 < value < 1:
            raise self._wanted("a ratio between 0 and 1")
        return value

    def integer(self, *, minimum: int = 1, maximum: int = 2**53) -> int:
        """Returns a whole number within limits."""
        value = self.value
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not minimum <= value <= maximum
        ):
            raise self._wanted(f"a whole number from {minimum} to {maximum}")
        return value

    def duration(self, *, minimum: float = 0.0) -> float:
        """Returns seconds from text like `50ms`, `1.5m` or `28d`, more than 0."""
        if not isinstance(self.value, str):
            raise self._wanted("a duration with a unit (ms, s, m, h, d, w)")
        seconds = parse_duration(self.text())
        if seconds is None:
            raise self._wanted("a duration with a unit (ms, s, m, h, d, w)")
        if seconds <= 0 or seconds < minimum:
            limit = f"at least {format_duration(minimum)}" if minimum else "more than 0"
            raise self._wanted(limit)
        return seconds


def parse_duration(text: str) -> float | None:
    """Returns the seconds that *text* like `0.05s` means, None if it means none."""
    match = _DURATION.match(text)
    return None if match is None else float(match[1]) * UNITS[match[2]]


def format_duration(seconds: float) -> str:
    """Returns *seconds* in the largest unit that writes them without a fraction."""
    for unit, size in sorted(UNITS.items(), key=lambda item: -item[1]):
        count = seconds / size
        if count >= 1 and math.isclose(count, round(count), rel_tol=1e-9):
            return f"{round(count)}{unit}"
    return f"{seconds:g}s"

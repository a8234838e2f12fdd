"""Strict reading of YAML: every value is checked where it stands, with its path.

Any fault raises `ConfigError`, whose text is `file: path: what is wrong, got value`.
Where the document itself is at fault the path is a line.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import reprlib
from collections.abc import Collection, Hashable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import yaml

MAX_BYTES = 1 << 20
MAX_VALUES = 50_000
MAX_DEPTH = 20
MAX_NUMBER_CHARACTERS = 60
MAX_DURATION = 3650 * 86400.0
SHOWN_CHARACTERS = 60
UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
DURATION_TEXT = "a duration with a unit (ms, s, m, h, d, w)"
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)\Z")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


class ConfigError(ValueError):
    """A configuration that cannot be used; `path` names the place in the file."""

    def __init__(self, path: str, message: str, file: str = "") -> None:
        self.path = path
        self.message = message
        self.file = file
        super().__init__(": ".join(part for part in (file, path, message) if part))


class _Loader(yaml.SafeLoader):
    """SafeLoader for small plain documents, whose time and memory are bounded.

    It refuses a key given twice (instead of keeping the last one), tags and merge
    keys, and documents of more or deeper values than any configuration has.
    """

    _values = 0
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        self._values += 1
        if self._values > MAX_VALUES:
            raise _at(event, f"more than {MAX_VALUES} values in the file")
        if self._depth >= MAX_DEPTH:
            raise _at(event, f"nested more than {MAX_DEPTH} levels deep")
        if getattr(event, "tag", None) is not None:
            raise _at(event, f"tags are not supported, got {shown(event.tag)}")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001, FBT002  PyYAML's signature
    ) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                raise _at(key_node, "merge keys (<<) are not supported")
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue
            if key in seen:
                raise _at(key_node, f"key {shown(key)} is given twice")
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        # YAML 1.1 reads 1:1:1… in base 60, in time that grows with the square.
        if len(node.value) > MAX_NUMBER_CHARACTERS:
            raise _at(node, f"a number of {len(node.value)} digits; text needs quotes")
        if node.tag == "tag:yaml.org,2002:int":
            return int(self.construct_yaml_int(node))
        return float(self.construct_yaml_float(node))

    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        **yaml.SafeLoader.yaml_constructors,
        "tag:yaml.org,2002:int": construct_number,
        "tag:yaml.org,2002:float": construct_number,
        # No value of ours is a date; a name may well look like one.
        "tag:yaml.org,2002:timestamp": yaml.SafeLoader.construct_yaml_str,
    }


def _at(item: yaml.Node | yaml.Event, message: str) -> ConfigError:
    mark = item.start_mark
    return ConfigError(f"line {mark.line + 1}" if mark else "", message)


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
        problem = (error.problem or "").removeprefix("but ")[:200]
        if error.context == "while scanning an alias":
            problem += "; text that begins with * needs quotes"
        raise ConfigError(place, f"not YAML: {problem}", file) from None
    except yaml.reader.ReaderError as error:
        place = f"position {error.position}"
        raise ConfigError(place, f"not YAML: {error.reason}", file) from None
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError("", f"not YAML: {reason}", file) from None
    return Node(value, "", file)


class _Repr(reprlib.Repr):
    """repr() in bounded time: aliases can make a small file a huge value."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxlist = self.maxdict = 10
        self.maxother = SHOWN_CHARACTERS + 2

    def repr_str(self, x: str, level: int) -> str:  # noqa: ARG002  reprlib's signature
        _, at, host = x.rpartition("@")
        return repr((f"…@{host}" if at else x)[: SHOWN_CHARACTERS + 2])


def shown(value: object) -> str:
    """Returns *value* as an error message quotes it, cut when long.

    What stands before an @ may be a password and is left out.
    """
    text = _Repr().repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


class Node:
    """One value of a document, with the path that leads to it."""

    __slots__ = ("file", "path", "value")

    def __init__(self, value: Any, path: str, file: str) -> None:  # noqa: ANN401
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
        if len(name) > SHOWN_CHARACTERS or not name.isprintable():
            name = shown(name)
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
        if not text or (pattern and not re.fullmatch(pattern, text)):
            raise self._wanted(what)
        if not text.isascii() and _SURROGATE.search(text):  # bytes, or "\ud800"
            raise self._wanted("valid Unicode")
        if "\0" in text:  # no path, name or address can hold one
            raise self._wanted("text without NUL characters")
        return text

    def texts(self) -> tuple[str, ...]:
        """Returns one text or a list of them, at least one."""
        if isinstance(self.value, str):
            return (self.text(),)
        if not isinstance(self.value, list) or not self.value:
            raise self._wanted("text or a list of texts")
        return tuple(node.text() for node in self.items())

    def choice(self, options: Collection[str]) -> str:
        """Returns one of *options*."""
        if self.value not in tuple(options):  # a dict would want it hashable
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
        value = float(self.value)
        if not math.isfinite(value):
            raise self._wanted(what)
        return value

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
        seconds = parse_duration(self.text(what=DURATION_TEXT))
        if seconds is None:
            raise self._wanted(DURATION_TEXT)
        if seconds <= 0 or seconds < minimum:
            limit = f"at least {format_duration(minimum)}" if minimum else "more than 0"
            raise self._wanted(limit)
        if seconds > MAX_DURATION:
            raise self._wanted(f"at most {format_duration(MAX_DURATION)}")
        return seconds


def parse_duration(text: str) -> float | None:
    """Returns the seconds that *text* like `0.05s` means, None if it means none."""
    match = _DURATION.match(text)
    return None if match is None else float(match[1]) * UNITS[match[2]]


def format_duration(seconds: float) -> str:
    """Returns *seconds* in the largest unit that writes them without a fraction.

    Where none does, milliseconds or seconds with the fraction: `0.2ms`, `2.5004s`.
    """
    for unit, size in sorted(UNITS.items(), key=lambda item: -item[1]):
        count = seconds / size
        if count >= 1 and math.isclose(count, round(count), rel_tol=1e-12):
            return f"{round(count)}{unit}"
    exact = Decimal(repr(seconds))  # the shortest digits, and never an exponent
    if 0 < seconds < 1:
        return f"{(exact * 1000).normalize():f}ms"
    return f"{exact.normalize():f}s"


def expanded(node: Node) -> object:
    """Returns the document's plain value with every `$(VAR)` replaced.

    Raises ConfigError for a variable that is not set.
    """
    if isinstance(node.value, dict):
        return {name: expanded(child) for name, child in node.members().items()}
    if isinstance(node.value, list):
        return [expanded(child) for child in node.items()]
    if isinstance(node.value, str) and node.value:
        return node.text()
    return node.value

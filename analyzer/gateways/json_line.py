"""JSON log lines to typed structs, and what to do with those that do not fit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, inspect

from analyzer.gateways.record import LineProblem
from analyzer.gateways.values import SENTINELS

T = TypeVar("T", bound=msgspec.Struct)

# What decoding a line may raise.
UNREADABLE = (msgspec.DecodeError, RecursionError)


class LineDecoder(Generic[T]):
    """Decodes a line into *shape*, which names only the fields that are needed.

    Numbers may be written as strings. Callers use `decode` in a try statement and
    hand what it raises (UNREADABLE) to `recover`: a call less for lines that fit.
    """

    __slots__ = ("_members", "_shape", "decode")

    def __init__(self, shape: type[T]) -> None:
        self._shape = shape
        self._members = _members(inspect.type_info(shape))
        self.decode = msgspec.json.Decoder(shape, strict=False).decode

    def recover(self, line: bytes, error: Exception) -> T:
        """Returns a line that failed with *error*, read with more patience.

        Members whose value is a sentinel ("" or "-") are left out where no text may
        stand, and bytes that are no UTF-8 replaced. Raises LineProblem when that does
        not help.
        """
        if isinstance(error, RecursionError):
            raise LineProblem("too_deep", "nested too deep")
        try:
            found = msgspec.json.decode(line.decode("utf-8", "replace").encode())
        except RecursionError:
            raise LineProblem("too_deep", "nested too deep") from None
        except msgspec.DecodeError as problem:
            raise LineProblem("not_json", str(problem)) from None
        if not isinstance(found, dict):
            raise LineProblem("not_json", "no JSON object")
        try:
            return msgspec.convert(
                _without(found, self._members), self._shape, strict=False
            )
        except msgspec.ValidationError as problem:
            raise LineProblem("wrong_value", str(problem)) from None


class _Member(NamedTuple):
    """What may stand in a member: text, and if it is an object, which members."""

    text: bool
    members: Mapping[str, _Member]


def _members(kind: inspect.Type) -> Mapping[str, _Member]:
    """Returns the members of a struct by their names in JSON."""
    if not isinstance(kind, inspect.StructType):
        return {}
    return {field.encode_name: _member(field.type) for field in kind.fields}


def _member(kind: inspect.Type) -> _Member:
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    nested = [_members(k) for k in kinds if isinstance(k, inspect.StructType)]
    text = any(isinstance(k, inspect.StrType | inspect.AnyType) for k in kinds)
    return _Member(text, nested[0] if nested else {})


_UNKNOWN = _Member(text=False, members={})


def _without(found: dict[str, Any], members: Mapping[str, _Member]) -> dict[str, Any]:
    """Returns *found* without sentinels in place of what is no text.

    Of a text they may be what it says: nginx tells an abort by an empty one.
    """
    kept = {}
    for key, value in found.items():
        member = members.get(key, _UNKNOWN)
        if isinstance(value, dict):
            kept[key] = _without(value, member.members)
        elif member.text or value not in SENTINELS:
            kept[key] = value
    return kept


class Headers:
    """Request headers that the SLO classes match on, as further members of a line.

    *keys* maps each header's lower-case name to the member that holds it; *kind* is
    how the gateway writes a value, a string or a list of them.
    """

    __slots__ = ("_attributes", "_fields")

    def __init__(self, keys: Mapping[str, str], kind: Any = str | None) -> None:  # noqa: ANN401
        names = tuple(keys)
        self._attributes = tuple((name, f"header_{i}") for i, name in enumerate(names))
        self._fields: list[tuple[str, Any, Any]] = [
            (f"header_{i}", kind, msgspec.field(default=None, name=keys[name]))
            for i, name in enumerate(names)
        ]

    def __bool__(self) -> bool:
        return bool(self._attributes)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of a line that hold a header's value."""
        return tuple(attribute for _, attribute in self._attributes)

    def extended(self, shape: type[T]) -> type[T]:
        """Returns *shape* with a member for each header that it does not have yet."""
        known = {f.encode_name: f.name for f in msgspec.structs.fields(shape)}
        attributes = dict(self._attributes)
        for (header, _), (_, _, member) in zip(
            self._attributes, self._fields, strict=True
        ):
            attributes[header] = known.get(member.name, attributes[header])
        self._attributes = tuple(attributes.items())
        self._fields = [f for f in self._fields if f[2].name not in known]
        if not self._fields:
            return shape
        extended: type[T] = msgspec.defstruct(  # type: ignore[assignment]
            shape.__name__, self._fields, bases=(shape,), gc=False
        )
        return extended

    def of(self, line: msgspec.Struct) -> dict[str, str]:
        """Returns the headers of a line of an extended shape, but not its sentinels."""
        found: dict[str, str] = {}
        for name, attribute in self._attributes:
            value = getattr(line, attribute)
            if isinstance(value, list):
                value = value[0] if value else None
            if value is not None and value not in SENTINELS:
                found[name] = value
        return found


def with_member(shape: type[T], name: str, kind: Any) -> type[T]:  # noqa: ANN401
    """Returns *shape* with one more optional member of type *kind*."""
    extended: type[T] = msgspec.defstruct(  # type: ignore[assignment]
        shape.__name__, [(name, kind | None, None)], bases=(shape,), gc=False
    )
    return extended


def usual(shape: type[T], seldom: Collection[str], telling: Collection[str]) -> Any:  # noqa: ANN401
    """Returns *shape* less its *seldom* members, which then have their defaults.

    Each key of a line is looked for among all members, so fewer take less time. The
    *telling* members, if missing, are UNSET: they say that the log is another one.
    """
    fields = msgspec.structs.fields(shape)
    return msgspec.defstruct(
        shape.__name__,
        [
            (
                f.name,
                f.type,
                msgspec.field(
                    default=UNSET if f.name in telling else f.default,
                    name=f.encode_name,
                ),
            )
            for f in fields
            if f.name not in seldom
        ],
        namespace={f.name: f.default for f in fields if f.name in seldom},
        gc=False,
    )


def has_members(line: bytes, names: Iterable[str]) -> bool:
    """Whether *line* is a JSON object with all members *names*; for detection only."""
    try:
        found = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except UNREADABLE:
        return False
    return all(name in found for name in names)

"""Names beyond a limit joined to one, the same ones whatever the order of reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, TypeVar, cast

from analyzer.labels import OTHER
from analyzer.report.series import Series
from analyzer.report.sketch import Sketch

K = TypeVar("K", bound=tuple[Any, ...])
V = TypeVar("V")
M = TypeVar("M", Sketch, Series)


def kept_names(names: Iterable[str], limit: int) -> frozenset[str]:
    """Returns the names that keep their place among more than *limit*.

    Those of the least hash: the same ones whatever the order in which parts of a log
    are read, and a name that is kept of all was kept of every part, so counts of kept
    names are whole. `other` is beside the limit.
    """
    ordered = sorted(
        (name for name in names if name != OTHER),
        key=lambda name: blake2b(name.encode("utf-8", "replace")).digest(),
    )
    return frozenset((*ordered[:limit], OTHER))


def folded(
    values: Mapping[K, V], at: int, kept: frozenset[str], add: Callable[[V, V], V]
) -> dict[K, V]:
    """Returns *values* with the names at place *at* of their keys folded."""
    result: dict[K, V] = {}
    for key, value in values.items():
        name = key[at] if key[at] in kept else OTHER
        place = cast(K, (*key[:at], name, *key[at + 1 :]))
        result[place] = add(result[place], value) if place in result else value
    return result


def merged(a: M, b: M) -> M:
    """Returns *a* with what *b* counted."""
    a.merge(b)
    return a

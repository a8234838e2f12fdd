"""Whatever stands in the file, it loads or a ConfigError says why."""

from __future__ import annotations

import pytest
import yaml
from config_files import FIXTURES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.config import read_config
from analyzer.strict import ConfigError, parse

pytestmark = pytest.mark.usefixtures("config_environment")

PLAIN = yaml.safe_load((FIXTURES / "valid" / "full.yml").read_text())
PLAIN["engines"] += yaml.safe_load((FIXTURES / "valid" / "discovery.yml").read_text())[
    "engines"
]
STRANGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(10**15, 10**400),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["1s", "0s", "-1s", "1e9s", "999999999999999999999w", "$(A", "$()", "$(UNSET_)"]
    ),
    st.sampled_from(["http://", "http://a:b@c", "http://[", "udp://:", "unix://"]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.one_of(st.text(max_size=4), st.integers()), st.none()),
)


def places(
    value: object, path: tuple[str | int, ...] = ()
) -> list[tuple[str | int, ...]]:
    """Returns the path of every value of a document."""
    found = [path]
    if isinstance(value, dict):
        for key, member in value.items():
            found += places(member, (*path, key))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            found += places(member, (*path, index))
    return found


def mutated(value: object, path: tuple[str | int, ...], change: object) -> object:
    """Returns a copy of a document with one place replaced, renamed or dropped."""
    if not path:
        return change
    head, rest = path[0], path[1:]
    if isinstance(value, list):
        return [
            mutated(member, rest, change) if index == head else member
            for index, member in enumerate(value)
        ]
    assert isinstance(value, dict)
    result = dict(value)
    if not rest and change == "drop":
        del result[head]
    elif not rest and isinstance(change, tuple):
        result[change[0]] = result.pop(head)
    else:
        result[head] = mutated(result[head], rest, change)
    return result


def load_or_refuse(text: str | bytes) -> None:
    """Loads a configuration; any exception but a short ConfigError escapes."""
    message = "goodput.yml: loaded"
    try:
        read_config(parse(text, "goodput.yml"))
    except ConfigError as error:
        message = str(error)
    assert message.startswith("goodput.yml: ")
    assert "\n" not in message
    assert len(message) < 600


ONE_PLACE = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@ONE_PLACE
@given(
    st.lists(
        st.tuples(
            st.sampled_from(places(PLAIN)),
            st.one_of(STRANGE, st.just("drop"), st.tuples(st.text(max_size=6))),
        ),
        min_size=1,
        max_size=2,
    )
)
def test_a_changed_configuration_loads_or_is_refused(
    changes: list[tuple[tuple[str | int, ...], object]],
) -> None:
    """Values replaced, keys renamed or dropped anywhere raise no other exception."""
    document: object = PLAIN
    for path, change in changes:
        if path in places(document):
            renamed = isinstance(change, tuple) and (
                not path or isinstance(path[-1], int)
            )
            document = mutated(document, path, None if renamed else change)
    load_or_refuse(yaml.safe_dump(document, allow_unicode=True))


@ONE_PLACE
@given(
    st.integers(0, 2000),
    st.integers(0, 40),
    st.one_of(
        st.text(max_size=5),
        st.sampled_from(
            ["&a ", "*a", "!!", "<<: ", "? ", ": ", "- ", "\t", "|\n", "%"]
        ),
    ),
)
def test_damaged_text_loads_or_is_refused(at: int, cut: int, insert: str) -> None:
    """Characters cut out or put in anywhere raise no other exception."""
    text = (FIXTURES / "valid" / "full.yml").read_text()
    load_or_refuse(text[:at] + insert + text[at + cut :])


@ONE_PLACE
@given(st.binary(max_size=60))
def test_any_bytes_load_or_are_refused(data: bytes) -> None:
    """Arbitrary bytes raise no other exception."""
    load_or_refuse(data)

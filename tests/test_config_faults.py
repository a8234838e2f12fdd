"""Configurations that do not load: the error names the place and keeps secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from config_files import FIXTURES, INVALID, SECRETS, message_of

from analyzer.config import load_config
from analyzer.strict import MAX_BYTES, ConfigError

pytestmark = pytest.mark.usefixtures("config_environment")


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_a_fault_is_named_with_its_place(path: Path) -> None:
    """Each invalid file gives exactly the message in its first line, after its name."""
    if path.stem.startswith("gateway-pattern-"):
        pytest.importorskip("re2", reason="patterns need google-re2")
    expected = path.read_text().splitlines()[0].removeprefix("# ")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value) == f"{path}: {expected}"


@pytest.mark.parametrize(
    "path",
    [path for path in INVALID if any(s in path.read_text() for s in SECRETS)],
    ids=lambda path: path.stem,
)
def test_no_message_repeats_a_password(path: Path) -> None:
    """Wherever a password stands in the file, the error does not show it."""
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    shown = f"{caught.value} {caught.value.args!r} {caught.value.message}"
    assert not any(secret in shown for secret in SECRETS)


def test_a_password_from_the_environment_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bad URL from a variable is quoted as written, not as it was filled in."""
    monkeypatch.setenv("GOODPUT_TEST_URL", "http://admin:hunter2 @host:99999/")
    with pytest.raises(ConfigError, match=r"got '\$\(GOODPUT_TEST_URL\)'$"):
        load_config(FIXTURES / "invalid" / "variable-bad-url.yml")


def test_the_file_is_named_when_it_cannot_be_read(tmp_path: Path) -> None:
    """A missing file and a directory give the system's reason."""
    missing = tmp_path / "missing.yml"
    with pytest.raises(ConfigError) as caught:
        load_config(missing)
    assert str(caught.value) == f"{missing}: cannot be read: No such file or directory"
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path)
    assert str(caught.value) == f"{tmp_path}: cannot be read: Is a directory"


def test_an_empty_file_says_what_to_give(tmp_path: Path) -> None:
    """Nothing at all, and only white space, are refused alike."""
    expected = "is empty; give at least one engine or SLO class"
    assert message_of("", tmp_path) == expected
    assert message_of(" \n\n", tmp_path) == expected


def test_a_file_beyond_the_limit_is_not_parsed(tmp_path: Path) -> None:
    """One byte more than 1 MiB is refused; the limit itself is not."""
    minimal = (FIXTURES / "valid" / "minimal.yml").read_bytes()
    fitting = minimal + b"#" * (MAX_BYTES - len(minimal))
    assert message_of(fitting + b"#", tmp_path) == "larger than 1048576 bytes"
    path = tmp_path / "fitting.yml"
    path.write_bytes(fitting)
    assert len(load_config(path).engines) == 1


def test_a_list_has_a_limit(tmp_path: Path) -> None:
    """The 1001st engine is refused."""
    entry = '{{name: e{0}, url: "http://e{0}:8000/metrics"}}'
    engines = ", ".join(entry.format(n) for n in range(1001))
    expected = "engines: has 1001 entries, at most 1000"
    assert message_of(f"engines: [{engines}]", tmp_path) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"limits: {models: \xff}", "position 17: not YAML: invalid start byte"),
        (b"# caf\xe9\n", "position 5: not YAML: invalid continuation byte"),
        (
            b'limits: {models: "\x00"}',
            "position 18: not YAML: special characters are not allowed",
        ),
        ("engines: []".encode("utf-16")[:-1], "position 22: not YAML: truncated data"),
        (
            b'engines: [{name: a, url: "http://\\ud800/"}]',
            "engines[0].url: must be valid Unicode, got 'http://\\ud800/'",
        ),
        (b"\x89PNG\r\n\x1a\n\x00", "position 0: not YAML: invalid start byte"),
    ],
)
def test_bytes_that_are_no_text_are_named(
    data: bytes, expected: str, tmp_path: Path
) -> None:
    """Other encodings, control characters and binary files name the position."""
    assert message_of(data, tmp_path) == expected


def test_a_variable_of_bytes_that_are_no_text_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A value that is not UTF-8 would fail later, where it is sent or printed."""
    monkeypatch.setenv("GOODPUT_TEST_URL", os.fsdecode(b"http://h\xff:8000/"))
    with pytest.raises(ConfigError) as caught:
        load_config(FIXTURES / "invalid" / "variable-bad-url.yml")
    assert caught.value.message == "must be valid Unicode, got '$(GOODPUT_TEST_URL)'"

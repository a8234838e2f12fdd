"""Configuration files, and the errors that loading them raises."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzer.config import load_config
from analyzer.strict import ConfigError

FIXTURES = Path(__file__).parent / "fixtures" / "config"
INVALID = sorted((FIXTURES / "invalid").glob("*.yml"))
SECRETS = ("hunter2", "hunter@2", "hunter")


def message_of(text: str | bytes, tmp_path: Path) -> str:
    """Returns the error of a file with that content, without the file's name."""
    path = tmp_path / "goodput.yml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    error = caught.value
    assert error.file == str(path)
    found = str(error)
    assert found.startswith(f"{path}: ")
    return found.removeprefix(f"{path}: ")

"""What all tests share."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers, and lets property tests take the time they need."""
    config.addinivalue_line(
        "markers", "slow: takes more than a second or two; leave out with -m 'not slow'"
    )
    # The usual deadline fails on a busy machine, not on a wrong program.
    settings.register_profile("patient", deadline=None)
    settings.load_profile("patient")


@pytest.fixture(scope="session")
def need_tool() -> Callable[[str], str]:
    """Returns a function that gives the path of a program outside the package.

    Where it is missing the test is skipped with the reason, or fails when CI=true: a
    machine that decides on a change has every tool.
    """
    return _find


@pytest.fixture
def config_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the variables that configurations of the fixtures use; one is missing."""
    monkeypatch.setenv("NODE_NAME", "worker-7")
    monkeypatch.setenv("POD_NAME", "vllm-0")
    monkeypatch.setenv("GOODPUT_TEST_EMPTY", "")
    monkeypatch.setenv("GOODPUT_TEST_URL", "not-a-url")
    monkeypatch.delenv("GOODPUT_TEST_UNSET", raising=False)


@pytest.fixture
def tls_folder(tmp_path: Path) -> Path:
    """A folder with the certificates of the fixtures, for a `web.yml`."""
    found = Path(__file__).parent / "fixtures" / "tls"
    for path in (*found.glob("*.pem"), *found.glob("*.key")):
        shutil.copy(path, tmp_path)
    return tmp_path


def _find(name: str) -> str:
    # Tools from PyPI lie beside Python, daemons of Debian where only root looks.
    places = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    path = shutil.which(name, path=os.pathsep.join((*places, "/usr/sbin")))
    if path is not None:
        return path
    reason = f"{name} is not on PATH; `make test` installs it as root on Debian"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)

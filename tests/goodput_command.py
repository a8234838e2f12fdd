"""The command `goodput`, run in the process of the tests."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from analyzer.cli import main


def goodput(*arguments: str | Path) -> Result:
    """Runs `goodput` in this process."""
    return CliRunner().invoke(main, list(map(str, arguments)))

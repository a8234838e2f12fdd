"""Who may import whom, and what starting the daemon must not cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import analyzer
import exporter

HEAVY = {"pandas", "numpy", "duckdb", "matplotlib", "dask"}
# The rim of the analyzer: what may touch files, network, clock and terminal.
RIM = {"sources", "commands", "report"}
RIM_MODULES = {"cli", "strict"}  # strict reads the configuration's file
IMPURE = {"requests", "urllib3", "socket", "threading", "time", "subprocess", "http"}


def modules(package: Path) -> list[Path]:
    """Returns the source files of an installed package."""
    return sorted(package.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Returns the top-level packages that a module imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


ANALYZER = Path(analyzer.__path__[0])
EXPORTER = Path(exporter.__path__[0])


@pytest.mark.parametrize("path", modules(ANALYZER), ids=lambda p: p.stem)
def test_the_analyzer_never_imports_the_exporter(path: Path) -> None:
    """The daemon builds on the analysis, not the other way round."""
    assert "exporter" not in imported(path)


def _core() -> list[Path]:
    return [
        path
        for path in modules(ANALYZER)
        if not RIM & set(path.relative_to(ANALYZER).parts)
        and path.stem not in RIM_MODULES
    ]


@pytest.mark.parametrize("path", _core(), ids=lambda p: p.stem)
def test_the_core_touches_no_network_clock_or_thread(path: Path) -> None:
    """What is computed depends on arguments alone."""
    assert imported(path) & (IMPURE | HEAVY) == set()


@pytest.mark.parametrize("path", modules(EXPORTER), ids=lambda p: p.stem)
def test_the_daemon_imports_no_heavy_library(path: Path) -> None:
    """The sidecar stays small."""
    assert imported(path) & HEAVY == set()


def test_starting_the_daemon_loads_no_heavy_library_and_does_no_work() -> None:
    """Importing the program starts no thread, opens no socket, sets no handler."""
    program = (
        "import sys, threading, logging, signal, os\n"
        "before = len(os.listdir('/proc/self/fd'))\n"
        "import exporter.cli, exporter.daemon\n"
        f"heavy = {sorted(HEAVY)!r}\n"
        "assert not [m for m in heavy if m in sys.modules], 'heavy'\n"
        "assert threading.active_count() == 1, 'threads'\n"
        "assert not logging.getLogger().handlers, 'handlers'\n"
        "assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL, 'signals'\n"
        "assert len(os.listdir('/proc/self/fd')) == before, 'descriptors'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")

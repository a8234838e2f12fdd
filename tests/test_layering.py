"""Who may import whom, and what starting the daemon must not cost."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from running_exporter import RunningExporter, configuration, wait_for
from synthetic_engine import SyntheticEngine

import analyzer
import exporter

HEAVY = {"pandas", "numpy", "duckdb", "matplotlib", "dask"}
# The rim of the analyzer: what may touch files, network, clock and terminal.
RIM = {"compare", "sources", "commands", "report", "sweep"}
RIM_MODULES = {"cli", "strict"}  # strict reads the configuration's file
IMPURE = {
    "asyncio",
    "concurrent",
    "http",
    "logging",
    "multiprocessing",
    "os",
    "queue",
    "requests",
    "select",
    "selectors",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "threading",
    "time",
    "urllib3",
}
CLOCKS = {"now", "today", "utcnow"}  # of datetime, which is also for reading stamps


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


@pytest.mark.parametrize("path", _core(), ids=lambda p: p.stem)
def test_the_core_never_asks_what_time_it_is(path: Path) -> None:
    """Times come in as arguments, so that a recording gives what was live."""
    called = {
        node.func.attr
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert called & CLOCKS == set()


@pytest.mark.parametrize("path", modules(EXPORTER), ids=lambda p: p.stem)
def test_the_daemon_imports_no_heavy_library(path: Path) -> None:
    """The sidecar stays small."""
    assert imported(path) & HEAVY == set()


def test_importing_any_module_does_no_work() -> None:
    """No thread, no open file, no signal or log handler, no change of the settings."""
    names = sorted(
        f"{root.name}.{'.'.join(path.relative_to(root).with_suffix('').parts)}"
        for root in (ANALYZER, EXPORTER)
        for path in modules(root)
        if path.name != "__init__.py"
    )
    assert len(names) > 50
    program = f"""
import importlib, logging, os, signal, socket, sys, threading, warnings

def state():
    return (
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
        [signal.getsignal(number) for number in signal.valid_signals()],
        list(logging.getLogger().handlers),
        logging.getLogger().level,
        socket.getdefaulttimeout(),
        list(warnings.filters),
        dict(os.environ),
        sys.excepthook,
    )

# What the libraries themselves do at import is not ours.
import apscheduler.schedulers.background, bcrypt, cheroot.wsgi, click, msgspec
import prometheus_client.core, requests, urllib3, yaml
import duckdb, fsspec, numpy, pandas, pyarrow
for name in {names!r}:
    before = state()
    importlib.import_module(name)
    assert state() == before, name
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def heavy_libraries(folder: Path) -> Path:
    """Makes every heavy library importable; each notes in a file that it was loaded."""
    loaded = folder / "loaded"
    for name in HEAVY:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(
            f"with open({str(loaded)!r}, 'a') as file:\n    file.write({name!r})\n"
        )
    return loaded


def test_the_running_daemon_loads_no_heavy_library_though_they_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither at its start nor for a scrape, a page or a reload."""
    loaded = heavy_libraries(tmp_path)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    subprocess.run([sys.executable, "-c", "import pandas"], check=True)
    assert loaded.read_text() == "pandas"
    loaded.unlink()
    with SyntheticEngine() as engine:
        config = configuration(tmp_path / "c.yml", engine.url)
        with RunningExporter(
            f"--config.file={config}", f"--storage.path={tmp_path / 'state'}"
        ) as exporter:
            wait_for(lambda: exporter.value("goodput_target_up") == 1)
            for path in ("/", "/api/v1/status", "/-/healthy", "/-/ready"):
                assert exporter.get(path).status_code == 200
            exporter.process.send_signal(signal.SIGHUP)
            before = engine.scrapes
            wait_for(lambda: exporter.samples() and engine.scrapes > before + 1)
            assert exporter.stop() == 0
    assert not loaded.exists()

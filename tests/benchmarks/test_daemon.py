"""What the running daemon costs: CPU and memory at a 1 s interval."""

from __future__ import annotations

import os
import time
from pathlib import Path

from running_exporter import RunningExporter, configuration, wait_for

from exporter.demo import DemoEngine

SECONDS = 60.0
SCRAPE_SECONDS = 15.0


def cpu_seconds(pid: int) -> float:
    """Returns the user and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """Returns the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def test_cpu_and_memory_of_the_daemon(tmp_path: Path) -> None:
    """Prints both for one engine at 1 s, scraped every 15 s, with state on disk."""
    engine = DemoEngine()
    try:
        path = configuration(tmp_path / "c.yml", engine.url, interval="1s")
        with RunningExporter(
            f"--config.file={path}", f"--storage.path={tmp_path / 'state'}"
        ) as exporter:
            wait_for(lambda: exporter.value("goodput_target_up") == 1)
            pid = exporter.process.pid
            begun, used = time.monotonic(), cpu_seconds(pid)
            while time.monotonic() - begun < SECONDS:
                time.sleep(SCRAPE_SECONDS)
                exporter.samples()
            share = (cpu_seconds(pid) - used) / (time.monotonic() - begun)
            print(f"\n{share:.2%} of a core, {resident_mib(pid):.1f} MiB resident")
    finally:
        engine.close()

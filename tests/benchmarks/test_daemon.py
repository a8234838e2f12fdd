"""What the running daemon costs: CPU and memory at a 1 s interval."""

from __future__ import annotations

import time
from pathlib import Path

from process_cost import cpu_seconds, resident_mib
from running_exporter import RunningExporter, wait_for

SECONDS = 60.0
SCRAPE_SECONDS = 15.0
SPEED = 12.0  # of a replica with some 4 requests a second


def test_cpu_and_memory_of_the_daemon(tmp_path: Path) -> None:
    """Prints both for an engine and its GPU at 1 s and some 50 log lines a second.

    Scraped every 15 s, with state on disk.
    """
    with RunningExporter(
        "--demo=healthy",
        "--demo.replicas=1",
        f"--demo.speed={SPEED}",
        f"--storage.path={tmp_path}",
    ) as exporter:
        wait_for(lambda: (exporter.value("goodput_log_lines_total") or 0) > 100)
        pid = exporter.process.pid
        begun, used = time.monotonic(), cpu_seconds(pid)
        lines = exporter.value("goodput_log_lines_total") or 0.0
        while time.monotonic() - begun < SECONDS:
            time.sleep(SCRAPE_SECONDS)
            exporter.samples()
        spent = time.monotonic() - begun
        share = (cpu_seconds(pid) - used) / spent
        rate = ((exporter.value("goodput_log_lines_total") or 0.0) - lines) / spent
        print(
            f"\n{rate:.0f} lines/s: {share:.2%} of a core, "
            f"{resident_mib(pid):.1f} MiB resident"
        )

"""What a large simulated fleet costs the exporter for half an hour of its time."""

from __future__ import annotations

import time
from pathlib import Path

from process_cost import cpu_seconds, resident_mib
from running_exporter import RunningExporter

REPLICAS = 200
SPEED = 5.0
SIMULATED_SECONDS = 1800.0
SCRAPE_SECONDS = 15.0


def test_cpu_and_memory_while_replicas_crash_and_move(tmp_path: Path) -> None:
    """Prints both, for 200 engines at 5 s of which one goes every four seconds.

    Every other comes back as a new pod, so that targets come and go.
    """
    with RunningExporter(
        "--demo=restart",
        f"--demo.replicas={REPLICAS}",
        f"--demo.speed={SPEED}",
        f"--storage.path={tmp_path}",
    ) as exporter:
        pid = exporter.process.pid
        begun, used = time.monotonic(), cpu_seconds(pid)
        seconds = 0.0
        print()
        while seconds < SIMULATED_SECONDS:
            time.sleep(SCRAPE_SECONDS)
            page = exporter.get().text
            truth = exporter.get("/demo/truth").json()
            if truth["seconds"] - seconds < 100:
                continue
            seconds = truth["seconds"]
            up = page.count('goodput_target_up{kind="engine"')
            share = (cpu_seconds(pid) - used) / (time.monotonic() - begun)
            print(
                f"{seconds:5.0f} simulated s: {up} targets known, {share:.1%} of a "
                f"core, {resident_mib(pid):.0f} MiB, page {len(page) / 1e6:.1f} MB",
                flush=True,
            )

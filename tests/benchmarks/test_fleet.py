"""What 200 engines cost one process, standing and while they come and go."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

from process_cost import cpu_seconds, resident_mib
from recorded_fleet import RecordedFleet
from running_exporter import RunningExporter

from analyzer.config import load_config
from exporter.service import Exporter, Options
from exporter.state import Store

ENGINES = 200
LEAVING = 20
WARM_UP_SECONDS = 10.0
SECONDS = 60.0
SCRAPE_SECONDS = 15.0
CHURN_SECONDS = 180.0
TURN_SECONDS = 3.0
RETIRED_SECONDS = 6.0
CONFIG = """
slo_classes:
  - {{name: interactive, good: {{ttft: 100ms, tpot: 25ms, e2e: 2s}}, objective: 0.95}}
engines:
  - {{name: fleet, interval: {interval}, file_sd: {{files: [t.json], refresh: 1s}}}}
"""


def put(folder: Path, pods: dict[str, str]) -> None:
    """Makes these the targets: pod to address."""
    groups = [
        {"targets": [address], "labels": {"pod": pod, "node": f"node-{pod[-1]}"}}
        for pod, address in pods.items()
    ]
    (folder / "new").write_text(json.dumps(groups))
    (folder / "new").replace(folder / "t.json")


def test_cpu_and_memory_of_a_fleet(tmp_path: Path) -> None:
    """Prints both for 200 engines at 5 s, scraped every 15 s, with state on disk."""
    path = tmp_path / "c.yml"
    path.write_text(CONFIG.format(interval="5s"))
    with RecordedFleet(ENGINES) as fleet:
        put(tmp_path, {f"vllm-{n}": a for n, a in enumerate(fleet.addresses)})
        with RunningExporter(
            f"--config.file={path}", f"--storage.path={tmp_path / 'state'}"
        ) as exporter:
            pid = exporter.process.pid
            time.sleep(WARM_UP_SECONDS)
            begun, used, served = (
                time.monotonic(),
                cpu_seconds(pid),
                cpu_seconds(fleet.process.pid),
            )
            walls, page = [], ""
            for turn in itertools.count(1):
                if turn * SCRAPE_SECONDS > SECONDS:
                    break
                time.sleep(max(0.0, begun + turn * SCRAPE_SECONDS - time.monotonic()))
                asked = time.monotonic()
                page = exporter.get().text
                walls.append(time.monotonic() - asked)
            spent = time.monotonic() - begun
            share = (cpu_seconds(pid) - used) / spent
            theirs = (cpu_seconds(fleet.process.pid) - served) / spent
            up = sum(
                line.startswith("goodput_target_up{") and line.endswith(" 1.0")
                for line in page.splitlines()
            )
            state = (tmp_path / "state" / "state.bin").stat().st_size
            print(
                f"\n{up} engines up: {share:.1%} of a core (their server {theirs:.1%}),"
                f" {resident_mib(pid):.0f} MiB resident"
                f"\na scrape takes {min(walls):.2f} to {max(walls):.2f} s for"
                f" {page.count(chr(10))} lines, {len(page) / 1e6:.1f} MB;"
                f" state {state / 1e6:.1f} MB"
            )
            assert up == ENGINES


def test_memory_while_targets_come_and_go(tmp_path: Path) -> None:
    """Prints the memory while 20 of 200 are replaced every 3 s by new pods.

    They are kept for 6 s instead of 5 minutes, so that 3 minutes are as many turns
    as an hour of a busy fleet.
    """
    with RecordedFleet(ENGINES + LEAVING) as fleet:
        done = subprocess.run(
            [sys.executable, __file__, str(tmp_path), *fleet.addresses],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env={"PYTHONPATH": str(Path(__file__).parent.parent)},
        )
    print("\n" + done.stdout)


def churn(folder: Path, addresses: list[str]) -> None:
    """Runs an exporter whose targets leave one after the other, oldest first."""
    path = folder / "c.yml"
    path.write_text(CONFIG.format(interval="5s"))
    free, seen = list(addresses), ENGINES
    pods = {f"vllm-{number}": free.pop() for number in range(ENGINES)}
    put(folder, pods)
    options = Options(
        lambda: load_config(path), "test", retired_seconds=RETIRED_SECONDS
    )
    exporter = Exporter(options, Store(folder / "state"))
    exporter.start()
    pid = int(Path("/proc/self").resolve().name)
    begun = time.monotonic()
    for turn in itertools.count(1):
        free += [pods.pop(pod) for pod in list(pods)[:LEAVING]]
        for number in range(seen, seen + LEAVING):
            pods[f"vllm-{number}"] = free.pop(0)
        seen += LEAVING
        put(folder, pods)
        exporter.metrics(None, "")
        spent = time.monotonic() - begun
        if turn % 10 == 0:
            kept = len(exporter._engines._targets)
            print(
                f"{spent:4.0f} s: {seen:5} pods seen, {kept} kept,"
                f" {resident_mib(pid):.0f} MiB"
            )
        if spent > CHURN_SECONDS:
            break
        time.sleep(max(0.0, turn * TURN_SECONDS - spent))
    exporter.close()


if __name__ == "__main__":
    churn(Path(sys.argv[1]), sys.argv[2:])

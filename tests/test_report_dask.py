"""The same report from a real Dask cluster, also when a worker is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from distributed import Client
from recorded_logs import NAMES, content
from synthetic_engine import free_port

from analyzer.cli import main
from analyzer.config import parse_config
from analyzer.config_gateways import GatewaySource
from analyzer.report.from_logs import rules_of
from analyzer.report.run import ClusterError, Part, run_here, run_on_cluster
from analyzer.report.summary import Summary
from analyzer.report.tables import report_of
from analyzer.sources.log_blocks import Piece, pieces_of

CONFIG = """
slo_classes:
  - {name: interactive, good: {ttft: 1s, tpot: 50ms, e2e: 10s}, objective: 0.95}
"""
WORKERS = 2


@dataclass(frozen=True)
class Cluster:
    """A scheduler's address and the processes of its workers."""

    address: str
    workers: list[subprocess.Popen[bytes]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Runs a scheduler with two workers."""
    address = f"tcp://127.0.0.1:{free_port()}"
    port = address.rpartition(":")[2]
    programs = [["dask_scheduler", "--host", "127.0.0.1", "--port", port]]
    programs += [
        ["dask_worker", address, "--nthreads", "1", "--no-nanny"]
        for _ in range(WORKERS)
    ]
    with ExitStack() as stack:
        output = stack.enter_context((tmp_path / "output").open("wb"))
        processes = []
        for name, *options in programs:
            command = [sys.executable, "-m", f"distributed.cli.{name}", *options]
            process = subprocess.Popen(
                [*command, "--no-dashboard"], stdout=output, stderr=output, cwd=tmp_path
            )
            stack.callback(process.wait, 30)
            stack.callback(process.kill)
            processes.append(process)
        with Client(  # type: ignore[no-untyped-call]
            address, timeout="60s", set_as_default=False
        ) as client:
            client.wait_for_workers(WORKERS, timeout=60)
        yield Cluster(address, processes[1:])


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    """Returns many logs of several formats."""
    paths = []
    for i, name in enumerate(name for name in NAMES if "comments" not in name):
        path = tmp_path / f"{i:02}.log"
        path.write_bytes(content(name))
        paths.append(path)
    return paths


def pieces(logs: list[Path]) -> list[Piece]:
    """Returns pieces of the logs, some of one file."""
    source = GatewaySource("log")
    return [p for log in logs for p in pieces_of(log, source, (), piece_bytes=150_000)]


def merged(parts: Iterator[Part]) -> str:
    """Returns the report of parts as JSON."""
    summary, kept = Summary(), []
    for part in parts:
        summary.merge(part.summary)
        kept.append(part)
    found = report_of(summary, parse_config(CONFIG).slo_classes, parts=kept)
    return json.dumps(found.document())


def test_a_killed_worker_changes_nothing(cluster: Cluster, logs: list[Path]) -> None:
    """Its pieces are read by the other one, and the report is the same to the bit."""
    rules = rules_of(parse_config(CONFIG), GatewaySource("log"))
    given = pieces(logs)
    assert len(given) > len(logs)

    def with_a_death() -> Iterator[Part]:
        for i, part in enumerate(run_on_cluster(given, rules, cluster.address)):
            if i == 2:
                cluster.workers[0].send_signal(signal.SIGKILL)
            yield part

    assert merged(with_a_death()) == merged(run_here(given, rules))
    assert cluster.workers[0].wait(30) == -signal.SIGKILL


def test_the_command_gives_the_same_report(cluster: Cluster, logs: list[Path]) -> None:
    """--scheduler changes who reads, and not what is read."""
    config = logs[0].parent / "goodput.yml"
    config.write_text(CONFIG)
    given = ["report", *map(str, logs), "--config.file", str(config)]
    given += ["--format", "json"]
    here = CliRunner().invoke(main, given)
    there = CliRunner().invoke(main, [*given, "--scheduler", cluster.address])
    assert json.loads(there.stdout) == json.loads(here.stdout)
    assert there.exit_code == here.exit_code


def test_a_scheduler_that_is_not_there_is_told(logs: list[Path]) -> None:
    """One sentence with its address; no endless wait."""
    address = f"tcp://127.0.0.1:{free_port()}"
    rules = rules_of(parse_config(CONFIG), GatewaySource("log"))
    with pytest.raises(ClusterError, match=address):
        list(run_on_cluster(pieces(logs), rules, address))

"""What a report of a long log costs, beside DuckDB's bare aggregate of that log."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from episodes import NAMES
from recorded_logs import content

from analyzer.report.envoy_columns import members

ROUNDS = int(os.environ.get("REPORT_ROUNDS", "3"))
LINES = int(os.environ.get("REPORT_LINES", "300000"))
CONFIG = """
slo_classes:
  - {name: all, good: {ttft: 1s, tpot: 50ms, e2e: 10s}, objective: 0.1}
"""
# What takes seven members of a line, and what takes all those that the report reads.
BARE = """
import duckdb, sys
duckdb.connect().execute(
    '''SELECT llm_model, tenant, response_code, count(*), avg(duration), max(duration),
    sum(completion_tokens), sum(prompt_tokens), avg(us_us_rx_body_beg)
    FROM read_json(?, format='newline_delimited', columns={
    llm_model: 'VARCHAR', tenant: 'VARCHAR', response_code: 'INTEGER',
    duration: 'DOUBLE', completion_tokens: 'BIGINT', prompt_tokens: 'BIGINT',
    us_us_rx_body_beg: 'DOUBLE'}) GROUP BY ALL''', [sys.argv[1]]).fetchall()
"""
KEYS = ("llm_model", "tenant", "response_code")
MEMBERS = members(b"", (), ids=False).types
SAME = """
import duckdb, sys
duckdb.connect().execute(
    "SELECT {keys}, count(*), {figures} FROM read_json(?, "
    "format='newline_delimited', columns={{{columns}}}) GROUP BY ALL", [sys.argv[1]]
).fetchall()
""".format(  # noqa: S608  the names are ours
    keys=", ".join(KEYS),
    figures=", ".join(
        f"avg({name}), max({name})" if kind == "DOUBLE" else f"max({name})"
        for name, kind in MEMBERS.items()
        if name not in KEYS
    ),
    columns=", ".join(f"{name}: '{kind}'" for name, kind in MEMBERS.items()),
)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a log of many lines of a real Envoy, two a second."""
    lines = [
        line
        for name in NAMES
        for line in content(f"episodes/{name}").splitlines(keepends=True)
    ]
    parts = [re.split(rb'(?<="start_epoch":")[0-9.]+', line) for line in lines]
    path = tmp_path_factory.mktemp("log") / "access.log"
    with path.open("wb") as file:
        for n in range(LINES):
            head, tail = parts[n % len(parts)]
            file.write(b"%b%.6f%b" % (head, 1.79e9 + n / 2, tail))
    return path


def cost(*command: str) -> tuple[float, float, float]:
    """Returns wall and CPU seconds of a program, and its greatest size in MiB."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, 1)
    wall = time.monotonic() - begin
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def test_report_of_a_long_log(log: Path, tmp_path: Path) -> None:
    """Prints the report's seconds beside those of both aggregates, by turns."""
    config = tmp_path / "goodput.yml"
    config.write_text(CONFIG)
    report = "from analyzer.cli import main; main()"
    commands = {
        "bare aggregate of 7 members": ("-c", BARE, str(log)),
        f"of the same {len(MEMBERS)}": ("-c", SAME, str(log)),
        "report": (
            *("-c", report, "report", str(log)),
            *("--config.file", str(config), "--format", "json"),
        ),
    }
    costs: dict[str, list[tuple[float, float, float]]] = {n: [] for n in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            costs[name].append(cost(sys.executable, *command))
    wall, cpu, size = least(costs.pop("report"))
    load = os.getloadavg()[0]
    print(f"\n{LINES} lines, {log.stat().st_size >> 20} MiB, load average {load:.1f}")
    print(f"report: {wall:.1f} s, {cpu:.1f} s of CPU, {size:.0f} MiB")
    for name, found in costs.items():
        bare_wall, bare_cpu, bare_size = least(found)
        print(
            f"{name}: {bare_wall:.1f} s, {bare_cpu:.1f} s of CPU, {bare_size:.0f} MiB; "
            f"ratio {wall / bare_wall:.2f} of time, {cpu / bare_cpu:.2f} of CPU"
        )
    assert size > 0


def least(costs: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Returns the least wall and CPU seconds of some runs, and the greatest size."""
    walls, cpus, sizes = zip(*costs, strict=True)
    return min(walls), min(cpus), max(sizes)

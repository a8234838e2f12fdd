"""What each query of each dashboard takes on a real Prometheus, for a large fleet.

An hour of what 200 pods publish is in its head, and a day of what rules recorded of it
in its blocks. Dashboards are asked over the span that they open with, and over a day
where a query reads recordings alone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from builder.boards import build
from dashboard_session import filled
from pod_pages import scraped, serving
from running_exporter import RunningExporter, wait_for
from running_prometheus import RunningPrometheus

from analyzer.config import parse_config
from analyzer.rules.pack import rule_groups
from analyzer.rules.rule import Options, Record
from analyzer.rules.writing import rule_file

pytestmark = pytest.mark.benchmark

PODS = 200
CLASSES = tuple(f"class{number}" for number in range(5))
SCRAPE = 15.0
# Prometheus takes samples that are at most an hour older than the newest one.
BEHIND, AHEAD = 3300.0, 240.0
HOUR, DAY = 3600.0, 86400.0
EVALUATION = 30.0
PART = 15  # samples of each series in an answer
DEMO_SECONDS, DEMO_SPEED = 20.0, 10
SPANS = {"now-1h": HOUR, "now-6h": 6 * HOUR}
WIDTH, COLUMNS = 1600, 24  # pixels of a screen, in which a panel takes a share
TRIES = 3
WANTED = 0.2  # seconds that a reader does not notice
CONFIG = "slo_classes:\n" + "\n".join(
    f"  - {{name: {name}, match: {{tenant: t}}, objective: 0.95, window: 28d,\n"
    "     good: {ttft: 1s, tpot: 50ms, e2e: 10s},\n"
    "     percentiles: {ttft: {p95: 1s}}, stages: {gateway: 50ms}}"
    for name in CLASSES
)
GROUPS = rule_groups(parse_config(CONFIG).slo_classes, Options())
RECORDED = frozenset(
    rule.name for group in GROUPS for rule in group.rules if isinstance(rule, Record)
)
COUNTER = re.compile(r"_(total|bucket|count|sum)$")
LABELS = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
SOURCE = re.compile(r"\bgoodput_\w+|\w+:goodput_\w+:\w+")


@dataclass(frozen=True, slots=True)
class Row:
    """A series of a pod: where it begins, and its growth a second."""

    text: str
    first: float
    growth: float


def pod_rows() -> list[Row]:
    """Returns what the exporter of one engine publishes, of five classes for one."""
    with RunningExporter(
        "--demo=overload", "--demo.replicas=1", f"--demo.speed={DEMO_SPEED}"
    ) as exporter:
        time.sleep(DEMO_SECONDS)
        page = exporter.get().text
    played = DEMO_SECONDS * DEMO_SPEED
    rows = []
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        text, _, value = line.rpartition(" ")
        name = text.partition("{")[0]
        counts = name.startswith("goodput_") and COUNTER.search(name)
        growth = float(value) / played if counts else 0.0
        names = CLASSES if 'slo_class="' in text else ("",)
        for slo_class in names:
            own = re.sub('slo_class="[^"]*"', f'slo_class="{slo_class}"', text)
            rows.append(Row(own, float(value), growth))
    return rows


def pages_of(rows: Sequence[Row], begin: float) -> list[bytes]:
    """Returns the samples of one pod from *begin* on, with their times, in parts.

    Prometheus holds whole answers in memory, of all pods at once.
    """
    steps = range(int((BEHIND + AHEAD) / SCRAPE))
    stamps = [round((begin + SCRAPE * step) * 1000) for step in steps]
    return [
        "".join(
            f"{row.text} {row.first + row.growth * SCRAPE * step:.10g} {stamps[step]}\n"
            for row in rows
            for step in part
        ).encode()
        for part in (steps[at : at + PART] for at in range(0, len(steps), PART))
    ]


@dataclass(frozen=True, slots=True)
class Asked:
    """A query of a panel, with the share of the screen and the span it is asked for."""

    board: str
    panel: str
    expr: str
    width: int
    span: float
    now: bool

    @property
    def recorded(self) -> bool:
        """Whether it reads nothing but recordings."""
        return all(":" in name for name in SOURCE.findall(self.expr))


def asked() -> Iterator[Asked]:
    """Yields every query of every panel, and of the marks over a dashboard's panels."""
    for name, text in build().items():
        board = json.loads(text)
        span = SPANS[board["time"]["from"]]
        short = name.removeprefix("llm-goodput-").removesuffix(".json")
        for panel in board["panels"]:
            width = WIDTH * panel["gridPos"]["w"] // COLUMNS
            own = DAY if panel.get("timeFrom") == "24h" else span
            for target in panel.get("targets", ()):
                now = target.get("instant", False)
                yield Asked(short, panel["title"], target["expr"], width, own, now)
        for mark in board["annotations"]["list"]:
            yield Asked(short, mark["name"], mark["expr"], WIDTH, span, now=False)


def recorded_of(names: frozenset[str], site: RunningPrometheus) -> list[Row]:
    """Returns the series that rules recorded, of those that dashboards read."""
    found = []
    for name in sorted(names):
        answer = site.http.get(
            f"{site.url}/api/v1/query", params={"query": name}, timeout=60
        ).json()
        for row in answer["data"]["result"]:
            labels = ",".join(
                f"{key}={json.dumps(value, ensure_ascii=False)}"
                for key, value in row["metric"].items()
                if key != "__name__"
            )
            found.append(Row(f"{name}{{{labels}}}", float(row["value"][1]), 0.0))
    return found


def backfill(rows: Sequence[Row], end: float, directory: Path, promtool: str) -> int:
    """Writes a day of *rows* into Prometheus's folder; returns how many samples."""
    file, made = directory / "recorded.txt", directory / "blocks"
    stamps = [end - EVALUATION * step for step in range(int(DAY / EVALUATION), -1, -1)]
    with file.open("w", encoding="utf-8") as written:
        for row in rows:
            # They vary, or they would take less room than real ones.
            written.writelines(
                f"{row.text} {row.first * (1 + step % 7 / 100):.10g} {stamp:.3f}\n"
                for step, stamp in enumerate(stamps)
            )
        written.write("# EOF\n")
    subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", str(file), str(made)],
        check=True,
        capture_output=True,
    )
    for block in made.iterdir():
        block.rename(directory / "tsdb" / block.name)
    return len(rows) * len(stamps)


def seconds(site: RunningPrometheus, query: Asked, span: float, end: float) -> float:
    """Returns the least time of some tries at a query over *span*, until its answer."""
    step = max(SCRAPE, round(span / query.width))
    known = {"price": "2"}
    expr = filled(
        query.expr, begin=end - span, end=end, step=step, scrape=SCRAPE, known=known
    )
    path, extra = "query_range", {"start": end - span, "end": end, "step": step}
    if query.now:
        path, extra = "query", {"time": end}
    best = float("inf")
    for _ in range(TRIES):
        begin = time.perf_counter()
        answer = site.http.post(
            f"{site.url}/api/v1/{path}", {"query": expr, **extra}, timeout=120
        )
        best = min(best, time.perf_counter() - begin)
        assert answer.ok, (expr, answer.text)
    return best


def report(title: str, taken: Mapping[Asked, float]) -> None:
    """Prints each dashboard's slowest query and their sum, and what is not quick."""
    print(f"\n{title}; load average {os.getloadavg()[0]:.1f}")
    boards: dict[str, list[float]] = defaultdict(list)
    for query, spent in taken.items():
        boards[query.board].append(spent * 1000)
    for board, times in boards.items():
        slow = sum(t > WANTED * 1000 for t in times)
        print(
            f"{board:12} {len(times):3} queries, slowest {max(times):6.0f} ms, "
            f"all {sum(times):6.0f} ms, over {WANTED * 1000:.0f} ms: {slow}"
        )
    for query, spent in sorted(taken.items(), key=lambda item: -item[1])[:40]:
        if spent > WANTED / 2:
            said = " ".join(query.expr.split())[:150]
            print(f"  {spent * 1000:6.0f} ms {query.board}: {query.panel}: {said}")


def test_time_of_every_query_for_a_large_fleet(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    """Prints it for 200 pods, of five classes each, with a day of recordings."""
    prometheus, promtool = need_tool("prometheus"), need_tool("promtool")
    rows = pod_rows()
    begin = time.time() - BEHIND
    rules = re.sub("interval: [15]m", "interval: 30s", rule_file(GROUPS))
    (tmp_path / "rules.yml").write_text(rules, encoding="utf-8")
    queries = tuple(asked())
    # Some are asked by the beginning of their names, without the window.
    read = frozenset(
        name
        for name in RECORDED
        if any(name in query.expr or name[:-3] in query.expr for query in queries)
    )
    pages = pages_of(rows, begin)
    parts = len(pages)
    with serving(lambda _, at: pages[at] if at < parts else b"") as port:
        config = {
            "global": {"evaluation_interval": "30s"},
            "rule_files": [str(tmp_path / "rules.yml")],
            "scrape_configs": [
                scraped(
                    port,
                    PODS,
                    interval="10s",
                    labels={"cluster": "c", "namespace": "n"},
                )
            ],
        }
        with closing(RunningPrometheus(prometheus, tmp_path, config)) as site:
            newest = f"goodput_build_info offset -{AHEAD - 2 * SCRAPE:g}s"
            wait_for(lambda: count(site, newest) == PODS, seconds=900)
            loaded = time.time()
            print(f"\n{len(rows)} series a pod; loaded {loaded - begin - BEHIND:.0f} s")
            # Each group twice, since recordings use each other.
            time.sleep(3 * EVALUATION)
            known = recorded_of(read, site)
            end = time.time()
            samples = backfill(known, loaded, tmp_path, promtool)
            objective = "slo_class:goodput_objective:max offset 23h"
            wait_for(lambda: count(site, objective) > 0, seconds=120)
            print(f"{len(known)} recorded series, {samples} samples of them")
            opened = {query: seconds(site, query, query.span, end) for query in queries}
            report("As a dashboard opens", opened)
            day = {
                query: seconds(site, query, DAY, end)
                for query in queries
                if query.recorded
            }
            report("Queries of recordings over a day", day)
    assert len(known) > len(read) / 2


def count(site: RunningPrometheus, selector: str) -> float:
    """Returns how many series a selector has now."""
    answer = site.http.get(
        f"{site.url}/api/v1/query", params={"query": f"count({selector})"}, timeout=60
    ).json()
    rows = answer["data"]["result"]
    return float(rows[0]["value"][1]) if rows else 0.0

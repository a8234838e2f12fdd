"""What one evaluation of all rules costs Prometheus for a fleet with history."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import requests
import yaml
from alerting_stack import answers
from pod_pages import scraped, serving
from process_cost import cpu_seconds
from running_exporter import wait_for
from synthetic_engine import free_port

from analyzer.config import parse_config
from analyzer.requests_total import BOUNDS
from analyzer.rules.pack import rule_groups
from analyzer.rules.rule import Group, Options
from analyzer.rules.writing import rule_file

PODS = 200
CLASSES = tuple(f"class{number}" for number in range(5))
CRITERIA = ("ttft", "tpot", "e2e")
SCRAPE = 15.0
EVALUATION = 30.0
SLOW = 240.0
CYCLES = 3
BEHIND, AHEAD = 420.0, 500.0  # seconds of raw samples before and after now
DAY = 86400.0
CONFIG = "slo_classes:\n" + "\n".join(
    f"  - {{name: {name}, match: {{tenant: t}}, objective: 0.95, window: 28d,\n"
    "     good: {ttft: 1s, tpot: 50ms, e2e: 10s},\n"
    "     percentiles: {ttft: {p95: 1s}}, stages: {gateway: 50ms}}"
    for name in CLASSES
)
Series = tuple[str, float, float]  # its labels, where it begins, growth a second


def log_series() -> Iterator[Series]:
    """Yields what the exporter publishes of one request log."""
    for name in CLASSES:
        row = f'gateway="engine",model="m",slo_class="{name}"'
        yield f'goodput_slo_objective_ratio{{slo_class="{name}"}}', 0.95, 0
        for metric, rate in (
            ("requests", 1.0),
            ("good_requests", 0.97),
            ("bad_requests", 0.03),
            ("unevaluable_requests", 0.0),
            ("tokens", 200.0),
            ("good_tokens", 190.0),
        ):
            yield f"goodput_{metric}_total{{{row}}}", 0, rate
        for criterion in (*CRITERIA, "max_gap", "error", "abort"):
            labels = f'{row},criterion="{criterion}"'
            yield f"goodput_criterion_misses_total{{{labels}}}", 0, 0.01
        for criterion in CRITERIA:
            metric = f"goodput_request_{criterion}_seconds"
            for bound in (*BOUNDS[criterion], "+Inf"):
                le = bound if isinstance(bound, str) else float(bound)
                yield f'{metric}_bucket{{{row},le="{le}"}}', 0, 0.97
            yield f"{metric}_count{{{row}}}", 0, 1.0
        for stage in ("gateway", "serving", "delivery"):
            metric, labels = "goodput_request_stage_seconds", f'{row},stage="{stage}"'
            yield f'{metric}_bucket{{{labels},le="0.05"}}', 0, 0.97
            yield f"{metric}_count{{{labels}}}", 0, 1.0
            yield f"{metric}_sum{{{labels}}}", 0, 0.01


def engine_series() -> Iterator[Series]:
    """Yields an engine's own metrics and those of the exporter."""
    # An engine's metrics know the model alone, which one class judges.
    for criterion in CRITERIA:
        labels = f'target="vllm",model="m",slo_class="{CLASSES[0]}"'
        labels += f',criterion="{criterion}"'
        for what in ("events", "good_events_lower", "good_events_upper"):
            yield f"goodput_engine_criterion_{what}_total{{{labels}}}", 0, 0.9
    target = 'target="vllm"'
    row = f'{target},model="m"'
    for state in ("starting", "serving", "stalled", "stats_disabled", "down"):
        value = float(state == "serving")
        yield f'goodput_engine_state{{{target},state="{state}"}}', value, 0
    for family, cause in (
        ("memory", "kv_capacity"),
        ("compute", "prefill"),
        ("compute", "decode"),
        ("queueing", "sequence_cap"),
        ("none", "headroom"),
        ("unknown", ""),
    ):
        labels = f'{row},family="{family}",cause="{cause}"'
        yield f"goodput_constraint_seconds_total{{{labels}}}", 0, 1 / 6
    for metric in ("generation_tokens", "preemptions"):
        yield f"goodput_engine_{metric}_total{{{row}}}", 0, 0.5
    for metric in ("queries", "hits"):
        yield f"goodput_engine_prefix_cache_{metric}_tokens_total{{{row}}}", 0, 50
    yield f'goodput_engine_finished_requests_total{{{row},reason="stop"}}', 0, 5
    yield f'goodput_engine_prompt_tokens_total{{{row},source="local"}}', 0, 500
    for metric in ("running_requests", "kv_cache_usage_ratio_max60s"):
        yield f'goodput_engine_{metric}{{{row},rank="0"}}', 0.5, 0
    labels = f'{row},rank="0",reason="capacity"'
    yield f"goodput_engine_waiting_requests{{{labels}}}", 2, 0
    yield 'goodput_build_info{version="1"}', 1, 0


def recorded_series() -> Iterator[tuple[str, float, float]]:
    """Yields what rules recorded before: name, value, and how long it is kept."""
    for name in CLASSES:
        labels = f'{{namespace="n",model="m",slo_class="{name}"}}'
        for metric, value in (("good", 194.0), ("bad", 6.0)):
            record = f"slo_class:goodput_{metric}_requests:rate"
            yield f"{record}5m{labels}", value, DAY
            yield f"{record}30m{labels}", value, 28 * DAY
        yield f"slo_class:goodput_requests:rate5m{labels}", 200.0, DAY
        for criterion in CRITERIA if name == CLASSES[0] else ():
            more = f'{labels[:-1]},criterion="{criterion}"}}'
            for what in ("events", "good_events_lower", "good_events_upper"):
                record = f"criterion:goodput_engine_{what}:rate"
                yield f"{record}5m{more}", 180.0, DAY
                yield f"{record}30m{more}", 180.0, 3 * DAY
    for cause in ("kv_capacity", "prefill", "decode", "sequence_cap"):
        labels = f'{{namespace="n",model="m",family="memory",cause="{cause}"}}'
        yield f"model:goodput_constraint_seconds:rate5m{labels}", 30.0, DAY / 4
    yield 'model:goodput_running_requests:sum{namespace="n",model="m"}', 900, DAY / 4
    yield 'job:goodput_exporters:count{namespace="n",job="vllm"}', PODS, DAY / 4


def pages(begin: float, logs: int) -> Iterator[bytes]:
    """Yields each pod's page: its samples from *begin* on, with their times.

    Every pod has an engine, and the first *logs* of them a request log besides.
    Prometheus takes a page of many times as it takes one of one time, into its head,
    where the samples of a running site are.
    """
    steps = range(int((BEHIND + AHEAD) / SCRAPE))
    for pod in range(PODS):
        every = (*engine_series(), *(log_series() if pod < logs else ()))
        yield "".join(
            f"{labels} {first + growth * SCRAPE * step:.10g} "
            f"{round((begin + SCRAPE * step) * 1000)}\n"
            for labels, first, growth in every
            for step in steps
        ).encode()


def write_recorded(path: Path, end: float) -> None:
    """Writes what rules would have recorded up to *end*."""
    with path.open("w", encoding="utf-8") as file:
        for labels, value, kept in recorded_series():
            every = SLOW if ":rate30m" in labels else EVALUATION
            steps = int(kept / every)
            file.writelines(
                f"{labels} {value + step % 7:.10g} {end - every * step:.3f}\n"
                for step in range(steps, -1, -1)
            )
        file.write("# EOF\n")


class Evaluations:
    """What Prometheus tells of the time of each group and rule, in seconds."""

    def __init__(self, url: str, groups: int) -> None:
        self._url = f"{url}/api/v1/rules"
        self._groups = groups
        self._last: dict[str, str] = {}
        self.groups: dict[str, list[float]] = {}
        self.rules: dict[tuple[str, str, int], float] = {}

    def count(self) -> int:
        """Looks once a second; returns how often each group was evaluated at least."""
        time.sleep(1.0)
        found = requests.get(self._url, timeout=30).json()["data"]["groups"]
        for group in found:
            name, at = group["name"], group["lastEvaluation"]
            if at.startswith("0001") or self._last.get(name) == at:
                continue
            self._last[name] = at
            self.groups.setdefault(name, []).append(group["evaluationTime"])
            for place, rule in enumerate(group["rules"]):
                key, spent = (name, rule["name"], place), rule["evaluationTime"]
                self.rules[key] = min(self.rules.get(key, spent), spent)
        if len(self.groups) < self._groups:
            return 0
        return min(map(len, self.groups.values()))

    def report(self) -> None:
        """Prints each group's times, and the sum of the best of each of its rules.

        On a busy machine the sum says what the group takes on a quiet one.
        """
        for name, seconds in sorted(self.groups.items()):
            listed = ", ".join(f"{value * 1000:.0f}" for value in seconds)
            best = sum(v for (group, _, _), v in self.rules.items() if group == name)
            print(f"{name:20} {listed} ms; its rules' best: {best * 1000:.0f} ms")
        whole = sum(self.rules.values())
        print(f"all rules' best: {whole * 1000:.0f} ms")
        for key, value in sorted(self.rules.items(), key=lambda item: -item[1])[:10]:
            print(f"  {value * 1000:6.1f} ms  {key[1]}")
        print("load average:", *os.getloadavg())


@pytest.mark.parametrize("logs", [4, PODS])
def test_time_of_one_evaluation_of_a_large_fleet(
    logs: int, tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    """Prints it by group, with 200 pods, five classes and 28 days of history.

    The logs are those of a gateway's replicas, or of a middleware in every pod.
    """
    prometheus, promtool = need_tool("prometheus"), need_tool("promtool")
    begin = time.time() - BEHIND
    write_recorded(tmp_path / "recorded.txt", begin)
    subprocess.run(
        [
            *(promtool, "tsdb", "create-blocks-from", "--max-block-duration=744h"),
            *("openmetrics", str(tmp_path / "recorded.txt"), str(tmp_path / "tsdb")),
        ],
        check=True,
        capture_output=True,
    )
    groups = rule_groups(parse_config(CONFIG).slo_classes, Options())
    text = re.sub(r"interval: \d+m", "interval: 30s", rule_file(groups))
    (tmp_path / "rules.yml").write_text(text, encoding="utf-8")
    every = list(pages(begin, logs))
    # Once, and nothing later: what comes afterwards has its time in it already.
    with serving(lambda pod, before: b"" if before else every[pod]) as served:
        config = {
            "global": {"evaluation_interval": "30s"},
            "rule_files": [str(tmp_path / "rules.yml")],
            "scrape_configs": [
                scraped(served, PODS, interval="15s", labels={"namespace": "n"})
            ],
        }
        (tmp_path / "prometheus.yml").write_text(
            yaml.safe_dump(config), encoding="utf-8"
        )
        port = free_port()
        process = subprocess.Popen(
            [
                prometheus,
                f"--config.file={tmp_path / 'prometheus.yml'}",
                f"--storage.tsdb.path={tmp_path / 'tsdb'}",
                "--storage.tsdb.retention.time=40d",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
        )
        try:
            measure(f"http://127.0.0.1:{port}", process.pid, groups)
        finally:
            process.terminate()
            process.wait(30)


def measure(url: str, process: int, groups: Sequence[Group]) -> None:
    """Prints what evaluations take once everything is scraped."""
    wait_for(lambda: answers(f"{url}/-/ready"), seconds=120)
    wait_for(lambda: value(url, "count(goodput_build_info)") == PODS, seconds=120)
    print(f"\n{series(url)} series")
    time.sleep(EVALUATION)  # whatever was evaluated on half of them
    seen = Evaluations(url, len(groups))
    wait_for(lambda: seen.count() >= 2, seconds=180)
    used, before = cpu_seconds(process), seen.count()
    wait_for(lambda: seen.count() >= before + CYCLES, seconds=200)
    used = cpu_seconds(process) - used
    seen.report()
    print(f"CPU of Prometheus an evaluation: {used / CYCLES * 1000:.0f} ms")
    assert value(url, "count(slo_class:goodput_budget_left:ratio28d)") == len(CLASSES)
    busy = "count(slo_class:goodput_requests:rate5m > 1)"
    assert value(url, busy) == len(CLASSES)


def value(url: str, query: str) -> float | None:
    """Returns what a query of one series says now, None if it says nothing."""
    asked = {"query": query}
    found = requests.get(f"{url}/api/v1/query", params=asked, timeout=30).json()
    rows = found["data"]["result"]
    return float(rows[0]["value"][1]) if rows else None


def series(url: str) -> int:
    """Returns how many series are in the head."""
    found = requests.get(f"{url}/api/v1/status/tsdb", timeout=30).json()
    return int(found["data"]["headStats"]["numSeries"])

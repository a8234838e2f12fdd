"""What one evaluation of all rules costs Prometheus for a fleet with history."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import requests
import yaml
from alerting_stack import answers
from process_cost import cpu_seconds
from running_exporter import wait_for
from synthetic_engine import free_port

from analyzer.config import parse_config
from analyzer.requests_total import BOUNDS
from analyzer.rules.pack import rule_groups
from analyzer.rules.rule import Options
from analyzer.rules.writing import rule_file

PODS = 200
CLASSES = tuple(f"class{number}" for number in range(5))
CRITERIA = ("ttft", "tpot", "e2e")
SCRAPE = 15.0
EVALUATION = 30.0
SLOW = 300.0
CYCLES = 3
AHEAD = 120.0  # seconds that writing the history may take
DAY = 86400.0
CONFIG = "slo_classes:\n" + "\n".join(
    f"  - {{name: {name}, match: {{tenant: t}}, objective: 0.95, window: 28d,\n"
    "     good: {ttft: 1s, tpot: 50ms, e2e: 10s},\n"
    "     percentiles: {ttft: {p95: 1s}}, stages: {gateway: 50ms}}"
    for name in CLASSES
)
Series = tuple[str, float, float]  # its labels, where it begins, growth a second


def pod_series(pod: int) -> Iterator[Series]:
    """Yields what a middleware and an engine of one pod publish."""
    scraped = f'namespace="n",job="vllm",instance="10.0.0.{pod}:1",pod="vllm-{pod}"'
    for name in CLASSES:
        row = f'{scraped},gateway="engine",model="m",slo_class="{name}"'
        yield f'goodput_slo_objective_ratio{{{scraped},slo_class="{name}"}}', 0.95, 0
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
    # An engine's metrics know the model alone, which one class judges.
    for criterion in CRITERIA:
        labels = f'{scraped},target="vllm",model="m",slo_class="{CLASSES[0]}"'
        labels += f',criterion="{criterion}"'
        for what in ("events", "good_events_lower", "good_events_upper"):
            yield f"goodput_engine_criterion_{what}_total{{{labels}}}", 0, 0.9
    yield from engine_series(scraped)


def engine_series(scraped: str) -> Iterator[Series]:
    """Yields an engine's own metrics and those of the exporter."""
    target = f'{scraped},target="vllm"'
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
    yield f"up{{{scraped}}}", 1, 0
    yield f'goodput_build_info{{{scraped},version="1"}}', 1, 0


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


def write_raw(path: Path, end: float) -> int:
    """Writes ten minutes of every pod's series up to *end*; returns their number."""
    count = 0
    times = [end - SCRAPE * step for step in range(40, -1, -1)]
    with path.open("w", encoding="utf-8") as file:
        for pod in range(PODS):
            for labels, begin, growth in pod_series(pod):
                count += 1
                file.writelines(
                    f"{labels} {begin + growth * (at - times[0]):.10g} {at:.3f}\n"
                    for at in times
                )
        file.write("# EOF\n")
    return count


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
        for key, value in sorted(self.rules.items(), key=lambda item: -item[1])[:10]:
            print(f"  {value * 1000:6.1f} ms  {key[1]}")
        print("load average:", *os.getloadavg())


def test_time_of_one_evaluation_of_a_large_fleet(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    """Prints it by group, with 200 pods of five classes and 28 days of history."""
    prometheus, promtool = need_tool("prometheus"), need_tool("promtool")
    begun = time.monotonic()
    end = time.time() + AHEAD
    count = write_raw(tmp_path / "raw.txt", end)
    write_recorded(tmp_path / "recorded.txt", end)
    for name in ("raw", "recorded"):
        subprocess.run(
            [
                *(promtool, "tsdb", "create-blocks-from", "--max-block-duration=744h"),
                *("openmetrics", str(tmp_path / f"{name}.txt"), str(tmp_path / "tsdb")),
            ],
            check=True,
            capture_output=True,
        )
        (tmp_path / f"{name}.txt").unlink()
    print(f"\n{count} series, made in {time.monotonic() - begun:.0f} s")
    groups = rule_groups(parse_config(CONFIG).slo_classes, Options())
    text = rule_file(groups).replace("interval: 5m", "interval: 30s")
    text = text.replace("interval: 1m", "interval: 30s")
    (tmp_path / "rules.yml").write_text(text, encoding="utf-8")
    config = {
        "global": {"evaluation_interval": "30s"},
        "rule_files": [str(tmp_path / "rules.yml")],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    assert time.time() < end
    time.sleep(end - time.time())
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
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: answers(f"{url}/-/ready"), seconds=120)
        seen = Evaluations(url, len(groups))
        wait_for(lambda: seen.count() >= 2, seconds=180)
        used, before = cpu_seconds(process.pid), seen.count()
        wait_for(lambda: seen.count() >= before + CYCLES, seconds=200)
        used = cpu_seconds(process.pid) - used
        seen.report()
        print(f"CPU of Prometheus an evaluation: {used / CYCLES * 1000:.0f} ms")
        good = requests.get(
            f"{url}/api/v1/query",
            params={"query": "slo_class:goodput_budget_left:ratio28d"},
            timeout=30,
        ).json()["data"]["result"]
        assert len(good) == len(CLASSES)
    finally:
        process.terminate()
        process.wait(30)

"""The same rules in VictoriaMetrics: vmalert takes them, and results agree."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from alerting_stack import ALERTS, answers
from rule_worlds import bounded, engine, exact, steps, verdicts
from running_exporter import wait_for
from synthetic_engine import free_port

from analyzer.sources.promtool import World, evaluate

RULES = ALERTS / "goodput.rules.yml"
MINUTES = 150
STEP = 60.0
# Rates differ: Prometheus extrapolates to the ends of a window, VictoriaMetrics takes
# the last sample before it. Shares of rates then differ by less than each of them.
RELATIVE = 0.1
ABSOLUTE = 0.02
# What depends on its own past value is not the same when evaluated once.
STATEFUL = ("winner",)
_NAME = re.compile(r'^\{__name__="([^"]+)",? ?')


def world() -> dict[str, str]:
    """Returns a log, an engine and its verdicts, with an incident of half an hour."""
    found = {**exact(0.02, minutes=MINUTES), **bounded(0.6, 0.9, minutes=MINUTES)}
    for name in list(found):
        for kind, calm, bad in (("good", 1.96, 0.5), ("bad", 0.04, 1.5)):
            if name.startswith(f"goodput_{kind}_requests_total"):
                found[name] = steps((calm, 75), (bad, 40), (calm, 36))
    found |= verdicts({("memory", "kv_capacity"): 0.7, ("none", "headroom"): 0.3})
    labels = engine()
    found[f"goodput_engine_preemptions_total{labels}"] = steps((0.1, 75), (0.4, 76))
    found[f'goodput_engine_finished_requests_total{labels[:-1]},reason="stop"}}'] = (
        steps((2.0, MINUTES + 1))
    )
    return found


def expanded(notation: str) -> list[float]:
    """Returns the values that promtool's notation stands for."""
    values: list[float] = []
    for part in notation.split(" "):
        if "x" not in part:
            values.append(float(part))
            continue
        begin, _, times = part.partition("x")
        first, _, growth = begin.partition("+")
        values += [float(first) + float(growth or 0) * i for i in range(int(times) + 1)]
    return values[: MINUTES + 1]


def dated(series: Mapping[str, str], begin: float) -> dict[str, dict[float, float]]:
    """Returns the samples of series in promtool's notation, a value a minute."""
    return {
        name: {begin + STEP * i: value for i, value in enumerate(expanded(values))}
        for name, values in series.items()
    }


def recordings() -> list[dict[str, Any]]:
    """Returns the recording rules in order."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"] if "record" in rule]


@contextmanager
def victoria(directory: Path, need_tool: Callable[[str], str]) -> Iterator[str]:
    """Yields the address of a VictoriaMetrics with a folder of its own."""
    port = free_port()
    process = subprocess.Popen(
        [
            need_tool("victoria-metrics"),
            f"-storageDataPath={directory / 'victoria'}",
            f"-httpListenAddr=127.0.0.1:{port}",
            "-retentionPeriod=100y",
            "-search.latencyOffset=0s",
            "-dedup.minScrapeInterval=1ms",
            "-loggerLevel=ERROR",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: answers(f"{url}/health"), seconds=60)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def put(url: str, series: Mapping[str, Mapping[float, float]]) -> None:
    """Stores samples (Unix seconds → value), visible at once."""
    lines = [
        f"{name} {value!r} {round(at * 1000)}"
        for name, values in series.items()
        for at, value in values.items()
    ]
    body = "\n".join(lines) + "\n"
    put_url = f"{url}/api/v1/import/prometheus"
    assert requests.post(put_url, data=body, timeout=30).status_code == 204
    assert requests.get(f"{url}/internal/force_flush", timeout=30).status_code == 200


def labelled(name: str, metric: Mapping[str, str]) -> str:
    """Returns a series as the exposition format writes it."""
    pairs = [f"{k}={json.dumps(v)}" for k, v in sorted(metric.items()) if k[0] != "_"]
    return f"{name}{{{', '.join(pairs)}}}"


def ranged(url: str, expr: str, begin: float, end: float) -> list[dict[str, Any]]:
    """Returns the answer to a query over a range, a value a minute."""
    answer = requests.post(
        f"{url}/api/v1/query_range",
        data={"query": expr, "start": begin, "end": end, "step": STEP, "nocache": 1},
        timeout=30,
    ).json()
    assert answer["status"] == "success", answer
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


def by_victoria(url: str, begin: float) -> dict[str, float]:
    """Returns the last value of every recorded series, recorded one after another."""
    end = begin + STEP * MINUTES
    last: dict[str, float] = {}
    # Twice: half-hour means are of another group, which comes after those that use it.
    for rule in (*recordings(), *recordings()):
        recorded = {}
        for row in ranged(url, rule["expr"], begin, end):
            labels = {**row["metric"], **rule.get("labels", {})}
            series = labelled(rule["record"], labels)
            recorded[series] = {float(at): float(v) for at, v in row["values"]}
            if end in recorded[series]:
                last[series] = recorded[series][end]
        if recorded:
            put(url, recorded)
    return last


def by_prometheus(promtool: str) -> dict[str, float]:
    """Returns the last value of every recorded series, by Prometheus' own engine."""
    names = list({rule["record"]: None for rule in recordings()})
    at = [STEP * MINUTES]
    one = World("world", world(), at, [], STEP, names)
    answer = evaluate(promtool, RULES.read_text(encoding="utf-8"), [one], every=STEP)
    return {
        _NAME.sub(r"\1{", series): value
        for found in answer.values.values()
        for series, value in found.items()
    }


def test_results_agree_within_a_tolerance(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    """The same series, values within 10 % or two hundredths of a share."""
    ours = by_prometheus(need_tool("promtool"))
    begin = float(round(time.time() / STEP) * STEP - STEP * MINUTES)
    with victoria(tmp_path, need_tool) as url:
        put(url, dated(world(), begin))
        theirs = by_victoria(url, begin)
    compared = [s for s in ours if not any(word in s for word in STATEFUL)]
    assert len(compared) > 50
    for name in compared:
        assert name in theirs
        expected = pytest.approx(ours[name], rel=RELATIVE, abs=ABSOLUTE)
        assert theirs[name] == expected, name
    assert set(theirs) <= set(ours) | {s for s in theirs if "winner" in s}


def test_vmalert_fires_the_page_with_its_reason(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    """Its templates look the verdict up as those of Prometheus do."""
    rules = tmp_path / "rules.yml"
    text = RULES.read_text(encoding="utf-8")
    rules.write_text(text.replace("interval: 30s", "interval: 1s"), encoding="utf-8")
    series = {
        **exact(0.6, minutes=MINUTES),
        **verdicts({("memory", "kv_capacity"): 0.7, ("none", "headroom"): 0.3}),
    }
    begin = float(round(time.time() / STEP) * STEP - STEP * MINUTES)
    port = free_port()
    with victoria(tmp_path, need_tool) as url:
        put(url, dated(series, begin))
        by_victoria(url, begin)
        process = subprocess.Popen(
            [
                need_tool("vmalert"),
                f"-rule={rules}",
                *(f"-{what}.url={url}" for what in ("datasource", "remoteWrite")),
                "-notifier.url=http://127.0.0.1:9",
                "-remoteWrite.flushInterval=100ms",
                f"-httpListenAddr=127.0.0.1:{port}",
                "-loggerLevel=PANIC",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

        wanted = {
            "alertname": "GoodputBudgetBurn",
            "severity": "critical",
            "constraint": "memory",
        }

        def firing() -> dict[str, Any] | None:
            answer = requests.get(f"http://127.0.0.1:{port}/api/v1/alerts", timeout=10)
            for alert in answer.json()["data"]["alerts"] or ():
                if wanted.items() <= alert["labels"].items():
                    return dict(alert)
            return None

        try:
            wait_for(lambda: answers(f"http://127.0.0.1:{port}/health"), seconds=60)
            wait_for(firing, seconds=60)
            alert = firing()
        finally:
            process.terminate()
            process.wait(30)
    assert alert is not None
    assert "limit: memory/kv_capacity" in alert["annotations"]["summary"]
    assert alert["annotations"]["runbook_url"].endswith("/kv_capacity.md")

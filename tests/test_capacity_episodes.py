"""The model's queues and cache in the regimes that a real vLLM was recorded in.

The recordings ran at other speeds than the fitted machine, and changed within; what
is compared is where requests are, which depends little on it.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import pytest
from episodes import DIRECTORY

from analyzer.capacity.arrivals import ClosedLoop
from analyzer.capacity.engine import Engine
from analyzer.capacity.fleet import Fleet
from analyzer.capacity.machines import cpu_demo
from analyzer.capacity.workload import Request
from analyzer.exposition import parse_text
from analyzer.sources.recording import read_scrapes

SLOWER = 1.3  # the machine of the recordings, roughly
SAMPLED = (
    *("vllm:num_requests_running", "vllm:num_requests_waiting"),
    *("vllm:kv_cache_usage_perc", "vllm:num_preemptions_total"),
)


@dataclass(frozen=True)
class Regime:
    """Means over a phase under load, and its length in seconds."""

    running: float
    waiting: float
    kv_usage: float
    preemptions: float
    most_running: float
    seconds: float


def summary(samples: list[tuple[float, ...]], seconds: float) -> Regime:
    """Returns the regime that these samples of the gauges and the counter show."""
    running, waiting, usage, preemptions = zip(*samples, strict=True)
    return Regime(
        fmean(running),
        fmean(waiting),
        fmean(usage),
        max(preemptions) - min(preemptions),
        max(running),
        seconds,
    )


def recorded(name: str, phase: str) -> tuple[Regime, int, list[tuple[int, int]]]:
    """Returns a phase's regime, its concurrency, and its prompt and answer lengths."""
    directory = DIRECTORY / name
    phases = json.loads((directory / "phases.json").read_text())["phases"]
    found = next(p for p in phases if p["name"] == phase)
    samples = []
    for scrape in read_scrapes(directory):
        if scrape.text and found["begin"] + 2 <= scrape.at <= found["load_end"]:
            values = {s.name: s.value for s in parse_text(scrape.text)}
            samples.append(tuple(values[name] for name in SAMPLED))
    with (directory / "truth.csv").open(encoding="utf-8", newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["phase"] == phase and row["outcome"] == "ok"
        ]
    rows.sort(key=lambda row: float(row["start"]))
    lengths = [(int(r["prompt_tokens"]), int(r["completion_tokens"])) for r in rows]
    seconds = found["end"] - found["begin"]
    return summary(samples, seconds), found["load"]["concurrency"], lengths


def modelled(
    concurrency: int,
    lengths: list[tuple[int, int]],
    share: float,
    scheduler: dict[str, Any],
) -> Regime:
    """Returns the model's regime over the leading *share* of the same requests."""
    config = cpu_demo()
    engine = Engine(
        replace(
            config,
            scheduler=replace(config.scheduler, **scheduler),
            costs=config.costs.scaled(SLOWER),
        )
    )
    requests = [Request(n, 0.0, *pair) for n, pair in enumerate(lengths)]
    fleet = Fleet([engine], ClosedLoop(requests, concurrency=concurrency))
    samples: list[tuple[float, ...]] = []
    ended = 0
    while ended < len(requests):
        ended += len(fleet.advance(fleet.now + 1.0))
        metrics = engine.metrics
        samples.append(
            (
                *(metrics.running, metrics.waiting),
                *(metrics.kv_cache_usage, metrics.preemptions),
            )
        )
    return summary(samples[2 : int(share * len(samples))], fleet.now)


REGIMES = [
    ("kv-a", "kv-pressure", {"max_num_seqs": 64, "num_blocks": 40}),
    ("kvhigh-a", "full-but-fine", {"max_num_seqs": 64, "num_blocks": 40}),
    ("overload-a", "overload", {"max_num_seqs": 16}),
    ("seqcap-a", "capped", {"max_num_seqs": 4}),
    ("decode-a", "wide-decode", {"max_num_seqs": 128}),
    ("prefillcap-a", "long-prompts-at-the-cap", {"max_num_seqs": 8}),
]


@pytest.mark.parametrize(("name", "phase", "scheduler"), REGIMES)
def test_a_regime_has_the_signature_of_the_real_one(
    name: str, phase: str, scheduler: dict[str, Any]
) -> None:
    """Running, waiting and cache usage; and preemptions in the same numbers."""
    real, concurrency, lengths = recorded(name, phase)
    mine = modelled(concurrency, lengths, 0.8, scheduler)
    print(f"\n{name}\n  real {real}\n  mine {mine}")  # noqa: T201
    assert mine.running == pytest.approx(real.running, rel=0.1, abs=0.5)
    assert mine.waiting == pytest.approx(real.waiting, rel=0.1, abs=1.0)
    assert mine.kv_usage == pytest.approx(real.kv_usage, rel=0.15, abs=0.01)
    assert mine.most_running == pytest.approx(real.most_running, rel=0.1)
    assert mine.preemptions == pytest.approx(real.preemptions, rel=0.1)
    assert mine.seconds == pytest.approx(real.seconds, rel=0.3)

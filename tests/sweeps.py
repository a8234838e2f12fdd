"""Two sweeps of a real vLLM by `vllm bench serve`, and the requests that they sent.

`sweeps.csv` holds a line a point, from the benchmark's results. Both sweeps sent the
same requests (`sweeps_requests.csv`). Their prompts are runs of consecutive tokens
from a random `start`, so some begin alike and hit the prefix cache; the starts are
drawn as the benchmark does, for a vocabulary of 525 with two special tokens: with it
the cache hits of each point are within one block of those recorded (`HITS`).
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from analyzer.capacity.fit import Figures, Point
from analyzer.capacity.machines import cpu_demo
from analyzer.capacity.settings import EngineConfig
from analyzer.capacity.workload import Request

FIXTURES = Path(__file__).parent / "fixtures"
# Tokens found in the prefix cache at each concurrency, from the server's metrics.
HITS = {1: 0, 2: 0, 4: 256, 8: 640, 16: 2560, 32: 6272, 64: 10368}


def _requests() -> dict[int, list[Request]]:
    """Returns the requests of each concurrency, in the order they were sent."""
    requests = defaultdict(list)
    with (FIXTURES / "sweeps_requests.csv").open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file)):
            prompt = int(row["prompt_tokens"])
            requests[int(row["concurrency"])].append(
                Request(
                    number,
                    0.0,
                    prompt,
                    int(row["output_tokens"]),
                    prefix=int(row["start"]),
                    prefix_tokens=prompt,
                )
            )
    return requests


def points(sweep: str) -> list[Point]:
    """Returns the points of one sweep, `seqs16` or `seqs32`."""
    requests = _requests()
    with (FIXTURES / "sweeps.csv").open(encoding="utf-8", newline="") as file:
        return [
            Point(
                int(row["concurrency"]),
                requests[int(row["concurrency"])],
                Figures(
                    float(row["request_throughput"]),
                    float(row["median_ttft_ms"]) / 1000.0,
                    float(row["median_tpot_ms"]) / 1000.0,
                ),
            )
            for row in csv.DictReader(file)
            if row["sweep"] == sweep
        ]


def server(max_num_seqs: int) -> EngineConfig:
    """Returns the replica that was swept with this `--max-num-seqs`."""
    config = cpu_demo()
    return replace(
        config, scheduler=replace(config.scheduler, max_num_seqs=max_num_seqs)
    )

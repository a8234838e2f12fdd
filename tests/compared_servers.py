"""What became of requests at a small simulated server, as a log and as recordings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

from prometheus_client.exposition import generate_latest
from synthetic_engine import Process

from analyzer.capacity.arrivals import OpenLoop, poisson
from analyzer.capacity.engine import Engine
from analyzer.capacity.fleet import Fleet
from analyzer.capacity.machines import cpu_demo
from analyzer.capacity.outcome import Outcome
from analyzer.capacity.workload import Request
from analyzer.simulation.envoy_log import log_line

BEGIN = 1_700_000_000.0
INTERVAL = 5.0  # seconds between scrapes


def outcomes(
    *,
    rate: float,
    number: int,
    seed: int,
    slower: float = 1.0,
    longer: float = 1.0,
    start: float = 0.0,
) -> list[Outcome]:
    """Returns what became of Poisson requests at a small server."""
    rng = Random(seed)
    config = cpu_demo()
    config = replace(config, costs=config.costs.scaled(slower))

    def asked() -> Iterator[Request]:
        for index, at in zip(
            range(number), poisson(rng, rate, start=start), strict=False
        ):
            prompt = int(longer * rng.randint(128, 384))
            yield Request(index, at, prompt, rng.randint(32, 96))

    fleet = Fleet([Engine(config)], OpenLoop(asked()), start=start)
    return fleet.advance(math.inf)


def write_log(path: Path, found: list[Outcome]) -> Path:
    """Writes what a gateway in front of the server logs."""
    host = "10.0.0.1:8000"
    lines = [
        log_line(outcome, model="m", host=host, ended=BEGIN + outcome.ended)
        for outcome in found
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def write_recording(folder: Path, found: list[Outcome]) -> Path:
    """Writes what scrapes of the server's metrics show, and no request log."""
    scrapes = folder / "scrapes"
    scrapes.mkdir(parents=True)
    process = Process("m", with_start_time=False)
    waiting = sorted(found, key=lambda outcome: outcome.ended)
    index = ["n,time,status,seconds,bytes"]
    for number in range(math.ceil(waiting[-1].ended / INTERVAL) + 2):
        now = number * INTERVAL
        while waiting and waiting[0].ended <= now:
            outcome = waiting.pop(0)
            process.ttft.observe(outcome.ttft or 0.0)
            process.tpot.observe(outcome.tpot or 0.0)
            process.e2e.observe(outcome.e2e)
            process.tokens.inc(outcome.output_tokens)
        page = generate_latest(process.registry)
        (scrapes / f"{number:04}.prom").write_bytes(page)
        index.append(f"{number},{BEGIN + now},200,0.01,{len(page)}")
    (scrapes / "index.csv").write_text("\n".join(index) + "\n")
    return folder

"""A simulated site played as fast as it goes: its pages, its log, and the truth."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from analyzer.capacity.machines import machines
from analyzer.config import Config, parse_config
from analyzer.simulation.clock import Clock
from analyzer.simulation.envoy_log import log_line
from analyzer.simulation.scenarios import SCENARIOS
from analyzer.simulation.site import GATEWAY_SECONDS, Site
from analyzer.simulation.truth import Limits, Truth
from analyzer.simulation.vllm_page import page
from analyzer.sources.recording import Scrape

BEGIN = 1_700_000_000.0
MODEL = "llama-3.1-8b"
MACHINE = "a100-llama-8b"
LIMITS = Limits(ttft=1.0, tpot=0.05, e2e=30.0)
CONFIG = """
slo_classes:
  - {name: interactive, good: {ttft: 1s, tpot: 50ms, e2e: 30s}, objective: 0.95}
engines: [{name: sim, url: "http://sim.example/metrics"}]
gateways: [{name: edge, path: /var/log/envoy.log, format: envoy}]
"""


@dataclass(slots=True)
class Played:
    """What one replica's exporter would have seen, and what was the case."""

    truth: Truth
    scrapes: list[Scrape] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)


def config() -> Config:
    """Returns the configuration that judges as the truth does."""
    return parse_config(CONFIG, "simulated")


@cache
def played(
    scenario: str,
    *,
    seed: int,
    seconds: int,
    machine: str = MACHINE,
    gateway_seconds: float = GATEWAY_SECONDS,
) -> Played:
    """Plays a site of one replica, scraped once a second."""
    site = Site(
        SCENARIOS[scenario],
        machines()[machine],
        replicas=1,
        seed=seed,
        gateway_seconds=gateway_seconds,
    )
    clock = Clock(BEGIN)
    found = Played(Truth(LIMITS))
    for second in range(seconds + 1):
        outcomes = site.advance(float(second))
        at = clock.wall(float(second))
        for outcome in outcomes:
            found.truth.add(outcome)
            host = "" if outcome.replica is None else "10.0.0.1:8000"
            ended = clock.wall(outcome.ended)
            found.lines.append(log_line(outcome, model=MODEL, host=host, ended=ended))
        replica = site.replicas[0]
        if replica.engine is None:
            found.scrapes.append(Scrape(at, 0.0, None, "refused"))
        else:
            text = page(replica, model=MODEL, clock=clock)
            found.scrapes.append(Scrape(at, 0.002, text))
    return found

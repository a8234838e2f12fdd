"""The CPU time of one sampling cycle without network and rendering."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from episodes import DIRECTORY
from gpu_pages import flow_of, page
from prometheus_client.parser import text_string_to_metric_families

from analyzer.config import parse_config
from analyzer.flow import EngineFlow
from analyzer.sources.recording import read_scrapes

CONFIG = """
slo_classes: [{name: c, good: {ttft: 300ms, tpot: 50ms, e2e: 10s}, objective: 0.95}]
engines: [{name: e, url: "http://engine/metrics", interval: 1s}]
"""


def cpu_milliseconds(work: Callable[[str], object], pages: list[str]) -> float:
    """Returns the median CPU time of *work* over the pages."""
    spent = []
    for text in pages:
        begun = time.process_time_ns()
        work(text)
        spent.append((time.process_time_ns() - begun) / 1e6)
    return statistics.median(spent)


def test_gpus_in_a_cycle() -> None:
    """Prints what eight GPUs add to a cycle in which their page is read."""
    names = [f"h100x8_tp8_prefill_powercap_composed_t{n}" for n in (0, 1)]
    pages = [page(name) for name in names] * 50
    flow = flow_of()
    at = iter(range(1_000_000))
    spent = cpu_milliseconds(
        lambda text: flow.observe(flow.read(text, 10.0 * next(at))), pages
    )
    print(f"\nthe page of 8 GPUs {spent:.2f} ms CPU")
    assert len(flow.reading(1000.0).devices) == 8


def test_a_cycle_against_parsing_alone_by_prometheus_client() -> None:
    """Prints a cycle (parse, reset rules, totals, state) and the rival's parsing."""
    pages = [s.text for s in read_scrapes(DIRECTORY / "kv-a") if s.text]
    config = parse_config(CONFIG)
    flow = EngineFlow(config.engines[0], config, since=0.0)
    at = iter(range(1_000_000))
    cycle = cpu_milliseconds(
        lambda page: flow.observe(flow.read(page, float(next(at)))), pages
    )
    rival = cpu_milliseconds(
        lambda page: [
            s for f in text_string_to_metric_families(page) for s in f.samples
        ],
        pages,
    )
    print(
        f"\none cycle {cycle:.2f} ms CPU; prometheus_client parses the same page in "
        f"{rival:.2f} ms: {rival / cycle:.1f} times as long"
    )
    assert flow.ledger.counter("goodput_target_scrapes_total", ("engine",)) == len(
        pages
    )

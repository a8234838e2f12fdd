"""Each scenario shows what the same regime shows in the recordings of a real vLLM.

`pytest -s` prints the table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median, quantiles

import pytest
from episodes import DIRECTORY
from simulated_site import BEGIN, MACHINE, played

from analyzer.capacity.machines import machines
from analyzer.exposition import parse_text
from analyzer.sources.recording import Scrape, read_scrapes

SETTLE_SECONDS = 20.0
UNHURRIED_SECONDS = 0.012  # of the recorded engine, in the light phases
# Scenario, recording, phase of the recording.
PAIRS = (
    ("healthy", "healthy-a", "steady"),
    ("overload", "overload-a", "overload"),
    ("kv-pressure", "kv-a", "kv-pressure"),
    ("long-prompts", "prefill-a", "long-prompts"),
    ("wide-decode", "decode-a", "wide-decode"),
    ("burst", "burst-a", "bursty"),
)


@dataclass(frozen=True)
class Signature:
    """What an engine's own series say of a stretch of time.

    `kv` and `running` are medians; `spread` is what lies between the deciles of
    running, over its median; `waiting` is the share of pages with somebody waiting
    for capacity, `deferred` for another reason. `slowdown` is the mean inter-token
    latency over that of an unhurried engine.
    """

    kv: float
    running: float
    spread: float
    waiting: float
    deferred: float
    preemptions_per_minute: float
    slowdown: float

    def row(self) -> str:
        """Returns the values as a row of a table."""
        return (
            f"kv {self.kv:4.2f} running {self.running:5.1f} spread {self.spread:4.2f} "
            f"waiting {self.waiting:4.2f} deferred {self.deferred:4.2f} "
            f"preemptions/min {self.preemptions_per_minute:5.1f} "
            f"slowdown {self.slowdown:4.1f}"
        )


def series(text: str, name: str, **labels: str) -> float:
    """Returns the sum of the samples of one name on a page."""
    return sum(
        sample.value
        for sample in parse_text(text)
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def latency(pages: Sequence[str]) -> float:
    """Returns the mean inter-token latency from the first to the last page (s)."""
    name = "vllm:inter_token_latency_seconds"
    total, count = (
        series(pages[-1], f"{name}_{part}") - series(pages[0], f"{name}_{part}")
        for part in ("sum", "count")
    )
    return total / count


def signature(pages: Sequence[str], *, unhurried: float, seconds: float) -> Signature:
    """Returns the signature of consecutive *pages*; *unhurried* is a latency (s)."""
    running = [series(p, "vllm:num_requests_running") for p in pages]
    deciles = quantiles(running, n=10)
    preemptions = "vllm:num_preemptions_total"
    grown = series(pages[-1], preemptions) - series(pages[0], preemptions)

    def share(reason: str) -> float:
        name = "vllm:num_requests_waiting_by_reason"
        return mean(series(p, name, reason=reason) > 0 for p in pages)

    return Signature(
        kv=median(series(p, "vllm:kv_cache_usage_perc") for p in pages),
        running=median(running),
        spread=(deciles[8] - deciles[0]) / max(1.0, median(running)),
        waiting=share("capacity"),
        deferred=share("deferred"),
        preemptions_per_minute=60 * grown / seconds,
        slowdown=latency(pages) / unhurried,
    )


def of_recording(episode: str, phase: str) -> Signature:
    """Returns the signature of a phase of a recording.

    Its first phase is light but in `burst-a`, which has one only.
    """
    path = DIRECTORY / episode / "phases.json"
    phases = json.loads(path.read_text(encoding="utf-8"))["phases"]
    (found,) = (p for p in phases if p["name"] == phase)
    scrapes = [s for s in read_scrapes(DIRECTORY / episode) if s.text]
    light = phases[0] if len(phases) > 1 else None
    begin, end = found["begin"] + 10.0, found["load_end"]
    unhurried = UNHURRIED_SECONDS
    if light is not None:
        unhurried = latency(between(scrapes, light["begin"], light["load_end"]))
    return signature(
        between(scrapes, begin, end), unhurried=unhurried, seconds=end - begin
    )


def of_scenario(scenario: str) -> Signature:
    """Returns the signature of a scenario once it has settled."""
    pages = between(
        played(scenario, seed=1, seconds=100).scrapes,
        BEGIN + SETTLE_SECONDS,
        BEGIN + 100.0,
    )
    base = machines()[MACHINE].costs.base
    return signature(pages, unhurried=base, seconds=100.0 - SETTLE_SECONDS)


def between(scrapes: Iterable[Scrape], begin: float, end: float) -> list[str]:
    """Returns the pages from *begin* to *end* (Unix seconds)."""
    return [s.text for s in scrapes if s.text is not None and begin <= s.at <= end]


@pytest.mark.parametrize(("scenario", "episode", "phase"), PAIRS)
def test_a_scenario_has_the_signature_of_its_regime(
    scenario: str, episode: str, phase: str
) -> None:
    """Cache, running, waiting, preemptions and slowness as in the recording."""
    ours, real = of_scenario(scenario), of_recording(episode, phase)
    sys.stdout.write(f"\n{scenario:>13} simulated {ours.row()}\n")
    sys.stdout.write(f"{episode:>13} recorded  {real.row()}\n")
    assert (ours.kv > 0.9) == (real.kv > 0.9)
    assert (ours.spread > 0.15) == (real.spread > 0.15)
    assert (ours.preemptions_per_minute > 1) == (real.preemptions_per_minute > 1)
    assert (ours.waiting > 0.6) == (real.waiting > 0.6)
    assert (ours.waiting > 0.0) == (real.waiting > 0.0)
    assert ours.deferred == real.deferred == 0.0
    assert (ours.slowdown > 4.0) == (real.slowdown > 4.0)

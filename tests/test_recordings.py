"""Recordings of a real vLLM: counts equal the raw scrapes, bounds hold the truth."""

from __future__ import annotations

import math
import random
import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from episodes import DIRECTORY, NAMES, finished_streams

from analyzer.config import Config, parse_config
from analyzer.document import document
from analyzer.flow import EngineFlow
from analyzer.replay import replay
from analyzer.sources.recording import Scrape, read_scrapes

Thresholds = tuple[float, float, float]
Counted = tuple[float | None, float | None, float | None]
SLOS: dict[str, Thresholds] = {
    "loose": (1.0, 0.05, 10.0),
    "bounds": (0.25, 0.025, 2.5),
    "between": (0.3, 0.015, 1.2),
    "tight": (0.06, 0.03, 0.7),
}
WIRE = {
    "ttft": "vllm:time_to_first_token_seconds",
    "tpot": "vllm:request_time_per_output_token_seconds",
    "e2e": "vllm:e2e_request_latency_seconds",
}
BUCKET = re.compile(r'^(vllm:\w+)_bucket\{.*le="([^"]+)".*\} (\S+)$', re.MULTILINE)
START = re.compile(r"^process_start_time_seconds (\S+)$", re.MULTILINE)


def config(thresholds: Thresholds) -> Config:
    """Returns a configuration with one class at these thresholds, p95 at them too."""
    ttft, tpot, e2e = (f"{value * 1000:g}ms" for value in thresholds)
    return parse_config(f"""
slo_classes:
  - name: c
    good: {{ttft: {ttft}, tpot: {tpot}, e2e: {e2e}}}
    percentiles: {{ttft: {{p95: {ttft}}}, tpot: {{p95: {tpot}}}, e2e: {{p95: {e2e}}}}}
    objective: 0.95
engines: [{{name: e, url: "http://engine/metrics", interval: 1s}}]
""")


@dataclass(frozen=True)
class Raw:
    """Cumulative bucket counts of one page by metric and bound, over all ranks."""

    started: str | None
    counts: dict[tuple[str, float], float]


def raw(text: str) -> Raw:
    """Reads a page with two regular expressions, apart from the product's parser."""
    counts: dict[tuple[str, float], float] = defaultdict(float)
    for name, bound, value in BUCKET.findall(text):
        counts[name, float(bound)] += float(value)
    found = START.search(text)
    return Raw(found[1] if found else None, dict(counts))


def events_in_raw_scrapes(scrapes: list[Scrape]) -> dict[tuple[str, float], float]:
    """Adds up what each bucket grew, a restart counting from zero."""
    total: dict[tuple[str, float], float] = defaultdict(float)
    earlier: Raw | None = None
    for scrape in scrapes:
        if scrape.text is None:
            continue
        page = raw(scrape.text)
        if earlier is not None:
            anew = page.started != earlier.started
            for key, value in page.counts.items():
                total[key] += value - (0.0 if anew else earlier.counts.get(key, 0.0))
        earlier = page
    return total


def bracket(
    total: dict[tuple[str, float], float], name: str, threshold: float
) -> tuple[float, float, float]:
    """Returns events, certain and possible ones of a metric at a threshold."""
    bounds = sorted(bound for metric, bound in total if metric == name)
    below = [b for b in bounds if b <= threshold]
    above = [b for b in bounds if b >= threshold]
    lower = total[name, below[-1]] if below else 0.0
    return total[name, math.inf], lower, total[name, above[0]]


def counters(flow: EngineFlow) -> dict[str, Counted]:
    """Returns events, certain and possible ones of each criterion from the ledger."""

    def counted(kind: str, criterion: str) -> float | None:
        labels = ("demo-small", "c", criterion)
        return flow.ledger.counter(f"goodput_engine_criterion_{kind}_total", labels)

    return {
        criterion: (
            counted("events", criterion),
            counted("good_events_lower", criterion),
            counted("good_events_upper", criterion),
        )
        for criterion in WIRE
    }


def percentile(flow: EngineFlow, criterion: str) -> tuple[float | None, float | None]:
    """Returns events and possible ones of a criterion's p95 from the ledger."""
    labels = ("demo-small", "c", criterion, "p95")
    events, possible = (
        flow.ledger.counter(f"goodput_engine_percentile_{kind}_total", labels)
        for kind in ("events", "good_events_upper")
    )
    return events, possible


@pytest.mark.parametrize("thresholds", SLOS.values(), ids=SLOS)
@pytest.mark.parametrize("name", NAMES)
def test_events_equal_an_independent_count_of_the_raw_scrapes(
    name: str, thresholds: Thresholds
) -> None:
    """The counters of criteria and percentiles are what the raw buckets add up to."""
    scrapes = list(read_scrapes(DIRECTORY / name))
    found = replay(scrapes, config(thresholds))
    assert found is not None
    expected = events_in_raw_scrapes(scrapes)
    for (criterion, counted), threshold in zip(
        counters(found[0]).items(), thresholds, strict=True
    ):
        events, certain, possible = bracket(expected, WIRE[criterion], threshold)
        assert counted == (events, certain, possible)
        assert percentile(found[0], criterion) == (events, possible)


@pytest.mark.parametrize("thresholds", SLOS.values(), ids=SLOS)
@pytest.mark.parametrize("name", NAMES)
def test_bounds_hold_what_the_client_saw(name: str, thresholds: Thresholds) -> None:
    """The share of good streams by the client's clock lies within the bounds.

    The client sees every token some milliseconds after the engine, which matters at
    a threshold only: 2 %. Requests with a first token and no end widen by their
    share.
    """
    found = replay(read_scrapes(DIRECTORY / name), config(thresholds))
    assert found is not None
    row = document([found[0]], found[1])["slo"][0]
    streams = finished_streams(name)
    ttft, tpot, e2e = thresholds
    good = sum(s.good(ttft=ttft, tpot=tpot, e2e=e2e) for s in streams)
    truth = good / len(streams)
    low, high = row["bounds"]
    first, finished = (row["criteria"][c]["events"] for c in ("ttft", "e2e"))
    slack = abs(first - finished) / finished + 0.02
    assert low - slack <= truth <= high + slack
    assert 0 <= low <= high <= 1


def totals_at(name: str, pick: list[int]) -> dict[str, Counted]:
    """Returns the counters when only the scrapes at these places were taken."""
    scrapes = list(read_scrapes(DIRECTORY / name))
    chosen = [scrapes[i] for i in pick if i < len(scrapes)]
    found = replay([scrapes[0], *chosen, scrapes[-1]], config(SLOS["between"]))
    assert found is not None
    return counters(found[0])


@pytest.mark.parametrize("name", [n for n in NAMES if n != "restart-a"])
def test_counters_do_not_depend_on_when_the_engine_is_sampled(name: str) -> None:
    """Every second, every seven, at random and hardly ever: the same totals."""
    every_second = totals_at(name, list(range(1, 400)))
    rng = random.Random(name)
    at_random = sorted(rng.sample(range(1, 50), 20))
    for pick in (list(range(0, 400, 7)), at_random, []):
        assert totals_at(name, pick) == every_second


def test_across_a_restart_only_what_the_lost_interval_held_is_missing() -> None:
    """Skipping scrapes before a kill loses their events and no others."""
    scrapes = list(read_scrapes(DIRECTORY / "restart-a"))
    last_before = max(
        i for i, s in enumerate(scrapes[:-1]) if s.text and scrapes[i + 1].text is None
    )
    exact = totals_at("restart-a", list(range(1, 400)))
    for lost in (1, 5, 15):
        pick = [i for i in range(1, 400) if not last_before - lost < i <= last_before]
        held = events_in_raw_scrapes(scrapes[last_before - lost : last_before + 1])
        fewer = totals_at("restart-a", pick)
        for criterion, name in WIRE.items():
            before, after = exact[criterion][0], fewer[criterion][0]
            assert before is not None
            assert after == before - held[name, math.inf]


@pytest.mark.parametrize("name", NAMES)
def test_only_the_restart_is_called_a_restart_and_only_it_is_down(name: str) -> None:
    """Recordings without a restart have no reset, no gap and no fault."""
    found = replay(read_scrapes(DIRECTORY / name), config(SLOS["loose"]))
    assert found is not None
    result = document([found[0]], found[1])
    source = result["sources"][0]
    faults = {w["cause"] for w in result["windows"] if w["family"] == "fault"}
    restarted = name == "restart-a"
    assert (source["resets"], source["gaps"]) == ((1, 1) if restarted else (0, 0))
    assert faults == ({"down"} if restarted else set())
    assert source["missing_signals"] == []


@pytest.mark.parametrize("name", NAMES)
def test_windows_are_contiguous_for_each_rank(name: str) -> None:
    """Each window of a rank begins where the one before ended."""
    found = replay(read_scrapes(DIRECTORY / name), config(SLOS["loose"]))
    assert found is not None
    by_rank: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for window in document([found[0]], found[1])["windows"]:
        by_rank[window["rank"]].append(window)
    assert set(by_rank) == ({"0", "1"} if name == "dp2-a" else {"0"})
    for windows in by_rank.values():
        for one, two in pairwise(windows):
            assert one["end"] == two["start"]
            assert one["start"] < one["end"]

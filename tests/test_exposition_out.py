"""What the exporter prints: golden pages, linted, in both formats, no series twice."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from episodes import DIRECTORY
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics,
)

from analyzer.catalogue import BY_NAME, METRICS
from analyzer.config import Config, parse_config
from analyzer.engines.labels import COUNTED
from analyzer.exposition import parse_text
from analyzer.flow import EngineFlow
from analyzer.ledger import Ledger
from analyzer.metric import Kind
from analyzer.replay import replay
from analyzer.sources.recording import read_scrapes
from analyzer.verdict import VERDICTS
from exporter.collector import GAUGES, PROCESS_PREFIXES, Families, View, families

GOLDEN = Path(__file__).parent / "fixtures" / "golden"
CONFIG = """
slo_classes:
  - name: interactive
    good: {ttft: {base: 300ms, per_prompt_token: 0.2ms}, tpot: 50ms, e2e: 10s}
    objective: 0.95
    percentiles: {ttft: {p95: 1s}, e2e: {p99.9: 10s}}
    stages: {gateway: 300ms, serving: 250ms, margin: 50ms}
engines: [{name: vllm-0, url: "http://engine/metrics"}]
"""
CASES = ("kv-a", "restart-a", "dp2-a")
PLAIN = "text/plain;version=0.0.4"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


def view(name: str) -> View:
    """Returns what a scrape would show at the end of a recording."""
    config = parse_config(CONFIG)
    found = replay(read_scrapes(DIRECTORY / name), config)
    assert found is not None
    flow, at = found
    return _view(config, flow, at)


def _view(config: Config, flow: EngineFlow, at: float) -> View:
    process = Ledger()
    for label in ("model", *COUNTED):
        process.add("goodput_label_values_dropped_total", (label,), 0.0)
    process.add("goodput_state_write_failures_total", (), 0.0)
    process.add("goodput_sampler_missed_cycles_total", (), 0.0)
    return View(
        at=at,
        config=config,
        flows=[flow],
        retired=[],
        process=process,
        reload_ok=True,
        loaded_at=1.0,
        state_ok=True,
        version="0.0.0",
    )


def page(name: str, accept: str) -> str:
    """Returns the page without the rows that change with machine and time."""
    encoder, _ = choose_encoder(accept)
    kept = [
        family
        for family in families(view(name))
        if not family.name.startswith(("process_", "goodput_build_info"))
    ]
    return encoder(Families(kept)).decode()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("accept", [PLAIN, OPENMETRICS], ids=["text", "openmetrics"])
def test_page_equals_the_golden_one(name: str, accept: str) -> None:
    """The whole page of a recording is as it was; WRITE_GOLDEN=1 writes it anew."""
    suffix = "prom" if accept is PLAIN else "openmetrics"
    golden = GOLDEN / f"{name}.{suffix}"
    printed = page(name, accept)
    if os.environ.get("WRITE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(printed, encoding="utf-8")
    assert printed == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_page_passes_promtool(name: str, need_tool: Callable[[str], str]) -> None:
    """Names, types and help texts are what Prometheus's linter asks for."""
    result = subprocess.run(
        [need_tool("promtool"), "check", "metrics"],
        input=page(name, PLAIN),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("name", CASES)
def test_page_has_no_series_twice(name: str) -> None:
    """Every name with its labels is there once, in both formats."""
    for accept in (PLAIN, OPENMETRICS):
        lines = page(name, accept).splitlines()
        series = Counter(
            line.rpartition(" ")[0] for line in lines if not line.startswith("#")
        )
        assert [s for s, times in series.items() if times > 1] == []


@pytest.mark.parametrize("name", CASES)
def test_openmetrics_page_is_read_by_a_strict_parser(name: str) -> None:
    """The OpenMetrics page parses strictly and says the same as the text page."""
    strict = {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in openmetrics(page(name, OPENMETRICS))  # type: ignore[no-untyped-call]
        for s in family.samples
    }
    plain = {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for s in parse_text(page(name, PLAIN))
    }
    assert strict == plain


@pytest.mark.parametrize("name", CASES)
def test_rows_carry_the_labels_of_the_catalogue(name: str) -> None:
    """Each sample belongs to a metric of the catalogue and has exactly its labels."""
    for sample in parse_text(page(name, PLAIN)):
        base = sample.name
        if base not in BY_NAME:
            base = base.rpartition("_")[0]
        metric = BY_NAME[base]
        assert set(sample.labels) - {"le"} == set(metric.labels)


def test_every_metric_of_the_catalogue_has_a_source() -> None:
    """Gauges have a function, counters about ourselves are known as such."""
    gauges = {m.name for m in METRICS if m.kind is Kind.GAUGE}
    assert gauges == set(GAUGES)
    assert all(name.startswith("goodput_") for name in BY_NAME)
    counters = [m.name for m in METRICS if m.kind is Kind.COUNTER]
    about_us = [
        n
        for n in counters
        if not {"target", "gateway", "uuid"} & set(BY_NAME[n].labels)
    ]
    assert all(name.startswith(PROCESS_PREFIXES) for name in about_us)


def test_exactly_one_engine_state_is_one() -> None:
    """The states are one-hot, whatever the engine does."""
    for name in CASES:
        states = [
            s.value
            for s in parse_text(page(name, PLAIN))
            if s.name == "goodput_engine_state"
        ]
        assert sorted(states) == [0.0] * 6 + [1.0]


def test_exactly_one_family_binds_and_every_verdict_has_its_counter() -> None:
    """Of each rank; seconds under each verdict begin at 0, whatever is named."""
    for name in CASES:
        found = parse_text(page(name, PLAIN))
        ranks: dict[tuple[str, ...], list[float]] = {}
        for sample in found:
            if sample.name == "goodput_constraint":
                rank = sample.labels["model"], sample.labels["rank"]
                ranks.setdefault(rank, []).append(sample.value)
        assert ranks
        assert all(sorted(v) == [0.0] * 8 + [1.0] for v in ranks.values())
        seconds = {
            (s.labels["family"], s.labels["cause"])
            for s in found
            if s.name == "goodput_constraint_seconds_total"
        }
        assert seconds >= {(family.value, cause) for family, cause in VERDICTS}


def test_gauges_of_a_silent_engine_are_absent_and_its_counters_stay() -> None:
    """A minute after the last page the gauges are gone: absent is not 0."""
    now = view("kv-a")
    later = replace(now, at=now.at + 60.0)
    names_now = {f.name for f in families(now)}
    names_later = {f.name for f in families(later)}
    assert names_now - names_later == {
        "goodput_engine_running_requests",
        "goodput_engine_waiting_requests",
        "goodput_engine_kv_cache_usage_ratio",
        "goodput_engine_kv_cache_usage_ratio_max60s",
        "goodput_constraint",
    }


def test_retired_targets_show_counters_and_no_gauges() -> None:
    """What went from the configuration keeps its counters for the last scrapes."""
    now = view("kv-a")
    gone = replace(now, flows=[], retired=now.flows)
    rows = [s for f in families(gone) for s in f.samples if "target" in s.labels]
    kinds = {BY_NAME.get(s.name) for s in rows}
    assert rows
    assert all(m is None or m.kind is not Kind.GAUGE for m in kinds)


def test_engine_histograms_can_be_left_out() -> None:
    """With engine_histograms: false the latency histograms are not there."""
    config = parse_config("engine_histograms: false\n" + CONFIG)
    found = replay(read_scrapes(DIRECTORY / "kv-a"), config)
    assert found is not None
    names = {f.name for f in families(_view(config, *found))}
    assert "goodput_engine_ttft_seconds" not in names
    assert "goodput_engine_criterion_events" in names

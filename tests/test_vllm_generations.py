"""Every generation of metric names, under every prefix."""

from __future__ import annotations

import re

import pytest
from vllm_pages import (
    GAP,
    INF,
    OBSERVED,
    VERSIONS,
    counters,
    counts,
    histograms,
    page,
    read,
)

from analyzer.engines.capabilities import capabilities, missing
from analyzer.engines.reader import VllmReader


@pytest.mark.parametrize("name", VERSIONS)
def test_every_generation_gives_the_same_distributions(name: str) -> None:
    """The same observations arrive whole, on the bounds that this version prints."""
    version = VERSIONS[name]
    found = histograms(read(page(name)))
    assert found.keys() == version.bounds.keys()
    for signal, bounds in version.bounds.items():
        histogram = found[signal]
        assert histogram.bounds == (*bounds, INF), signal
        assert histogram.counts == counts(bounds, OBSERVED[signal]), signal
        assert histogram.sum == pytest.approx(sum(OBSERVED[signal])), signal


@pytest.mark.parametrize("name", VERSIONS)
def test_every_generation_gives_the_same_counters_and_gauges(name: str) -> None:
    """Whatever a version calls them, tokens, reasons and load mean the same."""
    version = VERSIONS[name]
    reading = read(page(name))
    expected: dict[tuple[str, str], float] = {
        ("prompt_tokens", ""): 6000.0,
        ("generation_tokens", ""): 1500.0,
        ("preemptions", ""): 4.0,
        ("prefix_cache_queries", ""): 6000.0,
        ("prefix_cache_hits", ""): 2048.0,
        ("finished", "stop"): 4.0,
        ("finished", "length"): 1.0,
    }
    found = counters(reading)
    for key, value in expected.items():
        if key[0] not in version.absent and key[0] in reading.names:
            assert found[key] == value, key
    assert ("prompt_tokens", "") in found
    gauges = {"running": 3.0, "waiting": 2.0, "kv_cache_usage": 0.45}
    for signal, value in gauges.items():
        if signal not in version.absent:
            assert reading.gauge(signal, "m") == value, signal
    assert reading.models == ("m",)
    assert reading.ranks_of("m") == ("0",)


@pytest.mark.parametrize("name", VERSIONS)
def test_signals_keep_the_name_that_this_version_gives_them(name: str) -> None:
    """`names` has the engine's metric behind each signal, and no other signals."""
    version = VERSIONS[name]
    reading = read(page(name))
    for signal, metric in version.names.items():
        assert reading.names[signal] == metric
    assert not set(version.absent) & reading.names.keys()
    assert version.bounds.keys() <= reading.names.keys()
    assert not any(n.endswith(("_bucket", "_sum")) for n in reading.names.values())
    shown = {found.capability.signal: found.name for found in capabilities(reading)}
    for signal in version.absent:
        assert shown.get(signal) is None
        if signal not in ("swapped", "iteration_tokens", "draft_tokens", "rejections"):
            assert "needs vLLM" in missing(reading)[signal]


def test_before_model_labels_the_configured_name_stands_in() -> None:
    """0.2.5 to 0.3.0 print no label at all."""
    reading = read(page("v0-0.3.0.prom"), VllmReader(model="llama"))
    assert reading.models == ("llama",)
    assert reading.gauge("running", "llama") == 3
    assert reading.gauge("swapped", "llama") == 1
    assert reading.gauge("kv_cache_usage", "llama") == 0.45
    assert read(page("v0-0.3.0.prom")).models == ("unknown",)


def test_swapped_requests_are_a_signal_of_the_first_engine_only() -> None:
    """V1 recomputes and never swaps."""
    assert read(page("v0-0.6.6.prom")).gauge("swapped", "m") == 1
    assert read(page("v1-0.8.2.prom")).gauge("swapped", "m") is None


# Two names, two prefixes.


@pytest.mark.parametrize("name", ["v1-0.10.2.prom", "v1-0.11.0.prom"])
def test_of_two_names_for_one_latency_the_newer_counts(name: str) -> None:
    """Both are on the page; only one is read, however they differ."""
    text = page(name)
    old = f"vllm:{GAP}"
    assert f"{old}_count" in text
    assert "vllm:inter_token_latency_seconds_count" in text
    doubled = re.sub(rf"^({old}_\w+{{.*) .*$", r"\1 77.0", text, flags=re.MULTILINE)
    assert doubled != text
    assert histograms(read(doubled))["itl"] == histograms(read(text))["itl"]
    without_new = "\n".join(
        line for line in text.split("\n") if "inter_token_latency" not in line
    )
    only_old = read(without_new)
    assert histograms(only_old)["itl"] == histograms(read(text))["itl"]
    assert only_old.names["itl"] == old


def test_queue_time_under_two_names_is_not_doubled() -> None:
    """0.6.4 to 0.9.0 print time in queue twice."""
    text = page("v0-0.6.6.prom")
    assert "vllm:time_in_queue_requests_count" in text
    assert histograms(read(text))["queue"].count == 5


@pytest.mark.parametrize(
    "prefix",
    ["vllm:", "ray_vllm:", "ray_vllm_", "kserve_vllm:", "kserve_vllm_", "vllm_"],
)
def test_every_prefix_is_understood(prefix: str) -> None:
    """Wrappers rename the metrics; nothing else changes."""
    plain = read(page("v1-0.15.0.prom"))
    reading = read(page("v1-0.15.0.prom").replace("vllm:", prefix))
    assert reading.prefix == prefix
    assert reading.snapshot == plain.snapshot
    assert reading.gauges == plain.gauges
    assert reading.cache_config == plain.cache_config
    assert reading.names == {
        signal: name.replace("vllm:", prefix) for signal, name in plain.names.items()
    }


@pytest.mark.parametrize("other", ["vllm_", "ray_vllm_", ""])
def test_of_two_prefixes_on_one_page_one_counts(other: str) -> None:
    """A relay may print everything twice; nothing is counted twice."""
    text = page("v1-0.15.0.prom")
    twice = text + text.replace("vllm:", other)
    reading, plain = read(twice), read(text)
    assert reading.prefix == "vllm:"
    assert reading.snapshot == plain.snapshot
    assert reading.gauges == plain.gauges


def test_names_without_prefix_need_more_than_one_likeness() -> None:
    """Another program may count prompt tokens too; that makes it no engine."""
    foreign = (
        'prompt_tokens_total{model_name="x"} 5\n'
        "num_requests_running 3\n"
        'http_requests_total{handler="/generate",method="POST",status="2xx"} 7\n'
    )
    reading = read(foreign)
    assert reading.prefix is None
    assert reading.models == ()
    assert reading.snapshot.counters == {}
    assert read(page("nim.prom")).prefix == ""

"""What an engine's page says: real pages, ranks, replicas and processes."""

from __future__ import annotations

import re

import pytest
from vllm_pages import INF, TTFT, counters, histograms, page, read

from analyzer.accrual import by_model, single_token_requests
from analyzer.engines.capabilities import missing
from analyzer.engines.labels import EngineLabels
from analyzer.engines.reader import VllmReader
from analyzer.snapshot import Group, Reset, increase


@pytest.mark.parametrize(
    "name", ["v0-0.6.6.prom", "v1-0.15.0.prom", "idle-mfu-two-names.prom"]
)
def test_creation_stamps_are_no_data(name: str) -> None:
    """`_created` is typed gauge; without those lines all values are the same."""
    text = page(name)
    assert "_created gauge" in text
    lines = text.split("\n")
    without = read("\n".join(line for line in lines if "_created" not in line))
    reading = read(text)
    assert reading.snapshot.counters == without.snapshot.counters
    assert reading.snapshot.histograms == without.snapshot.histograms
    assert reading.gauges == without.gauges
    assert reading.names == without.names
    assert without.snapshot.created == {}
    stamped = reading.snapshot.created
    assert min(stamped.values()) > 1.7e9
    assert reading.snapshot.histograms.keys() <= stamped.keys()


def test_a_page_of_creation_stamps_alone_has_no_signals() -> None:
    """A stamp is no sign that the series itself is on the page."""
    lines = page("v1-0.15.0.prom").split("\n")
    reading = read("\n".join(line for line in lines if "_created" in line))
    assert reading.names == {}
    assert reading.snapshot.counters == {}


def test_configuration_labels_that_say_none_are_unknown() -> None:
    """The engine prints what it does not know as the text None."""
    old = read(page("v0-0.6.6.prom")).cache_config["0"]
    assert "num_gpu_blocks" not in old
    assert old["block_size"] == "16"
    new = read(page("v1-0.15.0.prom")).cache_config
    assert new["0"]["num_gpu_blocks"] == "7200"
    assert "None" not in new["0"].values()
    real = read(page("idle-mfu-two-names.prom")).cache_config
    assert real.keys() == {"0"}
    assert real["0"]["kv_cache_size_tokens"] == "2560"
    assert "num_cpu_blocks" not in real["0"]


def test_one_token_answers_have_a_tpot_of_zero() -> None:
    """They stay in the histogram's lowest bucket, and their number is known."""
    found = histograms(read(page("v1-0.15.0.prom")))
    assert found["tpot"].counts[0] == 1
    assert single_token_requests(found["generation_length"]) == 1
    assert single_token_requests(None) is None


# Real pages of 0.32.


def test_an_idle_engine_has_every_signal_at_zero() -> None:
    """All counters exist at 0, the sleep state is awake, the start is known."""
    reading = read(page("idle-mfu-two-names.prom"))
    assert reading.prefix == "vllm:"
    assert reading.frontend
    assert reading.models == ("tinyA",)
    assert reading.ranks_of("tinyA") == ("0",)
    assert reading.snapshot.started == pytest.approx(1795961216.45)
    assert set(counters(reading).values()) == {0.0}
    assert all(h.count == 0 for h in histograms(reading).values())
    assert reading.gauges[Group("sleep_state", "tinyA", "0", "awake")] == 1
    assert reading.gauges[Group("waiting_by_reason", "tinyA", "0", "capacity")] == 0
    assert reading.gauge("running", "tinyA") == 0
    assert missing(reading) == {}
    assert histograms(reading)["ttft"].bounds == (*TTFT, INF)
    assert not reading.snapshot.damaged


def test_gauges_before_the_first_step_are_absent_and_not_zero() -> None:
    """Several API servers print them late; counters exist, the start is unknown."""
    reading = read(page("dp2-two-api-servers-before-first-step.prom"))
    assert reading.ranks_of("tinyA") == ("0", "1")
    assert reading.snapshot.started is None
    for signal in ("running", "waiting", "kv_cache_usage"):
        assert reading.gauge(signal, "tinyA") is None
        assert signal in missing(reading)
    ttft = [k for k in reading.snapshot.histograms if k.group.signal == "ttft"]
    assert {key.group.rank for key in ttft} == {"0", "1"}
    assert reading.snapshot.created == {}
    assert reading.cache_config.keys() == {"0", "1"}


def test_statistics_switched_off_are_not_an_idle_engine() -> None:
    """The API server's page has no engine series, and says that it is one."""
    reading = read(page("stats-disabled.prom"))
    assert reading.prefix is None
    assert reading.frontend
    assert reading.models == ()
    assert reading.names == {}
    assert reading.snapshot.started == pytest.approx(1795961578.52)


# Ranks, replicas, processes.


def test_a_pod_may_show_another_rank_than_zero_alone() -> None:
    """External load balancing: one rank a pod, under its global number.

    What the API server counts before it chooses a rank belongs to none.
    """
    text = page("idle-mfu-two-names.prom").replace('engine="0"', 'engine="3"')
    reading = read(text)
    assert reading.ranks_of("tinyA") == ("3",)
    assert reading.gauge("running", "tinyA", "3") == 0
    assert reading.gauge("running", "tinyA", "0") is None
    rejections = [
        key.group
        for key in reading.snapshot.counters
        if key.group.signal == "rejections"
    ]
    assert {(g.rank, g.extra) for g in rejections} == {
        ("", "max_num_queued_reqs"),
        ("", "max_num_queued_tokens"),
    }


def test_replicas_on_one_page_add_up_but_the_fullest_cache_counts() -> None:
    """Ray's node agent prints every worker: loads add, ratios do not."""
    reading = read(page("ray-0.12.prom"))
    assert reading.prefix == "ray_vllm_"
    assert reading.gauge("running", "m") == 6
    assert reading.gauge("waiting", "m") == 4
    assert reading.gauge("kv_cache_usage", "m") == 0.9
    ttft = [k for k in reading.snapshot.histograms if k.group.signal == "ttft"]
    assert len(ttft) == 2
    assert all(dict(key.origin)["ReplicaId"] in ("r1", "r2") for key in ttft)
    first = read(page("ray-0.12.prom"), at=1.0).snapshot
    later = page("ray-0.12.prom").replace(" 6000.0", " 6100.0")
    grown = by_model(increase(first, read(later, at=2.0).snapshot))["m"]
    assert grown.total("prompt_tokens") == 200
    assert grown.histograms["e2e"].count == 0
    assert grown.finished == 0


def test_a_replica_that_restarts_leaves_the_other_alone() -> None:
    """The new worker's series count from zero, the other's by their difference."""
    text = page("ray-0.12.prom")
    first = read(text, at=1.0).snapshot
    restarted = "\n".join(
        re.sub(r" [\d.]+$", " 1.0", line)
        if "_total{" in line and "r2" in line
        else line
        for line in text.split("\n")
        if not ("r2" in line and ("_seconds_" in line or "iteration" in line))
    )
    grown = increase(first, read(restarted, at=2.0).snapshot)
    assert grown.reset is Reset.SERIES
    assert by_model(grown)["m"].total("prompt_tokens") == 1
    assert by_model(grown)["m"].total("finished") == 2


def test_start_times_of_several_processes_tell_nothing() -> None:
    """A page that gathers processes has no single start; equal ones are one."""
    text = page("v1-0.15.0.prom")
    again = 'process_start_time_seconds{pod="b"} '
    assert read(f"{text}{again}1.79596121645e+09\n").snapshot.started == 1795961216.45
    assert read(f"{text}{again}1.7e+09\n").snapshot.started is None
    assert read(f"{text}{again}NaN\n").snapshot.started is None
    assert read(text.replace("1.79596121645e+09", "0")).snapshot.started is None


def test_models_beyond_the_limit_share_a_name_and_keep_their_history() -> None:
    """Under `other` two models add up, each with its own earlier value."""
    text = page("v1-0.15.0.prom")
    two = text + text.replace('model_name="m"', 'model_name="n"')
    reader = VllmReader(labels=EngineLabels(admit=lambda _: "other"))
    reading = read(two, reader)
    assert reading.models == ("other",)
    assert reading.gauge("running", "other") == 6
    tokens = [
        key
        for key in reading.snapshot.counters
        if key.group.signal == "generation_tokens"
    ]
    assert sorted(dict(key.origin)["model_name"] for key in tokens) == ["m", "n"]
    assert {key.group for key in tokens} == {Group("generation_tokens", "other", "0")}


def test_answers_are_counted_on_generation_routes_only() -> None:
    """POST on chat, completions and the like, by class of status."""
    rows = (
        ("/v1/chat/completions", "POST", "2xx", "6"),
        ("/v1/completions", "POST", "5xx", "1"),
        ("/v1/chat/completions", "GET", "4xx", "9"),
        ("/tokenize", "POST", "2xx", "9"),
        ("none", "POST", "4xx", "9"),
        ("/generate", "POST", "2xx", "NaN"),
    )
    line = 'http_requests_total{{handler="{}",method="{}",status="{}"}} {}\n'
    reading = read("".join(line.format(*row) for row in rows))
    assert reading.frontend
    assert {
        (dict(k.origin)["handler"], k.group.extra): v
        for k, v in reading.snapshot.counters.items()
    } == {("/v1/chat/completions", "2xx"): 6.0, ("/v1/completions", "5xx"): 1.0}

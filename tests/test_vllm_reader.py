"""vLLM's pages, from 0.3 to 0.33 and under every prefix, as canonical signals."""

from __future__ import annotations

import gzip
import math
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.accrual import by_model, single_token_requests
from analyzer.engines.capabilities import capabilities, missing
from analyzer.engines.labels import EngineLabels
from analyzer.engines.reader import VllmReader
from analyzer.engines.reading import EngineReading
from analyzer.exposition import Parser
from analyzer.histogram import Histogram
from analyzer.snapshot import Group, Reset, increase

# Real pages of 0.32.0, and others composed after the released sources.
FIXTURES = Path(__file__).parent / "fixtures"
PAGES = {
    path.name.removesuffix(".gz"): path
    for folder in ("vllm", "vllm-composed")
    for path in (FIXTURES / folder).iterdir()
}
INF = math.inf

# The bounds of the released sources, without +Inf.
SMALL = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75)
TTFT_OLD = (*SMALL, 1.0, 2.5, 5.0, 7.5, 10.0)
TTFT = (*TTFT_OLD, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
ITL_OLD = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
ITL = (*ITL_OLD, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
LATENCY_0_3 = (1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0)
LATENCY_OLD = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, *LATENCY_0_3[1:])
LATENCY = (*LATENCY_OLD, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)
STEPS = (1.0, *(2.0**exponent for exponent in range(3, 15)))
CAPTURE_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 24.0, 32.0)
LENGTHS = tuple(m * 10.0**e for e in range(4) for m in (1, 2, 5))[:11]
LENGTHS_131072 = tuple(m * 10.0**e for e in range(6) for m in (1, 2, 5))[:16]

# What the composed pages have observed.
OBSERVED = {
    "ttft": (0.015, 0.03, 0.2, 0.7, 3.0, 12.0),
    "itl": (0.008, 0.02, 0.06, 0.35, 1.2, 4.0),
    "tpot": (0.0, 0.012, 0.03, 0.06, 0.2),
    "e2e": (0.2, 0.9, 3.0, 12.0, 70.0),
    "queue": (0.0005, 0.01, 0.4, 2.0, 6.0),
    "prefill": (0.02, 0.05, 0.2, 0.7, 1.5),
    "decode": (0.0, 0.3, 1.5, 9.0, 60.0),
    "prompt_length": (5.0, 100.0, 700.0, 1500.0, 3695.0),
    "generation_length": (1.0, 30.0, 200.0, 500.0, 769.0),
    "iteration_tokens": (1.0, 3.0, 5.0, 9.0, 130.0, 600.0, 2100.0, 5.0),
}


@dataclass(frozen=True)
class Version:
    """What a composed page should give: bounds by signal, and some of its names."""

    bounds: dict[str, tuple[float, ...]]
    names: dict[str, str]
    absent: tuple[str, ...] = ()


OLD_TIMES = dict.fromkeys(("e2e", "queue", "prefill", "decode"), LATENCY_OLD)
TIMES = dict.fromkeys(("e2e", "queue", "prefill", "decode"), LATENCY)
SIZES = dict.fromkeys(("prompt_length", "generation_length"), LENGTHS)
GAP = "time_per_output_token_seconds"
VERSIONS = {
    "v0-0.3.3.prom": Version(
        {"ttft": TTFT_OLD, "itl": ITL_OLD, "e2e": LATENCY_0_3},
        {"itl": f"vllm:{GAP}", "kv_cache_usage": "vllm:gpu_cache_usage_perc"},
        ("tpot", "queue", "preemptions", "finished", "prefix_cache_hits"),
    ),
    "v0-0.6.6.prom": Version(
        {
            "ttft": TTFT_OLD,
            "itl": ITL_OLD,
            "iteration_tokens": CAPTURE_SIZES,
            **OLD_TIMES,
            **SIZES,
        },
        {"itl": f"vllm:{GAP}", "queue": "vllm:request_queue_time_seconds"},
        ("tpot", "prefix_cache_hits", "sleep_state"),
    ),
    "v1-0.8.2.prom": Version(
        {
            "ttft": TTFT_OLD,
            "itl": ITL_OLD,
            "iteration_tokens": CAPTURE_SIZES,
            **OLD_TIMES,
            **SIZES,
        },
        {
            "prefix_cache_hits": "vllm:gpu_prefix_cache_hits_total",
            "kv_cache_usage": "vllm:gpu_cache_usage_perc",
        },
        ("tpot", "swapped"),
    ),
    "v1-0.8.4.prom": Version(
        {
            "ttft": TTFT,
            "itl": ITL,
            "iteration_tokens": CAPTURE_SIZES,
            **TIMES,
            **SIZES,
        },
        {"itl": f"vllm:{GAP}"},
        ("tpot",),
    ),
    "v1-0.10.2.prom": Version(
        {"ttft": TTFT, "itl": ITL, "iteration_tokens": STEPS, **TIMES, **SIZES},
        {
            "itl": "vllm:inter_token_latency_seconds",
            "kv_cache_usage": "vllm:kv_cache_usage_perc",
            "prefix_cache_hits": "vllm:prefix_cache_hits_total",
        },
        ("tpot",),
    ),
    "v1-0.11.0.prom": Version(
        {
            "ttft": TTFT,
            "itl": ITL,
            "tpot": ITL,
            "iteration_tokens": STEPS,
            **TIMES,
            **SIZES,
        },
        {
            "itl": "vllm:inter_token_latency_seconds",
            "tpot": f"vllm:request_{GAP}",
        },
        ("sleep_state",),
    ),
    "v1-0.15.0.prom": Version(
        {
            "ttft": TTFT,
            "itl": ITL,
            "tpot": ITL,
            "iteration_tokens": STEPS,
            **TIMES,
            **SIZES,
        },
        {
            "itl": "vllm:inter_token_latency_seconds",
            "sleep_state": "vllm:engine_sleep_state",
            "finished": "vllm:request_success_total",
        },
        ("waiting_by_reason", "rejections", "flops", "draft_tokens"),
    ),
    "v1-0.32.0-rust-frontend.openmetrics": Version(
        {
            "ttft": TTFT,
            "itl": ITL,
            "tpot": ITL,
            **TIMES,
            **dict.fromkeys(SIZES, LENGTHS_131072),
        },
        {"prompt_tokens_by_source": "vllm:prompt_tokens_by_source_total"},
        ("cache_config", "sleep_state", "rejections", "iteration_tokens"),
    ),
    "nim.prom": Version(
        {"ttft": TTFT_OLD, "itl": ITL_OLD, "e2e": LATENCY_OLD, **SIZES},
        {
            "itl": GAP,
            "kv_cache_usage": "gpu_cache_usage_perc",
            "finished": "request_finish_total",
            "max_num_seqs": "num_request_max",
        },
        ("tpot", "preemptions"),
    ),
    "triton.prom": Version(
        {"ttft": TTFT_OLD, "itl": ITL_OLD, "e2e": LATENCY_OLD},
        {"itl": f"vllm:{GAP}"},
        ("running", "waiting", "kv_cache_usage", "finished"),
    ),
}


def page(name: str) -> str:
    """Returns the text of a page among the fixtures."""
    return gzip.decompress(PAGES[name].read_bytes()).decode()


def read(text: str, reader: VllmReader | None = None, at: float = 0.0) -> EngineReading:
    """Returns what a page says."""
    return (reader or VllmReader()).read(Parser().parse(text), at)


def counts(bounds: tuple[float, ...], values: tuple[float, ...]) -> tuple[float, ...]:
    """Returns the cumulative counts of observations, +Inf last."""
    return tuple(float(sum(v <= b for v in values)) for b in (*bounds, INF))


def histograms(reading: EngineReading) -> dict[str, Histogram]:
    """Returns the histograms by signal; each signal must be there once."""
    found = reading.snapshot.histograms
    by_signal = {key.group.signal: h for key, h in found.items()}
    assert len(by_signal) == len(found)
    return by_signal


def counters(reading: EngineReading) -> dict[tuple[str, str], float]:
    """Returns the engine's counters by signal and own label; each once."""
    found = {k: v for k, v in reading.snapshot.counters.items() if k.group.model}
    by_signal = {(k.group.signal, k.group.extra): v for k, v in found.items()}
    assert len(by_signal) == len(found)
    return by_signal


# Every generation.


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


# Creation stamps, configuration, single tokens.


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


# Formats and faults.


def test_openmetrics_means_what_text_means() -> None:
    """Base-name types, exemplars, whole numbers and the end mark change nothing."""
    reading = read(page("v1-0.32.0-rust-frontend.openmetrics"))
    assert not reading.snapshot.damaged
    assert reading.names["prompt_tokens"] == "vllm:prompt_tokens_total"
    assert counters(reading)["prompt_tokens_by_source", "local_cache_hit"] == 2048
    assert reading.snapshot.started is None


def test_custom_bounds_are_read_from_the_page() -> None:
    """`--custom-histogram-buckets` may set any bounds, in any spelling and order."""
    series = 'vllm:e2e_request_latency_seconds_{}{{{}engine="0",model_name="m"}} {}\n'
    text = "".join(
        series.format("bucket", f'le="{bound}",', count)
        for bound, count in (("+Inf", 9), ("7.5", 4), ("0.25", 1), ("1e1", 5))
    ) + series.format("sum", "", 60.5)
    found = histograms(read(text))["e2e"]
    assert found == Histogram((0.25, 7.5, 10.0, INF), (1, 4, 5, 9), 60.5)


def test_a_histogram_without_its_last_bucket_is_left_out() -> None:
    """Without +Inf its total is unknown; the others stay."""
    lines = page("v1-0.15.0.prom").split("\n")
    lost = 'vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"'
    assert any(line.startswith(lost) for line in lines)
    reading = read("\n".join(line for line in lines if not line.startswith(lost)))
    assert "ttft" not in histograms(reading)
    assert histograms(reading)["e2e"].count == 5


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1.0", "1e400"])
def test_values_that_no_counter_can_have_are_left_out(value: str) -> None:
    """They mark the page as damaged, so that the series is not new when it returns."""
    text = page("v1-0.15.0.prom")
    whole = read(text, at=1.0)
    spoilt = re.sub(
        r"^(vllm:(?:generation_tokens_total|e2e_request_latency_seconds_bucket).*) .*$",
        rf"\1 {value}",
        text,
        flags=re.MULTILINE,
    )
    reading = read(spoilt, at=2.0)
    assert reading.snapshot.damaged
    assert not whole.snapshot.damaged
    assert ("generation_tokens", "") not in counters(reading)
    assert "e2e" not in histograms(reading)
    assert counters(reading)["prompt_tokens", ""] == 6000
    back = increase(reading.snapshot, read(text, at=3.0).snapshot)
    assert back.counter("generation_tokens") == 0


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_gauges_that_are_no_number_are_absent(value: str) -> None:
    """A load that is not finite is no load."""
    text = re.sub(
        r"^(vllm:(?:num_requests_running|kv_cache_usage_perc).*) .*$",
        rf"\1 {value}",
        page("v1-0.15.0.prom"),
        flags=re.MULTILINE,
    )
    reading = read(text)
    assert reading.gauge("running", "m") is None
    assert reading.gauge("kv_cache_usage", "m") is None
    assert reading.gauge("waiting", "m") == 2


@pytest.mark.parametrize("le", ["", 'le="NaN",', 'le="abc",', 'le="",'])
def test_buckets_without_a_usable_bound_are_left_out(le: str) -> None:
    """The rest of the histogram stands."""
    text = page("v1-0.15.0.prom")
    odd = (
        f'vllm:e2e_request_latency_seconds_bucket{{{le}engine="0",model_name="m"}} 9\n'
    )
    assert histograms(read(text + odd)) == histograms(read(text))


def test_a_page_beyond_the_limit_is_damaged() -> None:
    """Series past the limit are not new when a later page has them."""
    exposition = Parser(max_samples=50).parse(page("v1-0.15.0.prom"))
    assert exposition.damaged_lines
    assert VllmReader().read(exposition, 0.0).snapshot.damaged


def test_what_a_reader_remembers_changes_no_reading() -> None:
    """A second page of the same series gives what a fresh reader gives."""
    parser, reader = Parser(), VllmReader()
    text = page("v1-0.15.0.prom")
    later = text.replace(" 6000.0", " 6100.0").replace(" 3.0", " 4.0")
    reader.read(parser.parse(text), 1.0)
    assert reader.read(parser.parse(later), 2.0) == read(later, at=2.0)


LINES = page("v1-0.15.0.prom").split("\n")
WHOLE = read("\n".join(LINES))
AT = st.integers(0, len(LINES) - 1)


@given(st.lists(AT, max_size=40), st.lists(st.tuples(AT, st.integers(1, 60))))
def test_lost_and_cut_lines_cost_no_other_value(
    lost: list[int], cut: list[tuple[int, int]]
) -> None:
    """Whatever is gone, each value that is left is the one that was printed."""
    lines = list(LINES)
    for at, length in cut:
        end = max(lines[at].rfind("}"), 0) or lines[at].find(" ")
        lines[at] = lines[at][: min(length, end)]
    for at in lost:
        lines[at] = ""
    reading = read("\n".join(lines))
    assert reading.snapshot.counters.items() <= WHOLE.snapshot.counters.items()
    assert reading.gauges.items() <= WHOLE.gauges.items()
    assert reading.names.items() <= WHOLE.names.items()
    for key, histogram in reading.snapshot.histograms.items():
        full = WHOLE.snapshot.histograms[key]
        printed = set(zip(full.bounds, full.counts, strict=True))
        assert set(zip(histogram.bounds, histogram.counts, strict=True)) <= printed
    torn = [line for line in lines if line and line[0] != "#" and line not in LINES]
    assert reading.snapshot.damaged == bool(torn)

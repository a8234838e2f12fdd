"""Pages of every generation of vLLM's metrics, and what was observed on them."""

from __future__ import annotations

import gzip
import math
from dataclasses import dataclass
from pathlib import Path

from analyzer.engines.reader import VllmReader
from analyzer.engines.reading import EngineReading
from analyzer.exposition import Parser
from analyzer.histogram import Histogram

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

"""GPU figures beside a real engine's recording: they tell apart, and never more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from diagnosed import SLO
from episodes import DIRECTORY

from analyzer.config import parse_config
from analyzer.document import windows
from analyzer.replay import GpuReplay, replay
from analyzer.sources.recording import Scrape, read_scrapes

LABELS = 'gpu="0",UUID="GPU-00000000-0000-0000-0000-000000000000",device="nvidia0"'


def pages(scrapes: list[Scrape], *, dram: float, tensor: float) -> Iterator[Scrape]:
    """Yields a dcgm-exporter's page beside every scrape, its energy going on."""
    for number, scrape in enumerate(scrapes):
        values = {
            "DCGM_FI_DEV_GPU_UTIL": 100,
            "DCGM_FI_DEV_FB_USED": 72_000,
            "DCGM_FI_DEV_FB_FREE": 8_000,
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.99,
            "DCGM_FI_PROF_DRAM_ACTIVE": dram,
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": tensor,
            "DCGM_FI_DEV_POWER_USAGE": 400 + number % 7,
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 10**9 + 400_000 * number,
        }
        lines = [f"{name}{{{LABELS}}} {value}" for name, value in values.items()]
        yield Scrape(scrape.at - 0.1, 0.01, "\n".join(lines) + "\n")


def seconds(recording: str, *, dram: float, tensor: float) -> Counter[str]:
    """Returns the whole seconds under each verdict with such a GPU."""
    config = parse_config(SLO)
    scrapes = list(read_scrapes(DIRECTORY / recording))
    gpus = GpuReplay(pages(scrapes, dram=dram, tensor=tensor), config)
    found = replay(scrapes, config, gpus=gpus)
    assert found is not None
    held: Counter[str] = Counter()
    for window in windows([found[0]], latest=False):
        name = f"{window['family']}/{window['cause']}"
        held[name] += round(window["end"] - window["start"])
    return held


def test_memory_activity_makes_wide_decoding_a_matter_of_bandwidth() -> None:
    """The same engine series; without the GPU they say compute/decode at most."""
    held = seconds("decode-a", dram=0.7, tensor=0.1)
    assert held["memory/hbm_bandwidth"] > 40
    assert held["compute/decode"] == 0
    assert seconds("decode-a", dram=0.1, tensor=0.7)["compute/decode"] > 40


@pytest.mark.parametrize(("dram", "tensor"), [(0.75, 0.1), (0.0, 0.0), (0.1, 0.9)])
@pytest.mark.parametrize(
    ("recording", "binding"),
    [
        ("healthy-a", ""),
        ("kvhigh-a", ""),
        ("overload-a", "queueing/sequence_cap"),
        ("kv-a", "memory/kv_capacity"),
        ("prefill-a", "compute/prefill"),
    ],
)
def test_no_gpu_figure_changes_what_the_engine_proves(
    recording: str, binding: str, dram: float, tensor: float
) -> None:
    """Busy memory, a GPU that spins at 100 % without work, busy tensor units."""
    held = seconds(recording, dram=dram, tensor=tensor)
    bound = {name for name in held if not name.startswith(("none/", "unknown/"))}
    assert bound == ({binding} if binding else set()), dict(held)

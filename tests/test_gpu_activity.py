"""What an engine's diagnosis gets to know of its GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
from episodes import DIRECTORY
from gpu_pages import flow_of, page, rows
from gpu_server import GpuServer
from running_exporter import RunningExporter, wait_for
from synthetic_engine import SyntheticEngine

from analyzer.config import parse_config
from analyzer.config_sources import EngineSource
from analyzer.gpus.activity import activity, engine_activity
from analyzer.gpus.match import GpuMatch
from analyzer.replay import GpuReplay, replay
from analyzer.sources.recording import Scrape, read_scrapes

DECODE = "h100x8_tp8_decode_composed"
CAPPED = "h100x8_tp8_prefill_powercap_composed_t"
ENGINE = EngineSource("vllm", "")


def test_activity_is_the_mean_over_the_engines_gpus() -> None:
    """Eight decode alike; of power the highest counts, and their age is unknown."""
    found = engine_activity([flow_of((0.0, page(DECODE)))], ENGINE, 0.0)
    assert found is not None
    assert found.dram == pytest.approx(0.702, abs=2e-3)
    assert found.tensor == pytest.approx(0.071, abs=1e-3)
    assert found.sm == pytest.approx(0.742, abs=1e-3)
    assert found.power == pytest.approx(425.9 / 700)
    assert (found.age, found.throttled, found.power_capped) == (30.0, 0.0, 0.0)


def test_gpu_that_is_held_down_most_counts() -> None:
    """One GPU at its cap makes the others of its group wait."""
    mask = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
    text = rows(f"{mask} 4") + rows(f"{mask} 64", uuid="GPU-2")
    found = engine_activity([flow_of((0.0, text))], ENGINE, 0.0)
    assert found is not None
    assert (found.throttled, found.power_capped) == (1.0, 1.0)
    assert (found.dram, found.tensor) == (None, None)


def test_age_is_that_of_the_oldest_figures() -> None:
    """Two boards whose figures changed at different times."""
    power = "DCGM_FI_DEV_POWER_USAGE"
    first = rows(f"{power} 1.5") + rows(f"{power} 1.5", uuid="GPU-2")
    second = rows(f"{power} 2.5") + rows(f"{power} 1.5", uuid="GPU-2")
    third = rows(f"{power} 2.5") + rows(f"{power} 2.5", uuid="GPU-2")
    flow = flow_of((0.0, first), (10.0, second), (20.0, third))
    found = engine_activity([flow], ENGINE, 25.0)
    assert found is not None
    assert found.age == 15.0


def test_shared_and_unknown_gpus_tell_nothing() -> None:
    """Figures of several pods together are nobody's evidence."""
    shared = flow_of((0.0, page("timeslicing_duplicate_rows")))
    assert activity(shared.reading(0.0).devices) is None
    other = flow_of((0.0, page(DECODE)), match=GpuMatch(pod="other"))
    assert engine_activity([other], ENGINE, 0.0) is None
    assert engine_activity([], ENGINE, 0.0) is None
    found = engine_activity([other, flow_of((0.0, page(DECODE)))], ENGINE, 0.0)
    assert found is not None


def test_stale_figures_are_not_used() -> None:
    """A frozen cache says nothing of now."""
    flow = flow_of(*((10.0 * n, page(f"{CAPPED}0")) for n in range(10)))
    found = engine_activity([flow], ENGINE, 90.0)
    assert found is not None
    assert (found.dram, found.tensor, found.power_capped) == (None, None, None)


def test_replay_gives_gpus_to_the_diagnosis() -> None:
    """After a replay with GPUs the engine's diagnosis knows what they did last."""
    scrapes = [s for s in read_scrapes(DIRECTORY / "kv-a") if s.text][:5]
    first, last = scrapes[0].at, scrapes[-1].at
    config = parse_config("gpus: [{name: node, url: 'http://a/m'}]")
    pages = [Scrape(first, 0.1, page(DECODE)), Scrape(last, 0.1, page(f"{CAPPED}0"))]
    found = replay(scrapes, config, gpus=GpuReplay(pages, config))
    assert found is not None
    gpu = found[0].diagnosis.gpu
    assert gpu is not None
    assert gpu.dram == pytest.approx(0.334, abs=3e-3)
    without = replay(scrapes, config)
    assert without is not None
    assert without[0].diagnosis.gpu is None


def test_running_exporter_asks_with_gpus_beside_engines(tmp_path: Path) -> None:
    """An engine is sampled while its GPUs are, and both go on."""
    with GpuServer(page(DECODE)) as gpus, SyntheticEngine() as engine:
        path = tmp_path / "c.yml"
        path.write_text(
            "slo_classes: [{preset: chat}]\n"
            f'engines: [{{name: vllm, url: "{engine.url}", interval: 200ms}}]\n'
            f'gpus: [{{name: node, url: "{gpus.url}", interval: 200ms}}]\n'
        )
        with RunningExporter("--config.file", path) as exporter:
            wait_for(lambda: gpus.scrapes > 3 and engine.scrapes > 3)
            status = exporter.get("/api/v1/status").json()
    (each,) = status["gpus"][0]["join"]["engines"]
    assert (each["engine"], len(each["devices"])) == ("vllm", 8)
    assert not any("sampling failed" in line for line in exporter.log)

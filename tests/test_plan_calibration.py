"""The twin of a server that was swept: what it is fitted to, and how far off it is."""

from __future__ import annotations

from array import array
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from benchmark_results import unpack

from analyzer.benchmarks.run import Knob, Requests, Run
from analyzer.capacity.fit import simulate
from analyzer.plan.calibration import Miss, Twin, calibrated
from analyzer.plan.settings import (
    PlanError,
    Settings,
    changed,
    settings_of,
    settings_on_page,
)
from analyzer.sweep.files import read_files

SERVER = {"num_gpu_blocks": 1024, "block_size": 128, "max_model_len": 2048}
PAGE = (
    'vllm:cache_config_info{block_size="128",engine="0",num_gpu_blocks="1024"} 1.0\n'
    'vllm:num_requests_running{engine="0",model_name="m"} 0.0\n'
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of real results."""
    return unpack(tmp_path_factory.mktemp("results"))


def settings(seqs: int) -> Settings:
    """Returns the settings of the server of a sweep."""
    return settings_of({**SERVER, "max_num_seqs": seqs}, {}, {}, longest=1)


def swept(results: Path, name: str) -> list[Run]:
    """Returns the runs of a real sweep."""
    runs, problems = read_files([results / "sweeps" / name])
    assert not problems
    return runs


@pytest.fixture(scope="module")
def twin(results: Path) -> Twin:
    """Returns the twin of the server with 16 places."""
    return calibrated(swept(results, "seqs16"), settings(16))


def test_the_twin_behaves_as_the_server_did(twin: Twin) -> None:
    """Every load within the noise of the machine, one unseen among them."""
    assert [miss.concurrency for miss in twin.misses] == [1, 2, 4, 8, 16, 32, 64]
    for miss in (*twin.misses, twin.held_out):
        assert abs(miss.throughput) < 0.17
        assert abs(miss.ttft) < 0.2
        assert abs(miss.tpot) < 0.17
    assert twin.held_out.concurrency == 64
    assert 0.05 < twin.error < 0.15
    assert twin.distrust == ""


def test_it_predicts_what_twice_the_places_did(results: Path, twin: Twin) -> None:
    """The other sweep's loads beyond 16, which the twin has not seen."""
    other = changed(settings(16), "max_num_seqs", 32).engine().scheduler
    points = calibrated(swept(results, "seqs32"), settings(32)).points
    engine = replace(twin.engine, scheduler=other)
    found = zip(points, simulate(engine, points), strict=True)
    for point, figures in found:
        if point.concurrency > 16:
            throughput, _, tpot = figures.errors(point.measured)
            assert abs(throughput) < 0.15
            assert abs(tpot) < 0.2


def test_the_error_is_the_larger_of_what_was_seen_and_what_was_not(
    twin: Twin,
) -> None:
    """In any of the three figures, whatever its sign."""
    seen = (Miss(1, 0.1, -0.1, 0.1),)
    for unseen, error in (
        (Miss(4, 0.0, 0.0, 0.0), 0.1),
        (Miss(4, -0.2, 0.0, 0.0), 0.2),
        (Miss(4, 0.0, 0.25, 0.0), 0.25),
        (Miss(4, 0.0, 0.0, -0.15), 0.15),
    ):
        found = replace(twin, misses=seen, held_out=unseen)
        assert found.error == pytest.approx(error)


def test_slower_and_quicker_twins_are_so_in_everything(twin: Twin) -> None:
    """Half as quick: half the throughput, twice every time."""
    before, after = (
        simulate(twin.slowed(factor), twin.points[-1:])[0] for factor in (1.0, 2.0)
    )
    assert after.throughput == pytest.approx(before.throughput / 2, rel=0.01)
    assert after.tpot == pytest.approx(2 * before.tpot, rel=0.01)
    assert after.ttft == pytest.approx(2 * before.ttft, rel=0.01)


def test_a_server_that_is_no_engine_is_not_trusted(results: Path) -> None:
    """Throughput that falls with the load, say: the reason names the load."""
    runs = [
        replace(run, duration=run.duration * (8 if run.concurrency == 32 else 1))
        for run in swept(results, "seqs16")
    ]
    found = calibrated(runs, settings(16))
    assert "does not behave as the server did" in found.distrust
    assert "at 32 at once" in found.distrust


@pytest.mark.parametrize(
    "loads", [[1.0, 2.0], [1.0, 1.0, 1.0], []], ids=["two", "one thrice", "none"]
)
def test_few_loads_make_no_twin(results: Path, loads: list[float]) -> None:
    """The sentence says what to run."""
    known = {run.concurrency: run for run in swept(results, "seqs16")}
    with pytest.raises(PlanError, match="needs 3: vllm bench serve --save-detailed"):
        calibrated([known[load] for load in loads], settings(16))


def test_runs_without_single_requests_or_closed_loop_do_not_count(
    results: Path,
) -> None:
    """Medians over nobody knows which lengths are no load to simulate."""
    runs = swept(results, "seqs16")
    for useless in (
        [replace(run, requests=None) for run in runs],
        [replace(run, requests=Requests()) for run in runs],
        [replace(run, concurrency=None) for run in runs],
        [replace(run, request_rate=5.0) for run in runs],
    ):
        with pytest.raises(PlanError, match="0 loads of a closed loop"):
            calibrated(useless, settings(16))


@pytest.mark.parametrize("given", [{"max_model_len": 100}, {"num_gpu_blocks": 3}])
def test_settings_that_the_sweep_refutes_are_told(
    results: Path, given: dict[str, int]
) -> None:
    """Its requests would not have been served: the simulation would drop them."""
    known = settings_of({**SERVER, **given}, {}, {}, longest=1)
    with pytest.raises(PlanError, match=r"has a request of 4.. tokens, but by its"):
        calibrated(swept(results, "seqs16"), known)


@pytest.mark.parametrize(
    "useless",
    [
        {"duration": 1e300},
        {"duration": 1e-300},
        {"concurrency": 0.5},
        {"requests": "no ttft"},
    ],
    ids=str,
)
def test_a_load_that_no_server_had_does_not_count(
    results: Path, useless: dict[str, Any]
) -> None:
    """Nothing is divided by 0, and no fit runs away."""
    runs = []
    for run in swept(results, "seqs16"):
        changes = dict(useless)
        if "requests" in changes:
            assert run.requests is not None
            zero = array("d", [0.0] * len(run.requests))
            changes["requests"] = replace(run.requests, ttft=zero)
        runs.append(replace(run, **changes))
    with pytest.raises(PlanError, match="0 loads of a closed loop"):
        calibrated(runs, settings(16))


def test_a_long_run_is_thinned_and_a_huge_one_refused(results: Path) -> None:
    """The twin then rests on as many requests as tell it, of the same lengths."""
    many, huge = [], []
    for run in swept(results, "seqs16")[:3]:
        assert run.requests is not None
        more, long = Requests(), Requests()
        for at in range(1000):
            more.add(failed=False, start=at, ttft=0.1, e2e=0.2,
                     prompt_tokens=10, output_tokens=1 + at % 10)  # fmt: skip
        long.add(failed=False, ttft=0.1, e2e=9, prompt_tokens=9, output_tokens=10**8)
        many.append(replace(run, requests=more, completed=1000, duration=500.0))
        huge.append(replace(run, requests=long))
    found = calibrated(many, settings(16)).points[0].requests
    assert len(found) == 200
    assert fmean(r.output_tokens for r in found) == pytest.approx(5.5, abs=0.1)
    with pytest.raises(PlanError, match="too many tokens to be simulated"):
        calibrated(huge, settings(16))


# Settings.


def test_settings_come_from_whoever_knows_best() -> None:
    """Given by hand, else the benchmark's knobs, the page, or vLLM's defaults."""
    page = settings_on_page(PAGE)
    knobs: dict[str, Knob] = {"max-num-seqs": "32", "block_size": 64.0, "gpu": "h100"}
    found = settings_of({"max_num_seqs": 48}, knobs, page, longest=100)
    assert found.values == {
        "max_num_seqs": 48,
        "max_num_batched_tokens": 2048,
        "block_size": 64,
        "max_model_len": 8192,
        "num_gpu_blocks": 1024,
    }
    assert found.sources["block_size"] == "benchmark"
    assert found.sources["num_gpu_blocks"] == "page"
    assert found.assumed == (
        "max_num_batched_tokens 2048 (vLLM's default)",
        "max_model_len 8192 (vLLM's default)",
    )


def test_a_cache_of_unknown_size_never_fills_and_that_is_told() -> None:
    """All places at the full length fit."""
    found = settings_of({"max_num_seqs": 4, "max_model_len": 100}, {}, {}, longest=9)
    assert found.engine().scheduler.num_blocks == 4 * 7 + 1
    assert found.assumed[-1].startswith("a KV cache that never fills")


def test_what_is_assumed_holds_what_was_seen() -> None:
    """A request longer than the default length, more places than default tokens."""
    found = settings_of({"max_num_seqs": 4096}, {}, {}, longest=20_000)
    assert found.values["max_model_len"] == 20_000
    assert found.values["max_num_batched_tokens"] == 4096
    assert found.engine().scheduler.max_num_seqs == 4096


def test_settings_that_clash_are_told_in_a_sentence() -> None:
    """As vLLM would refuse them."""
    clash = settings_of(
        {"max_num_seqs": 512, "max_num_batched_tokens": 256}, {}, {}, longest=1
    )
    with pytest.raises(PlanError, match="do not go together: max_num_batched_tokens"):
        clash.engine()


def test_a_page_without_the_cache_is_refused() -> None:
    """A gateway's page, say."""
    with pytest.raises(PlanError, match="no cache_config_info"):
        settings_on_page("up 1\n")


@pytest.mark.parametrize("value", ["None", "-1", "0", "1e400", "nan", "1.5", ""])
def test_a_page_with_an_odd_size_leaves_it_unknown(value: str) -> None:
    """It is None before the cache is made."""
    assert settings_on_page(PAGE.replace('"1024"', f'"{value}"')) == {"block_size": 128}

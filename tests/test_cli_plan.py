"""`goodput plan` on a real sweep, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmark_results import unpack
from goodput_command import goodput

GOOD = "--good=ttft=1s,tpot=50ms,e2e=10s"
SERVER = (
    *("--setting", "max_num_seqs=16", "--setting", "max_num_batched_tokens=2048"),
    *("--setting", "max_model_len=2048"),
)
PAGE = 'vllm:cache_config_info{block_size="128",num_gpu_blocks="1024"} 1\n'


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a real sweep."""
    return unpack(tmp_path_factory.mktemp("results")) / "sweeps" / "seqs16"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the saved page of the server that was swept."""
    path = tmp_path_factory.mktemp("page") / "metrics.txt"
    path.write_text(PAGE, encoding="utf-8")
    return path


def told(*arguments: str | Path, code: int) -> dict[str, Any]:
    """Returns the command's JSON, after the exit code expected."""
    done = goodput("plan", *arguments, "--format=json")
    assert done.exit_code == code, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_real_sweep_becomes_a_plan(sweep: Path, page: Path) -> None:
    """The rate lies below the throughput of full load; the price follows from it."""
    options = ("--rate=20", "--replicas=2", "--price=2.5", "--try=max_num_seqs=8,32")
    found = told(sweep, GOOD, *SERVER, "--page", page, *options, code=1)
    assert found["twin"]["settings"]["num_gpu_blocks"] == 1024
    assert found["twin"]["assumed"] == []
    assert found["twin"]["error_ratio"] < 0.15
    assert len(found["twin"]["loads"]) == 7
    (plan,) = found["plans"]
    rate = plan["capacity"]["requests_per_second"]
    # 7.8 a second is all that the server did with a queue before it.
    assert 4.5 < rate["lower"] < rate["estimate"] < 7.8
    assert rate["upper"] < 9.0
    tokens = plan["capacity"]["good_output_tokens_per_second"]
    assert tokens == pytest.approx(64 * rate["estimate"], rel=0.1)
    cost = plan["capacity"]["cost_per_million_good_output_tokens"]
    assert cost == pytest.approx(2.5e6 / 3600 / tokens)
    replicas = plan["replicas"]
    assert replicas["lower"] <= replicas["needed"] <= replicas["upper"]
    assert replicas["needed"] in (3, 4)
    assert replicas["attainment"] >= 0.95
    headroom = plan["capacity"]["headroom_ratio"]
    assert headroom == pytest.approx(2 * rate["estimate"] / 20 - 1)
    fewer, more = plan["what_if"]
    assert (fewer["change"], fewer["verdict"]) == ("max_num_seqs 16 → 8", "hurts")
    assert more["change"] == "max_num_seqs 16 → 32"
    assert abs(more["gain_ratio"]) < 0.1


def test_the_text_says_what_it_rests_on(sweep: Path) -> None:
    """What was fitted, what is assumed, what was not tried, and which is no fact."""
    options = ("--gpu=a100", "--try-gpu=h100=4", "--try=max_num_seqs=17")
    done = goodput("plan", sweep, GOOD, "--setting=max_num_seqs=16", *options)
    assert done.exit_code == 0
    text = done.stdout
    assert "Twin: fitted to 7 loads, off by at most 15% in throughput" in text
    assert "64 at once, predicted from the others: throughput -" in text
    assert "Assumed: max_num_batched_tokens 2048 (vLLM's default); " in text
    assert "a KV cache that never fills (num_gpu_blocks is not known)" in text
    assert "class good: ttft ≤ 1s, tpot ≤ 50ms, e2e ≤ 10s for 0.95 of requests" in text
    assert "one replica takes 6." in text
    (gpu,) = (line for line in text.splitlines() if "a100 → h100" in line)
    assert "helps, " in gpu
    assert gpu.endswith("a million good output tokens; by data sheets, not measured")


def test_a_target_that_nothing_meets_is_a_finding(sweep: Path) -> None:
    """Exit code 1 and a sentence, not a division by 0."""
    options = ("--rate=5", "--price=1", "--try=max_num_seqs=17")
    done = goodput("plan", sweep, "--good=ttft=1ms", *SERVER, *options)
    assert done.exit_code == 1
    assert "no rate meets the target" in done.stdout
    assert "no number of replicas that was tried" in done.stdout
    assert "a million" not in done.stdout


WRONG_CALLS = {
    "no target": ((), "give --config.file with SLO classes, or --good"),
    "replicas alone": ((GOOD, "--replicas=2"), "--replicas are those for a --rate"),
    "no value": ((GOOD, "--setting=max_num_seqs"), "is not NAME=VALUE with one of"),
    "unknown": ((GOOD, "--setting=seqs=4"), "is not NAME=VALUE with one of"),
    "no number": ((GOOD, "--setting=block_size=x"), "needs whole numbers from 1 on"),
    "zero": ((GOOD, "--try=max_num_seqs=0,4"), "needs whole numbers from 1 on"),
    "twice": ((GOOD, "--try=block_size=1", "--try=block_size=2"), "is given twice"),
    "gpu": ((GOOD, "--try-gpu=h100"), "--try-gpu needs the --gpu that was swept"),
    "no gpu": ((GOOD, "--gpu=l4", "--try-gpu=tpu"), "'tpu' is none of l4, a100, h100"),
    "price": ((GOOD, "--gpu=l4", "--try-gpu=h100=-1"), "has no price above 0"),
    "nan rate": ((GOOD, "--rate=nan"), "nan is not a number"),
    "endless rate": ((GOOD, "--rate=inf"), "is not in the range"),
    "nan cost": ((GOOD, "--price=nan"), "nan is not a number"),
    "nan": ((GOOD, "--gpu=l4", "--try-gpu=h100=nan"), "has no price above 0"),
}


@pytest.mark.parametrize(("options", "message"), WRONG_CALLS.values(), ids=WRONG_CALLS)
def test_a_wrong_call_is_told(
    sweep: Path, options: tuple[str, ...], message: str
) -> None:
    """Exit code 2, before anything is simulated."""
    done = goodput("plan", sweep, *options)
    assert (done.exit_code, message in done.output) == (2, True), done.output


def test_what_cannot_be_used_is_told_with_its_place(
    sweep: Path, tmp_path: Path
) -> None:
    """Exit code 3 and one sentence each."""
    bad = tmp_path / "trace.jsonl"
    bad.write_text('{"timestamp": 1}\n')
    no_page = tmp_path / "page"
    no_page.write_text("up 1\n")
    only = [sweep / "c1.json", sweep / "c2.json"]
    cases: dict[str, tuple[str | Path, ...]] = {
        f"{bad}: line 1: ": (sweep, "--workload", bad),
        f"{tmp_path / 'none'}: No such file": (sweep, "--workload", tmp_path / "none"),
        f"{no_page}: the page has no cache_config_info": (sweep, "--page", no_page),
        "2 loads of a closed loop": (*only,),
        "2 configurations (directory=seqs16; directory=seqs32)": (
            sweep,
            sweep.with_name("seqs32"),
        ),
        "no benchmark result could be read": (no_page,),
        "do not go together": (
            sweep,
            *("--setting=max_num_seqs=64", "--setting=max_num_batched_tokens=8"),
        ),
    }
    for message, arguments in cases.items():
        done = goodput("plan", *arguments, GOOD)
        assert (done.exit_code, message in done.stderr) == (3, True), done.output


def test_what_the_twin_is_not_fitted_to_is_told(sweep: Path, tmp_path: Path) -> None:
    """A load without a limit, say, and requests that failed."""
    endless = json.loads((sweep / "c4.json").read_text())
    some_failed = json.loads((sweep / "c2.json").read_text())
    endless["max_concurrency"] = None
    some_failed["errors"][0] = "refused"
    some_failed["completed"] -= 1
    some_failed["failed"] = 1
    for name, document in (("a", endless), ("b", some_failed)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    done = goodput("plan", tmp_path, GOOD)
    assert done.exit_code == 3
    told = "left out: 1 runs without a limit of concurrency, 1 requests that failed"
    assert told in done.stderr

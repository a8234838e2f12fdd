"""Each tool's own files give the figures that the tool itself printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmark_results import CONCURRENCIES, document, good_of, unpack

from analyzer.benchmarks.read import read_runs
from analyzer.benchmarks.run import Problem, Run
from analyzer.benchmarks.table import FieldMap, read_field_map
from analyzer.slo import Match, SloClass, Threshold
from analyzer.strict import ConfigError, parse
from analyzer.sweep.files import read_files
from analyzer.sweep.point import Point, measure
from analyzer.sweep.pool import by_folder, pools, unique

SWEEPS = [(f"seqs{n}", c) for n in (16, 32) for c in CONCURRENCIES]


def slo(**limits: float) -> SloClass:
    """Returns a class with these limits in seconds."""
    good = {name: Threshold(seconds) for name, seconds in limits.items()}
    return SloClass("c", Match(), good, 0.95, 86400.0)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of real results."""
    return unpack(tmp_path_factory.mktemp("results"))


def runs_of(*paths: Path) -> list[Run]:
    """Returns the runs of files that have no fault."""
    runs, problems = read_files(paths)
    assert problems == []
    return runs


def points(runs: list[Run], slo_class: SloClass | None = None) -> list[Point]:
    """Returns the points of one curve."""
    (curve,) = pools(runs)
    return [measure(pool, slo_class) for pool in curve]


@pytest.mark.parametrize(("sweep", "concurrency"), SWEEPS)
def test_vllm_figures_are_its_own_to_the_printed_digits(
    results: Path, sweep: str, concurrency: int
) -> None:
    """Throughput, goodput at its thresholds, and every percentile it wrote."""
    path = results / "sweeps" / sweep / f"c{concurrency}.json"
    told = document(path)
    (point,) = points(runs_of(path), slo(ttft=1.0, tpot=0.05, e2e=10.0))
    assert point.load == concurrency
    assert point.goodput is not None
    ours = {
        "request_throughput": point.throughput,
        "request_goodput": point.rate_of(point.goodput.attainment),
        "output_throughput": (point.output_tokens or 0.0) / point.seconds,
    }
    names = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2el"}
    for (latency, level), seconds in point.latencies.items():
        assert seconds is not None
        ours[f"{level}_{names[latency]}_ms"] = seconds * 1000
    assert len(ours) == 15
    assert {n: f"{v:.2f}" for n, v in ours.items()} == {
        n: f"{told[n]:.2f}" for n in ours
    }


@pytest.mark.parametrize(
    ("ttft", "tpot", "e2e"),
    [(0.1, 0.05, 10.0), (1.0, 0.03, 10.0), (10.0, 1.0, 2.0), (0.5, 0.04, 3.0)],
)
@pytest.mark.parametrize("sweep", ["seqs16", "seqs32"])
def test_goodput_at_any_other_thresholds_needs_no_new_run(
    results: Path, sweep: str, ttft: float, tpot: float, e2e: float
) -> None:
    """Request by request, as computed by hand from the same file."""
    shares = set()
    folder = results / "sweeps" / sweep
    for point in points(runs_of(folder), slo(ttft=ttft, tpot=tpot, e2e=e2e)):
        told = document(folder / f"c{point.load:g}.json")
        good = good_of(told, ttft=ttft, tpot=tpot, e2e=e2e)
        assert point.goodput is not None
        assert (point.goodput.good, point.goodput.sent) == (sum(good), len(good))
        shares.add(point.goodput.attainment)
    assert len(shares) > 2


def test_a_threshold_that_grows_with_the_prompt_uses_each_prompt(results: Path) -> None:
    """The limit of every request is its own."""
    path = results / "sweeps" / "seqs16" / "c8.json"
    told = document(path)
    good = {"ttft": Threshold(0.02, 0.0003)}
    (point,) = points(runs_of(path), SloClass("c", Match(), good, 0.9, 86400.0))
    pairs = zip(told["ttfts"], told["input_lens"], strict=True)
    expected = sum(t <= 0.02 + 0.0003 * n for t, n in pairs)
    assert 0 < expected < len(told["ttfts"])
    assert point.goodput is not None
    assert point.goodput.good == expected


def test_a_class_of_some_prompt_lengths_judges_only_those(results: Path) -> None:
    """The others are not in its counts."""
    path = results / "sweeps" / "seqs16" / "c16.json"
    told = document(path)
    match = Match(prompt_tokens=(0.0, 200.0))
    limits = {"ttft": Threshold(0.2)}
    (point,) = points(runs_of(path), SloClass("c", match, limits, 0.9, 86400.0))
    pairs = list(zip(told["ttfts"], told["input_lens"], strict=True))
    assert point.goodput is not None
    assert point.goodput.sent == sum(n <= 200 for _, n in pairs)
    assert point.goodput.good == sum(n <= 200 and t <= 0.2 for t, n in pairs)


def without_detail(told: dict[str, Any], *, keep_e2e: bool) -> dict[str, Any]:
    """Returns what vLLM writes without --save-detailed."""
    lists = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "errors")
    dropped = {*lists, "generated_texts"} | (set() if keep_e2e else {"latencies"})
    return {name: value for name, value in told.items() if name not in dropped}


@pytest.mark.parametrize("keep_e2e", [True, False])
@pytest.mark.parametrize(("sweep", "concurrency"), SWEEPS)
def test_without_single_requests_there_are_bounds_that_hold_the_truth(
    results: Path, tmp_path: Path, sweep: str, concurrency: int, *, keep_e2e: bool
) -> None:
    """At many thresholds, from the percentiles alone; a bound is no estimate."""
    told = document(results / "sweeps" / sweep / f"c{concurrency}.json")
    path = tmp_path / "plain.json"
    path.write_text(json.dumps(without_detail(told, keep_e2e=keep_e2e)))
    runs = runs_of(path)
    for ttft in (0.05, 0.1, 0.3, 1.0, 4.0):
        for tpot in (0.008, 0.03, 0.05):
            for e2e in (0.8, 2.5, 10.0):
                limits = {"ttft": ttft, "tpot": tpot, "e2e": e2e}
                (point,) = points(runs, slo(**limits))
                truth = sum(good_of(told, **limits))
                assert point.goodput is not None
                assert point.goodput.lower <= truth <= point.goodput.upper
                assert point.goodput.good in {None, truth}


def test_a_plain_file_still_judges_e2e_exactly(results: Path) -> None:
    """It holds each request's E2E, whatever it leaves out."""
    path = results / "vllm" / "plain-c4.json"
    told = document(path)
    limit = sorted(told["latencies"])[5]
    (point,) = points(runs_of(path), slo(e2e=limit))
    assert point.goodput is not None
    assert point.goodput.good == sum(e <= limit for e in told["latencies"]) == 6
    (point,) = points(runs_of(path), slo(ttft=0.07, e2e=limit))
    assert point.goodput is not None
    assert point.goodput.good is None
    assert "ttft of single requests is not in the file" in point.goodput.reason


def test_appended_results_are_load_points_of_their_own(results: Path) -> None:
    """`--append-result` writes one JSON document a line; metadata are knobs."""
    found = points(runs_of(results / "vllm" / "appended.json"))
    assert [p.load for p in found] == [2, 6, 12]
    assert {p.pool.axis for p in found} == {"request_rate"}
    assert {p.pool.config["max_num_seqs"] for p in found} == {"8"}


def test_repeats_of_a_vllm_sweep_are_put_together_once(results: Path) -> None:
    """Its summaries hold the runs again; they are told and not counted twice."""
    folders = sorted((results / "vllm-sweep").iterdir())
    runs, problems = read_files(folders)
    assert (len(runs), problems) == (8, [])
    kept, repeats = unique(runs)
    assert [p.message for p in repeats] == [
        "2 of its runs are in other files too, counted once"
    ] * 2
    found = points(by_folder(kept))
    assert [(p.load, len(p.pool.runs), p.sent) for p in found] == [
        (1, 2, 12),
        (8, 2, 32),
    ]


def test_sglang_figures_are_its_own(results: Path) -> None:
    """Its gaps do not add up to E2E: TTFT is judged by request, the rest by bounds."""
    runs = runs_of(results / "sglang" / "detailed.jsonl")
    told = [
        json.loads(line)
        for line in (results / "sglang" / "detailed.jsonl").read_text().splitlines()
    ]
    for point, by_tool in zip(points(runs, slo(ttft=0.3)), told, strict=True):
        assert point.pool.runs[0].tool == "sglang bench_serving"
        assert point.load == by_tool["max_concurrency"]
        assert point.throughput == pytest.approx(by_tool["request_throughput"])
        for ours, theirs in (
            (("ttft", "p95"), "p95_ttft_ms"),
            (("tpot", "p50"), "median_tpot_ms"),
            (("itl", "p99"), "p99_itl_ms"),
            (("e2e", "p99"), "p99_e2e_latency_ms"),
        ):
            seconds = point.latencies[ours]
            assert seconds is not None
            assert seconds * 1000 == pytest.approx(by_tool[theirs])
        assert point.goodput is not None
        assert point.goodput.good == sum(t <= 0.3 for t in by_tool["ttfts"])
    (point, *_) = points(runs, slo(ttft=0.3, tpot=0.01))
    assert point.goodput is not None
    assert point.goodput.good is None


def test_guidellm_figures_are_its_own(results: Path) -> None:
    """What it calls inter-token latency is our TPOT; its quantiles are steps."""
    path = results / "guidellm" / "concurrent.json"
    found = points(runs_of(path), slo(ttft=0.3, tpot=0.02))
    for point, by_tool in zip(found, document(path)["benchmarks"], strict=True):
        metrics = by_tool["metrics"]
        assert point.load == by_tool["config"]["strategy"]["streams"]
        assert point.sent == metrics["request_totals"]["total"]
        rate = metrics["output_token_count"]["successful"]["total_sum"]
        assert point.output_tokens == rate
        assert point.requests is not None
        assert point.requests.ttft.mean() * 1000 == pytest.approx(
            metrics["time_to_first_token_ms"]["successful"]["mean"]
        )
        requests = by_tool["requests"]["successful"]
        assert point.goodput is not None
        assert point.goodput.good == sum(
            r["time_to_first_token_ms"] <= 300 and r["inter_token_latency_ms"] <= 20
            for r in requests
        )


@pytest.mark.parametrize("folder", ["c1", "c8", "r6"])
def test_aiperf_figures_are_its_own(results: Path, folder: str) -> None:
    """Its records are found beside its summary; its goodput at its thresholds."""
    path = results / "aiperf" / folder / "profile_export_aiperf.json"
    told = document(path)
    (point,) = points(runs_of(path), slo(ttft=1.0, tpot=0.05))
    axis = {"c1": 1, "c8": 8, "r6": 6}[folder]
    assert point.load == axis
    assert point.requests is not None
    for ours, theirs in (
        ("ttft", "time_to_first_token"),
        ("tpot", "inter_token_latency"),
        ("e2e", "request_latency"),
    ):
        for level in ("p50", "p95", "p99"):
            seconds = point.latencies[ours, level]
            assert seconds is not None
            assert seconds * 1000 == pytest.approx(told[theirs][level])
    assert point.throughput == pytest.approx(
        told["request_throughput"]["avg"], rel=0.01
    )
    if "good_request_count" in told:
        assert point.goodput is not None
        assert point.goodput.good == told["good_request_count"]["avg"]


@pytest.mark.parametrize("load", [2, 8])
def test_genai_perf_figures_are_its_own(results: Path, load: int) -> None:
    """It writes no records that tell of tokens: percentiles bound its goodput."""
    path = results / "genai-perf" / f"c{load}" / "profile_export_genai_perf.json"
    told = document(path)
    (run,) = runs_of(path)
    assert (run.model, run.completed, run.concurrency) == ("demo-small", 24, load)
    (point,) = points([run], slo(ttft=1.0, tpot=0.05, e2e=10.0))
    for ours, theirs in (
        ("ttft", "time_to_first_token"),
        ("tpot", "inter_token_latency"),
        ("e2e", "request_latency"),
    ):
        for level in ("p50", "p95", "p99"):
            seconds = point.latencies[ours, level]
            assert seconds is not None
            assert seconds * 1000 == pytest.approx(told[theirs][level])
    assert point.throughput == pytest.approx(told["request_throughput"]["avg"])
    assert point.output_tokens is not None
    assert point.output_tokens / point.seconds == pytest.approx(
        told["output_token_throughput"]["avg"]
    )


def test_aiperf_records_alone_have_no_load(results: Path, tmp_path: Path) -> None:
    """They count, and say that nothing tells at which load."""
    path = tmp_path / "profile_export.jsonl"
    path.write_bytes((results / "aiperf" / "c8" / path.name).read_bytes())
    (run,) = runs_of(path)
    assert (run.sent, run.concurrency, run.request_rate) == (16, None, None)
    assert "load is not known" in run.notes[0]


def test_inference_perf_stages_have_their_single_requests(results: Path) -> None:
    """The one file of requests is shared out over the stages, which are in order."""
    folder = results / "inference-perf"
    found = points(runs_of(folder), slo(ttft=0.3))
    assert [(p.load, p.sent) for p in found] == [(2, 11), (8, 31)]
    for index, point in enumerate(found):
        told = document(folder / f"stage_{index}_lifecycle_metrics.json")["successes"]
        for ours, theirs in (
            ("ttft", "time_to_first_token"),
            ("e2e", "request_latency"),
        ):
            seconds = point.latencies[ours, "p95"]
            assert seconds == pytest.approx(told["latency"][theirs]["p95"], rel=1e-6)


def test_inference_perf_requests_that_do_not_add_up_are_left_out(
    results: Path, tmp_path: Path
) -> None:
    """One stage of two cannot be told from the other: its percentiles still count."""
    for name in (
        "stage_1_lifecycle_metrics.json",
        "per_request_lifecycle_metrics.json",
    ):
        (tmp_path / name).write_bytes((results / "inference-perf" / name).read_bytes())
    runs, problems = read_files([tmp_path])
    assert [str(p.message) for p in problems] == [
        "42 requests, the stages given have other counts"
    ]
    assert runs[0].requests is None
    assert runs[0].quantiles["ttft"][0.95] > 1


def failing(told: dict[str, Any]) -> dict[str, Any]:
    """Returns a result of which every fourth request failed."""
    failed = range(0, len(told["ttfts"]), 4)
    for index in failed:
        told["errors"][index] = "Internal Server Error"
        told["output_lens"][index] = 0
        told["ttfts"][index] = told["latencies"][index] = 0.0
        told["itls"][index] = []
    told["completed"] -= len(failed)
    told["failed"] = len(failed)
    return told


def test_failures_are_in_the_denominator_and_never_fast(
    results: Path, tmp_path: Path
) -> None:
    """Their latency is noted as 0; they are bad all the same."""
    told = failing(document(results / "sweeps" / "seqs16" / "c16.json"))
    path = tmp_path / "failing.json"
    path.write_text(json.dumps(told))
    (point,) = points(runs_of(path), slo(ttft=10.0, e2e=100.0))
    assert point.goodput is not None
    assert (point.goodput.good, point.goodput.sent) == (48, 64)
    assert point.goodput.missed["error"] == 16
    assert (point.latencies["ttft", "p50"] or 0) > 0.05


def test_a_failure_without_words_is_known_by_its_missing_tokens(
    results: Path, tmp_path: Path
) -> None:
    """An HTTP status without a reason leaves the error empty."""
    told = failing(document(results / "sweeps" / "seqs16" / "c16.json"))
    told["errors"] = [""] * len(told["errors"])
    path = tmp_path / "silent.json"
    path.write_text(json.dumps(told))
    (run,) = runs_of(path)
    assert (run.completed, run.failed) == (48, 16)


def test_an_answer_without_tokens_is_no_failure_when_it_completed(
    results: Path, tmp_path: Path
) -> None:
    """As an end token that comes first: it has no TPOT, and counts."""
    told = document(results / "sweeps" / "seqs16" / "c4.json")
    told["output_lens"][3] = 0
    path = tmp_path / "short.json"
    path.write_text(json.dumps(told))
    (point,) = points(runs_of(path), slo(tpot=1.0))
    assert point.goodput is not None
    assert (point.goodput.good, point.goodput.sent, point.failed) == (16, 16, 0)


def test_a_run_whose_requests_all_failed_has_a_goodput_of_nothing(
    results: Path, tmp_path: Path
) -> None:
    """Nought, not unknown; and no percentiles."""
    told = document(results / "sweeps" / "seqs16" / "c4.json")
    told["errors"] = ["no route to host"] * 16
    told |= {"completed": 0, "failed": 16, "total_output_tokens": 0}
    path = tmp_path / "down.json"
    path.write_text(json.dumps(told))
    (point,) = points(runs_of(path), slo(ttft=1.0))
    assert point.goodput is not None
    assert point.goodput.attainment == 0.0
    assert point.throughput == 0.0
    assert point.latencies["ttft", "p50"] is None


def test_what_aiperf_broke_off_itself_is_not_counted(
    results: Path, tmp_path: Path
) -> None:
    """Neither good nor bad, as other requests that say nothing of the server."""
    lines = (
        (results / "aiperf" / "c8" / "profile_export.jsonl").read_bytes().splitlines()
    )
    lines[0] = lines[0].replace(b'"was_cancelled":false', b'"was_cancelled":true')
    lines[1] = lines[1].replace(b'"profiling"', b'"warmup"')
    path = tmp_path / "profile_export.jsonl"
    path.write_bytes(b"\n".join(lines))
    (run,) = runs_of(path)
    assert run.sent == 14


BROKEN: list[tuple[bytes, str]] = [
    (b"", "is empty"),
    (b" \n\n", "is empty"),
    (b"\x00\xff\xfe", "no benchmark's result"),
    (b"not json at all", "no benchmark's result"),
    (b'{"a": 1}', "no benchmark's result"),
    (b"[1, 2]", "not JSON: Expected `object`, got `int` - at `$[0]`"),
    (b"[" * 5000, "not JSON"),
    (
        b'{"request_throughput": 1, "duration": 0, "completed": 1}',
        "more than 0 s, got 0",
    ),
    (
        b'{"request_throughput": 1, "duration": "x", "completed": 1}',
        "duration: Expected",
    ),
    (b'{"request_throughput": 1, "duration": 1}', "completed: is missing"),
    (
        b'{"request_throughput": 1, "duration": 1, "completed": -2}',
        "completed: must be",
    ),
    (
        b'{"request_throughput": 1, "duration": 1, "completed": 2, "ttfts": [1.0]}',
        "1 answers are listed, 2 completed",
    ),
    (
        b'{"request_throughput":1,"duration":1,"completed":1,"ttfts":[1.0],"itls":[]}',
        "itls: has 0 entries of 1",
    ),
    (b'{"benchmarks": [{"metrics": {}}]}', "request_totals: is missing"),
    (b'{"error_type": "TimeoutError", "error": "x"}', "tells of a run that failed"),
    (b'{"request_throughput": {"avg": 1, "unit": "x"}}', "request_count: is missing"),
    (b'{"load_summary": {}, "successes": {}}', "successes.count: is missing"),
]


@pytest.mark.parametrize(("data", "message"), BROKEN, ids=range(len(BROKEN)))
def test_a_broken_file_is_told_in_one_sentence_with_its_place(
    data: bytes, message: str
) -> None:
    """And gives no run."""
    (problem,) = read_runs(data, "folder/broken.json")
    assert isinstance(problem, Problem)
    assert str(problem).startswith("folder/broken.json: ")
    assert message in str(problem)
    assert "\n" not in str(problem)


@pytest.mark.parametrize("at", range(0, 100, 7))
def test_a_file_cut_anywhere_never_raises(results: Path, at: int) -> None:
    """It gives problems, or the runs of the lines before the cut."""
    for name in (
        "vllm/appended.json",
        "guidellm/concurrent.json",
        "sglang/plain.jsonl",
    ):
        data = (results / name).read_bytes()
        found = list(read_runs(data[: len(data) * at // 100], name))
        assert found
        assert any(isinstance(item, Problem) for item in found) or at == 100


def test_good_lines_count_between_broken_ones(results: Path) -> None:
    """A line that is cut, foreign or empty is told with its number."""
    lines = (results / "vllm" / "appended.json").read_bytes().splitlines()
    data = b"\n".join([lines[0], lines[1][:500], b'{"x": 1}', b"", lines[2]])
    found = list(read_runs(data, "f.json"))
    assert [r.request_rate for r in found if isinstance(r, Run)] == [2, 12]
    places = [p.place for p in found if isinstance(p, Problem)]
    assert places == ["line 2", "line 3"]


def test_bare_infinities_of_python_are_no_reason_to_refuse_a_file(
    results: Path,
) -> None:
    """SGLang writes its request rate as Infinity; in text the word stays."""
    told = document(results / "vllm" / "plain-c1.json")
    told |= {
        "request_rate": float("inf"),
        "mean_ttft_ms": float("nan"),
        "note": 'a"NaN',
    }
    (run,) = read_runs(json.dumps(told).encode(), "f.json")
    assert isinstance(run, Run)
    assert run.request_rate is None
    assert run.config == {"note": 'a"NaN'}


FIELDS = """
ttft: {key: first_ms, unit: ms}
e2e: {key: total_ms, unit: ms}
start: at
output_tokens: tokens
concurrency: users
failed: status
config: {gpu: card}
"""
ROWS = """at,users,first_ms,total_ms,tokens,status,card
0.0,2,100,1000,10,200,a
0.5,2,200,2000,11,200,a
1.0,2,,,,503,a
0.0,4,900,2900,11,200,a
"""


def field_map(text: str = FIELDS) -> FieldMap:
    """Returns a map as a user writes it."""
    return read_field_map(parse(text, "map.yml"))


def test_a_csv_file_is_read_by_a_map_of_its_columns() -> None:
    """Rows are requests, put together by load and knobs; a status says what failed."""
    runs = [
        r for r in read_runs(ROWS.encode(), "h.csv", field_map()) if isinstance(r, Run)
    ]
    assert [(r.concurrency, r.completed, r.failed) for r in runs] == [
        (2, 2, 1),
        (4, 1, 0),
    ]
    assert runs[0].duration == 2.5
    assert runs[0].config == {"gpu": "a"}
    point = points(runs[:1], slo(ttft=0.15, tpot=0.15))[0]
    assert point.goodput is not None
    assert (point.goodput.good, point.goodput.sent) == (1, 3)


def test_csv_rows_that_cannot_be_read_are_told_by_line() -> None:
    """The others count."""
    text = ROWS.replace("200,2000", "soon,2000")
    found = list(read_runs(text.encode(), "h.csv", field_map()))
    assert [str(p) for p in found if isinstance(p, Problem)] == [
        "h.csv: line 3: first_ms: not a number: 'soon'"
    ]
    assert sum(r.sent for r in found if isinstance(r, Run)) == 3


def test_a_csv_file_of_load_points_gives_bounds() -> None:
    """With requests_per_second in the map a row is a whole load point."""
    fields = field_map(
        "requests_per_second: rps\nrequests: n\nconcurrency: c\n"
        "ttft_p95: {key: p95, unit: ms}\n"
    )
    data = b"c,rps,n,p95\n1,2,100,800\n2,3.5,100,1200\n"
    low, high = points(
        [r for r in read_runs(data, "h.csv", fields) if isinstance(r, Run)],
        slo(ttft=1.0),
    )
    assert low.goodput is not None
    assert high.goodput is not None
    assert low.throughput == pytest.approx(2)
    assert low.goodput.bounds == (0.94, 1.0)
    assert high.goodput.bounds == (0.0, 0.96)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: m", "needs one of ttft, tpot, e2e or requests_per_second"),
        ("ttft: {key: a, unit: days}", "unit: must be one of"),
        ("ttft: a\ntokens: b", "unknown key"),
        ("ttft: a\nconcurrency: {key: c, unit: ms}", "only times have a unit"),
    ],
)
def test_a_wrong_field_map_is_an_error_with_its_path(text: str, message: str) -> None:
    """As in every other file of ours."""
    with pytest.raises(ConfigError, match=message):
        field_map(text)


def test_a_csv_file_without_a_mapped_column_names_it() -> None:
    """One sentence."""
    (problem,) = read_runs(b"a,b\n1,2\n", "h.csv", field_map())
    assert "has no column 'at'" in str(problem) or "no column" in str(problem)

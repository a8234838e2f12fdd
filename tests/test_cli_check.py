"""`goodput check` to its last field, on pages whose audit is done by hand."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from raw_server import Peer, RawServer, Script, answer, serving
from synthetic_engine import free_port

from analyzer.cli import main
from analyzer.engines.capabilities import CAPABILITIES

LABELS = 'engine="0",model_name="m"'
HISTOGRAMS: dict[str, list[tuple[str, int]]] = {
    "time_to_first_token_seconds": [
        ("0.1", 2),
        ("0.25", 5),
        ("0.5", 9),
        ("1.0", 10),
        ("+Inf", 10),
    ],
    "request_time_per_output_token_seconds": [("0.025", 4), ("0.05", 8), ("+Inf", 8)],
}
GAUGES = f"vllm:num_requests_running{{{LABELS}}} 1\nprocess_start_time_seconds 1.7e9\n"
CLASSES = """
slo_classes:
  - name: interactive
    good: {ttft: 300ms, tpot: 50ms, e2e: 5s}
    objective: 0.95
    percentiles: {ttft: {p95: 1s}, tpot: {p99: 60ms}}
engines:
"""
# (criterion, threshold) → the bounds around it, and the share of requests between
AUDIT: dict[tuple[str, float], tuple[float | None, float | None, float | None]] = {
    ("ttft", 0.3): (0.25, 0.5, 0.4),
    ("tpot", 0.05): (0.05, 0.05, 0.0),
    ("e2e", 5.0): (None, None, None),
    ("ttft", 1.0): (1.0, 1.0, 0.0),
    ("tpot", 0.06): (0.05, None, 0.0),  # JSON has no infinity
}


def page() -> bytes:
    """Returns an engine's page with the histograms above."""
    lines = [GAUGES]
    for name, buckets in HISTOGRAMS.items():
        for bound, count in buckets:
            lines.append(f'vllm:{name}_bucket{{{LABELS},le="{bound}"}} {count}\n')
        lines.append(f"vllm:{name}_count{{{LABELS}}} {buckets[-1][1]}\n")
        lines.append(f"vllm:{name}_sum{{{LABELS}}} 1.5\n")
    return "".join(lines).encode()


def engine(version: str = "", models: str = "") -> Script:
    """Returns a script of an engine that may refuse to tell version and models."""
    bodies = {b"/metrics": page()}
    if version:
        bodies[b"/version"] = json.dumps({"version": version}).encode()
    if models:
        bodies[b"/v1/models"] = models.encode()

    def script(peer: Peer) -> None:
        while request := peer.request():
            body = bodies.get(request.split()[1])
            if body is None:
                peer.send(answer(b"no", status="404 Not Found"))
            else:
                peer.send(answer(body))

    return script


def check(path: Path, *sources: str, form: str = "json") -> Result:
    """Runs `goodput check --live` on a configuration with these sources."""
    path.write_text(CLASSES + "".join(f"  - {{{s}}}\n" for s in sources))
    arguments = ["check", "--config.file", str(path), "--live", "--format", form]
    return CliRunner().invoke(main, arguments)


def rows(found: Result) -> list[dict[str, Any]]:
    """Returns the engines' rows of a JSON answer."""
    given: list[dict[str, Any]] = json.loads(found.stdout)["engines"]
    return given


def test_the_document_has_the_fields_that_programs_read(tmp_path: Path) -> None:
    """Its fields are a contract; absent is null."""
    with RawServer(engine()) as server:
        found = check(tmp_path / "c.yml", f"name: vllm, url: '{server.url}'")
    given = json.loads(found.stdout)
    assert (given["config"], given["valid"]) == (str(tmp_path / "c.yml"), True)
    assert given["slo_classes"] == ["interactive"]
    (row,) = given["engines"]
    assert {name: row[name] for name in ("target", "url", "up", "error")} == {
        "target": "vllm",
        "url": server.url,
        "up": True,
        "error": "",
    }
    assert (row["engine"], row["version"], row["models"]) == ("vllm", None, ["m"])
    assert (row["aliases"], row["max_model_len"]) == ({}, None)
    for item, expected in zip(row["capabilities"], CAPABILITIES, strict=True):
        assert set(item) == {"signal", "metric", "present", "needs"}
        assert item["signal"] == expected.signal
        assert item["present"] is (item["metric"] is not None)
    present = {c["signal"]: c["metric"] for c in row["capabilities"] if c["present"]}
    assert present == {
        "ttft": "vllm:time_to_first_token_seconds",
        "tpot": "vllm:request_time_per_output_token_seconds",
        "running": "vllm:num_requests_running",
    }


def test_the_audit_is_what_a_hand_works_out(tmp_path: Path) -> None:
    """Neighbouring bounds and the undecided share of every threshold, once each."""
    with RawServer(engine()) as server:
        found = check(tmp_path / "c.yml", f"name: vllm, url: '{server.url}'")
    (row,) = rows(found)
    checks = {
        (item["criterion"], item["threshold_seconds"]): (
            item["below_seconds"],
            item["above_seconds"],
            item["undecided_ratio"],
        )
        for item in row["buckets"]
    }
    assert checks == AUDIT
    assert len(row["buckets"]) == len(AUDIT)
    exact = {item["threshold_seconds"] for item in row["buckets"] if item["exact"]}
    assert exact == {0.05, 1.0}
    codes = [finding["code"] for finding in row["findings"]]
    assert codes.count("threshold_between_bounds") == 2
    assert codes.count("no_histogram") == 1
    assert found.exit_code == 1


def test_the_argument_to_paste_keeps_every_bound_and_adds_the_thresholds(
    tmp_path: Path,
) -> None:
    """A shell hands it over as two words, the second being JSON."""
    with RawServer(engine()) as server:
        found = check(tmp_path / "c.yml", f"name: vllm, url: '{server.url}'")
        text = check(
            tmp_path / "c.yml", f"name: vllm, url: '{server.url}'", form="text"
        )
    (row,) = rows(found)
    name, given = shlex.split(row["custom_histogram_buckets"])
    assert name == "--custom-histogram-buckets"
    assert json.loads(given) == {
        "time_to_first_token": [0.1, 0.25, 0.3, 0.5, 1.0],
        "inter_token_latency": [0.025, 0.05, 0.06],
    }
    printed = [line.strip() for line in text.output.splitlines()]
    assert row["custom_histogram_buckets"] in printed


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        ("0.31.0", "needs vLLM 0.32 or later, this is 0.31.0"),
        ("0.32.0+cpu", "paste the --custom-histogram-buckets argument below"),
        ("", "paste the --custom-histogram-buckets argument below"),
    ],
)
def test_the_advice_knows_what_the_version_can_do(
    tmp_path: Path, version: str, advice: str
) -> None:
    """An argument that the engine would refuse is not offered without saying so."""
    with RawServer(engine(version)) as server:
        found = check(tmp_path / "c.yml", f"name: vllm, url: '{server.url}'")
    (row,) = rows(found)
    assert row["version"] == (version or None)
    between = [f for f in row["findings"] if f["code"] == "threshold_between_bounds"]
    assert {finding["fix"] for finding in between} == {advice}


MODELS = """{"data": [
  {"id": "m", "root": "/weights", "max_model_len": 4096},
  {"id": "another-name", "root": "/weights"},
  {"id": "an-adapter", "root": "/adapter", "parent": "m"}]}"""


@pytest.mark.parametrize("version", ["", "0.33.0"])
def test_served_names_are_learned_with_or_without_a_version(
    tmp_path: Path, version: str
) -> None:
    """An engine that hides one page still tells the other."""
    with RawServer(engine(version, MODELS)) as server:
        found = check(tmp_path / "c.yml", f"name: vllm, url: '{server.url}'")
    (row,) = rows(found)
    assert row["aliases"] == {"another-name": "m", "an-adapter": "m"}
    assert row["max_model_len"] == 4096
    assert row["version"] == (version or None)


@pytest.mark.parametrize("said", ["garbage", "[]", '{"version": 7}', "\x00" * 9])
def test_garbage_beside_the_metrics_costs_itself_alone(
    tmp_path: Path, said: str
) -> None:
    """What `/version` and `/v1/models` say is not needed for an audit."""
    bodies = {b"/metrics": page()}

    def script(peer: Peer) -> None:
        while request := peer.request():
            peer.send(answer(bodies.get(request.split()[1], said.encode())))

    with RawServer(script) as server:
        found = check(tmp_path / "c.yml", f"name: vllm, url: '{server.url}'")
    (row,) = rows(found)
    assert (row["up"], row["version"], row["aliases"]) == (True, None, {})
    assert len(row["buckets"]) == len(AUDIT)


def test_one_unreachable_engine_leaves_the_others_told_and_fails(
    tmp_path: Path,
) -> None:
    """Exit code 3 before 1: what could not be asked is worse than a warning."""
    with (
        RawServer(engine()) as server,
        RawServer(serving(answer(b"<html>\n"))) as html,
    ):
        found = check(
            tmp_path / "c.yml",
            f"name: gone, url: 'http://127.0.0.1:{free_port()}/metrics'",
            f"name: html, url: '{html.url}'",
            f"name: secret, url: '{server.url}?secret', "
            "authorization: {credentials_file: /nonexistent/token}",
            f"name: good, url: '{server.url}'",
        )
    gone, other, secret, good = rows(found)
    assert found.exit_code == 3
    for row, reason in (
        (gone, "refused: "),
        (other, "not_an_exposition: <html>"),
        (secret, "credentials: "),
    ):
        assert (row["up"], row["engine"], row["models"]) == (False, None, [])
        assert row["error"].startswith(reason)
        assert (row["buckets"], row["capabilities"]) == ([], [])
        assert row["custom_histogram_buckets"] == ""
    assert (good["up"], good["error"]) == (True, "")
    assert len(good["buckets"]) == len(AUDIT)


def test_the_text_says_what_the_document_says(tmp_path: Path) -> None:
    """Every threshold with its verdict, every absent signal with what it needs."""
    with RawServer(engine("0.33.0", MODELS)) as server:
        found = check(
            tmp_path / "c.yml",
            f"name: vllm, url: '{server.url}'",
            f"name: gone, url: 'http://127.0.0.1:{free_port()}/metrics'",
            form="text",
        )
    lines = found.output.splitlines()
    assert lines[0] == f"{tmp_path / 'c.yml'}: valid, 1 SLO class, 2 engines"
    assert f"vllm ({server.url}): vLLM 0.33.0, serving m" in lines
    assert "  also known as: an-adapter, another-name" in lines
    absent = next(c for c in CAPABILITIES if c.signal == "e2e")
    assert f"    {'e2e':24} absent (needs {absent.needs})" in lines
    assert lines[lines.index("  thresholds:") + 1 :][:5] == [
        "    interactive: ttft ≤ 300ms between 250ms and 500ms: 40.0% undecided",
        "    interactive: tpot ≤ 50ms is a bound: exact",
        "    interactive: e2e ≤ 5s no histogram",
        "    interactive: ttft ≤ 1s is a bound: exact",
        "    interactive: tpot ≤ 60ms between 50ms and +Inf: 0.0% undecided",
    ]
    assert any(
        x.startswith("gone (http://127.0.0.1:") and "refused: " in x for x in lines
    )
    assert found.exit_code == 3


def test_a_page_without_requests_says_so(tmp_path: Path) -> None:
    """No request yet is not the same as all decided."""
    empty = page()
    for buckets in HISTOGRAMS.values():
        for _, count in buckets:
            empty = empty.replace(b"} %d\n" % count, b"} 0\n")
    with RawServer(serving(answer(empty))) as server:
        found = check(
            tmp_path / "c.yml", f"name: vllm, url: '{server.url}'", form="text"
        )
    assert "ttft ≤ 300ms between 250ms and 500ms: no requests yet" in found.output


def test_an_invalid_configuration_is_one_sentence_in_either_format(
    tmp_path: Path,
) -> None:
    """Exit code 1; the same message for people and for programs."""
    path = tmp_path / "c.yml"
    path.write_text("engines: [{name: a, url: 'ftp://x'}]")
    message = (
        f"{path}: engines[0].url: must be a URL such as http://localhost:8000/metrics, "
        "got 'ftp://x'"
    )
    text = CliRunner().invoke(main, ["check", "--config.file", str(path)])
    assert (text.exit_code, text.stdout, text.stderr) == (1, "", f"Error: {message}\n")
    arguments = ["check", "--config.file", str(path), "--live", "--format", "json"]
    given = CliRunner().invoke(main, arguments)
    assert given.exit_code == 1
    assert json.loads(given.stdout) == {
        "config": str(path),
        "valid": False,
        "error": message,
    }


def test_check_without_a_file_is_a_usage_error() -> None:
    """Exit code 2, as for every wrong call."""
    found = CliRunner().invoke(main, ["check"])
    assert found.exit_code == 2
    assert "--config.file" in found.output

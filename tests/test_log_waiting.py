"""What a log's lines wait for, and that no kill loses or doubles those that wait."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest
from gateway_truth import LOGS, unpacked
from running_exporter import RunningExporter, wait_for

from analyzer.config import Config, parse_config
from analyzer.config_gateways import GatewaySource
from analyzer.gateways.litellm import MOST_HELD, MOST_SEEN
from analyzer.logflow import DETECTION_BYTES, DETECTION_LINES, LogFlow
from exporter.request_log import LogMemory

AT = 2e9
AUTO = GatewaySource("edge", path="/gw.log")
CLASSES = """
slo_classes:
  - {name: joint, good: {ttft: 300ms, tpot: 15ms, e2e: 1.2s}, objective: 0.9}
"""
LINES = "goodput_log_lines_total"
REQUESTS = "goodput_requests_total"
BEGUN = 1795961935.0


def config() -> Config:
    """Returns a configuration whose class asks for all that formats may tell."""
    return parse_config(CLASSES)


def restarted(flow: LogFlow) -> LogFlow:
    """Returns the flow of the next process, made from what was written to disk."""
    kept = LogMemory(totals=flow.totals, waiting=flow.waiting)
    found = msgspec.msgpack.decode(msgspec.msgpack.encode(kept), type=LogMemory)
    return LogFlow(flow.source, config(), totals=found.totals, waiting=found.waiting)


def attempt(event: str, call: str, begin: float, end: float) -> bytes:
    """Returns a line of LiteLLM's callback for one attempt at a model."""
    failed = event == "failure"
    payload = {
        "call_type": "acompletion",
        "stream": True,
        "startTime": BEGUN + begin,
        "completionStartTime": BEGUN + (end if failed else begin + 0.1),
        "endTime": BEGUN + end,
        "model_group": "m",
        "prompt_tokens": 10,
        "completion_tokens": 0 if failed else 21,
        "error_information": {"error_code": "503" if failed else ""},
    }
    line = {"event": event, "litellm_call_id": call, "slo": payload}
    return json.dumps(line).encode()


def refused(call: str, at: float) -> bytes:
    """Returns the line by which LiteLLM tells that a client got an error."""
    line = {"event": "proxy_failure_hook", "litellm_call_id": call, "status": 503}
    return json.dumps({**line, "written_at": BEGUN + at}).encode()


@pytest.mark.parametrize("name", LOGS)
def test_restarts_anywhere_change_no_total(name: str) -> None:
    """Pairs, repeated lines and learnt habits go on where the last process was."""
    lines = unpacked(name)
    rng = random.Random(name)
    whole = LogFlow(AUTO, config())
    whole.take(lines, AT)
    whole.finish(AT)
    for _ in range(2):
        flow, done = LogFlow(AUTO, config()), 0
        while done < len(lines):
            some = rng.choice([1, 1, 2, 7, 40])
            flow.take(lines[done : done + some], AT)
            done += some
            flow = restarted(flow)
        flow.finish(AT)
        assert flow.totals == whole.totals
    assert whole.totals.lines == len(lines)


def test_a_failed_attempt_and_what_became_of_it_are_one_request_over_a_restart() -> (
    None
):
    """The request has the time of both attempts, and counts once."""
    flow = LogFlow(AUTO, config())
    flow.take([attempt("failure", "a", 0.0, 0.5)], AT)
    flow.take([attempt("failure", "b", 0.0, 0.5)], AT)
    assert flow.totals.lines == 2
    assert flow.totals.rows == {}
    flow = restarted(flow)
    flow.take([attempt("success", "a", 1.0, 2.0), refused("b", 0.6)], AT)
    row = flow.totals.rows[("m", "joint")]
    assert (row.requests, row.bad, row.misses["error"]) == (2, 2, 1)
    assert row.misses["e2e"] == 1  # two seconds, as its user waited
    flow = restarted(flow)
    flow.take([attempt("success", "a", 1.0, 2.0)], AT)  # the line comes twice
    assert flow.totals.rows[("m", "joint")].requests == 2
    assert flow.totals.lines == 5


def test_lines_wait_for_their_format_over_a_restart() -> None:
    """Banners that no format knows count once one does, with the lines behind them."""
    flow = LogFlow(AUTO, config())
    flow.take([b"starting", b"listening"], AT, errors=[b"warning: old"])
    assert (flow.undecided, flow.totals.lines) == (3, 0)
    flow = restarted(restarted(flow))
    assert flow.undecided == 3
    flow.take(unpacked("envoy")[:3], AT)
    assert (flow.undecided, flow.totals.lines) == (0, 6)
    assert flow.totals.failures["no_match"] == 2
    assert flow.totals.failures["stderr"] == 1
    flow.take([], AT)
    assert flow.totals.lines == 6


@pytest.mark.parametrize(
    "line", [b"?", b"?" * (DETECTION_BYTES // 4)], ids=["many", "long"]
)
def test_what_waits_is_bounded_and_counts_in_the_end(line: bytes) -> None:
    """A log of no known format is counted as such, and looked at again later."""
    flow = LogFlow(AUTO, config())
    given = 0
    while not flow.problem:
        flow.take([line], AT)
        given += 1
        assert given <= DETECTION_LINES + 1
        assert sum(map(len, flow.waiting.lines)) <= DETECTION_BYTES
    assert flow.totals.failures["no_match"] == flow.totals.lines == given
    flow.take(unpacked("caddy")[:1], AT)
    assert (flow.problem, flow.totals.lines) == ("", given + 1)


def test_a_held_attempt_counts_when_the_format_is_another_one_now() -> None:
    """Nothing more will come of it: it stays a failure, and is not forgotten."""
    flow = LogFlow(AUTO, config())
    flow.take([attempt("failure", "a", 0.0, 0.5)], AT)
    flow = restarted(flow)
    flow.take(unpacked("traefik")[:1], AT)
    assert flow.totals.rows[("m", "joint")].bad == 1
    assert flow.waiting.memory.held == {}


def test_a_reload_keeps_what_waits() -> None:
    """Naming the format counts the lines that waited for it, and pairs stay pairs."""
    flow = LogFlow(AUTO, config())
    flow.take([b"banner", attempt("failure", "a", 0.0, 0.5)], AT)
    named = GatewaySource("edge", path="/gw.log", format="litellm")
    flow.configure(named, config())
    flow.take([attempt("success", "a", 1.0, 2.0)], AT)
    row = flow.totals.rows[("m", "joint")]
    assert (row.requests, row.misses["e2e"]) == (1, 1)

    undecided = LogFlow(AUTO, config())
    undecided.take([b"banner"], AT)
    undecided.configure(named, config())
    undecided.take([], AT)
    assert undecided.totals.failures["not_json"] == undecided.totals.lines == 1


def test_what_a_format_keeps_is_bounded_however_long_its_values() -> None:
    """Ids of a client's making cost no more than their first characters."""
    flow = LogFlow(AUTO, config())
    calls = max(MOST_HELD, MOST_SEEN) + 100
    flow.take(
        [
            attempt("failure", f"{n}-" + "x" * 5000, n * 0.01, n * 0.01)
            for n in range(calls)
        ],
        AT,
    )
    memory = flow.waiting.memory
    assert (len(memory.held), len(memory.seen)) == (MOST_HELD, MOST_SEEN)
    assert len(msgspec.msgpack.encode(memory)) < 2 << 20


def test_no_kill_loses_or_doubles_a_line_that_waits(tmp_path: Path) -> None:
    """`kill -9` after each scrape: banners, and pairs of lines, count once."""
    log, text = tmp_path / "gw.log", tmp_path / "c.yml"
    log.touch()
    text.write_text(CLASSES + f"gateways: [{{name: edge, path: '{log}'}}]\n")
    arguments = (f"--config.file={text}", f"--storage.path={tmp_path / 'state'}")
    steps = [
        ([b"banner", b"another"], 0, 0),
        ([attempt("failure", "a", 0.0, 0.5), attempt("failure", "b", 0.0, 0.5)], 4, 0),
        ([attempt("success", "a", 1.0, 2.0)], 5, 1),
        ([refused("b", 3.0), attempt("success", "a", 1.0, 2.0)], 7, 2),
    ]
    exporter = RunningExporter(*arguments)
    try:
        wait_for(lambda: exporter.value(LINES) == 0)
        for lines, total, requests in steps:
            with log.open("ab") as file:
                file.writelines(line + b"\n" for line in lines)
            exporter.samples()  # a scrape reads all, and writes it before it answers
            for _ in range(2):
                exporter.kill()
                exporter = RunningExporter(*arguments)
                assert exporter.value(LINES) == total
                found = exporter.value(REQUESTS, model="m", slo_class="joint")
                assert (found or 0.0) == requests
        assert (
            exporter.value("goodput_log_parse_failures_total", reason="not_json") == 2
        )
        assert exporter.value("goodput_bad_requests_total", model="m") == 2
        misses = "goodput_criterion_misses_total"
        assert exporter.value(misses, model="m", criterion="e2e") == 2
    finally:
        exporter.kill()

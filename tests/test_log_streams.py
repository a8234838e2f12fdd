"""A container's two streams: its log on one, its program's messages on the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gateway_truth import LOGS, unpacked
from running_exporter import RunningExporter, value, wait_for

from analyzer.config import parse_config
from analyzer.logflow import LogFlow
from analyzer.replay import replay_log
from exporter.tail import Tail

STAMP = "2026-11-29T14:10:48.123456789Z"
MESSAGES = [
    b"2026/11/29 14:10:48 [error] 31#31: *1 upstream prematurely closed connection",
    b"[2026-11-29 14:10:48.123][1][info][main] starting main dispatch loop",
    b'{"level":"info","msg":"serving initial configuration"}',
]
CLASSES = "slo_classes: [{name: all, good: {e2e: 1s}, objective: 0.9}]\n"


def framed(text: bytes, stream: str, framing: str) -> bytes:
    """Returns a line as a container runtime writes it."""
    if framing == "cri":
        return f"{STAMP} {stream} F ".encode() + text + b"\n"
    found = {"log": text.decode() + "\n", "stream": stream, "time": STAMP}
    return json.dumps(found, separators=(",", ":")).encode() + b"\n"


def mixed(name: str, log_stream: str, framing: str) -> tuple[bytes, int]:
    """Returns a recorded log between messages on the other stream, and its requests."""
    other = "stdout" if log_stream == "stderr" else "stderr"
    lines = [x for x in unpacked(name) if b"\xff" not in x and x.isascii()]
    data = framed(MESSAGES[0], other, framing)
    for number, line in enumerate(lines):
        data += framed(line, log_stream, framing)
        data += framed(MESSAGES[number % 3], other, framing)
    return data, len(lines)


def flow_of(data: bytes, tmp_path: Path, framing: str = "auto") -> LogFlow:
    """Returns the flow of a file with *data*, read as the exporter reads it."""
    log = tmp_path / "0.log"
    log.write_bytes(data)
    config = parse_config(
        CLASSES + f"gateways: [{{name: edge, path: '{log}', framing: {framing}}}]"
    )
    flow = LogFlow(config.gateways[0], config)
    tail = Tail(str(log), framing=framing, start="beginning")
    more = True
    while more:
        batch = tail.poll(limit_bytes=10_000)
        flow.take(batch.lines, 2e9, errors=batch.errors)
        more = batch.more
    tail.close()
    return flow


@pytest.mark.parametrize("framing", ["cri", "docker"])
@pytest.mark.parametrize("name", LOGS)
def test_messages_beside_a_log_are_no_unreadable_requests(
    tmp_path: Path, name: str, framing: str
) -> None:
    """The log's own totals are those of the log alone; messages are counted apart."""
    data, requests = mixed(name, "stdout", framing)
    alone = LogFlow(
        (c := parse_config(CLASSES + "gateways: [{name: a, path: /a}]")).gateways[0], c
    )
    alone.take([x for x in unpacked(name) if x.isascii()], 2e9)
    flow = flow_of(data, tmp_path)
    assert flow.format is not None
    assert flow.format.name == alone.format.name if alone.format else False
    assert flow.totals.rows == alone.totals.rows
    told = {
        reason: n for reason, n in flow.totals.failures.items() if reason != "stderr"
    }
    assert told == {r: n for r, n in alone.totals.failures.items() if r != "stderr"}
    assert flow.totals.lines == 2 * requests + 1
    # Some formats know JSON messages of their program for what they are.
    assert flow.totals.failures["stderr"] >= requests // 2


def test_a_log_on_the_standard_error_is_read(tmp_path: Path) -> None:
    """Caddy writes there unless told otherwise."""
    data, requests = mixed("caddy", "stderr", "cri")
    flow = flow_of(data, tmp_path)
    alone = flow_of(b"".join(x + b"\n" for x in unpacked("caddy")), tmp_path)
    assert flow.totals.rows == alone.totals.rows
    assert sum(row.requests for row in flow.totals.rows.values()) > 100
    assert flow.totals.failures["stderr"] == 0
    assert sum(flow.totals.failures.values()) >= requests // 2


def test_a_recorded_log_keeps_its_frame_and_is_read_all_the_same(
    tmp_path: Path,
) -> None:
    """A replay takes lines out of their frame, parts and streams as live."""
    data, _ = mixed("envoy", "stdout", "cri")
    cut = framed(b"tail", "stdout", "cri").replace(b" F ", b" P ")
    config = parse_config(CLASSES)
    flow = replay_log((data + cut).splitlines(), config, aliases={})
    live = flow_of(data, tmp_path)
    assert flow.totals.rows == live.totals.rows
    assert flow.totals.failures["stderr"] == live.totals.failures["stderr"] > 0
    assert flow.totals.lines == live.totals.lines + 1


def test_the_exporter_tells_messages_from_unreadable_lines(tmp_path: Path) -> None:
    """By the reason of its counter, and on its page."""
    log, config = tmp_path / "0.log", tmp_path / "c.yml"
    log.touch()
    config.write_text(CLASSES + f"gateways: [{{name: edge, path: '{log}'}}]\n")
    data, requests = mixed("nginx", "stdout", "cri")
    name = "goodput_log_parse_failures_total"
    with RunningExporter(f"--config.file={config}") as exporter:
        wait_for(lambda: exporter.value(name, reason="stderr") == 0)
        log.write_bytes(data)
        total = 2 * requests + 1
        wait_for(lambda: exporter.value("goodput_log_lines_total") == total)
        samples = exporter.samples()
        page = exporter.get("/").text
    assert value(samples, name, reason="stderr") == requests + 1
    assert value(samples, name, reason="no_match") == 0
    assert f"{requests + 1} messages of the standard error" in page
    assert "unreadable" not in page

"""Lines made to harm, between good ones: counted, bounded, and nothing else is lost."""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path

import pytest
from gateway_truth import unpacked
from running_exporter import RunningExporter, value, wait_for

from analyzer.config import parse_config
from analyzer.config_gateways import GatewaySource, LogField
from analyzer.counting import MAX_KINDS
from analyzer.gateways.record import LINE_PROBLEMS
from analyzer.labels import LabelCap
from analyzer.logflow import LogFlow

CLASSES = "slo_classes: [{name: all, good: {e2e: 30s}, objective: 0.9}]\n"
FAILURES = "goodput_log_parse_failures_total"
LINES = "goodput_log_lines_total"
MEGABYTE = 1 << 20
FIELDS = {
    "model": LogField("m"),
    "e2e": LogField("e", "s"),
    "completion_tokens": LogField("n"),
}


def good_line(**changes: object) -> bytes:
    """Returns a real Envoy's line of a whole stream that ended now."""
    line = next(
        x
        for x in unpacked("envoy")
        if b'"response_flags":"-"' in x and b"text/event-stream" in x
    )
    begun = time.time() - 5.0
    return json.dumps({**json.loads(line), "start_epoch": begun, **changes}).encode()


def nested(depth: int) -> bytes:
    """Returns a good line with a member of that many arrays."""
    return good_line(zzz=1).replace(
        b'"zzz": 1', b'"zzz": ' + b"[" * depth + b"]" * depth
    )


def hostile() -> list[tuple[bytes, str]]:
    """Returns lines, each with its reason, "" for a request that counts."""
    good = good_line()
    twice = good[:-1] + b', "response_code": 503}'
    return [
        (b'{"pad":"' + b"x" * MEGABYTE + b'",' + good[1:], "too_long"),
        (good_line(user_agent="x" * (MEGABYTE - 3000)), ""),
        (b"[" * 500_000, "no_match"),
        (nested(500_000), "too_deep"),
        (nested(500), ""),
        (twice, "bad"),  # the last of two members counts
        (good.replace(b'"duration": ', b'"duration": -'), "wrong_value"),
        (good.replace(b'"duration": ', b'"duration": 1e400, "x": '), "not_json"),
        (good.replace(b'"duration": ', b'"duration": NaN, "x": '), "not_json"),
        (good_line(duration="NaN"), "wrong_value"),
        (good_line(start_epoch=time.time() + 1e6), ""),  # a day and more ahead
        (good_line(start_epoch=5e9), ""),  # in the year 2128
        (good_line(start_epoch=-5.0, start_time="never"), ""),
        (good.replace(b'"path": "', b'"path": "\xff\xfe'), ""),
        (b"\x00" * 1000, "no_match"),
        (b"", "no_match"),
        (good + good, "not_json"),
        (good[: len(good) // 2], "not_json"),
    ]


def test_hostile_lines_cost_themselves_alone(tmp_path: Path) -> None:
    """Each is counted by its reason; every good line between them counts as such."""
    log, config = tmp_path / "gw.log", tmp_path / "c.yml"
    log.touch()
    config.write_text(CLASSES + f"gateways: [{{name: edge, path: '{log}'}}]\n")
    arguments = (f"--config.file={config}", f"--storage.path={tmp_path / 'state'}")
    every, times = hostile(), 3
    with RunningExporter(*arguments) as exporter:
        wait_for(lambda: exporter.value(LINES) == 0)
        with log.open("ab") as file:
            file.write(good_line() + b"\n")
            for _ in range(times):
                for line, _reason in every:
                    file.write(line + b"\n" + good_line() + b"\n")
        # Too long ones are dropped before they are lines.
        reasons = [reason for _, reason in every]
        lines = 1 + times * (2 * len(every) - reasons.count("too_long"))
        wait_for(lambda: exporter.value(LINES) == lines)
        samples = exporter.samples()
        size = (tmp_path / "state" / "state.bin").stat().st_size
    counted = {r: value(samples, FAILURES, reason=r) for r in LINE_PROBLEMS}
    assert counted == {r: times * reasons.count(r) for r in LINE_PROBLEMS}
    totals = {
        verdict: sum(s.value for s in samples if s.name == f"goodput_{verdict}_total")
        for verdict in ("good_requests", "bad_requests", "unevaluable_requests")
    }
    assert totals == {
        "good_requests": 1 + times * (len(every) + reasons.count("")),
        "bad_requests": times * reasons.count("bad"),
        "unevaluable_requests": 0,
    }
    last = value(samples, "goodput_log_last_record_timestamp_seconds")
    assert last is not None
    assert last < time.time()  # no stamp of the future moves it
    memory = value(samples, "process_resident_memory_bytes")
    assert memory is not None
    assert memory < 150 * MEGABYTE
    assert size < MEGABYTE


@pytest.mark.slow
def test_a_million_model_names_are_counted_and_leave_no_trace() -> None:
    """Twenty models keep their names, the rest are `other`; the memory stays flat."""
    config = parse_config(CLASSES)
    cap = LabelCap(20)
    flow = LogFlow(
        GatewaySource("edge", path="/gw.log", format="custom", fields=FIELDS),
        config,
        admit=cap.admit,
        admit_failed=cap.known,
    )
    block, highest = 20_000, []
    for begin in range(0, 1_000_000, block):
        numbers = range(begin, begin + block)
        flow.take([b'{"m":"model-%d","e":1,"n":9}' % n for n in numbers], 1.0)
        highest.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    rows = {model: row.good for (model, _), row in flow.totals.rows.items()}
    assert len(rows) == 21
    assert sum(rows.values()) == flow.totals.lines == 1_000_000
    assert cap.take_dropped() == rows["other"]
    assert len(flow._counter._kinds) <= MAX_KINDS
    assert highest[-1] - highest[4] < 8 << 10  # KiB, over 900 000 names

"""A JSON access log to counters and histograms, against decoding alone and mtail."""

from __future__ import annotations

import lzma
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from episodes import DIRECTORY

from analyzer.config import parse_config
from analyzer.config_gateways import GatewaySource
from analyzer.logflow import LogFlow

LINES = 50_000
CONFIG = """
slo_classes:
  - {name: free, match: {tenant: free}, good: {ttft: 1s, tpot: 50ms}, objective: 0.95}
  - {name: all, good: {ttft: 1s, tpot: 50ms, e2e: 10s}, objective: 0.95}
"""
MTAIL = r"""
counter requests by model
histogram ttft by model buckets 0.1, 0.3, 1, 3, 10
/"llm_model":"(?P<model>[^"]*)".*"us_us_rx_body_beg":(?P<ttft>\d+)/ {
  requests[$model]++
  ttft[$model] = $ttft / 1000000.0
}
"""


class Bare(msgspec.Struct):
    """The fields that our reading of this log uses, and no others."""

    response_code: int | None = None
    response_flags: str | None = None
    response_code_details: str | None = None
    duration: float | None = None
    path: str | None = None
    start_epoch: str | None = None
    llm_model: str | None = None
    tenant: str | None = None
    x_request_id: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    us_us_rx_beg: int | None = None
    us_us_rx_body_beg: int | None = None
    us_us_rx_end: int | None = None
    us_ds_tx_end: int | None = None
    us_us_tx_beg: int | None = None
    upstream_host: str | None = None


def lines() -> list[bytes]:
    """Returns lines of a real Envoy before a real vLLM, repeated."""
    with lzma.open(DIRECTORY / "ramp-a" / "access.log.xz") as file:
        found = file.read().splitlines()
    return (found * (LINES // len(found) + 1))[:LINES]


def microseconds(work: Callable[[], object]) -> float:
    """Returns the median time a line of five runs."""
    spent = []
    for _ in range(5):
        begun = time.perf_counter()
        work()
        spent.append(time.perf_counter() - begun)
    return statistics.median(spent) / LINES * 1e6


def test_log_to_counters_against_decoding_and_mtail(tmp_path: Path) -> None:
    """Prints microseconds a line for all three; counts are those of the lines."""
    log = lines()
    config = parse_config(CONFIG)
    flow = LogFlow(GatewaySource("edge", path="x", format="envoy"), config)
    decoder = msgspec.json.Decoder(Bare)
    decode = microseconds(lambda: [decoder.decode(line) for line in log])
    ours = microseconds(lambda: flow.take(log, 2e9))
    print(
        f"\nlog to counters {ours:.1f} µs a line, bare typed decoding {decode:.1f} µs: "
        f"{ours / decode:.2f} times"
    )
    assert flow.totals.lines == 5 * LINES
    if shutil.which("mtail"):
        program, text = tmp_path / "p.mtail", tmp_path / "access.log"
        program.write_text(MTAIL)
        text.write_bytes(b"\n".join(log) + b"\n")
        command = ["mtail", "-one_shot", "-progs", str(program), "-logs", str(text)]
        begun = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        rival = (time.perf_counter() - begun) / LINES * 1e6
        print(f"mtail {rival:.1f} µs a line, on two fields of the same lines")

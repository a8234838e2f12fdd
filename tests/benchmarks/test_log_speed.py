"""A JSON access log to counters and histograms, against decoding alone and mtail."""

from __future__ import annotations

import lzma
import resource
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from episodes import DIRECTORY

from analyzer.config import parse_config
from analyzer.config_gateways import GatewaySource
from analyzer.logflow import LogFlow
from exporter.tail import Tail

LINES = 20_000
ROUNDS = 9
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


class Bare(msgspec.Struct, gc=False):
    """The members that our reading of this log uses, in its order, and no others."""

    attempts: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    content_type: str | None = None
    duration: int | None = None
    llm_model: str | None = None
    model_hdr: str | None = None
    path: str | None = None
    prompt_tokens: int | None = None
    response_code: int | None = None
    response_flags: str | None = None
    sse_error: str | None = None
    start_epoch: str | None = None
    tenant: str | None = None
    tok_first_us: int | None = None
    upstream_host: str | None = None
    us_ds_rx_end: int | None = None
    us_ds_tx_end: int | None = None
    us_us_rx_beg: int | None = None
    us_us_rx_body_beg: int | None = None
    us_us_rx_end: int | None = None
    us_us_tx_end: int | None = None
    x_request_id: str | None = None


DECODE = msgspec.json.Decoder(Bare).decode


def recorded(episode: str) -> list[bytes]:
    """Returns lines of a real Envoy before a real vLLM, repeated."""
    with lzma.open(DIRECTORY / episode / "access.log.xz") as file:
        found = file.read().splitlines()
    return (found * (LINES // len(found) + 1))[:LINES]


def each(work: Callable[[bytes], object], lines: list[bytes]) -> Callable[[], None]:
    """Returns what does *work* with each line and keeps nothing of it."""

    def run() -> None:
        for line in lines:
            work(line)

    return run


def read_and_decode(path: Path) -> None:
    """Decodes every line of a file that is read in pieces."""
    with path.open("rb") as file:
        for line in file:
            DECODE(line)


def tail_and_count(path: Path, flow: LogFlow) -> None:
    """Counts every line of a file as the exporter does: by the tail, in batches."""
    tail = Tail(str(path), start="beginning")
    more = True
    while more:
        batch = tail.poll()
        flow.take(batch.lines, 2e9)
        more = batch.more
    tail.close()


def microseconds(works: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Returns the CPU time a line of each, the least of rounds in which all run."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(ROUNDS):
        for name, work in works.items():
            begun = time.process_time()
            work()
            spent = (time.process_time() - begun) / LINES * 1e6
            best[name] = min(best[name], spent)
    return best


def children() -> float:
    """Returns the CPU seconds of programs that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def mtail(directory: Path, log: Path) -> tuple[float, float]:
    """Returns microseconds a line of CPU and by the clock, on two fields."""
    program = directory / "p.mtail"
    program.write_text(MTAIL)
    command = ["mtail", "-one_shot", "-progs", str(program), "-logs", str(log)]
    used, begun = children(), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    spent = children() - used, time.perf_counter() - begun
    return spent[0] / LINES * 1e6, spent[1] / LINES * 1e6


@pytest.mark.benchmark
@pytest.mark.parametrize("episode", ["ramp-a", "overload-a", "abortstorm-a"])
def test_log_to_counters_against_decoding_and_mtail(
    tmp_path: Path, episode: str
) -> None:
    """Prints microseconds a line, and how many times those of bare decoding."""
    lines = recorded(episode)
    log = tmp_path / "access.log"
    log.write_bytes(b"\n".join(lines) + b"\n")
    source = GatewaySource("edge", path=str(log), format="envoy")
    flow = LogFlow(source, parse_config(CONFIG))
    assert flow.format is not None
    spent = microseconds(
        {
            "bare typed decode": each(DECODE, lines),
            "a record of each line": each(flow.format.parse, lines),
            "lines to counters and histograms": lambda: flow.take(lines, 2e9),
            "bare typed decode of a file": lambda: read_and_decode(log),
            "the same from a file, by the tail": lambda: tail_and_count(log, flow),
        }
    )
    bare, of_file = spent["bare typed decode"], spent["bare typed decode of a file"]
    print(f"\n{episode}: {len(lines[0])} bytes a line")
    for name, time_a_line in spent.items():
        against = of_file if "file" in name else bare
        print(f"  {name:34} {time_a_line:6.2f} µs  {time_a_line / against:5.2f} times")
    assert flow.totals.lines == 2 * ROUNDS * LINES
    if shutil.which("mtail"):
        used, clock = mtail(tmp_path, log)
        print(
            f"  {'mtail, on two fields':34} {used:6.2f} µs CPU, {clock:.2f} µs elapsed"
        )

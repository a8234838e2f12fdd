"""What a log line costs to read, beside a bare typed decode of the same fields."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import pytest
from gateway_formats import CUSTOM_LINE, FIELDS, MIDDLEWARE_LINE
from gateway_truth import unpacked

from analyzer.config import parse_config
from analyzer.config_gateways import GatewaySource, LogField
from analyzer.gateways import envoy, haproxy, litellm, middleware, nginx, traefik
from analyzer.gateways.caddy import caddy
from analyzer.gateways.custom import custom
from analyzer.gateways.format import Format
from analyzer.logflow import LogFlow

T = TypeVar("T")
ROUNDS = 30
CLASSES = """
slo_classes:
  - {name: all, good: {ttft: 1s, tpot: 50ms, e2e: 10s}, objective: 0.95}
"""
COMBINED = (
    r'^\S+ \S+ \S+ \[(?P<start>[^\]]+)\] "\S+ (?P<route>\S+) [^"]*" (?P<status>\d+) '
)

Case = tuple[Callable[[], Format], list[bytes], type[msgspec.Struct] | None]


def cases() -> dict[str, Case]:
    """Returns what is measured: a format, lines, and the fields it needs of them."""
    return {
        "envoy": (envoy.envoy, unpacked("envoy"), envoy._Line),
        "envoy with Lua": (envoy.envoy, unpacked("envoy-lua"), envoy._Line),
        "envoy text": (envoy.envoy, unpacked("envoy-text"), None),
        "nginx": (nginx.nginx, unpacked("nginx"), nginx.Line),
        "nginx with njs": (nginx.nginx, unpacked("nginx-njs"), nginx.Line),
        "nginx with Lua": (nginx.nginx, unpacked("nginx-lua"), nginx.Line),
        "nginx combined": (nginx.nginx, unpacked("nginx-combined"), None),
        "haproxy": (haproxy.haproxy, unpacked("haproxy"), haproxy._Line),
        "haproxy text": (haproxy.haproxy, unpacked("haproxy-text"), None),
        "traefik": (traefik.traefik, unpacked("traefik"), traefik._Line),
        "traefik text": (traefik.traefik, unpacked("traefik-text"), None),
        "caddy": (caddy, unpacked("caddy"), None),
        "litellm": (litellm.litellm, unpacked("litellm"), litellm._Line),
        "middleware": (
            middleware.middleware,
            [MIDDLEWARE_LINE] * 200,
            middleware._Line,
        ),
        "custom JSON": (lambda: custom(FIELDS), [CUSTOM_LINE] * 200, None),
        "custom pattern": (
            lambda: custom({"status": LogField("status")}, COMBINED),
            unpacked("nginx-combined")[1:],
            None,
        ),
    }


def microseconds(work: Callable[[T], object], lines: Sequence[T]) -> float:
    """Returns the CPU time of *work* a line, the least of many rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.process_time_ns()
        for line in lines:
            work(line)
        best = min(best, (time.process_time_ns() - begun) / 1e3 / len(lines))
    return best


def counting(log_format: Format) -> Callable[[list[bytes]], None]:
    """Returns what takes lines of a format all the way to counters and histograms."""
    flow = LogFlow(GatewaySource("log", path="x"), parse_config(CLASSES))
    flow.format = log_format
    return lambda lines: flow.take(lines, 2e9)


@pytest.mark.benchmark
def test_a_line_to_a_record_and_to_counters_beside_a_bare_decode() -> None:
    """Prints microseconds a line, and their ratio to decoding those fields."""
    print("\nformat            bytes/line   record   counters   bare decode   ratio")
    for name, (make, lines, shape) in cases().items():
        log_format = make()
        record = microseconds(log_format.parse, lines)
        take = counting(make())
        counters = microseconds(take, [lines]) / len(lines)
        size = sum(map(len, lines)) / len(lines)
        row = f"{name:16}  {size:10.0f}  {record:7.2f}  {counters:9.2f}"
        if shape is not None:
            decode = msgspec.json.Decoder(shape, strict=False).decode
            bare = microseconds(decode, lines)
            row += f"  {bare:12.2f}  {counters / bare:6.2f}"
        print(row)
        assert counters > 0

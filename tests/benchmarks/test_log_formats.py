"""What a log line costs to read, beside a bare typed decode of the same fields."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec
import pytest
from gateway_truth import unpacked
from test_gateway_hazards import CUSTOM_LINE, FIELDS, MIDDLEWARE_LINE

from analyzer.config_gateways import LogField
from analyzer.gateways import envoy, haproxy, litellm, middleware, nginx, traefik
from analyzer.gateways.caddy import caddy
from analyzer.gateways.custom import custom
from analyzer.gateways.format import Format

ROUNDS = 30
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
        "nginx": (nginx.nginx, unpacked("nginx"), nginx._Line),
        "nginx with njs": (nginx.nginx, unpacked("nginx-njs"), nginx._Line),
        "nginx with Lua": (nginx.nginx, unpacked("nginx-lua"), nginx._Line),
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


def microseconds(work: Callable[[bytes], object], lines: Iterable[bytes]) -> float:
    """Returns the CPU time of *work* a line, the least of many rounds."""
    lines = list(lines)
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.process_time_ns()
        for line in lines:
            work(line)
        best = min(best, (time.process_time_ns() - begun) / 1e3 / len(lines))
    return best


@pytest.mark.benchmark
def test_a_line_to_a_record_beside_a_bare_decode() -> None:
    """Prints microseconds a line and the ratio to msgspec's decode of those fields."""
    print("\nformat            bytes/line   µs/line   bare decode   ratio")
    for name, (make, lines, shape) in cases().items():
        log_format = make()
        spent = microseconds(log_format.parse, lines)
        size = sum(map(len, lines)) / len(lines)
        row = f"{name:16}  {size:10.0f}  {spent:8.2f}"
        if shape is not None:
            decode = msgspec.json.Decoder(shape, strict=False).decode
            bare = microseconds(decode, lines)
            row += f"  {bare:12.2f}  {spent / bare:6.2f}"
        print(row)
        assert spent > 0

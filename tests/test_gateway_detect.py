from __future__ import annotations

import pytest
from gateway_formats import MIDDLEWARE_LINE
from gateway_truth import LOGS, unpacked

from analyzer.config_gateways import FORMATS, GatewaySource, LogField
from analyzer.gateways.detect import detect, format_for

NOISE = [
    b"",
    b"#!banner",
    b'{"level":"info","msg":"started"}',
    b"INFO:     Started server process [22772]",
    b"\x1b[32mINFO\x1b[0m: ready",
    b"\xff\xfe\x00",
    b"[]",
    b'{"response_code":200}',
]


@pytest.mark.parametrize("log", LOGS)
def test_every_line_is_recognised_as_its_format(log: str) -> None:
    """By one line alone, and never as another format."""
    name = log.partition("-")[0]
    for line in unpacked(log)[::10]:
        found = detect([line])
        assert found is not None
        assert found.name == name


def test_our_middleware_is_recognised() -> None:
    """By the name that it gives its records."""
    found = detect([MIDDLEWARE_LINE])
    assert found is not None
    assert found.name == "middleware"


def test_nothing_is_decided_before_it_is_sure() -> None:
    """Banners, messages and half a line's members are of no format."""
    assert detect([]) is None
    assert detect(NOISE) is None
    found = detect([*NOISE, unpacked("traefik")[0]])
    assert found is not None
    assert found.name == "traefik"


@pytest.mark.parametrize("name", FORMATS)
def test_every_name_of_the_configuration_has_its_format(name: str) -> None:
    """`auto` has none until a log's lines are seen."""
    fields = {"status": LogField("s")}
    source = GatewaySource("g", path="/l", format=name, fields=fields)
    found = format_for(source)
    assert (found is None) == (name == "auto")
    if found is not None:
        assert found.name == name
        assert found.blind
        assert found.criteria <= {"ttft", "tpot", "max_gap", "e2e"}


def test_each_log_has_its_own_memory() -> None:
    """Two logs of one format share nothing that they learnt or hold."""
    source = GatewaySource("g", path="/l", format="litellm")
    one, other = format_for(source), format_for(source)
    assert one is not None
    assert other is not None
    for line in unpacked("litellm")[:40]:
        one.parse(line)
    assert len(other.held()) == 0
    assert len(one.held()) == 1

"""The unit for machines without containers, and its configuration."""

from __future__ import annotations

import configparser

from helm_chart import ROOT

from analyzer.config import parse_config
from exporter.cli import main as exporter_main
from exporter.goodput_middleware import DEFAULT_SOCKET

FOLDER = ROOT / "deploy" / "systemd"


def test_the_unit_starts_the_exporter_with_flags_that_it_has() -> None:
    """ExecStart's arguments are flags; the state lies where systemd makes a folder."""
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.read(FOLDER / "llm-goodput.service", encoding="utf-8")
    service = unit["Service"]
    program, *arguments = service["ExecStart"].split()
    assert program.endswith("/goodput-exporter")
    given = dict(argument.split("=", 1) for argument in arguments)
    assert given.keys() <= {flag for p in exporter_main.params for flag in p.opts}
    assert given["--storage.path"] == f"/var/lib/{service['StateDirectory']}"
    assert DEFAULT_SOCKET.startswith(f"/run/{service['RuntimeDirectory']}/")


def test_the_middleware_is_one_comment_away() -> None:
    """The configuration reads the engine, and its requests when told to."""
    text = (FOLDER / "goodput.yml").read_text("utf-8")
    assert not parse_config(text).gateways
    text = text.replace("# gateways:", "gateways:").replace("#   - {", "  - {")
    [gateway] = parse_config(text).gateways
    assert gateway.socket == f"unix://{DEFAULT_SOCKET}"

"""The unit for machines without containers."""

from __future__ import annotations

import configparser

from helm_chart import ROOT

from exporter.cli import main as exporter_main


def test_the_unit_starts_the_exporter_with_flags_that_it_has() -> None:
    """ExecStart's arguments are flags; the state lies where systemd makes a folder."""
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.read(ROOT / "deploy" / "systemd" / "llm-goodput.service", encoding="utf-8")
    service = unit["Service"]
    program, *arguments = service["ExecStart"].split()
    assert program.endswith("/goodput-exporter")
    given = dict(argument.split("=", 1) for argument in arguments)
    assert given.keys() <= {flag for p in exporter_main.params for flag in p.opts}
    assert given["--storage.path"] == f"/var/lib/{service['StateDirectory']}"
    assert service["RuntimeDirectory"] == "goodput"

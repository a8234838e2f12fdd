"""The Compose files: accepted by their schema, and all that they mount is there."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from deployed_monitoring import COMPOSE

from analyzer.config import load_config
from exporter.cli import main as exporter_main

FILES = {
    "demo": ("compose.yaml",),
    "vllm": ("compose.yaml", "compose.vllm.yaml"),
}


@pytest.fixture(params=FILES)
def composed(
    request: pytest.FixtureRequest, need_tool: Callable[[str], str]
) -> dict[str, Any]:
    """The services as docker-compose reads one of the sets of files."""
    names = [f"--file={COMPOSE / name}" for name in FILES[request.param]]
    done = subprocess.run(
        [need_tool("docker-compose"), *names, "config"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    return found


def test_everything_that_is_mounted_is_there(composed: dict[str, Any]) -> None:
    """Bind mounts lead to files of the repository, read-only; images have versions."""
    binds = [
        volume.split(":")
        for service in composed.values()
        for volume in service.get("volumes", ())
        if volume.startswith("/")
    ]
    assert binds
    for source, _, mode in binds:
        assert Path(source).exists()
        assert mode == "ro"
    images = [service["image"] for service in composed.values()]
    assert all(re.search(r":v?\d+\.\d+\.\d+$", image) for image in images)


def test_ports_are_this_machines_alone(composed: dict[str, Any]) -> None:
    """Nothing listens for others: Grafana lets anybody look."""
    for service in composed.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_the_exporter_knows_its_flags_and_runs_confined(
    composed: dict[str, Any],
) -> None:
    """Each argument is a flag of the program; its root is read-only."""
    service = composed["goodput"]
    flags = {flag for p in exporter_main.params for flag in p.opts}
    assert {argument.partition("=")[0] for argument in service["command"]} <= flags
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]


def test_servers_accept_their_configurations(need_tool: Callable[[str], str]) -> None:
    """promtool, amtool and the exporter read what they are given."""
    for command in (
        ("promtool", "check", "config", "--syntax-only", "prometheus/prometheus.yml"),
        ("amtool", "check-config", "alertmanager/alertmanager.yml"),
    ):
        done = subprocess.run(
            [need_tool(command[0]), *command[1:]],
            cwd=COMPOSE,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    config = load_config(COMPOSE / "goodput" / "goodput.yml")
    assert [engine.name for engine in config.engines] == ["vllm"]


def test_grafana_finds_its_source_and_its_dashboards(
    composed: dict[str, Any],
) -> None:
    """Paths and addresses of the provisioning are those of the Compose file."""
    service = composed["grafana"]
    mounts = dict(reversed(v.split(":")[:2]) for v in service["volumes"])
    provider = yaml.safe_load((COMPOSE / "grafana/dashboards.yaml").read_text("utf-8"))
    path = provider["providers"][0]["options"]["path"]
    home = service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    file = Path(mounts[path]) / Path(home).relative_to(path)
    assert json.loads(file.read_text("utf-8"))["title"]
    sources = yaml.safe_load((COMPOSE / "grafana/datasources.yaml").read_text("utf-8"))
    [source] = sources["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert composed["prometheus"]["ports"][0].split(":")[1] == "9090"

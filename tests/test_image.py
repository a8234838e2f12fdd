"""The exporter as its image runs it: another user, a read-only root, no capability.

`make image` runs these in the image itself, elsewhere the root is this machine's own.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import container_root
from helm_chart import ROOT
from running_exporter import PROGRAM, RunningExporter, configuration, wait_for
from synthetic_engine import SyntheticEngine

EVENTS = "goodput_engine_criterion_events_total"
COMMAND = "/opt/goodput/bin/goodput-exporter" if container_root.IMAGE else str(PROGRAM)
# A contract where the image is built; elsewhere a busy machine proves nothing.
SECONDS = float(os.environ.get("GOODPUT_SECONDS", "inf"))


def test_it_runs_as_a_user_in_a_read_only_root_and_keeps_its_state(
    tmp_path: Path,
) -> None:
    """SIGTERM ends it in order; what was published is on disk and goes on after."""
    container_root.need()
    state, config = tmp_path / "state", tmp_path / "config"
    state.mkdir()
    config.mkdir()
    volumes = {"/var/lib/goodput": state, "/run/goodput": config}
    arguments = (
        "--config.file=/run/goodput/goodput.yml",
        "--storage.path=/var/lib/goodput",
    )
    with SyntheticEngine() as engine:
        configuration(config / "goodput.yml", engine.url)
        for start in (1, 2):
            folder = tmp_path / str(start)
            folder.mkdir()
            program = container_root.program(folder, volumes, [COMMAND])
            began = time.monotonic()
            with RunningExporter(*arguments, program=program) as exporter:
                assert exporter.get().status_code == 200
                started = time.monotonic() - began
                _is_contained(exporter.process.pid)
                _counts(exporter, start - 1)
                engine.finish()
                _counts(exporter, start)
                began = time.monotonic()
                assert exporter.stop() == 0
                stopped = time.monotonic() - began
            assert (state / "state.bin").stat().st_uid == container_root.USER
            assert max(started, stopped) <= SECONDS, f"{started} s, {stopped} s"


def _counts(exporter: RunningExporter, events: int) -> None:
    """Waits until that many requests are counted."""
    wait_for(lambda: exporter.value(EVENTS, criterion="e2e") == events)


def _is_contained(pid: int) -> None:
    """Checks user, capabilities and the root of a process."""
    process = Path("/proc") / str(pid)
    status = dict(
        line.split(":\t", 1) for line in (process / "status").read_text().splitlines()
    )
    assert set(status["Uid"].split()) == {str(container_root.USER)}
    assert set(status["Gid"].split()) == {str(container_root.USER)}
    assert status["Groups"].split() in ([], [str(container_root.USER)])
    assert int(status["CapEff"], 16) == 0
    # Fields of a mount: …, where (seen from the process), options, …
    mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    assert [m[5].split(",")[0] for m in mounts if m[4] == "/"][-1] == "ro"


def test_hadolint_has_nothing_against_the_dockerfile(
    need_tool: Callable[[str], str],
) -> None:
    """Each rule that is ignored has its reason in the file."""
    path = ROOT / "deploy" / "image" / "Dockerfile"
    done = subprocess.run(
        [need_tool("hadolint"), path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_everything_the_dockerfile_copies_is_let_in() -> None:
    """The ignore file lets in each source of a COPY, and each one is there."""
    text = (ROOT / "deploy" / "image" / "Dockerfile").read_text(encoding="utf-8")
    sources = [
        source
        for line in text.splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for source in sources:
        if source == "build/wheel[s]":  # may be missing, which a pattern allows
            assert "!build/wheels" in allowed
            continue
        assert (ROOT / source).exists()
        assert any(source.startswith(line[1:]) for line in allowed if line[:1] == "!")


def test_the_bill_of_materials_names_what_is_installed() -> None:
    """CycloneDX: the product, and its dependencies with their versions."""
    script = runpy.run_path(str(ROOT / "deploy" / "image" / "sbom.py"))
    bill = json.loads(json.dumps(script["bill"]()))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    product = bill["metadata"]["component"]
    assert (product["name"], product["type"]) == ("llm-goodput", "application")
    purls = {component.get("purl") for component in bill["components"]}
    assert f"pkg:pypi/msgspec@{version('msgspec')}" in purls
    assert product["purl"] not in purls
    references = [c["bom-ref"] for c in bill["components"] if "bom-ref" in c]
    assert len(references) == len(set(references))

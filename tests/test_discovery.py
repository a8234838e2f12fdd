"""The thread that finds targets, and commands that look for them once."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from running_exporter import wait_for
from synthetic_engine import SyntheticEngine
from target_lists import CLASSES, address_of, group_of, listed, write

from analyzer.cli import main as goodput
from analyzer.config_discovery import DnsSd, FileSd
from analyzer.config_sources import EngineGroup, EngineSource
from exporter.discovery import Discovery


@pytest.fixture
def discovered() -> Iterator[Callable[..., Discovery]]:
    """Makes discoveries that are closed at the end."""
    made: list[Discovery] = []

    def make(**options: Any) -> Discovery:  # noqa: ANN401
        found = Discovery(options.pop("on_change", lambda: None), **options)
        made.append(found)
        return found

    yield make
    for found in made:
        found.close()


def names(discovery: Discovery) -> list[str]:
    """Returns the names of the targets."""
    return [source.name for source in discovery.sources]


def test_targets_of_files_are_there_when_it_has_started(
    discovered: Callable[..., Discovery], tmp_path: Path
) -> None:
    """Whoever starts it need not wait for them."""
    write(tmp_path / "t.json", listed("a:1", "b:1"))
    discovery = discovered()
    discovery.configure((group_of(tmp_path / "t.json"),))
    assert discovery.pending == {"fleet"}
    discovery.start()
    assert names(discovery) == ["fleet/a:1", "fleet/b:1"]
    assert discovery.counts == {"fleet": 2}
    assert discovery.pending == frozenset()


def test_a_change_is_told_once(
    discovered: Callable[..., Discovery], tmp_path: Path
) -> None:
    """A file replaced is told; looking at the same file again is not."""
    path = tmp_path / "t.json"
    write(path, listed("a:1"))
    told: list[list[str]] = []
    discovery: Discovery = discovered(
        on_change=lambda: told.append(names(discovery)), poll_seconds=0.02
    )
    discovery.configure((group_of(path),))
    discovery.start()
    write(path, listed("b:1"))
    wait_for(lambda: len(told) > 1)
    path.write_text(path.read_text() + "\n")  # the same targets
    write(path, listed("c:1"))
    wait_for(lambda: len(told) > 2)
    assert told == [["fleet/a:1"], ["fleet/b:1"], ["fleet/c:1"]]


def test_a_configuration_changes_what_is_followed(
    discovered: Callable[..., Discovery], tmp_path: Path
) -> None:
    """An entry's settings reach its targets at once; one that went loses them."""
    for name in ("a", "b"):
        write(tmp_path / f"{name}.json", listed(f"{name}:1"))
    one, two = (group_of(tmp_path / f"{name}.json", name=name) for name in ("a", "b"))
    discovery = discovered()
    discovery.configure((one,))
    discovery.start()
    slow = EngineGroup(EngineSource("a", "", interval=9.0), one.found_by)
    discovery.configure((slow, two))
    assert names(discovery) == ["a/a:1", "b/b:1"]
    assert [source.interval for source in discovery.sources] == [9.0, 2.0]
    discovery.configure((two,))
    assert names(discovery) == ["b/b:1"]
    assert discovery.counts == {"b": 1}
    discovery.configure(())
    assert names(discovery) == []


def test_failures_are_taken_once(
    discovered: Callable[..., Discovery], tmp_path: Path
) -> None:
    """What was counted is not counted again; one bad target costs no other."""
    write(tmp_path / "t.json", listed("a:1", "no target"))
    group = EngineGroup(
        EngineSource("fleet", ""),
        FileSd((str(tmp_path / "t.json"), str(tmp_path / "none.yml")), refresh=600.0),
    )
    discovery = discovered()
    discovery.configure((group,))
    discovery.start()
    assert discovery.take_failures() == {
        ("fleet", "missing"): 1,
        ("fleet", "bad_target"): 1,
    }
    assert discovery.take_failures() == {}
    assert names(discovery) == ["fleet/a:1"]
    assert discovery.pending == {"fleet"}


def test_a_resolver_that_hangs_holds_up_nobody(
    discovered: Callable[..., Discovery], tmp_path: Path
) -> None:
    """Files are followed while a name is not answered, and closing does not wait."""
    hold = threading.Event()

    def resolve(name: str, port: int, *, family: int, **_: Any) -> list[Any]:  # noqa: ANN401
        assert hold.wait(30)
        if family == socket.AF_INET6:
            raise socket.gaierror(socket.EAI_NODATA, name)
        return [(family, 1, 6, "", ("10.0.0.1", port))]

    path = tmp_path / "t.json"
    write(path, listed("a:1"))
    dns = EngineGroup(EngineSource("dns", ""), DnsSd("vllm.example", 8000))
    discovery = discovered(resolve=resolve, poll_seconds=0.02)
    discovery.configure((dns, group_of(path)))
    try:
        discovery.start()
        assert names(discovery) == ["fleet/a:1"]
        assert discovery.pending == {"dns"}
        write(path, listed("b:1"))
        wait_for(lambda: names(discovery) == ["fleet/b:1"])
        hold.set()
        wait_for(lambda: names(discovery) == ["dns/10.0.0.1:8000", "fleet/b:1"])
        assert discovery.pending == frozenset()
        hold.clear()
        discovery.configure((dns,))
        assert names(discovery) == ["dns/10.0.0.1:8000"]
        begun = time.monotonic()
        discovery.close()
        assert time.monotonic() - begun < 10
        assert "discovery" not in {thread.name for thread in threading.enumerate()}
    finally:
        hold.set()


# Commands that look once.


def test_check_asks_the_engines_that_are_found(tmp_path: Path) -> None:
    """With --live each target is an engine like any other; a fault exits with 3."""
    path = tmp_path / "c.yml"
    with SyntheticEngine() as engine:
        port = engine.url.rpartition(":")[2].removesuffix("/metrics")
        path.write_text(
            f"{CLASSES}engines:\n"
            "- {name: fleet, file_sd: {files: [t.json]}}\n"
            f"- {{name: dns, dns: {{name: localhost, port: {port}}}}}\n"
        )
        plain = CliRunner().invoke(goodput, ["check", f"--config.file={path}"])
        assert plain.output == (
            f"{path}: valid, 1 SLO class, 0 engines, 2 discovered groups of engines\n"
        )
        command = ["check", f"--config.file={path}", "--live"]
        missing = CliRunner().invoke(goodput, command)
        assert f"missing: {tmp_path}/t.json: not there" in missing.output
        assert missing.exit_code == 3
        write(tmp_path / "t.json", listed(address_of(engine), pod="vllm-0"))
        found = CliRunner().invoke(goodput, [*command, "--format=json"])
    document = json.loads(found.output)
    assert document["discovery"][0] == {
        "entry": "fleet",
        "targets": ["fleet/vllm-0"],
        "errors": [],
    }
    up = {row["target"]: row["up"] for row in document["engines"]}
    assert up["fleet/vllm-0"]
    assert up[f"dns/127.0.0.1:{port}"]


def test_record_takes_a_target_that_is_found(tmp_path: Path) -> None:
    """By its name, or without one when it is the only engine."""
    path = tmp_path / "c.yml"
    path.write_text("engines: [{name: fleet, file_sd: {files: [t.json]}}]")
    command = ["record", f"--config.file={path}", "--for=500ms", "--interval=200ms"]
    with SyntheticEngine("one") as one, SyntheticEngine("two") as two:
        write(tmp_path / "t.json", listed(address_of(one), pod="a"))
        alone = CliRunner().invoke(goodput, [*command, str(tmp_path / "alone")])
        assert alone.exit_code == 0, alone.output
        write(
            tmp_path / "t.json",
            listed(address_of(one), pod="a"),
            listed(address_of(two), pod="b"),
        )
        unclear = CliRunner().invoke(goodput, [*command, str(tmp_path / "unclear")])
        assert "Give --target, one of: fleet/a, fleet/b." in unclear.output
        named = [*command, "--target=fleet/b", str(tmp_path / "named")]
        assert CliRunner().invoke(goodput, named).exit_code == 0
    for folder, model in (("alone", "one"), ("named", "two")):
        page = (tmp_path / folder / "scrapes" / "0000.prom").read_text()
        assert f'model_name="{model}"' in page

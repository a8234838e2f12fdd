"""Discovery at work: targets that come and go under a running exporter."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner
from running_exporter import RunningExporter, value, wait_for
from synthetic_engine import SyntheticEngine, free_port

from analyzer.cli import main as goodput
from analyzer.config_discovery import DnsSd, FileSd
from analyzer.config_sources import EngineGroup, EngineSource
from exporter.discovery import Discovery

EVENTS = "goodput_engine_criterion_events_total"
FAILURES = "goodput_discovery_failures_total"
TARGETS = "goodput_discovery_targets"
CLASSES = "slo_classes: [{name: c, good: {e2e: 2s}, objective: 0.95}]\n"


def group_of(*files: Path, name: str = "fleet") -> EngineGroup:
    """Returns an entry of files."""
    return EngineGroup(
        EngineSource(name, ""), FileSd(tuple(map(str, files)), refresh=1.0)
    )


def write(path: Path, *groups: dict[str, Any]) -> None:
    """Puts a file of target groups in the place of what was there."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(json.dumps(groups))
    temporary.replace(path)


def listed(*addresses: str, **labels: str) -> dict[str, Any]:
    """Returns a target group."""
    return {"targets": list(addresses), "labels": labels}


def address_of(engine: SyntheticEngine) -> str:
    """Returns the host and port of an engine."""
    return engine.url.removeprefix("http://").removesuffix("/metrics")


# The thread.


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
            f"{path}: valid, 1 SLO classes, 0 engines, 2 discovered groups of engines\n"
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


# Under a running exporter.


def configured(folder: Path, entry: str) -> Path:
    """Writes a configuration of one class and one discovered entry."""
    path = folder / "c.yml"
    path.write_text(
        f"{CLASSES}engines: [{{name: fleet, interval: 1s, timeout: 2s, {entry}}}]\n"
    )
    return path


FILES = 'file_sd: {files: ["targets/*.json"], refresh: 1s}'


@pytest.fixture
def targets(tmp_path: Path) -> Path:
    """The file of targets, in a folder beside the configuration."""
    (tmp_path / "targets").mkdir()
    return tmp_path / "targets" / "t.json"


def test_targets_of_a_replaced_file_come_and_go(tmp_path: Path, targets: Path) -> None:
    """One that went keeps its counters, loses its gauges, and goes on when it returns.

    What it counted while it was away counts as well.
    """
    with SyntheticEngine() as one, SyntheticEngine() as two:
        a, b = f"fleet/{address_of(one)}", f"fleet/{address_of(two)}"
        write(targets, listed(address_of(one)))
        path = configured(tmp_path, FILES)
        with RunningExporter(f"--config.file={path}") as exporter:
            samples = exporter.samples()  # the first scrape has them
            assert value(samples, "goodput_target_up", target=a) == 1
            assert value(samples, TARGETS, entry="fleet") == 1
            one.finish()
            wait_for(lambda: exporter.value(EVENTS, target=a) == 1)

            write(targets, listed(address_of(two)))
            wait_for(lambda: exporter.value("goodput_target_up", target=b) == 1)
            samples = exporter.samples()
            assert value(samples, "goodput_target_up", target=a) is None
            assert value(samples, "goodput_target_info", target=a) is None
            assert value(samples, EVENTS, target=a) == 1
            scrapes = one.scrapes
            one.finish()
            one.finish()

            write(targets, listed(address_of(one), address_of(two)))
            wait_for(lambda: exporter.value("goodput_target_up", target=a) == 1)
            samples = exporter.samples()
            assert value(samples, EVENTS, target=a) == 3
            assert value(samples, TARGETS, entry="fleet") == 2
            assert one.scrapes > scrapes


def test_labels_of_pods_and_nodes_stand_on_one_metric(
    tmp_path: Path, targets: Path
) -> None:
    """A pod gives the target its name; a new address of the pod is the same target."""
    with SyntheticEngine() as one, SyntheticEngine() as two, SyntheticEngine() as three:
        write(
            targets,
            listed(address_of(one), pod="vllm-0", node="worker-7"),
            listed(address_of(two)),
        )
        path = configured(tmp_path, FILES)
        text = path.read_text().replace("engines: [", "engines: [{static}, ")
        path.write_text(text.replace("static", f'name: static, url: "{three.url}"'))
        with RunningExporter(f"--config.file={path}") as exporter:
            samples = exporter.samples()
            info = {
                s.labels["target"]: dict(s.labels)
                for s in samples
                if s.name == "goodput_target_info"
            }
            plain = {"kind": "engine", "pod": "", "node": ""}
            other = f"fleet/{address_of(two)}"
            assert info == {
                "static": {**plain, "target": "static", "url": three.url},
                other: {**plain, "target": other, "url": two.url},
                "fleet/vllm-0": {
                    "target": "fleet/vllm-0",
                    "kind": "engine",
                    "pod": "vllm-0",
                    "node": "worker-7",
                    "url": one.url,
                },
            }
            assert not any(
                "pod" in s.labels for s in samples if s.name != "goodput_target_info"
            )
            one.finish()
            wait_for(lambda: exporter.value(EVENTS, target="fleet/vllm-0") == 1)
            two.finish()
            write(targets, listed(address_of(two), pod="vllm-0", node="worker-8"))
            wait_for(
                lambda: exporter.value(
                    "goodput_target_info", target="fleet/vllm-0", node="worker-8"
                )
            )
            # What another engine had counted before is not new.
            assert exporter.value(EVENTS, target="fleet/vllm-0") == 1
            two.finish()
            wait_for(lambda: exporter.value(EVENTS, target="fleet/vllm-0") == 2)


def test_a_file_that_cannot_be_used_keeps_its_targets(
    tmp_path: Path, targets: Path
) -> None:
    """Malformed or gone, its targets stay and its failures count; a reload lets go."""
    with SyntheticEngine() as engine:
        target = f"fleet/{address_of(engine)}"
        write(targets, listed(address_of(engine)))
        good = targets.read_text()
        path = configured(tmp_path, FILES)
        with RunningExporter(f"--config.file={path}") as exporter:

            def failures(reason: str) -> float:
                found = exporter.value(FAILURES, entry="fleet", reason=reason)
                assert found is not None, "absent before the first"
                return found

            assert failures("malformed") == failures("missing") == 0
            targets.write_text(good[:-5])
            wait_for(lambda: failures("malformed") > 1)
            targets.unlink()
            wait_for(lambda: failures("missing") > 1)
            assert exporter.value("goodput_target_up", target=target) == 1
            assert any("reason=missing" in line for line in exporter.log)

            answer = requests.post(exporter.url + "/-/reload", timeout=10)
            assert answer.status_code == 200
            samples = exporter.samples()
            assert value(samples, "goodput_target_up", target=target) is None
            assert value(samples, TARGETS, entry="fleet") == 0
            targets.write_text(good)
            wait_for(lambda: exporter.value("goodput_target_up", target=target) == 1)


def test_a_reload_brings_other_entries(tmp_path: Path, targets: Path) -> None:
    """Their targets are there when the reload has answered; failures of others end."""
    with SyntheticEngine() as engine:
        write(targets, listed(address_of(engine)))
        path = configured(tmp_path, FILES)
        with RunningExporter(f"--config.file={path}") as exporter:
            old = f"fleet/{address_of(engine)}"
            assert exporter.value("goodput_target_up", target=old) == 1
            path.write_text(path.read_text().replace("name: fleet", "name: other"))
            requests.post(exporter.url + "/-/reload", timeout=10).raise_for_status()
            samples = exporter.samples()
            new = f"other/{address_of(engine)}"
            assert value(samples, "goodput_target_up", target=new) == 1
            assert value(samples, "goodput_target_up", target=old) is None
            entries = {s.labels["entry"] for s in samples if "entry" in s.labels}
            assert entries == {"other"}


def test_totals_wait_on_disk_for_a_file_that_is_late(
    tmp_path: Path, targets: Path
) -> None:
    """A start without the file forgets nothing: the totals go on when it comes."""
    with SyntheticEngine() as engine:
        target = f"fleet/{address_of(engine)}"
        write(targets, listed(address_of(engine)))
        good = targets.read_text()
        named = FILES.replace("*", "t")
        path = configured(tmp_path, named)
        arguments = (f"--config.file={path}", f"--storage.path={tmp_path / 'state'}")
        with RunningExporter(*arguments) as exporter:
            exporter.samples()
            engine.finish()
            wait_for(lambda: exporter.value(EVENTS, target=target) == 1)
            exporter.kill()
        targets.unlink()
        with RunningExporter(*arguments) as exporter:
            assert exporter.value(EVENTS, target=target) is None
            engine.finish()
            targets.write_text(good)
            wait_for(lambda: exporter.value(EVENTS, target=target) == 2)


def test_addresses_of_a_name_are_targets(tmp_path: Path) -> None:
    """A real look-up of localhost; what does not listen there is down, no failure."""
    with SyntheticEngine() as engine:
        port = engine.url.rpartition(":")[2].removesuffix("/metrics")
        entry = f"dns: {{name: localhost, port: {port}, refresh: 1s}}"
        path = configured(tmp_path, entry)
        with RunningExporter(f"--config.file={path}") as exporter:
            target = f"fleet/127.0.0.1:{port}"
            wait_for(lambda: exporter.value("goodput_target_up", target=target) == 1)
            samples = exporter.samples()
            assert value(samples, FAILURES, reason="dns") == 0
            assert value(samples, FAILURES, reason="timeout") == 0


def test_a_file_without_targets_leaves_us_ready_and_healthy(
    tmp_path: Path, targets: Path
) -> None:
    """A fleet scaled to nothing is no fault of the exporter, nor is a dead one."""
    write(targets)
    path = configured(tmp_path, FILES)
    with RunningExporter(f"--config.file={path}") as exporter:
        assert exporter.get("/-/ready").status_code == 200
        assert exporter.get("/-/healthy").status_code == 200
        assert exporter.get("/").status_code == 200
        assert exporter.value(TARGETS, entry="fleet") == 0
        write(targets, listed(f"127.0.0.1:{free_port()}"))
        wait_for(lambda: exporter.value("goodput_target_up") == 0)

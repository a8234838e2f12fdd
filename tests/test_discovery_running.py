"""Targets that come and go under a running exporter."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests
from running_exporter import RunningExporter, value, wait_for
from synthetic_engine import SyntheticEngine, free_port
from target_lists import (
    EVENTS,
    FAILURES,
    FILES,
    TARGETS,
    address_of,
    configured,
    listed,
    write,
)


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

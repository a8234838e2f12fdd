"""The pod of the patch, played: its exporter, its volumes, an engine that records."""

from __future__ import annotations

import os
from pathlib import Path

import container_root
import yaml
from generating_server import GeneratingServer
from helm_chart import find
from helm_values import rendered
from llm_streams import DONE, event_bytes, text_chunk
from running_exporter import PROGRAM, RunningExporter, wait_for


def test_a_request_to_the_engine_is_counted_by_the_sidecar(tmp_path: Path) -> None:
    """With the arguments, the configuration and the mounts that the chart renders."""
    container_root.need()
    documents = rendered("sidecar")
    text = find(documents, "ConfigMap", "llm-goodput-patch")["data"]["sidecar.yaml"]
    pod = yaml.safe_load(text)["spec"]["template"]["spec"]
    [sidecar] = pod["initContainers"]
    volumes = {}
    for mount in sidecar["volumeMounts"]:
        volumes[mount["mountPath"]] = tmp_path / mount["name"]
        volumes[mount["mountPath"]].mkdir()
    config = find(documents, "ConfigMap")["data"]["goodput.yml"]
    (volumes["/etc/goodput"] / "goodput.yml").write_text(config, encoding="utf-8")
    program = container_root.program(tmp_path, volumes, [str(PROGRAM)])
    # The test takes a free port.
    arguments = [a for a in sidecar["args"] if "listen-address" not in a]
    steps = [event_bytes(text_chunk("hello"), "\n\n"), DONE.encode()]
    with RunningExporter(*arguments, program=program) as exporter:
        place = volumes["/run/goodput"] / "requests.sock"
        assert place.stat().st_uid == container_root.USER
        assert os.access(place, os.W_OK)
        with GeneratingServer(place, steps=steps) as engine:
            assert engine.raw_answer().startswith(b"HTTP/1.1 200")
            wait_for(lambda: exporter.value("goodput_log_lines_total") == 1)
        judged = {
            verdict: exporter.value(f"goodput_{verdict}requests_total")
            for verdict in ("", "bad_")
        }
        assert judged == {"": 1, "bad_": 0}
        assert exporter.stop() == 0
    assert (volumes["/var/lib/goodput"] / "state.bin").exists()

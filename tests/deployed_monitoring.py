"""A real Prometheus with what our deployments give it, over one exporter.

Kubernetes is played by a file with the labels that its discovery would give, and
prometheus-operator by the relabelling that it writes for a monitor.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import requests
import yaml
from helm_chart import ROOT
from kubernetes_objects import Document
from running_exporter import RunningExporter, wait_for
from synthetic_engine import free_port

COMPOSE = ROOT / "deploy" / "compose"
POD = {"namespace": "serving", "pod": "vllm-0", "container": "goodput"}
NODE = "worker-7"
META = "__meta_kubernetes_"
# What Prometheus' discovery tells of that pod.
FOUND = {
    f"{META}namespace": POD["namespace"],
    f"{META}pod_name": POD["pod"],
    f"{META}pod_node_name": NODE,
    f"{META}pod_phase": "Running",
    f"{META}pod_container_name": POD["container"],
    f"{META}pod_container_port_name": "goodput",
    f"{META}endpoint_port_name": "goodput",
}
DISCOVERY = {"file_sd_configs": [{"files": ["pods.json"]}]}


class Deployed:
    """Scrapes the demonstration in several ways at once; has `close()`.

    *monitors* are PodMonitors and ServiceMonitors by the job that they become;
    *groups* are groups of rules, which are evaluated each second.
    """

    def __init__(
        self,
        directory: Path,
        need_tool: Callable[[str], str],
        *,
        monitors: Mapping[str, Document],
        groups: list[dict[str, Any]],
    ) -> None:
        self._directory = directory
        self._stack = ExitStack()
        self._http = requests.Session()
        self._http.trust_env = False  # no proxy between us and a local server
        try:
            exporter = RunningExporter("--demo=overload", "--demo.speed=10")
            self._stack.callback(exporter.stop)
            address = exporter.url.removeprefix("http://")
            rules = [{**group, "interval": "1s"} for group in groups]
            self._write("rules.yml", {"groups": rules})
            config = self._compose_config(address)
            self._write("pods.json", [{"targets": [address], "labels": FOUND}])
            config["scrape_configs"] += [
                *(_scraped(job, monitor) for job, monitor in monitors.items()),
                _documented(),
            ]
            self._url = self._start(need_tool("prometheus"), config)
        except BaseException:
            self._stack.close()
            raise

    def _compose_config(self, address: str) -> dict[str, Any]:
        """Returns the configuration of the Compose file, with local addresses."""
        path = COMPOSE / "prometheus" / "prometheus.yml"
        text = path.read_text(encoding="utf-8").replace("goodput:10555", address)
        config: dict[str, Any] = yaml.safe_load(text)
        config["global"] = {"scrape_interval": "1s"}
        config["rule_files"] = ["rules.yml"]
        del config["alerting"]
        return config

    def _write(self, name: str, content: object) -> Path:
        path = self._directory / name
        # JSON is YAML too.
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    def _start(self, prometheus: str, config: dict[str, Any]) -> str:
        port = free_port()
        process = subprocess.Popen(
            [
                prometheus,
                f"--config.file={self._write('prometheus.yml', config)}",
                f"--storage.tsdb.path={self._directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=error",
            ]
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: self._answers(f"{url}/-/ready"), seconds=60)
        return url

    def _answers(self, url: str) -> bool:
        try:
            return self._http.get(url, timeout=5).ok
        except requests.ConnectionError:
            return False

    def ask(self, expr: str) -> list[dict[str, str]]:
        """Returns the labels of each series that a query answers with now."""
        url = f"{self._url}/api/v1/query"
        answer = self._http.post(url, {"query": expr}, timeout=60).json()
        assert answer["status"] == "success", (expr, answer)
        return [row["metric"] for row in answer["data"]["result"]]

    def rules(self) -> list[dict[str, Any]]:
        """Returns every loaded rule with its health."""
        answer = self._http.get(f"{self._url}/api/v1/rules", timeout=60).json()
        return [rule for group in answer["data"]["groups"] for rule in group["rules"]]

    def close(self) -> None:
        """Ends both programs."""
        self._http.close()
        self._stack.close()


def _scraped(job: str, monitor: Document) -> dict[str, Any]:
    """Returns the scrape configuration that the operator makes of a monitor."""
    spec = monitor["spec"]
    [endpoint] = spec.get("podMetricsEndpoints", spec.get("endpoints"))
    kind = "pod_container" if monitor["kind"] == "PodMonitor" else "endpoint"
    return {
        "job_name": job,
        "honor_labels": endpoint["honorLabels"],
        **DISCOVERY,
        "relabel_configs": [
            {
                "action": "keep",
                "source_labels": [f"{META}{kind}_port_name"],
                "regex": endpoint["port"],
            },
            *(
                {"source_labels": [f"{META}{name}"], "target_label": label}
                for label, name in (
                    ("namespace", "namespace"),
                    ("pod", "pod_name"),
                    ("container", "pod_container_name"),
                )
            ),
            *(
                {
                    "source_labels": relabelling["sourceLabels"],
                    "target_label": relabelling["targetLabel"],
                    "action": relabelling["action"],
                }
                for relabelling in endpoint["relabelings"]
            ),
        ],
    }


def _documented() -> dict[str, Any]:
    """Returns the job that the documentation gives for Prometheus without operator."""
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    [config] = [
        yaml.safe_load(found)
        for found in re.findall(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        if "kubernetes_sd_configs" in found
    ]
    [job] = config["scrape_configs"]
    del job["kubernetes_sd_configs"]
    return {**job, **DISCOVERY, "job_name": "documented"}

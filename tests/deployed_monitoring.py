"""A real Prometheus with what our deployments give it, over one exporter.

Kubernetes is played by a file with the labels that its discovery would give, and
prometheus-operator by the relabelling that it writes for a monitor.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import yaml
from helm_chart import ROOT
from kubernetes_objects import Document
from running_exporter import RunningExporter
from running_prometheus import RunningPrometheus

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
            self._prometheus = self._stack.enter_context(
                closing(RunningPrometheus(need_tool("prometheus"), directory, config))
            )
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

    def _write(self, name: str, content: object) -> None:
        path = self._directory / name
        path.write_text(json.dumps(content), encoding="utf-8")  # which is YAML too

    def ask(self, expr: str) -> list[dict[str, str]]:
        """Returns the labels of each series that a query answers with now."""
        url = f"{self._prometheus.url}/api/v1/query"
        answer = self._prometheus.http.post(url, {"query": expr}, timeout=60).json()
        assert answer["status"] == "success", (expr, answer)
        return [row["metric"] for row in answer["data"]["result"]]

    def rules(self) -> list[dict[str, Any]]:
        """Returns every loaded rule with its health."""
        url = f"{self._prometheus.url}/api/v1/rules"
        answer = self._prometheus.http.get(url, timeout=60).json()
        return [rule for group in answer["data"]["groups"] for rule in group["rules"]]

    def close(self) -> None:
        """Ends both programs."""
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

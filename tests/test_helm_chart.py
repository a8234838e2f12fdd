"""The Helm chart: what it renders, what it refuses, and what a cluster would say."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_chart import (
    NAME,
    NAMESPACE,
    ROOT,
    RenderError,
    find,
    kinds,
    lint,
    render,
    templates,
)
from helm_values import MATRIX, rendered
from kubernetes_objects import (
    VERSIONS,
    containers_of,
    custom_validators,
    restricted_faults,
    schema_faults,
    semantic_faults,
    template_of,
)
from patched_deployment import VLLM, patched

from analyzer.config import parse_config
from exporter.cli import main as exporter_main

OPERATOR = "monitoring.coreos.com/v1"
OPERATOR_KINDS = ("PodMonitor", "ServiceMonitor", "PrometheusRule")


@pytest.fixture(scope="session")
def operator_schemas() -> dict[tuple[str, str], Any]:
    """The CRDs of prometheus-operator, which are not ours to copy."""
    folder = os.environ.get("GOODPUT_CRDS", "")
    if not folder:
        pytest.skip("GOODPUT_CRDS names no folder with prometheus-operator's CRDs")
    return custom_validators(Path(folder))


# --- Every set of values ------------------------------------------------------------


@pytest.mark.parametrize("name", MATRIX)
def test_helm_has_nothing_against_the_chart(name: str) -> None:
    """Neither errors nor warnings of Helm's own linter, in its strict form."""
    assert lint(MATRIX[name]) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_every_supported_kubernetes_takes_what_is_rendered(version: str) -> None:
    """By the strict schemas of 1.25 to 1.37: no unknown field, no wrong type."""
    # Sets of values share most of their objects.
    documents = {json.dumps(d): d for name in MATRIX for d in rendered(name)}
    left_out = dict.fromkeys((OPERATOR, kind) for kind in OPERATOR_KINDS)
    faults = schema_faults(documents.values(), versions=[version], custom=left_out)
    assert list(faults) == []


@pytest.mark.parametrize("name", MATRIX)
def test_what_is_rendered_makes_sense_to_a_cluster(name: str) -> None:
    """Selectors, ports, volumes, probes, limits and names fit each other."""
    assert list(semantic_faults(rendered(name))) == []


def test_the_operator_takes_its_resources(
    operator_schemas: dict[tuple[str, str], Any],
) -> None:
    """PodMonitor, ServiceMonitor and PrometheusRule fit the schemas of their CRDs."""
    documents = [
        document
        for name in MATRIX
        for document in rendered(name)
        if document["apiVersion"] == OPERATOR
    ]
    assert kinds(documents) == set(OPERATOR_KINDS)
    assert list(schema_faults(documents, custom=operator_schemas)) == []


@pytest.mark.usefixtures("config_environment")
@pytest.mark.parametrize("name", MATRIX)
def test_the_configuration_is_accepted_by_the_exporter(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """goodput.yml has classes and the sources of its mode, and the check has it too."""
    monkeypatch.setenv("POD_NAMESPACE", NAMESPACE)
    fullname = MATRIX[name].get("fullnameOverride", NAME)
    text = find(rendered(name), "ConfigMap", fullname)["data"]["goodput.yml"]
    config = parse_config(text)
    assert config.slo_classes
    mode = MATRIX[name].get("mode", "sidecar")
    has_engines = bool(config.engines or config.engine_groups)
    assert has_engines == (mode != "gateway")
    assert bool(config.gateways) == (mode != "standalone" and name != "sidecar-plain")
    assert bool(config.gpus) == (name in ("sidecar-gpu", "sidecar-all"))
    checked = find(rendered(name), "ConfigMap", f"{fullname}-check")
    assert checked["data"]["goodput.yml"] == text


@pytest.mark.parametrize("name", MATRIX)
def test_the_exporters_flags_are_its_own(name: str) -> None:
    """Each argument of a container is a flag that the program has."""
    flags = {
        flag for p in exporter_main.params for flag in (*p.opts, *p.secondary_opts)
    }
    pods = [
        template["spec"] for d in rendered(name) if (template := template_of(d))
    ] + [
        yaml.safe_load(d["data"]["sidecar.yaml"])["spec"]["template"]["spec"]
        for d in rendered(name)
        if "sidecar.yaml" in d.get("data", ())
    ]
    arguments = [
        argument.partition("=")[0]
        for pod in pods
        for container in containers_of(pod)
        for argument in container.get("args", ())
    ]
    assert arguments
    assert set(arguments) <= flags


@pytest.mark.parametrize("name", MATRIX)
def test_all_but_the_daemonset_passes_pod_security_restricted(name: str) -> None:
    """The DaemonSet needs hostPath, and nothing else that `restricted` refuses."""
    faults = list(restricted_faults(rendered(name)))
    if name == "daemonset-state":
        assert faults.pop(0) == f"DaemonSet/{NAME}: volume goodput-state: hostPath"
        # Only the container that hands the directory over.
        first = f"DaemonSet/{NAME}: goodput-state: "
        faults = [fault for fault in faults if not fault.startswith(first)]
    if "daemonset" in name:
        assert faults == [f"DaemonSet/{NAME}: volume pod-logs: hostPath"]
    else:
        assert faults == []


def test_the_state_on_the_node_is_the_releases_own() -> None:
    """And the exporter's user may write there, though the kubelet makes it for root."""
    pod = find(rendered("daemonset-state"), "DaemonSet")["spec"]["template"]["spec"]
    [state] = [v["hostPath"] for v in pod["volumes"] if v["name"] == "goodput-state"]
    assert state["path"] == f"/var/lib/llm-goodput/{NAMESPACE}-{NAME}"
    [first], [exporter] = pod["initContainers"], pod["containers"]
    assert first["command"][:-1] == [
        "chown",
        str(exporter["securityContext"]["runAsUser"]),
    ]
    mount = {"name": "goodput-state", "mountPath": first["command"][-1]}
    assert first["volumeMounts"] == [mount]
    assert mount in exporter["volumeMounts"]
    assert f"--storage.path={mount['mountPath']}" in exporter["args"]
    assert first["securityContext"]["capabilities"] == {
        "drop": ["ALL"],
        "add": ["CHOWN"],
    }


# --- What else the release holds ----------------------------------------------------


@pytest.mark.parametrize("name", ["sidecar-all", "standalone-all", "daemonset-all"])
def test_everything_that_selects_the_exporter_selects_its_pods(
    name: str,
    need_tool: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """Service, monitors and policy mean the labels and the port that pods have."""
    documents = rendered(name)
    if name == "sidecar-all":
        workload = patched(documents, VLLM, need_tool("kubectl"), tmp_path)
    else:
        [workload] = [d for d in documents if d["kind"] in ("Deployment", "DaemonSet")]
    template = template_of(workload)
    assert template is not None
    labels = template["metadata"]["labels"]
    [port] = [
        port
        for container in containers_of(template["spec"])
        for port in container.get("ports", ())
        if port["name"] == "goodput"
    ]
    service = find(documents, "Service")
    assert service["spec"]["selector"].items() <= labels.items()
    assert [p["targetPort"] for p in service["spec"]["ports"]] == ["goodput"]
    policy = find(documents, "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert [p["port"] for p in policy["ingress"][0]["ports"]] == [port["containerPort"]]
    for document in documents:
        if document["kind"] == "PodMonitor":
            wanted = document["spec"]["selector"]["matchLabels"]
            assert wanted.items() <= labels.items()
            endpoints = document["spec"]["podMetricsEndpoints"]
        elif document["kind"] == "ServiceMonitor":
            wanted = document["spec"]["selector"]["matchLabels"]
            assert wanted.items() <= service["metadata"]["labels"].items()
            assert [p["name"] for p in service["spec"]["ports"]] == ["goodput"]
            endpoints = document["spec"]["endpoints"]
        else:
            continue
        assert [endpoint["port"] for endpoint in endpoints] == ["goodput"]
        assert [endpoint["honorLabels"] for endpoint in endpoints] == [True]


@pytest.mark.usefixtures("config_environment")
def test_the_gpus_service_stays_on_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leads to the node's own pod, and what answers must be of this node and pod."""
    monkeypatch.setenv("POD_NAMESPACE", NAMESPACE)
    documents = rendered("sidecar-gpu")
    service = find(documents, "Service", f"{NAME}-gpus")
    assert service["spec"]["internalTrafficPolicy"] == "Local"
    assert service["metadata"]["namespace"] == "gpu-operator"
    config = parse_config(find(documents, "ConfigMap")["data"]["goodput.yml"])
    [gpus] = config.gpus
    assert gpus.url == (
        f"http://{NAME}-gpus.gpu-operator.svc.cluster.local:9400/metrics"
    )
    assert gpus.match.hostname == "worker-7"
    assert gpus.match.pod == "vllm-0"


def test_rules_and_dashboards_are_those_of_the_repository() -> None:
    """The chart holds no copies of its own."""
    documents = rendered("sidecar-all")
    rules = yaml.safe_load((ROOT / "alerts" / "goodput.rules.yml").read_text("utf-8"))
    assert find(documents, "PrometheusRule")["spec"] == rules
    shown = {
        key: json.loads(text)
        for d in documents
        if d["metadata"].get("labels", {}).get("grafana_dashboard") == "1"
        for key, text in d["data"].items()
    }
    folder = ROOT / "dashboards" / "json"
    assert shown == {p.name: json.loads(p.read_bytes()) for p in folder.glob("*.json")}
    assert shown


def test_rules_of_your_own_stand_in_for_the_shipped_ones() -> None:
    """What --set-file gives is what the operator gets."""
    text = yaml.safe_dump({"groups": [{"name": "mine", "rules": []}]})
    documents = render(
        {
            "config": {"slo_classes": [{"preset": "chat"}]},
            "prometheusRule": {"enabled": True, "rules": text},
        }
    )
    assert find(documents, "PrometheusRule")["spec"] == yaml.safe_load(text)


def test_the_classes_of_the_chart_are_those_of_the_shipped_rules() -> None:
    """Without values of its own, a release's rules fit its classes."""
    [text] = [
        d["data"]["goodput.yml"]
        for d in render({"prometheusRule": {"enabled": True}})
        if d["metadata"]["name"] == NAME and d["kind"] == "ConfigMap"
    ]
    shipped = parse_config((ROOT / "alerts" / "example.yml").read_text("utf-8"))
    assert parse_config(text).slo_classes == shipped.slo_classes


def test_the_notes_name_what_is_there() -> None:
    """The commands that are printed get keys that the ConfigMap has."""
    notes = templates({})["NOTES.txt"]
    patch = find(rendered("default"), "ConfigMap", f"{NAME}-patch")
    assert f"configmap {NAME}-patch" in notes
    for key in patch["data"].keys() - {"remove.yaml"}:
        assert ".data." + key.replace(".", r"\.") in notes
    notes = templates({"sidecar": {"middleware": {"arguments": ""}}})["NOTES.txt"]
    assert "arguments.json" not in notes
    assert "--middleware=goodput_middleware.GoodputMiddleware" in notes


# --- Refusals -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"mode": "daemon"}, "mode"),
        ({"mod": "sidecar"}, "mod"),
        ({"config": {"slo_classes": []}}, "slo_classes"),
        ({"config": {"engine": []}}, "engine"),
        ({"image": {"digest": "sha256:abc"}}, "digest"),
        ({"web": {"port": 80}}, "port"),
        ({"web": {"port": "10555"}}, "port"),
        ({"sidecar": {"native": "yes"}}, "native"),
        ({"sidecar": {"resources": {"limits": {"memory": "64 MB"}}}}, "memory"),
        ({"engine": {"metricsPath": "metrics"}}, "metricsPath"),
        ({"gateway": {"logFile": "a/b"}}, "logFile"),
        ({"autoReloadInterval": "15"}, "autoReloadInterval"),
        ({"gpu": {"selector": {}, "port": 0}}, "port"),
        ({"standalone": {"replicas": 2}}, "replicas"),
        ({"mode": "standalone"}, "engine.selector"),
        ({"gateway": {"hostState": "var/lib"}}, "hostState"),
        ({"gateway": {"hostState": "/var/lib/goodput"}}, "for the DaemonSet"),
        ({"mode": "gateway", "gpu": {"enabled": True}}, "config.gpus"),
        (
            {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}},
            "twice",
        ),
        (
            {"service": {"enabled": False}, "serviceMonitor": {"enabled": True}},
            "service.enabled",
        ),
        ({"networkPolicy": {"enabled": True}}, "podsAreIsolated"),
        (
            {
                "prometheusRule": {"enabled": True},
                "config": {"slo_classes": [{"preset": "chat"}]},
            },
            "goodput rules",
        ),
        ({"prometheusRule": {"enabled": True, "rules": "a: 1"}}, "no groups"),
    ],
)
def test_values_that_make_no_sense_are_refused(
    values: dict[str, Any], reason: str
) -> None:
    """By the schema or by the templates, with the key or the way out."""
    with pytest.raises(RenderError, match=reason):
        render(values)

"""The kustomizations: what kubectl builds of them, and that they equal the chart."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_chart import ROOT, example, find, render
from kubernetes_objects import (
    VERSIONS,
    Document,
    container_restricted,
    containers_of,
    read,
    restricted_faults,
    schema_faults,
    semantic_faults,
    template_of,
)

from analyzer.config import parse_config
from analyzer.config_discovery import DnsSd

FOLDER = ROOT / "deploy" / "kustomize"
OVERLAYS = sorted(path.name for path in (FOLDER / "overlays").iterdir())
MONITOR = {("monitoring.coreos.com/v1", "PodMonitor"): None}
Build = Callable[[Path], list[Document]]


@pytest.fixture
def build(need_tool: Callable[[str], str]) -> Build:
    """Returns what builds the kustomization in a folder."""
    kubectl = need_tool("kubectl")

    def run(folder: Path) -> list[Document]:
        done = subprocess.run(
            [kubectl, "kustomize", folder],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert not done.stderr, "kustomize warns of what is deprecated"
        return read(done.stdout)

    return run


def _workload(documents: list[Document]) -> Document:
    [found] = [d for d in documents if template_of(d)]
    return found


def _pod(workload: Document) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]["spec"]
    return found


def _exporter(pod: Document) -> Document:
    [found] = [c for c in containers_of(pod) if c["name"] == "goodput"]
    return found


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_cluster_takes_what_an_overlay_builds(name: str, build: Build) -> None:
    """By strict schemas and semantics; all of it is in the overlay's namespace."""
    documents = build(FOLDER / "overlays" / name)
    versions = [v for v in VERSIONS if name != "sidecar" or int(v[2:]) >= 29]
    faults = schema_faults(documents, versions=versions, custom=MONITOR)
    assert list(faults) == []
    assert list(semantic_faults(documents)) == []
    text = (FOLDER / "overlays" / name / "kustomization.yaml").read_text("utf-8")
    namespace = yaml.safe_load(text)["namespace"]
    assert {d["metadata"].get("namespace", namespace) for d in documents} == {namespace}


@pytest.mark.parametrize("name", OVERLAYS)
def test_only_the_daemonset_is_more_than_restricted(name: str, build: Build) -> None:
    """Our containers pass; the DaemonSet needs hostPath and says privileged."""
    documents = build(FOLDER / "overlays" / name)
    pod = _pod(_workload(documents))
    for container in containers_of(pod):
        if container["image"].startswith("llm-goodput:"):
            assert list(container_restricted(container, pod)) == []
    if name == "gateway":
        faults = list(restricted_faults(documents))
        assert faults == ["DaemonSet/llm-goodput: volume pod-logs: hostPath"]
        labels = find(documents, "Namespace")["metadata"]["labels"]
        assert labels == {"pod-security.kubernetes.io/enforce": "privileged"}
    elif name == "standalone":
        assert list(restricted_faults(documents)) == []


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("sidecar", example("sidecar")),
        ("standalone", example("standalone")),
        ("gateway", example("gateway-daemonset")),
    ],
)
def test_the_exporter_is_that_of_the_chart(
    name: str, values: dict[str, Any], build: Build
) -> None:
    """Container and volumes of each overlay equal what the chart makes of its mode."""
    pod = _pod(_workload(build(FOLDER / "overlays" / name)))
    chart = render(values)
    if name == "sidecar":
        text = find(chart, "ConfigMap", "llm-goodput-patch")["data"]["sidecar.yaml"]
        theirs = _pod(yaml.safe_load(text))
    else:
        [workload] = [d for d in chart if d["kind"] in ("Deployment", "DaemonSet")]
        theirs = _pod(workload)
    assert _exporter(pod) == _exporter(theirs)
    ours = [v for v in pod["volumes"] if v["name"] not in ("shm", "goodput-middleware")]
    assert ours == [v for v in theirs["volumes"] if v["name"] != "goodput-middleware"]


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_monitor_and_the_service_find_the_pods(name: str, build: Build) -> None:
    """Both select the label that the exporters' pods have."""
    documents = build(FOLDER / "overlays" / name)
    template = template_of(_workload(documents))
    assert template is not None
    labels = template["metadata"]["labels"]
    assert find(documents, "Service")["spec"]["selector"].items() <= labels.items()
    monitor = find(documents, "PodMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    chart = find(render({"podMonitor": {"enabled": True}}), "PodMonitor")["spec"]
    assert monitor["podMetricsEndpoints"] == chart["podMetricsEndpoints"]


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_configuration_is_accepted(name: str, build: Build) -> None:
    """goodput.yml of each overlay has the sources that its pod can reach."""
    documents = build(FOLDER / "overlays" / name)
    config = parse_config(find(documents, "ConfigMap")["data"]["goodput.yml"])
    assert config.slo_classes
    if name == "standalone":
        [group] = config.engine_groups
        service = find(documents, "Service", "llm-goodput-engines")
        assert isinstance(group.found_by, DnsSd)
        assert group.found_by.name == service["metadata"]["name"]
        assert group.found_by.port == service["spec"]["ports"][0]["port"]


def test_the_middleware_comes_out_of_the_image(build: Build) -> None:
    """An init container copies it to where the engine's Python looks."""
    pod = _pod(_workload(build(FOLDER / "overlays" / "sidecar")))
    [copier] = [c for c in pod["initContainers"] if c["name"] == "goodput-middleware"]
    [engine] = pod["containers"]
    path = {v["name"]: v["value"] for v in engine["env"]}["PYTHONPATH"]
    mounts = {m["mountPath"]: m["name"] for m in engine["volumeMounts"]}
    [target] = [m for m in copier["volumeMounts"] if m["name"] == mounts[path]]
    assert copier["command"][-1] == f"{target['mountPath']}/"
    assert "--middleware=goodput_middleware.GoodputMiddleware" in engine["args"]


def test_before_native_sidecars_the_exporter_is_a_container_like_others(
    build: Build, tmp_path: Path
) -> None:
    """As the chart makes it; the engine stays first, and its argument is its own."""
    folder = shutil.copytree(FOLDER, tmp_path / "kustomize") / "overlays" / "sidecar"
    path = folder / "kustomization.yaml"
    text = path.read_text("utf-8")
    path.write_text(
        text.replace("components/sidecar\n", "components/sidecar-container\n"), "utf-8"
    )
    documents = build(folder)
    versions = [v for v in VERSIONS if int(v[2:]) < 29]
    assert list(schema_faults(documents, versions=versions, custom=MONITOR)) == []
    assert list(semantic_faults(documents)) == []
    pod = _pod(_workload(documents))
    assert [c["name"] for c in pod["containers"]] == ["vllm", "goodput"]
    [engine, _] = pod["containers"]
    assert "--middleware=goodput_middleware.GoodputMiddleware" in engine["args"]
    chart = render(example("sidecar-old-kubernetes"))
    patch = find(chart, "ConfigMap", "llm-goodput-patch")["data"]["sidecar.yaml"]
    theirs = _pod(yaml.safe_load(patch))
    assert _exporter(pod) == _exporter(theirs)
    labels = _workload(documents)["spec"]["template"]["metadata"]["labels"]
    assert labels["llm-goodput"] == "llm-goodput"


def test_deployments_without_the_label_stay_as_they_are(
    build: Build, tmp_path: Path
) -> None:
    """The components patch what says `llm-goodput: engine`, and nothing else."""
    folder = shutil.copytree(FOLDER, tmp_path / "kustomize") / "overlays" / "sidecar"
    other = yaml.safe_load((folder / "vllm.yaml").read_text("utf-8"))
    other["metadata"] = {"name": "other", "labels": {"app": "other"}}
    (folder / "other.yaml").write_text(yaml.safe_dump(other), encoding="utf-8")
    text = (folder / "kustomization.yaml").read_text("utf-8")
    text = text.replace("  - vllm.yaml\n", "  - vllm.yaml\n  - other.yaml\n")
    (folder / "kustomization.yaml").write_text(text, encoding="utf-8")
    documents = build(folder)
    assert find(documents, "Deployment", "other")["spec"] == other["spec"]
    assert "initContainers" in _pod(find(documents, "Deployment", "vllm"))

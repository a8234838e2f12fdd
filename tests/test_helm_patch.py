"""The patch that adds a sidecar to a Deployment, as kubectl applies it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from helm_chart import EXAMPLES, ROOT, find, render
from helm_values import MATRIX, rendered
from kubernetes_objects import restricted_faults, schema_faults, semantic_faults
from patched_deployment import VLLM, patched

from analyzer.config import parse_config

SIDECARS = [
    name
    for name, values in MATRIX.items()
    if values.get("mode", "sidecar") == "sidecar" and name != "kserve"
]


@pytest.mark.parametrize("name", SIDECARS)
def test_the_patch_gives_a_deployment_that_a_cluster_takes(
    name: str,
    need_tool: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """With the sidecar the pods still pass schemas, semantics and `restricted`."""
    found = patched(rendered(name), VLLM, need_tool("kubectl"), tmp_path)
    old = name == "sidecar-old-kubernetes"
    versions = ["1.25", "1.28"] if old else ["1.29", "1.37"]
    assert list(schema_faults([found], versions=versions, custom={})) == []
    assert list(semantic_faults([found])) == []
    assert list(restricted_faults([found])) == []
    pod = found["spec"]["template"]["spec"]
    where = pod["containers" if old else "initContainers"]
    [sidecar] = [container for container in where if container["name"] == "goodput"]
    assert sidecar.get("restartPolicy") == (None if old else "Always")
    # Monitoring takes no engine out of service, and keeps none from starting.
    assert not {"readinessProbe", "startupProbe"} & sidecar.keys()
    # The engine stays the first container, whose logs kubectl shows.
    names = [container["name"] for container in pod["containers"]]
    assert names == (["vllm", "goodput"] if old else ["vllm"])


def test_the_patch_wires_the_middleware_to_the_sidecar(
    need_tool: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """The engine imports the mounted file and shares the socket's volume with us."""
    documents = rendered("sidecar")
    found = patched(documents, VLLM, need_tool("kubectl"), tmp_path)
    pod = found["spec"]["template"]["spec"]
    [engine] = pod["containers"]
    [sidecar] = [c for c in pod["initContainers"] if c["name"] == "goodput"]
    assert engine["args"] == [
        "--model=/models/llama",
        "--middleware=goodput_middleware.GoodputMiddleware",
    ]
    mounts = {mount["mountPath"]: mount["name"] for mount in engine["volumeMounts"]}
    [path] = [v["value"] for v in engine["env"] if v["name"] == "PYTHONPATH"]
    [volume] = [v for v in pod["volumes"] if v["name"] == mounts[path]]
    mounted = find(documents, "ConfigMap", volume["configMap"]["name"])["data"]
    source = ROOT / "exporter" / "goodput_middleware.py"
    assert mounted == {"goodput_middleware.py": source.read_text(encoding="utf-8")}
    shared = {mount["mountPath"]: mount["name"] for mount in sidecar["volumeMounts"]}
    assert mounts["/run/goodput"] == shared["/run/goodput"]
    config = parse_config(find(documents, "ConfigMap")["data"]["goodput.yml"])
    assert [g.socket for g in config.gateways] == ["unix:///run/goodput/requests.sock"]


def test_a_patch_twice_is_a_patch_once(
    need_tool: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """The sidecar's patch may be applied again after each upgrade of the chart."""
    kubectl = need_tool("kubectl")
    documents = render({"sidecar": {"middleware": {"arguments": ""}}})
    once = patched(documents, VLLM, kubectl, tmp_path)
    assert patched(documents, yaml.safe_dump(once), kubectl, tmp_path) == once


@pytest.mark.parametrize("name", [*SIDECARS, "gateway-sidecar"])
def test_the_removal_undoes_the_patch(
    name: str, need_tool: Callable[[str], str], tmp_path: Path
) -> None:
    """What is left is the Deployment as it was."""
    found = patched(
        rendered(name),
        VLLM,
        need_tool("kubectl"),
        tmp_path,
        keys=("sidecar.yaml", "remove.yaml"),
    )
    pod = found["spec"]["template"]["spec"]
    pod.pop("imagePullSecrets", None)  # may have been there before
    assert found == yaml.safe_load(VLLM)


@pytest.mark.parametrize(
    ("name", "container"),
    [("gateway-sidecar", "nginx"), ("gateway-file", "caddy")],
)
def test_the_patch_of_a_gateway_shares_its_log(
    name: str,
    container: str,
    need_tool: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """By syslog the gateway's container stays as it is; a file has a shared volume."""
    text = VLLM.replace("name: vllm,", f"name: {container},").replace(
        "- name: vllm\n", f"- name: {container}\n"
    )
    found = patched(rendered(name), text, need_tool("kubectl"), tmp_path)
    assert list(schema_faults([found], versions=["1.29"], custom={})) == []
    assert list(semantic_faults([found])) == []
    assert list(restricted_faults([found])) == []
    pod = found["spec"]["template"]["spec"]
    [gateway] = pod["containers"]
    [sidecar] = [c for c in pod["initContainers"] if c["name"] == "goodput"]
    mounted = [
        {m["name"] for m in c["volumeMounts"] if m["mountPath"] == "/var/log/gateway"}
        for c in (gateway, sidecar)
    ]
    shared = {"goodput-logs"} if name == "gateway-file" else set()
    assert mounted == [shared, shared]


def test_the_gateway_stays_the_first_container_before_native_sidecars(
    need_tool: Callable[[str], str], tmp_path: Path
) -> None:
    """Also by syslog, where the patch changes nothing in the gateway's container."""
    gateway = {"kind": "sidecar", "container": "vllm"}
    documents = render(
        {"mode": "gateway", "gateway": gateway, "sidecar": {"native": False}}
    )
    found = patched(documents, VLLM, need_tool("kubectl"), tmp_path)
    containers = found["spec"]["template"]["spec"]["containers"]
    assert [c["name"] for c in containers] == ["vllm", "goodput"]
    [theirs] = yaml.safe_load(VLLM)["spec"]["template"]["spec"]["containers"]
    assert containers[0] == theirs


def test_a_misnamed_container_makes_a_deployment_that_is_refused(
    need_tool: Callable[[str], str], tmp_path: Path
) -> None:
    """A patch for a container that is not there adds one without an image."""
    documents = render({"engine": {"container": "engine"}})
    found = patched(documents, VLLM, need_tool("kubectl"), tmp_path)
    assert "Deployment/vllm: engine: has no image" in list(semantic_faults([found]))


def test_the_inference_service_has_the_sidecar_of_the_chart() -> None:
    """KServe's example holds what the patch would add to a Deployment."""
    documents = rendered("kserve")
    patch = yaml.safe_load(
        find(documents, "ConfigMap", "goodput-patch")["data"]["sidecar.yaml"]
    )["spec"]["template"]
    service = yaml.safe_load(
        (EXAMPLES / "kserve-inferenceservice.yaml").read_text(encoding="utf-8")
    )
    predictor = service["spec"]["predictor"]
    containers = {c["name"]: c for c in predictor["containers"]}
    added = {c["name"]: c for c in patch["spec"]["containers"]}
    assert containers["goodput"] == added["goodput"]
    engine = containers["kserve-container"]
    assert engine["env"] == added["kserve-container"]["env"]
    assert engine["volumeMounts"] == added["kserve-container"]["volumeMounts"]
    assert predictor["volumes"] == patch["spec"]["volumes"]
    assert patch["metadata"]["labels"].items() <= service["metadata"]["labels"].items()
    pod = {"kind": "Pod", "metadata": {"name": "llama"}, "spec": predictor}
    assert list(semantic_faults([pod])) == []

"""What a real API server would say to Kubernetes objects, told without one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

Document = Mapping[str, Any]

VERSIONS = tuple(f"1.{minor}" for minor in range(25, 38))
POD_OWNERS = ("Deployment", "StatefulSet", "DaemonSet", "Job")
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
PORT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?")
QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
UNITS = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
UNITS |= {f"{unit}i": 1024.0**n for n, unit in enumerate("KMGT", start=1)}


def read(text: str) -> list[Document]:
    """Returns the objects of a YAML stream, without empty documents."""
    return [document for document in yaml.safe_load_all(text) if document]


def name_of(document: Document) -> str:
    """Returns kind and name, for messages."""
    return f"{document['kind']}/{document['metadata']['name']}"


# --- Schemas ------------------------------------------------------------------------


def schema_faults(
    documents: Iterable[Document],
    *,
    versions: Iterable[str] = VERSIONS,
    custom: Mapping[tuple[str, str], Any],
) -> Iterator[str]:
    """Yields what strict validation refuses; kinds in neither schema are faults.

    *custom* holds a validator for each (apiVersion, kind) of a custom resource; None
    leaves the kind out.
    """
    versions = tuple(versions)
    for document in documents:
        kind = document["apiVersion"], document["kind"]
        if kind in custom:
            if custom[kind] is not None:
                for error in custom[kind].iter_errors(document):
                    where = "/".join(map(str, error.absolute_path))
                    yield f"{name_of(document)}: {where}: {error.message[:200]}"
            continue
        for version in versions:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except (
                kubernetes_validate.ValidationError,
                kubernetes_validate.SchemaNotFoundError,
            ) as error:
                yield f"{name_of(document)}: {version}: {str(error)[:300]}"


def custom_validators(folder: Path) -> dict[tuple[str, str], Any]:
    """Returns a strict validator for each kind that CRDs in *folder* define."""
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        for crd in read(path.read_text(encoding="utf-8")):
            if crd["kind"] != "CustomResourceDefinition":
                continue
            spec = crd["spec"]
            for version in spec["versions"]:
                schema = _strict(version["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"type": "object"}
                kind = f"{spec['group']}/{version['name']}", spec["names"]["kind"]
                found[kind] = jsonschema.Draft202012Validator(schema)
    return found


def _strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a structural schema as a JSON schema that refuses unknown fields."""
    result = dict(schema)
    if result.pop("x-kubernetes-validations", None):
        # Rules in CEL are not evaluated here, so nothing may pass by them unseen.
        return {"not": {}, "$comment": "has rules in CEL"}
    if result.pop("x-kubernetes-int-or-string", False):
        result.pop("anyOf", None)
        result["type"] = ["integer", "string"]
    elif result.get("nullable"):
        result["type"] = [result["type"], "null"]
    if "properties" in result:
        result["properties"] = {k: _strict(v) for k, v in result["properties"].items()}
        if not result.get("x-kubernetes-preserve-unknown-fields"):
            result.setdefault("additionalProperties", False)
    for key in ("items", "additionalProperties"):
        if isinstance(result.get(key), dict):
            result[key] = _strict(result[key])
    return result


# --- Semantics ----------------------------------------------------------------------


def semantic_faults(documents: Iterable[Document]) -> Iterator[str]:
    """Yields what schemas let through and a cluster does not.

    Selectors that miss their own template, names of ports, mounts without a volume,
    probes of undeclared ports, requests over limits, repeated names.
    """
    for document in documents:
        for fault in _pod_faults(document):
            yield f"{name_of(document)}: {fault}"
    for name, times in _counted(map(_identity, documents)).items():
        if times > 1:
            yield f"{name}: is there {times} times"


def _identity(document: Document) -> str:
    return f"{document['metadata'].get('namespace', '')}/{name_of(document)}"


def _counted(values: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return counts


def template_of(document: Document) -> Document | None:
    """Returns the pod template of a workload, None of anything else."""
    if document["kind"] == "Pod":
        return document
    if document["kind"] in POD_OWNERS:
        found: Document = document["spec"]["template"]
        return found
    return None


def containers_of(pod: Document) -> list[Document]:
    """Returns all containers of a pod's specification, initial ones first."""
    return [*pod.get("initContainers", ()), *pod.get("containers", ())]


def _pod_faults(document: Document) -> Iterator[str]:
    template = template_of(document)
    if template is None:
        return
    selector = (document["spec"].get("selector") or {}).get("matchLabels", {})
    labels = template["metadata"].get("labels", {})
    if not selector.items() <= labels.items():
        yield f"selector {selector} misses the template's labels {labels}"
    pod = template["spec"]
    volumes = {volume["name"] for volume in pod.get("volumes", ())}
    containers = containers_of(pod)
    for container in containers:
        for fault in _container_faults(container, volumes):
            yield f"{container['name']}: {fault}"
    for container in pod.get("initContainers", ()):
        if container.get("restartPolicy") != "Always" and container.keys() & PROBES:
            yield f"{container['name']}: probes need restartPolicy: Always"
    for what, names in (
        ("container", [c["name"] for c in containers]),
        ("volume", [v["name"] for v in pod.get("volumes", ())]),
        ("port name", [p["name"] for c in containers for p in c.get("ports", ())]),
        (
            "port",
            [str(p["containerPort"]) for c in containers for p in c.get("ports", ())],
        ),
    ):
        for name, times in _counted(names).items():
            if times > 1:
                yield f"{what} {name} is there {times} times"


def _container_faults(container: Document, volumes: set[str]) -> Iterator[str]:
    if not container.get("image"):
        yield "has no image"
    ports = {port["name"] for port in container.get("ports", ())}
    for port in ports:
        if not PORT_NAME.fullmatch(port):
            yield f"{port!r} is no name of a port"
    for probe in PROBES:
        for how in ("httpGet", "tcpSocket"):
            port = container.get(probe, {}).get(how, {}).get("port")
            if isinstance(port, str) and port not in ports:
                yield f"{probe} names the port {port!r}, which is not declared"
    for mount in container.get("volumeMounts", ()):
        if mount["name"] not in volumes:
            yield f"mounts {mount['name']!r}, which is no volume"
    resources = container.get("resources", {})
    limits = resources.get("limits", {})
    for resource, request in resources.get("requests", {}).items():
        if resource in limits and _quantity(request) > _quantity(limits[resource]):
            yield f"requests {request} of {resource}, over {limits[resource]}"


def _quantity(value: object) -> float:
    found = QUANTITY.fullmatch(str(value))
    assert found, f"{value!r} is no quantity"
    return float(found[1]) * UNITS.get(found[2] or "", 1.0)


# --- Pod Security -------------------------------------------------------------------


def restricted_faults(documents: Iterable[Document]) -> Iterator[str]:
    """Yields what the Pod Security level `restricted` refuses."""
    for document in documents:
        template = template_of(document)
        if template is None:
            continue
        pod = template["spec"]
        for fault in (
            *_host_faults(pod),
            *(f for c in containers_of(pod) for f in container_restricted(c, pod)),
        ):
            yield f"{name_of(document)}: {fault}"


ALLOWED_VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral"),
    *("persistentVolumeClaim", "projected", "secret"),
}


def _host_faults(pod: Document) -> Iterator[str]:
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(key):
            yield key
    for volume in pod.get("volumes", ()):
        for kind in volume.keys() - {"name"} - ALLOWED_VOLUMES:
            yield f"volume {volume['name']}: {kind}"


def container_restricted(container: Document, pod: Document) -> Iterator[str]:
    """Yields what `restricted` refuses of one container in *pod*."""
    name = container["name"]
    own = container.get("securityContext", {})
    context = {**pod.get("securityContext", {}), **own}
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: allowPrivilegeEscalation"
    if own.get("privileged"):
        yield f"{name}: privileged"
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", ()):
        yield f"{name}: capabilities are not dropped"
    if set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield f"{name}: capabilities are added"
    if not context.get("runAsNonRoot"):
        yield f"{name}: runAsNonRoot"
    if context.get("runAsUser") == 0:
        yield f"{name}: runAsUser"
    if context.get("seccompProfile", {}).get("type") not in (
        "RuntimeDefault",
        "Localhost",
    ):
        yield f"{name}: seccompProfile"
    for port in container.get("ports", ()):
        if port.get("hostPort"):
            yield f"{name}: hostPort"

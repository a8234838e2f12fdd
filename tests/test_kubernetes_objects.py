"""The checks of Kubernetes objects find what they are for."""

from __future__ import annotations

import pytest
import yaml
from kubernetes_objects import (
    VERSIONS,
    restricted_faults,
    schema_faults,
    semantic_faults,
)
from patched_deployment import VLLM


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("{app: vllm}}\n  template", "{app: x}}\n  template", "misses the template"),
        ("{name: http,", "{name: http_metrics,", "is no name of a port"),
        ("name: cache, emptyDir", "name: other, emptyDir", "which is no volume"),
        ("image: loader:1", "{image: a, readinessProbe: {}}", "probes need"),
        ("- name: model", "- name: vllm", "container vllm is there 2 times"),
        (
            "ports: [{name: http",
            (
                "resources: {requests: {cpu: 2}, limits: {cpu: 1500m}}\n"
                "          ports: [{name: http"
            ),
            "over 1500m",
        ),
        (
            "ports: [{name: http",
            "livenessProbe: {httpGet: {port: web}}\n          ports: [{name: http",
            "not declared",
        ),
    ],
)
def test_semantic_checks_find_what_a_cluster_refuses(
    old: str, new: str, fault: str
) -> None:
    """Each check fires on a Deployment with that one fault."""
    assert list(semantic_faults([yaml.safe_load(VLLM)])) == []
    if new.startswith("{image"):
        old, new = "image: loader:1", "image: a\n          readinessProbe: {}"
    assert old in VLLM
    broken = yaml.safe_load(VLLM.replace(old, new))
    assert any(fault in found for found in semantic_faults([broken]))


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("runAsNonRoot: true, ", "", "runAsNonRoot"),
        ("RuntimeDefault", "Unconfined", "seccompProfile"),
        ("drop: [ALL]", "drop: [CHOWN]", "capabilities are not dropped"),
        ("drop: [ALL]", "drop: [ALL], add: [SYS_ADMIN]", "capabilities are added"),
        ("Escalation: false", "Escalation: true", "allowPrivilegeEscalation"),
        ("emptyDir: {}", "hostPath: {path: /}", "hostPath"),
        ("containers:\n        - name: vllm", None, "hostNetwork"),
    ],
)
def test_pod_security_checks_find_what_restricted_refuses(
    old: str, new: str | None, fault: str
) -> None:
    """Each check fires on a Deployment with that one fault."""
    assert list(restricted_faults([yaml.safe_load(VLLM)])) == []
    new = f"hostNetwork: true\n      {old}" if new is None else new
    assert old in VLLM
    broken = yaml.safe_load(VLLM.replace(old, new))
    assert any(fault in found for found in restricted_faults([broken]))


def test_unknown_fields_are_faults() -> None:
    """A misspelt key of a Deployment is found at every version."""
    broken = yaml.safe_load(VLLM.replace("initContainers:", "initContainer:"))
    faults = list(schema_faults([broken], custom={}))
    assert len(faults) == len(VERSIONS)
    assert "initContainer" in faults[0]

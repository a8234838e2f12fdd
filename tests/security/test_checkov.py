"""Checkov's rules over what the chart, kustomize and the Dockerfile make."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import yaml
from helm_chart import ROOT
from helm_values import rendered
from kubernetes_objects import read

# Rules that are not followed, each with the reason.
SKIPPED = {
    "CKV_K8S_11": "a limit of CPU would throttle scrapes; the request bounds the share",
    "CKV_K8S_15": "tags are versions, which do not change; digests are for the site",
    "CKV_K8S_43": "image.digest is for the site, which knows its registry",
    "CKV2_K8S_6": "networkPolicy is a value; in pods of others it would cut them off",
    "CKV_DOCKER_7": "the version is in the argument BASE",
}


def _failed(checkov: str, framework: str, path: Path) -> set[tuple[str, str]]:
    """Returns rule and object of each finding that is not skipped."""
    done = subprocess.run(
        [
            *(checkov, "--framework", framework, "--output", "json"),
            *("-d" if path.is_dir() else "-f", str(path)),
            *("--quiet", "--compact", "--skip-download"),
            *("--skip-check", ",".join(SKIPPED)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    assert report["summary"]["passed"] > 0, done.stdout
    failed = report["results"]["failed_checks"]
    return {(check["check_id"], check["resource"]) for check in failed}


def _write(path: Path, documents: Iterable[object]) -> None:
    path.write_text(yaml.safe_dump_all(documents), encoding="utf-8")


@pytest.mark.parametrize(
    "name", ["sidecar-gpu", "standalone-all", "daemonset-all", "gateway-sidecar"]
)
def test_the_charts_objects_pass(
    name: str, need_tool: Callable[[str], str], tmp_path: Path
) -> None:
    """Every rule but those that are skipped with a reason."""
    _write(tmp_path / "objects.yaml", rendered(name))
    assert _failed(need_tool("checkov"), "kubernetes", tmp_path) == set()


def test_state_on_the_node_costs_one_capability(
    need_tool: Callable[[str], str], tmp_path: Path
) -> None:
    """The container that hands the directory over adds CHOWN; no other rule fails."""
    _write(tmp_path / "objects.yaml", rendered("daemonset-state"))
    failed = _failed(need_tool("checkov"), "kubernetes", tmp_path)
    assert failed == {("CKV_K8S_25", "DaemonSet.serving.llm-goodput")}


@pytest.mark.parametrize("name", ["standalone", "gateway"])
def test_what_kustomize_builds_passes(
    name: str, need_tool: Callable[[str], str], tmp_path: Path
) -> None:
    """Every rule but those that are skipped with a reason."""
    folder = ROOT / "deploy" / "kustomize" / "overlays" / name
    built = subprocess.run(
        [need_tool("kubectl"), "kustomize", folder],
        capture_output=True,
        text=True,
        check=True,
    )
    _write(tmp_path / "objects.yaml", read(built.stdout))
    assert _failed(need_tool("checkov"), "kubernetes", tmp_path) == set()


def test_the_dockerfile_passes(need_tool: Callable[[str], str]) -> None:
    """Every rule but those that are skipped with a reason."""
    path = ROOT / "deploy" / "image" / "Dockerfile"
    assert _failed(need_tool("checkov"), "dockerfile", path) == set()


def test_a_fault_is_found(need_tool: Callable[[str], str], tmp_path: Path) -> None:
    """A privileged container fails."""
    container = {"name": "a", "image": "a", "securityContext": {"privileged": True}}
    pod = {"containers": [container]}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    _write(tmp_path / "objects.yaml", [{**document, "spec": pod}])
    failed = _failed(need_tool("checkov"), "kubernetes", tmp_path)
    assert "CKV_K8S_16" in {rule for rule, _ in failed}

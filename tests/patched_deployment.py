"""A Deployment as sites have them, with the patches of a release of our chart."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import yaml
from kubernetes_objects import Document

VLLM = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: vllm, namespace: serving}
spec:
  selector: {matchLabels: {app: vllm}}
  template:
    metadata: {labels: {app: vllm}}
    spec:
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      initContainers:
        - name: model
          image: loader:1
          securityContext: &context
            allowPrivilegeEscalation: false
            capabilities: {drop: [ALL]}
      containers:
        - name: vllm
          image: vllm/vllm-openai:latest
          args: [--model=/models/llama]
          env: [{name: HF_HOME, value: /cache}]
          ports: [{name: http, containerPort: 8000}]
          volumeMounts: [{name: cache, mountPath: /cache}]
          securityContext: *context
      volumes: [{name: cache, emptyDir: {}}]
"""


def patched(
    documents: list[Document],
    deployment: str,
    kubectl: str,
    folder: Path,
    keys: Sequence[str] = ("arguments.json", "sidecar.yaml"),
) -> Document:
    """Returns *deployment* with the release's patches, as `kubectl patch` makes it.

    In the order of the notes: arguments go by the container's index, which a sidecar
    may change.
    """
    [found] = [d["data"] for d in documents if d["metadata"]["name"].endswith("-patch")]
    path = folder / "deployment.yaml"
    path.write_text(deployment, encoding="utf-8")
    for key in keys:
        if key in found:
            kind = "json" if key.endswith(".json") else "strategic"
            patch = folder / key
            patch.write_text(found[key], encoding="utf-8")
            done = subprocess.run(
                [
                    *(kubectl, "patch", "--local", "-f", path, "-o", "yaml"),
                    *("--type", kind, "--patch-file", patch),
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            path.write_text(done.stdout, encoding="utf-8")
    result: Document = yaml.safe_load(path.read_text(encoding="utf-8"))
    return result

"""Sets of values that together render every branch of the chart."""

from __future__ import annotations

from functools import cache
from typing import Any

from helm_chart import EXAMPLES, example, render
from kubernetes_objects import Document

OURS = sorted(
    path.stem
    for path in EXAMPLES.glob("*.yaml")
    if path.stem not in ("kserve-inferenceservice", "production-stack.values")
)
ALL_ON: dict[str, Any] = {
    "podMonitor": {"enabled": True, "labels": {"release": "kps"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "kps"}},
    "dashboards": {"enabled": True, "annotations": {"grafana_folder": "LLM"}},
    "networkPolicy": {"enabled": True, "podsAreIsolated": True},
    "imagePullSecrets": [{"name": "registry"}],
}
MATRIX: dict[str, dict[str, Any]] = {
    "default": {},
    **{name: example(name) for name in OURS},
    "sidecar-all": {**ALL_ON, "gpu": {"enabled": True}},
    "sidecar-plain": {"sidecar": {"middleware": {"enabled": False}}},
    "sidecar-tls": {
        "web": {"configSecret": "goodput-web"},
        "podMonitor": {
            "enabled": True,
            "endpoint": {
                "scheme": "https",
                "tlsConfig": {"insecureSkipVerify": True},
            },
        },
    },
    "standalone-all": {
        **ALL_ON,
        "podMonitor": {"enabled": False},
        "serviceMonitor": {"enabled": True, "labels": {"release": "kps"}},
        "mode": "standalone",
        "engine": {"selector": {"app": "vllm"}},
        "image": {"digest": f"sha256:{'0' * 64}"},
        "standalone": {
            "persistence": {"storageClassName": "fast"},
            "nodeSelector": {"pool": "cpu"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
        },
    },
    "standalone-memory": {
        "mode": "standalone",
        "config": {"engines": [{"name": "v", "url": "http://vllm:8000/metrics"}]},
        "standalone": {"persistence": {"enabled": False}},
    },
    "daemonset-all": {**ALL_ON, **example("gateway-daemonset")},
}
MATRIX["daemonset-all"]["gateway"]["nodeSelector"] = {"pool": "edge"}
MATRIX["daemonset-state"] = example("gateway-daemonset")
MATRIX["daemonset-state"]["gateway"]["hostState"] = "/var/lib/llm-goodput"


@cache
def rendered(name: str) -> list[Document]:
    """Returns the objects that these values give."""
    return render(MATRIX[name])

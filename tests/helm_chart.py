"""Renders our Helm chart with Helm's own library; no `helm` is needed."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import helm_python
import yaml
from kubernetes_objects import Document, read

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "deploy" / "helm"
EXAMPLES = CHART / "examples"
NAME = "llm-goodput"
NAMESPACE = "serving"


def example(name: str) -> dict[str, Any]:
    """Returns the values of one of the chart's examples."""
    text = (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


@cache
def _chart() -> helm_python.Chart:
    return helm_python.Chart.load(CHART)


def templates(values: dict[str, Any]) -> dict[str, str]:
    """Returns the text of each template. Raises RenderError when Helm refuses."""
    try:
        found: dict[str, str] = _chart().render(values, name=NAME, namespace=NAMESPACE)
    except helm_python.HelmError as error:
        raise RenderError(str(error)) from error
    return {Path(path).name: text for path, text in found.items()}


def render(values: dict[str, Any]) -> list[Document]:
    """Returns the objects of a release. Raises RenderError when Helm refuses."""
    return [
        document
        for name, text in templates(values).items()
        if name.endswith(".yaml")
        for document in read(text)
    ]


def lint(values: dict[str, Any]) -> list[str]:
    """Returns the warnings and errors of Helm's linter."""
    found = helm_python.lint(CHART, values, strict=True)
    messages = [m["error"] for m in found["messages"] if m["severity"] > 1]
    return [*messages, *found["errors"]]


class RenderError(Exception):
    """Helm refuses the values; the text says why."""


def find(documents: list[Document], kind: str, name: str = NAME) -> Document:
    """Returns the only object of that kind and name."""
    [found] = [
        d for d in documents if (d["kind"], d["metadata"]["name"]) == (kind, name)
    ]
    return found


def kinds(documents: list[Document]) -> set[str]:
    """Returns the kinds that are there."""
    return {document["kind"] for document in documents}

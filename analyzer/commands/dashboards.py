"""`goodput dashboards`: the Grafana dashboards, as files or as ConfigMaps."""

from __future__ import annotations

import json
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import click

from analyzer.commands.common import Exit, fail, format_option, print_json
from analyzer.rules.rule import Options

LABEL = "grafana_dashboard=1"
INDENT = " " * 4


@click.command("dashboards")
@click.option(
    "-o",
    "--output",
    "directory",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to write to.",
)
@click.option(
    "--form",
    type=click.Choice(["json", "configmap"]),
    default="json",
    show_default=True,
    help="JSON to import or provision, or ConfigMaps for Grafana's sidecar.",
)
@click.option("--namespace", default="", help="Namespace of the ConfigMaps.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    default=[LABEL],
    show_default=True,
    help="Label of the ConfigMaps, by which the sidecar finds them.",
)
@click.option(
    "--runbook-url",
    default=Options().runbook_url,
    show_default=True,
    help="What stands before the name of a runbook in links.",
)
@format_option
def dashboards_command(
    directory: Path,
    form: str,
    namespace: str,
    labels: tuple[str, ...],
    runbook_url: str,
    output_format: str,
) -> None:
    """Writes the Grafana dashboards of this version.

    They show the metrics of goodput-exporter and the recordings of `goodput rules`,
    which have to be loaded. dashboards/README.md has pictures, and how to import.

    \b
    Examples:
      goodput dashboards -o /var/lib/grafana/dashboards
      goodput dashboards -o DIR --form configmap --namespace monitoring
      goodput dashboards -o DIR --runbook-url https://wiki.example.com/goodput
    """
    chosen = _labels(labels)
    texts = {
        name: _linked(text, runbook_url.rstrip("/")) for name, text in shipped().items()
    }
    if form == "configmap":
        texts = {
            f"{Path(name).stem}.configmap.yml": _config_map(
                name, text, namespace=namespace, labels=chosen
            )
            for name, text in texts.items()
        }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"{directory}: {error.strerror or error}", Exit.FAILED)
    written = [str(directory / name) for name in texts]
    if output_format == "json":
        print_json({"files": written})
        return
    click.echo("\n".join(written))


def shipped() -> dict[str, str]:
    """Returns the text of each dashboard by its file's name."""
    found = {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in _folder().iterdir()
        if entry.name.endswith(".json")
    }
    return dict(sorted(found.items()))


def _folder() -> Traversable:
    """Returns where the dashboards are: in the package, or beside it in a checkout."""
    packed = files("analyzer") / "dashboards"
    if packed.is_dir():
        return packed
    return Path(__file__).parents[2] / "dashboards" / "json"


def _labels(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [label.partition("=") for label in given]
    if any(not key or not value for key, _, value in pairs):
        raise click.UsageError("--label wants KEY=VALUE.")
    return {key: value for key, _, value in pairs}


def _linked(text: str, runbook_url: str) -> str:
    """Returns a dashboard whose links to runbooks begin with *runbook_url*."""
    dashboard: dict[str, Any] = json.loads(text)
    for variable in dashboard["templating"]["list"]:
        if variable["name"] == "runbooks":
            variable["query"] = runbook_url
            variable["current"] |= {"text": runbook_url, "value": runbook_url}
    return json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"


def _config_map(file: str, text: str, *, namespace: str, labels: dict[str, str]) -> str:
    """Returns a ConfigMap that holds a dashboard."""
    lines = [
        "apiVersion: v1",
        "kind: ConfigMap",
        "metadata:",
        f"  name: {Path(file).stem}",
    ]
    if namespace:
        lines.append(f"  namespace: {json.dumps(namespace)}")
    lines.append("  labels:")
    # JSON's strings are YAML's too: a label's value must not become a number.
    lines += [f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in labels.items()]
    lines += ["data:", f"  {file}: |", *(INDENT + line for line in text.splitlines())]
    return "\n".join(lines) + "\n"

"""`goodput rules`: Prometheus rules for a configuration, and a rehearsal of them."""

from __future__ import annotations

from pathlib import Path

import click

from analyzer import slo
from analyzer.commands.common import Exit, fail, format_option, print_json
from analyzer.commands.rules_rehearsal import rehearsal
from analyzer.config import SECTIONS
from analyzer.rules.pack import rule_groups, warnings
from analyzer.rules.rule import Alert, Group, Options
from analyzer.rules.writing import prometheus_rule, rule_file
from analyzer.slo import SloClass
from analyzer.strict import ConfigError, load

RULE_FILE = "goodput.rules.yml"
RESOURCE = "goodput.prometheusrule.yml"


@click.command("rules")
@click.option(
    "--config.file",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Configuration; only its SLO classes matter for rules.",
)
@click.option(
    "-o",
    "--output",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to write to; without it the rules are printed.",
)
@click.option(
    "--form",
    type=click.Choice(["files", "prometheusrule"]),
    default="files",
    show_default=True,
    help="Rule files (Prometheus, vmalert, Thanos, Mimir), or the operator's resource.",
)
@click.option(
    "--name",
    default="goodput",
    show_default=True,
    help="Name of the PrometheusRule.",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="Label of the PrometheusRule, by which the operator selects it.",
)
@click.option(
    "--runbook-url",
    default=Options().runbook_url,
    show_default=True,
    help="What stands before the name of a runbook in `runbook_url`.",
)
@click.option(
    "--minimum-events",
    type=click.IntRange(1, 1_000_000),
    default=Options().minimum_events,
    show_default=True,
    help="Judged requests that an alert's short window must hold.",
)
@click.option(
    "--minimum-failures",
    type=click.IntRange(1, 1_000_000),
    default=Options().minimum_failures,
    show_default=True,
    help="Bad requests that an alert's long window must hold.",
)
@click.option(
    "--time-scale",
    type=click.FloatRange(0.001, 1.0),
    default=1.0,
    show_default=True,
    help="Multiplies every duration in the rules, for rehearsals and recordings.",
)
@click.option(
    "--test-recording",
    "recording",
    type=click.Path(path_type=Path, file_okay=False),
    help="Tell what would have fired during a recording, instead; needs promtool.",
)
@format_option
def rules_command(
    config_file: Path | None,
    directory: Path | None,
    form: str,
    name: str,
    labels: tuple[str, ...],
    runbook_url: str,
    minimum_events: int,
    minimum_failures: int,
    time_scale: float,
    recording: Path | None,
    output_format: str,
) -> None:
    """Writes Prometheus rules for the SLO classes of a configuration.

    Recordings of goodput, bounds, budget and what binds, and alerts on them: the
    windows and factors of the burn alerts follow from each objective, and stand
    beside them as comments. docs/alerts.md explains them.

    With --test-recording nothing is written: the recording is played to the rules
    over its own time, and what would have fired is printed; exits with 1 when any
    alert would have. The configuration is then the recording's unless given.

    \b
    Examples:
      goodput rules --config.file goodput.yml -o rules
      goodput rules --config.file goodput.yml --form prometheusrule --label release=kps
      goodput rules --test-recording recordings/monday --time-scale 0.02
    """
    if config_file is None:
        if recording is None:
            raise click.UsageError("Give --config.file.")
        config_file = recording / "config.yml"
    classes = _classes(config_file)
    options = Options(
        runbook_url=runbook_url,
        minimum_events=minimum_events,
        minimum_failures=minimum_failures,
        time_scale=time_scale,
    )
    groups = rule_groups(classes, options)
    if recording is not None:
        rehearsal(recording, config_file, groups, options, output_format)
        return
    for text in warnings(classes):
        click.echo(f"Warning: {text}", err=True)
    files = _files(groups, form, name, labels)
    if directory is None:
        if output_format == "json":
            print_json(_document(groups, []))
            return
        for text in files.values():
            click.echo(text, nl=False)
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (directory / file).write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"{directory}: {error.strerror or error}", Exit.FAILED)
    if output_format == "json":
        print_json(_document(groups, [str(directory / file) for file in files]))
        return
    count = sum(len(group.rules) for group in groups)
    alerts = sum(isinstance(rule, Alert) for g in groups for rule in g.rules)
    written = ", ".join(str(directory / file) for file in files)
    click.echo(f"{written}: {count - alerts} recordings, {alerts} alerts", err=True)


def _classes(config_file: Path) -> tuple[SloClass, ...]:
    """Returns the classes alone: variables of sources need not be set here."""
    try:
        members = load(config_file).mapping(optional=SECTIONS)
        found = members.get("slo_classes")
        classes = slo.read_classes(found) if found else ()
    except ConfigError as error:
        fail(str(error), Exit.USAGE)
    if not classes:
        fail(f"{config_file}: has no SLO classes to make rules for", Exit.USAGE)
    return classes


def _files(
    groups: tuple[Group, ...], form: str, name: str, labels: tuple[str, ...]
) -> dict[str, str]:
    """Returns the text of each file by its name."""
    if form == "files":
        return {RULE_FILE: rule_file(groups)}
    pairs = [label.partition("=") for label in labels]
    if any(not key or not value for key, _, value in pairs):
        raise click.UsageError("--label wants KEY=VALUE.")
    chosen = {key: value for key, _, value in pairs}
    return {RESOURCE: prometheus_rule(groups, name=name, labels=chosen)}


def _document(groups: tuple[Group, ...], files: list[str]) -> dict[str, object]:
    return {
        "files": files,
        "groups": [
            {
                "name": group.name,
                "interval": group.interval,
                "recordings": [
                    rule.name for rule in group.rules if not isinstance(rule, Alert)
                ],
                "alerts": [
                    {
                        "name": rule.name,
                        "severity": rule.severity,
                        "for": rule.hold or "0s",
                        "labels": dict(rule.labels),
                        "derivation": rule.comment,
                    }
                    for rule in group.rules
                    if isinstance(rule, Alert)
                ],
            }
            for group in groups
        ],
    }

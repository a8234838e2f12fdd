"""`goodput replay`: the whole flow over a recording."""

from __future__ import annotations

from pathlib import Path

import click

from analyzer.commands.common import (
    Exit,
    config_option,
    fail,
    format_option,
    number,
    print_json,
    ratio,
)
from analyzer.config import Config, load_config
from analyzer.document import Document, document
from analyzer.replay import replay
from analyzer.sources.recording import RecordingError, read_scrapes
from analyzer.strict import ConfigError


@click.command("replay")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@config_option(required=False)
@format_option
def replay_command(
    directory: Path, config_file: Path | None, output_format: str
) -> None:
    """Runs the whole flow over the recording in DIRECTORY.

    SLO classes come from --config.file, else from the recording's config.yml. Exits
    with 1 when even the upper bound of a class is below its objective.

    \b
    Examples:
      goodput replay recordings/monday
      goodput replay recordings/monday --config.file stricter.yml --format json
    """
    config = _config(directory, config_file)
    try:
        found = replay(read_scrapes(directory), config)
    except RecordingError as error:
        fail(str(error), Exit.FAILED)
    if found is None:
        fail(f"{directory}: the recording has no scrapes", Exit.FAILED)
    flow, at = found
    result = document([flow], at)
    if output_format == "json":
        print_json(result)
    else:
        _print(result)
    if any(missed(row) for row in result["slo"]):
        raise SystemExit(int(Exit.FINDING))


def _config(directory: Path, config_file: Path | None) -> Config:
    path = config_file or directory / "config.yml"
    if config_file is None and not path.is_file():
        click.echo(f"{path} is not there: nothing is judged without classes", err=True)
        return Config()
    try:
        return load_config(path)
    except ConfigError as error:
        fail(str(error), Exit.USAGE)


def missed(row: Document) -> bool:
    """Whether a class surely missed its objective."""
    bounds = row["bounds"]
    return bounds is not None and bounds[1] < row["objective"]


def _print(result: Document) -> None:
    for row in result["slo"]:
        low, high = row["bounds"] or (None, None)
        click.echo(
            f"{row['class']} {row['model']}: {row['total']} requests finished, "
            f"good between {ratio(low)} and {ratio(high)}, "
            f"objective {ratio(row['objective'])}"
            f"{'  MISSED' if missed(row) else ''}"
        )
        for name, criterion in row["criteria"].items():
            events = criterion["events"]
            shares = [
                None if not events else criterion[key] / events
                for key in ("good_lower", "good_upper")
            ]
            note = f"  ({criterion['reason']})" if criterion["reason"] else ""
            click.echo(
                f"  {name} ≤ {criterion['threshold_seconds']:g} s: {events} events, "
                f"met between {ratio(shares[0])} and {ratio(shares[1])}{note}"
            )
    if result["slo"]:
        click.echo(f"  These are {result['slo'][0]['reason']}.\n")
    for window in result["windows"]:
        name = window["family"] + (f"/{window['cause']}" if window["cause"] else "")
        click.echo(
            f"{window['start']:.1f} +{window['end'] - window['start']:6.1f} s  "
            f"{window['model'] or '-'}/{window['rank'] or '-'}  {name:24} "
            f"{number(window['requests_per_second'], ' req/s'):>12} "
            f"{number(window['tokens_per_second'], ' tok/s'):>12}"
        )
    click.echo("")
    for source in result["sources"]:
        lacking = ", ".join(source["missing_signals"]) or "none"
        click.echo(
            f"source {source['name']}: {source['gaps']} gaps, {source['resets']} "
            f"counter resets, missing signals: {lacking}"
        )

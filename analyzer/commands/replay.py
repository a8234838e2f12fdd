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
from analyzer.document import document
from analyzer.replay import GpuReplay, LogReplay, replay
from analyzer.slo_rows import Document
from analyzer.sources.log_file import log_path, read_lines
from analyzer.sources.recording import (
    GPU_SCRAPES,
    RecordingError,
    holds,
    read_scrapes,
)
from analyzer.strict import ConfigError


@click.command("replay")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@config_option(required=False)
@format_option
def replay_command(
    directory: Path, config_file: Path | None, output_format: str
) -> None:
    """Runs the whole flow over the recording in DIRECTORY.

    Reads scrapes/ and, when they are there, gpu/ and access.log (also .gz and .xz).
    SLO classes come from --config.file, else from the recording's config.yml. Exits
    with 1 when even the upper bound of a class is below its objective.

    \b
    Examples:
      goodput replay recordings/monday
      goodput replay recordings/monday --config.file stricter.yml --format json
    """
    config = load_replay_config(directory, config_file)
    try:
        gpus, log = recorded_gpus(directory, config), recorded_log(directory, config)
        found = replay(read_scrapes(directory), config, gpus=gpus, log=log)
        if found is None:
            fail(f"{directory}: the recording has no scrapes", Exit.FAILED)
        flow, at = found
        logs = [log.finish()] if log is not None else []
    except RecordingError as error:
        fail(str(error), Exit.FAILED)
    result = document([flow], at, logs=logs, gpus=[gpus.flow] if gpus else [])
    if output_format == "json":
        print_json(result)
    else:
        _print(result)
    if any(missed(row) for row in result["slo"]):
        raise SystemExit(int(Exit.FINDING))


def recorded_gpus(directory: Path, config: Config) -> GpuReplay | None:
    """Returns the recorded GPU exporter, None when there is none."""
    if not holds(directory, GPU_SCRAPES):
        return None
    return GpuReplay(read_scrapes(directory, GPU_SCRAPES), config)


def recorded_log(directory: Path, config: Config) -> LogReplay | None:
    """Returns the recorded request log, None when there is none."""
    path = log_path(directory)
    return None if path is None else LogReplay(read_lines(path), config)


def load_replay_config(directory: Path, config_file: Path | None) -> Config:
    """Returns the configuration given, else the recording's own, else an empty one."""
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
    bounds, objective = row["bounds"], row["objective"]
    return bounds is not None and objective is not None and bounds[1] < objective


def _print(result: Document) -> None:
    for row in result["slo"]:
        _print_slo(row)
    if result["slo"]:
        click.echo("")
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
        if source["source"] == "gateway":
            click.echo(
                f"log {source['name']}: {source['lines']} lines of format "
                f"{source['format'] or 'unknown'}, {source['unreadable']} unreadable, "
                f"cannot always tell: {lacking}"
            )
            continue
        kind = "GPUs" if source["source"] == "gpu" else "source"
        click.echo(
            f"{kind} {source['name']}: {source['gaps']} gaps, {source['resets']} "
            f"counter resets, missing signals: {lacking}"
        )


def _print_slo(row: Document) -> None:
    low, high = row["bounds"] or (None, None)
    name = f"{row['class']} {row['model']}"
    verdict = "  MISSED" if missed(row) else ""
    objective = f"objective {ratio(row['objective'])}{verdict}"
    if row["source"] == "gateway":
        click.echo(
            f"{name}: {row['good']} good, {row['bad']} bad, {row['unevaluable']} "
            f"unevaluable of {row['total']} requests ({row['excluded']} excluded): "
            f"{ratio(row['attainment'])} good, {objective}"
        )
        missed_by = ", ".join(f"{c} {n}" for c, n in row["missed"].items() if n)
        if missed_by:
            click.echo(f"  missed: {missed_by}")
        if row["engine_bounds"]:
            low, high = row["engine_bounds"]
            click.echo(f"  from engine metrics: between {ratio(low)} and {ratio(high)}")
        return
    click.echo(
        f"{name}: {row['total']} requests finished, good between {ratio(low)} and "
        f"{ratio(high)}, {objective}"
    )
    for criterion, found in row["criteria"].items():
        events = found["events"]
        least, most = (
            found[key] / events if events else None
            for key in ("good_lower", "good_upper")
        )
        note = f"  ({found['reason']})" if found["reason"] else ""
        click.echo(
            f"  {criterion} ≤ {found['threshold_seconds']:g} s: {events} events, met "
            f"between {ratio(least)} and {ratio(most)}{note}"
        )
    click.echo(f"  These are {row['reason']}.")

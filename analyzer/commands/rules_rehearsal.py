"""`goodput rules --test-recording`: what would have fired, when, with what labels."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import click

from analyzer.commands.common import Exit, fail, print_json
from analyzer.rules.rule import Group, Options, duration
from analyzer.sources.promtool import PromtoolError
from analyzer.sources.rehearsal import (
    Episode,
    Recorded,
    RehearsalError,
    recorded,
    rehearse,
)

INTERVAL = 1.0  # seconds between two values, or more by the rules' own pace
FAST = 300.0  # nominal seconds of the shortest window
ENOUGH = 4.0  # of which a recording should hold so many
ABOUT_US = ("alertname", "severity", "job", "instance")


def rehearsal(
    directory: Path,
    config_file: Path,
    groups: Sequence[Group],
    options: Options,
    output_format: str,
) -> None:
    """Prints what *groups* would have said; exits with 1 when an alert fires."""
    promtool = shutil.which("promtool")
    if promtool is None:
        fail("promtool is not on PATH; it comes with Prometheus", Exit.FAILED)
    interval = max(INTERVAL, options.scaled(30.0) / 2)
    try:
        played = recorded(directory, config_file, groups, interval=interval)
        if played.seconds < ENOUGH * options.scaled(FAST):
            scale = played.seconds / (ENOUGH * FAST)
            click.echo(
                f"Warning: {directory} is {played.seconds:.0f} s long, short for "
                f"windows of {duration(options.scaled(FAST))} and more; try "
                f"--time-scale {scale:.2g}",
                err=True,
            )
        name = directory.name
        found = rehearse(promtool, groups, {name: played}, options)[name]
    except (RehearsalError, PromtoolError) as error:
        fail(str(error), Exit.FAILED)
    if output_format == "json":
        print_json(_document(directory, played, options, found))
    else:
        _print(directory, played, found)
    if found:
        raise SystemExit(int(Exit.FINDING))


def _document(
    directory: Path, played: Recorded, options: Options, found: Sequence[Episode]
) -> dict[str, object]:
    return {
        "recording": str(directory),
        "begin": played.begin,
        "seconds": played.seconds,
        "time_scale": options.time_scale,
        "alerts": [
            {
                "alert": episode.last.alert,
                "start": played.begin + episode.start,
                "end": played.begin + episode.end,
                "labels": dict(episode.last.labels),
                "annotations": dict(episode.last.annotations),
            }
            for episode in found
        ],
    }


def _print(directory: Path, played: Recorded, found: Sequence[Episode]) -> None:
    if not found:
        click.echo(f"{directory}: no alert in {played.seconds:.0f} s")
        return
    for episode in found:
        labels = episode.last.labels
        rest = ", ".join(f"{k}={v}" for k, v in labels.items() if k not in ABOUT_US)
        click.echo(
            f"+{episode.start:.0f} to +{episode.end:.0f} s  {labels['severity']:8} "
            f"{episode.last.alert}  {{{rest}}}"
        )
        click.echo(f"    {episode.last.annotations['summary']}")

"""`goodput compare`: before and after, with intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.commands.common import (
    Exit,
    config_option,
    fail,
    format_option,
    lacking,
    print_json,
)
from analyzer.commands.target import target_classes, target_options
from analyzer.config import Config, load_config
from analyzer.strict import ConfigError

if TYPE_CHECKING:
    from analyzer.compare.quality import Change


@click.command("compare")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@config_option(required=False)
@target_options
@click.option("--range-a", default="", help="Only this time of A: FROM/TO.")
@click.option("--range-b", default="", help="Only this time of B: FROM/TO.")
@click.option(
    "--margin",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="A difference of shares up to this does not count, such as 0.01.",
)
@click.option("--allow-drift", is_flag=True, help="Judge though the loads differ.")
@click.option(
    "--quality",
    nargs=2,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Scores of A's and B's answers: lm-evaluation-harness, or a number a metric.",
)
@format_option
def compare_command(
    a: Path,
    b: Path,
    config_file: Path | None,
    class_name: str,
    good: str,
    objective: float,
    range_a: str,
    range_b: str,
    margin: float,
    allow_drift: bool,  # noqa: FBT001
    quality: tuple[Path, Path] | None,
    output_format: str,
) -> None:
    """Says whether B is better or worse than A, or not distinguishable from it.

    A and B are request logs, recordings, the JSON or the requests' CSV of goodput
    report, benchmark results or the JSON of goodput sweep; load points are compared
    with their like. Intervals draw blocks of time, as requests of one queue episode
    are not independent. Loads that differ are not comparable. For a gate: exits with
    1 when B is worse, when the loads differ, or when quality fell; with 0 else.

    \b
    Examples:
      goodput compare monday tuesday --config.file goodput.yml
      goodput compare before after --good ttft=1s,tpot=50ms --format json
      goodput compare access.log access.log --config.file goodput.yml \\
        --range-a 2026-11-02T09:00/2026-11-02T10:00 --range-b 2026-11-02T10:00/
      goodput compare old.json new.json --quality old-eval.json new-eval.json
    """
    try:
        # Heavy libraries, which the other commands do without.
        from analyzer.compare import span  # noqa: PLC0415
        from analyzer.compare.output import document, lines  # noqa: PLC0415
        from analyzer.compare.sample import CompareError  # noqa: PLC0415
        from analyzer.compare.sides import read_side  # noqa: PLC0415
        from analyzer.compare.verdicts import Verdict, compare  # noqa: PLC0415
    except ImportError as error:
        lacking("goodput compare", error)
    config = _config(config_file, a)
    path = config_file or _own(a)
    classes = target_classes(None if good else path, class_name, good, objective)
    config = replace(config, slo_classes=tuple(classes))
    try:
        spans = [
            span.parse(text) if text else span.Span() for text in (range_a, range_b)
        ]
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        sides = [
            read_side(path, config, classes, limits)
            for path, limits in zip((a, b), spans, strict=True)
        ]
        found = compare(*sides, margin=margin, allow_drift=allow_drift)
        scores = _quality(quality) if quality else None
    except CompareError as error:
        fail(str(error), Exit.FAILED)
    for side in sides:
        for warning in side.warnings:
            click.echo(f"Warning: {side.name}: {warning}", err=True)
    if output_format == "json":
        print_json(document(found, scores))
    else:
        for line in lines(found, scores):
            click.echo(line)
    fell = any(change.verdict is Verdict.WORSE for change in scores or ())
    if fell or found.verdict in {Verdict.WORSE, Verdict.UNLIKE}:
        raise SystemExit(int(Exit.FINDING))


def _own(path: Path) -> Path | None:
    """Returns the configuration that a recording holds."""
    config = path / "config.yml"
    return config if config.is_file() else None


def _config(config_file: Path | None, a: Path) -> Config:
    path = config_file or _own(a)
    if path is None:
        return Config()
    try:
        return load_config(path)
    except ConfigError as error:
        fail(str(error), Exit.USAGE)


def _quality(files: tuple[Path, Path]) -> list[Change]:
    from analyzer.compare.quality import changes, read_scores  # noqa: PLC0415  as above
    from analyzer.compare.sample import CompareError  # noqa: PLC0415

    scores = []
    for path in files:
        try:
            scores.append(read_scores(path.read_bytes(), str(path)))
        except OSError as error:
            raise CompareError(f"{path}: cannot be read: {error.strerror}") from None
    return changes(*scores)

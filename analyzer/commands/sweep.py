"""`goodput sweep`: benchmark results → goodput over the load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.benchmarks.table import FieldMap, read_field_map
from analyzer.commands.common import (
    Exit,
    config_option,
    fail,
    format_option,
    lacking,
    print_json,
    results_argument,
)
from analyzer.commands.target import target_classes, target_options
from analyzer.strict import ConfigError, load

if TYPE_CHECKING:
    from analyzer.sweep.curve import Curve


@click.command("sweep")
@results_argument
@config_option(required=False)
@target_options
@click.option(
    "--fields",
    "fields_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="YAML map from our fields to the columns of CSV files.",
)
@click.option(
    "--plot",
    "plot_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write a picture: .png, .svg or .pdf.",
)
@format_option
def sweep_command(
    files: tuple[Path, ...],
    config_file: Path | None,
    class_name: str,
    good: str,
    objective: float,
    fields_file: Path | None,
    plot_file: Path | None,
    output_format: str,
) -> None:
    """Judges benchmark results by your SLO: knee, goodput region, operating point.

    FILE is a result of vllm bench serve (plain, --save-detailed or appended), vllm
    bench sweep, SGLang's bench_serving, guidellm, aiperf or inference-perf, CSV with
    --fields, or a folder of them. With single requests in the file goodput is
    counted anew for any thresholds, without it are bounds. Files of several folders
    with the same loads are configurations of their own. Exits with 1 when no
    load meets the target, with 3 when no file can be read.

    \b
    Examples:
      goodput sweep results/*.json --good ttft=1s,tpot=50ms --objective 0.95
      goodput sweep seqs16 seqs32 --config.file goodput.yml --plot sweep.svg
      goodput sweep house.csv --fields map.yml --good e2e=10s --format json
    """
    classes = target_classes(config_file, class_name, good, objective)
    fields = _fields(fields_file)
    try:
        # Heavy libraries, which the other commands do without.
        from analyzer.sweep import plot  # noqa: PLC0415
        from analyzer.sweep.document import document  # noqa: PLC0415
        from analyzer.sweep.files import read_files  # noqa: PLC0415
        from analyzer.sweep.judge import curves_by_class  # noqa: PLC0415
        from analyzer.sweep.text import lines  # noqa: PLC0415
    except ImportError as error:
        lacking("goodput sweep", error)
    if plot_file is not None and plot_file.suffix not in plot.FORMATS:
        raise click.UsageError(f"--plot: must end in {', '.join(plot.FORMATS)}")
    runs, problems = read_files(files, fields)
    curves, more = curves_by_class(runs, classes)
    problems += more
    if output_format == "json":
        print_json(document(curves, problems, [str(path) for path in files]))
    else:
        for line in lines(curves):
            click.echo(line)
    for problem in problems:
        click.echo(f"Warning: {problem}", err=True)
    if not any(curves):
        fail("no benchmark result could be read", Exit.FAILED)
    if plot_file is not None:
        _plot(curves, plot_file)
    if any(
        all(c.operating.point is None for c in listed) for listed in curves if classes
    ):
        raise SystemExit(int(Exit.FINDING))


def _fields(path: Path | None) -> FieldMap | None:
    if path is None:
        return None
    try:
        return read_field_map(load(path))
    except ConfigError as error:
        fail(str(error), Exit.USAGE)


def _plot(curves: Sequence[Sequence[Curve]], path: Path) -> None:
    """Writes a picture a class; those after the first have its name in theirs."""
    from analyzer.sweep.plot import write  # noqa: PLC0415  as above

    for index, listed in enumerate(curves):
        slo_class = listed[0].slo_class
        name = f"-{slo_class.name}" if index and slo_class else ""
        try:
            write(listed, path.with_name(f"{path.stem}{name}{path.suffix}"))
        except ImportError as error:
            lacking("--plot", error)
        except OSError as error:
            fail(f"{path}: {error.strerror or error}", Exit.FAILED)

"""`goodput report`: what happened in a period."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.commands.common import (
    Exit,
    config_option,
    fail,
    format_option,
    print_json,
)
from analyzer.config import Config, load_config
from analyzer.config_gateways import GatewaySource
from analyzer.strict import ConfigError

if TYPE_CHECKING:
    from analyzer.report.report import Report

NEEDS = "needs the libraries of the analyzer: pip install 'llm-goodput[analyzer]'"


@click.command("report")
@click.argument("logs", metavar="LOG…", nargs=-1)
@config_option(required=False)
@click.option("--gateway", help="Read the logs as this configured gateway's.")
@click.option(
    "--html",
    "html_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the report as one HTML file with plots.",
)
@click.option(
    "--requests",
    "requests_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write one CSV row a request.",
)
@click.option("--scheduler", help="Read on the workers of this Dask scheduler.")
@format_option
def report_command(
    logs: tuple[str, ...],
    config_file: Path | None,
    gateway: str | None,
    html_file: Path | None,
    requests_file: Path | None,
    scheduler: str | None,
    output_format: str,
) -> None:
    """Reports a period: goodput by class, model, tenant and hour, and what spent it.

    LOG is a request log of any known format (plain, .gz or .xz), a pattern of such
    names in quotes, or the directory of a recording. Reading takes the same memory
    however long the logs are. Exits with 1 when a class surely missed its objective.

    \b
    Examples:
      goodput report --config.file goodput.yml /var/log/envoy/access.log
      goodput report --config.file goodput.yml 'logs/*.gz' --html report.html
      goodput report recordings/monday --requests requests.csv --format json
    """
    if not logs:
        raise click.UsageError("give at least one LOG")
    if requests_file is not None and scheduler is not None:
        raise click.UsageError("--requests is written here: leave out --scheduler")
    config = _config(config_file, logs)
    source = _gateway(config, gateway)
    try:
        # Heavy libraries, which the other commands do without.
        from analyzer.report.from_logs import NothingRead, report_logs  # noqa: PLC0415
        from analyzer.report.run import ClusterError  # noqa: PLC0415
    except ImportError as error:
        fail(f"goodput report {NEEDS} ({error.name} is missing)", Exit.FAILED)
    try:
        report = report_logs(
            logs,
            config,
            source,
            requests_file=requests_file,
            scheduler=scheduler,
        )
    except (NothingRead, ClusterError) as error:
        fail(str(error), Exit.FAILED)
    _write(report, html_file, output_format)


def _write(report: Report, html_file: Path | None, output_format: str) -> None:
    """Prints the report, writes its HTML file, and exits with what it found."""
    from analyzer.report.text import lines_of  # noqa: PLC0415  as above

    if output_format == "json":
        print_json(report.document())
    else:
        for line in lines_of(report):
            click.echo(line)
    if html_file is not None:
        _write_page(report, html_file)
    for error in report["sources"]["error"]:
        if error:
            click.echo(f"Error: {error}", err=True)
    if report.missed:
        raise SystemExit(int(Exit.FINDING))


def _write_page(report: Report, path: Path) -> None:
    from analyzer.report.page import page_of  # noqa: PLC0415  as above

    try:
        path.write_text(page_of(report, title="Goodput report"), encoding="utf-8")
    except OSError as error:
        fail(f"{path}: {error.strerror}", Exit.FAILED)


def _config(path: Path | None, logs: tuple[str, ...]) -> Config:
    """Returns the configuration given, else that of the first recording."""
    if path is None:
        found = (Path(log) / "config.yml" for log in logs)
        path = next((f for f in found if f.is_file()), None)
    if path is None:
        click.echo("no --config.file: nothing is judged without classes", err=True)
        return Config()
    try:
        return load_config(path)
    except ConfigError as error:
        fail(str(error), Exit.USAGE)


def _gateway(config: Config, name: str | None) -> GatewaySource:
    """Returns the source that says how logs are read: the first one by default."""
    if name is None:
        return config.gateways[0] if config.gateways else GatewaySource("gateway")
    for source in config.gateways:
        if source.name == name:
            return source
    raise click.UsageError(f"--gateway: the configuration has no gateway {name!r}")

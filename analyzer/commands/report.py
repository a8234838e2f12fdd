"""`goodput report`: what happened in a period."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from os.path import expandvars
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.commands.common import (
    Exit,
    config_option,
    fail,
    format_option,
    lacking,
    print_json,
)
from analyzer.config import Config, load_config
from analyzer.config_gateways import GatewaySource
from analyzer.strict import ConfigError, parse_duration

if TYPE_CHECKING:
    from analyzer.report.report import Report
    from analyzer.sweep.curve import Curve


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
@click.option(
    "--sweep",
    "sweep_files",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Compare with these benchmark results of one server (see goodput sweep).",
)
@click.option(
    "--replicas",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Servers that shared the load, for --sweep.",
)
@click.option("--scheduler", help="Read on the workers of this Dask scheduler.")
@click.option(
    "--prometheus",
    "prometheus_url",
    metavar="URL",
    help="Ask Prometheus, Thanos, Mimir or VictoriaMetrics instead of logs.",
)
@click.option("--last", help="Period that ends now (or --to), such as 7d; 1d if unset.")
@click.option("--from", "begin", help="Begin of the period: RFC 3339 or Unix seconds.")
@click.option("--to", "end", help="End of the period, likewise; now if unset.")
@click.option("--step", help="Width of the timeline's steps, such as 1h.")
@click.option("--match", default="", help="Matchers of series, such as 'job=\"llm\"'.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME:VALUE",
    help="Sent with every query; $NAME is the environment's. May be repeated.",
)
@click.option(
    "--authorization.credentials-file",
    "credentials_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with the bearer token for --prometheus.",
)
@format_option
def report_command(
    logs: tuple[str, ...],
    config_file: Path | None,
    gateway: str | None,
    html_file: Path | None,
    requests_file: Path | None,
    sweep_files: tuple[Path, ...],
    replicas: int,
    scheduler: str | None,
    prometheus_url: str | None,
    output_format: str,
    **asked: Any,  # noqa: ANN401  options of --prometheus
) -> None:
    """Reports a period: goodput by class, model, tenant and hour, and what spent it.

    LOG is a request log of any known format (plain, .gz or .xz), a pattern of such
    names in quotes, or the directory of a recording. Reading takes the same memory
    however long the logs are. With --prometheus the report is made from what a
    server kept of goodput-exporter's metrics. Exits with 1 when a class surely missed
    its objective.

    \b
    Examples:
      goodput report --config.file goodput.yml /var/log/envoy/access.log
      goodput report --config.file goodput.yml 'logs/*.gz' --html report.html
      goodput report recordings/monday --requests requests.csv --format json
      goodput report --prometheus http://prometheus:9090 --last 7d --html week.html
    """
    if bool(logs) == (prometheus_url is not None):
        raise click.UsageError("give LOG or --prometheus, one of them")
    if prometheus_url is not None:
        if requests_file is not None or scheduler is not None or sweep_files:
            raise click.UsageError("--requests, --scheduler and --sweep are for logs")
        config = Config() if config_file is None else configuration(config_file, ())
        report = _from_prometheus(prometheus_url, config, **asked)
        _write(report, html_file, output_format)
        return
    if requests_file is not None and scheduler is not None:
        raise click.UsageError("--requests is written here: leave out --scheduler")
    config = configuration(config_file, logs)
    source = gateway_of(config, gateway)
    try:
        # Heavy libraries, which the other commands do without.
        from analyzer.report.from_logs import NothingRead, report_logs  # noqa: PLC0415
        from analyzer.report.run import ClusterError  # noqa: PLC0415
    except ImportError as error:
        lacking("goodput report", error)
    try:
        report = report_logs(
            logs,
            config,
            source,
            requests_file=requests_file,
            scheduler=scheduler,
            curves=_curves(sweep_files, config),
            replicas=replicas,
        )
    except (NothingRead, ClusterError) as error:
        fail(str(error), Exit.FAILED)
    _write(report, html_file, output_format)


def _curves(files: tuple[Path, ...], config: Config) -> Sequence[Sequence[Curve]]:
    """Returns the curves of benchmark results under the classes."""
    if not files:
        return ()
    from analyzer.sweep.files import read_files  # noqa: PLC0415  as above
    from analyzer.sweep.judge import curves_by_class  # noqa: PLC0415

    if not config.slo_classes:
        raise click.UsageError("--sweep needs the SLO classes of --config.file")
    runs, problems = read_files(files)
    curves, more = curves_by_class(runs, config.slo_classes)
    for problem in (*problems, *more):
        click.echo(f"Warning: {problem}", err=True)
    if not curves:
        fail("--sweep: no benchmark result could be read", Exit.FAILED)
    return curves


def _from_prometheus(
    url: str,
    config: Config,
    *,
    last: str | None,
    begin: str | None,
    end: str | None,
    step: str | None,
    match: str,
    headers: tuple[str, ...],
    credentials_file: Path | None,
) -> Report:
    """Returns the report of a period as a server knows it."""
    try:
        from analyzer.report import from_prometheus as made  # noqa: PLC0415  as above
    except ImportError as error:
        lacking("goodput report", error)
    from analyzer.sources.prometheus import (  # noqa: PLC0415  as above
        Prometheus,
        PrometheusError,
    )

    if last is not None and begin is not None:
        raise click.UsageError("give --last or --from, one of them")
    stop = time.time() if end is None else _moment(end, "--to")
    start = stop - _seconds(last or "1d", "--last")
    if begin is not None:
        start = _moment(begin, "--from")
    if start >= stop:
        raise click.UsageError("the period ends before it begins")
    width = None if step is None else math.ceil(_seconds(step, "--step"))
    when = made.period(start, stop, width)
    try:
        sent = _headers(headers, credentials_file)
        with Prometheus(url, sent) as server, _bar(made.QUERIES) as on_query:
            source = made.Source(server, when, match=match, on_query=on_query)
            report = made.report_prometheus(source, config.slo_classes)
    except (PrometheusError, made.NoData) as error:
        fail(str(error), Exit.FAILED)
    for warning in dict.fromkeys(source.warnings):
        click.echo(f"Warning: {warning}", err=True)
    return report


@contextmanager
def _bar(length: int) -> Iterator[Callable[[], None]]:
    """Shows on a terminal how many queries are answered."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with click.progressbar(length=length, label="asking", file=sys.stderr) as bar:
        yield lambda: bar.update(1)


def _seconds(text: str, option: str) -> float:
    found = parse_duration(text)
    if not found:
        raise click.UsageError(f"{option}: {text!r} is no duration such as 30m or 7d")
    return found


def _moment(text: str, option: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            raise click.UsageError(
                f"{option}: {text!r} is neither RFC 3339 nor Unix seconds"
            ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _headers(given: tuple[str, ...], credentials_file: Path | None) -> dict[str, str]:
    """Returns the headers of queries; secrets come from the environment or a file."""
    found = {}
    for text in given:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise click.UsageError(f"--header: {name!r} lacks a value after a colon")
        found[name.strip()] = expandvars(value.strip())
    if credentials_file is not None:
        try:
            token = credentials_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            fail(f"{credentials_file}: cannot be read: {error}", Exit.USAGE)
        found["Authorization"] = f"Bearer {token}"
    return found


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


def configuration(path: Path | None, logs: tuple[str, ...]) -> Config:
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


def gateway_of(config: Config, name: str | None) -> GatewaySource:
    """Returns the source that says how logs are read: the first one by default."""
    if name is None:
        return config.gateways[0] if config.gateways else GatewaySource("gateway")
    for source in config.gateways:
        if source.name == name:
            return source
    raise click.UsageError(f"--gateway: the configuration has no gateway {name!r}")

"""The command line of `goodput-exporter`."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import click

from analyzer.config import load_config
from analyzer.strict import ConfigError, parse_duration
from exporter.daemon import StartError, run
from exporter.demo import NAMES, DemoOptions, scenarios_text
from exporter.logs import FORMATS, configure_logging
from exporter.web_config import read_web_config

DISTRIBUTION = "llm-goodput"
DAY = 86400.0


@click.command(
    context_settings={"max_content_width": 100},
    epilog=f"\b\nScenarios of --demo:\n{scenarios_text()}",
)
@click.option(
    "--config.file",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Configuration: SLO classes and sources (see docs/configuration.md).",
)
@click.option(
    "--config.check", "config_check", is_flag=True, help="Validate the file and exit."
)
@click.option(
    "--config.auto-reload-interval",
    "reload_interval",
    default="0s",
    show_default=True,
    callback=lambda _context, _option, text: _seconds(text),
    help="How often to look whether the file changed, and reload it; 0s is never.",
)
@click.option(
    "--web.listen-address",
    "listen_address",
    default=":10555",
    show_default=True,
    help="Address to listen on.",
)
@click.option(
    "--web.telemetry-path",
    "telemetry_path",
    default="/metrics",
    show_default=True,
    help="Path of the metrics.",
)
@click.option(
    "--web.config.file",
    "web_config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TLS and basic auth, in the exporter-toolkit's format.",
)
@click.option(
    "--web.enable-lifecycle/--no-web.enable-lifecycle",
    "lifecycle",
    default=True,
    show_default="enabled",
    help="Allow a reload by POST /-/reload.",
)
@click.option(
    "--storage.path",
    "storage_path",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory that keeps counters over restarts. Without it they start at 0.",
)
@click.option(
    "--log.level",
    "log_level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Least severe level that is logged.",
)
@click.option(
    "--log.format",
    "log_format",
    type=click.Choice(FORMATS),
    default="logfmt",
    show_default=True,
    help="Format of the log on standard error.",
)
@click.option(
    "--demo",
    "scenario",
    is_flag=False,
    flag_value=NAMES[0],
    type=click.Choice(NAMES),
    help="Watch a simulated fleet; no engine and no configuration are needed.",
)
@click.option(
    "--demo.speed",
    "speed",
    type=click.FloatRange(min=0.1, max=100.0),
    default=1.0,
    show_default=True,
    help="Simulated seconds that pass in a second. A verdict looks at 8 seconds of "
    "ours: above 3 the tour's minutes blur.",
)
@click.option(
    "--demo.replicas",
    "replicas",
    type=click.IntRange(min=1, max=500),
    default=2,
    show_default=True,
    help="Simulated engines.",
)
@click.option(
    "--demo.seed",
    "seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Seed of the simulation's chance.",
)
@click.version_option(version(DISTRIBUTION), prog_name="goodput-exporter")
def main(
    config_file: Path | None,
    config_check: bool,  # noqa: FBT001  a command line flag
    reload_interval: float,
    listen_address: str,
    telemetry_path: str,
    web_config: Path | None,
    lifecycle: bool,  # noqa: FBT001  a command line flag
    storage_path: Path | None,
    log_level: str,
    log_format: str,
    scenario: str | None,
    speed: float,
    replicas: int,
    seed: int,
) -> None:
    """Tells whether LLM serving is good for its users, as Prometheus metrics.

    Scrapes the configured vLLM engines, judges them against SLO classes and serves
    the result on /metrics, with a status page on /.

    \b
    Examples:
      goodput-exporter --config.file goodput.yml
      goodput-exporter --config.file goodput.yml --config.check
      goodput-exporter --demo
      goodput-exporter --demo=kv-pressure --demo.replicas 4 --demo.speed 2
    """
    configure_logging(log_level, log_format)
    if config_file is None and scenario is None:
        raise click.UsageError("Give --config.file, or --demo to look around.")
    if config_file is not None and scenario is not None:
        raise click.UsageError("--demo has its own configuration: no --config.file.")
    if config_check:
        if config_file is None:
            raise click.UsageError("--config.check needs --config.file.")
        sys.exit(_check(config_file, web_config))
    demo = None
    if scenario is not None:
        demo = DemoOptions(scenario, speed=speed, replicas=replicas, seed=seed)
    try:
        run(
            config_file=config_file,
            demo=demo,
            listen_address=listen_address,
            telemetry_path=telemetry_path,
            web_config=web_config,
            lifecycle=lifecycle,
            storage_path=storage_path,
            reload_seconds=reload_interval,
            version=version(DISTRIBUTION),
        )
    except (ConfigError, StartError) as error:
        raise click.ClickException(str(error)) from error


def _seconds(text: str) -> float:
    seconds = parse_duration(text)
    if seconds is None or 0 < seconds < 1 or seconds > DAY:
        raise click.BadParameter(f"{text!r} is not 0s, nor a duration from 1s to 1d")
    return seconds


def _check(path: Path, web_config: Path | None) -> int:
    try:
        config = load_config(path)
        if web_config is not None:
            read_web_config(web_config)
    except ConfigError as error:
        click.echo(str(error), err=True)
        return 1
    click.echo(f"{path}: {config.summary()}")
    return 0

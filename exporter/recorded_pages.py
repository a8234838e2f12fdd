"""What the exporter would have served during a recording, as series for promtool.

    python -m exporter.recorded_pages DIRECTORY CONFIG --metric NAME --metric …

It plays a recording through the daemon's own flows and collector, and prints one JSON
object: when it begins, the time between two values, and each series' values in the
notation of `promtool test rules`. Only the metrics named are kept.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
import msgspec

from analyzer.config import Config, load_config
from analyzer.config_gateways import GatewaySource
from analyzer.flow import EngineFlow
from analyzer.gateways.framing import Framing, FramingState, Unframer
from analyzer.ledger import Ledger
from analyzer.logflow import LogFlow
from analyzer.replay import DEFAULT_GATEWAY, GpuReplay, replay
from analyzer.sources.log_file import log_path, read_lines
from analyzer.sources.recording import (
    GPU_SCRAPES,
    RecordingError,
    holds,
    read_scrapes,
)
from analyzer.strict import ConfigError
from exporter import gpu_rows
from exporter.collector import View, families
from exporter.request_rows import LogView

SCRAPED = (("job", "goodput"), ("instance", "recording"))
TIMESTAMP = "_timestamp_seconds"  # Unix times; the rules' time begins at 0
LINES_AT_ONCE = 10_000


class TimedLog:
    """A recorded request log whose lines come when their requests end."""

    def __init__(self, path: Path, config: Config) -> None:
        found = config.gateways[0] if config.gateways else None
        source = found or GatewaySource(DEFAULT_GATEWAY)
        self.flow = LogFlow(source, config)
        self._lines = _by_time(_messages(read_lines(path), source), source, config)
        self._next = next(self._lines, None)

    def until(self, at: float) -> None:
        """Counts every request that ended up to *at* (Unix seconds)."""
        lines = []
        while self._next is not None and self._next[0] <= at:
            lines.append(self._next[1])
            self._next = next(self._lines, None)
        self.flow.take(lines, at)

    def view(self) -> LogView:
        """Returns the log as a scrape shows it."""
        return LogView(self.flow.source.name, self.flow.totals, {}, 0.0)


def _messages(lines: Iterator[bytes], source: GatewaySource) -> Iterator[bytes]:
    unframer = Unframer(FramingState(Framing(source.framing)))
    for line in lines:
        yield from unframer.feed([line]).messages
    yield from unframer.flush().messages


def _by_time(
    lines: Iterator[bytes], source: GatewaySource, config: Config
) -> Iterator[tuple[float, bytes]]:
    """Yields each line with the latest end of a request up to it.

    Gateways write a line when its request has ended, or a little later.
    """
    reader = LogFlow(source, config)
    undated: list[bytes] = []
    for line in lines:
        reader.take([line], float("inf"))
        latest = reader.totals.last_record
        undated.append(line)
        if latest is not None:
            yield from ((latest, one) for one in undated)
            undated.clear()


@dataclass(slots=True)
class Pages:
    """Collects the values of the wanted metrics at a steady pace."""

    config: Config
    wanted: Collection[str]
    interval: float
    log: TimedLog | None = None
    gpus: GpuReplay | None = None
    begin: float | None = None
    ticks: int = 0
    series: dict[str, list[float | None]] = field(default_factory=dict)

    def take(self, flow: EngineFlow, at: float) -> None:
        """Adds what a scrape at *at* shows; others until the next tick do not count."""
        if self.begin is None:
            self.begin = at
        tick = round((at - self.begin) / self.interval)
        if tick < self.ticks:
            return
        for name, value in self._samples(flow, at):
            values = self.series.setdefault(name, [])
            values.extend([None] * (tick - len(values)))
            values.append(value)
        self.ticks = tick + 1

    def _samples(self, flow: EngineFlow, at: float) -> Iterator[tuple[str, float]]:
        logs: Sequence[LogView] = ()
        if self.log is not None:
            for model in flow.totals:
                self.log.flow.expect(model)
            self.log.until(at)
            logs = [self.log.view()]
        view = View(
            at=at,
            config=self.config,
            flows=[flow],
            retired=[],
            process=Ledger(),
            reload_ok=True,
            loaded_at=self.begin or at,
            state_ok=None,
            version="recording",
            logs=logs,
            gpus=gpu_rows.views([self.gpus.flow], [], at) if self.gpus else (),
        )
        for family in families(view):
            for sample in family.samples:
                if sample.name not in self.wanted:
                    continue
                pairs = (*sample.labels.items(), *SCRAPED)
                labels = ",".join(f"{k}={_quoted(v)}" for k, v in pairs if v)
                value = sample.value
                if sample.name.endswith(TIMESTAMP):
                    value -= self.begin or 0.0
                yield f"{sample.name}{{{labels}}}", value

    def document(self) -> dict[str, object]:
        """Returns what was collected."""
        return {
            "begin": self.begin,
            "interval": self.interval,
            "ticks": self.ticks,
            "series": {
                name: " ".join(self._notation(values))
                for name, values in self.series.items()
            },
        }

    def _notation(self, values: list[float | None]) -> Iterator[str]:
        """Yields values; where a series ends it is marked so, as Prometheus does."""
        before: float | None = None
        for value in (*values, *([None] * (self.ticks > len(values)))):
            if value is None:
                yield "_" if before is None else "stale"
            else:
                yield f"{value:.10g}"
            before = value


def _quoted(value: str) -> str:
    return msgspec.json.encode(value).decode()


def pages(
    directory: Path, config: Config, *, wanted: Collection[str], interval: float
) -> Pages:
    """Returns the values of *wanted* during a recording. Raises RecordingError."""
    found = log_path(directory)
    gpus = None
    if holds(directory, GPU_SCRAPES):
        gpus = GpuReplay(read_scrapes(directory, GPU_SCRAPES), config)
    log = TimedLog(found, config) if found is not None else None
    collected = Pages(config, wanted, interval, log, gpus)
    scrapes = read_scrapes(directory)
    replay(scrapes, config, gpus=gpus, log=log, on_scrape=collected.take)
    return collected


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.argument("config_file", type=click.Path(path_type=Path))
@click.option("--metric", "metrics", multiple=True, help="A series to keep.")
@click.option("--interval", type=float, default=1.0, help="Seconds between values.")
def main(
    directory: Path, config_file: Path, metrics: tuple[str, ...], interval: float
) -> None:
    """Prints what a recording would have shown; see the module's text."""
    try:
        config = load_config(config_file)
        found = pages(directory, config, wanted=set(metrics), interval=interval)
    except (ConfigError, RecordingError) as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(1) from error
    sys.stdout.buffer.write(msgspec.json.encode(found.document()))


if __name__ == "__main__":
    main()

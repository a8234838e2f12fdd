"""`goodput record`: writes what an engine's page says, for later replay."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, closing
from pathlib import Path

import click
import yaml

from analyzer.commands.common import Exit, config_option, fail
from analyzer.commands.ending import ABORT_SECONDS, Ending, flying
from analyzer.config import Config, load_config
from analyzer.config_gateways import GatewaySource
from analyzer.config_gpus import GpuSource
from analyzer.config_sources import EngineSource
from analyzer.gpus.match import same_host
from analyzer.sources.discover import all_engines
from analyzer.sources.log_file import LogCopy
from analyzer.sources.recording import (
    GPU_SCRAPES,
    SCRAPES,
    Recorder,
    RecordingError,
)
from analyzer.sources.scrape import Fetcher, ScrapeError
from analyzer.strict import ConfigError, expanded, load, parse_duration

LISTED = 20  # names of engines in a message


@click.command("record")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@config_option(required=True)
@click.option(
    "--for",
    "period",
    default="5m",
    show_default=True,
    help="How long to record, such as 30s, 5m or 1h.",
)
@click.option("--target", default="", help="Engine to record, when there are several.")
@click.option(
    "--interval",
    default="",
    help="Time between scrapes; by default each source's own.",
)
def record_command(
    directory: Path, config_file: Path, period: str, target: str, interval: str
) -> None:
    """Records an engine's metrics (and its GPUs') into DIRECTORY.

    Writes scrapes/NNNN.prom with scrapes/index.csv, gpu/ likewise for the GPU
    exporter of the engine's node (the first one when that is not known), access.log
    when a gateway's log is a file, and config.yml. Ctrl-C ends the recording early;
    what is there is complete.

    \b
    Examples:
      goodput record --config.file goodput.yml --for 5m recordings/monday
      goodput record --config.file goodput.yml --for 1h --interval 1s long
    """
    try:
        node = load(config_file)
        config = load_config(config_file)
    except ConfigError as error:
        fail(str(error), Exit.USAGE)
    seconds = parse_duration(period)
    every = parse_duration(interval) if interval else 0.0
    if not seconds or every is None:
        raise click.UsageError("--for and --interval are durations such as 30s or 5m.")
    engine = _engine(config, target)
    try:
        with ExitStack() as stack:
            ending = stack.enter_context(closing(Ending()))  # until all is closed
            pages = _Recording(engine, directory, SCRAPES)
            stack.callback(pages.close)
            gpus = [
                stack.enter_context(closing(_Aside(gpu, directory, every)))
                for gpu in _gpus(config, engine)
            ]
            copies = _copies(config, directory)
            for copy in copies:
                stack.callback(copy.close)
            names = {
                "engines": {engine.name},
                "gpus": {gpu.name for gpu in gpus},
                "gateways": {copy.name for copy in copies},
            }
            for gateway in config.gateways:
                if gateway.name not in names["gateways"]:
                    said = f"gateway {gateway.name} is not recorded: {_why(gateway)}"
                    click.echo(said, err=True)
            document = _recorded(expanded(node), names, engine)
            text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
            (directory / "config.yml").write_text(text, encoding="utf-8")
            every = every or engine.interval
            _record(pages, gpus, copies, ending, seconds=seconds, every=every)
    except (RecordingError, OSError) as error:
        fail(str(error), Exit.FAILED)
    count, failed = pages.recorder.count, pages.failed
    click.echo(f"{directory}: {count} scrapes, {failed} failed", err=True)
    if failed == count:
        fail(f"{engine.url}: no page was recorded", Exit.FAILED)


def _recorded(
    document: object, names: Mapping[str, Collection[str]], engine: EngineSource
) -> object:
    """Returns a configuration document without the sources that are not recorded.

    A replay takes the first of each kind for the recorded one. It no longer knows the
    pod and the node that discovery told of *engine*, so the GPUs' match gets them.
    """
    if not isinstance(document, dict):
        return document
    kept = {
        key: [item for item in value if item["name"] in names[key]]
        if key in names
        else value
        for key, value in document.items()
    }
    for gpu in kept.get("gpus", ()):
        match = gpu.setdefault("match", {})
        if "node" in engine.labels:
            match.setdefault("hostname", engine.labels["node"])
        if "pod" in engine.labels and not match.keys() - {"hostname"}:
            match["pod"] = engine.labels["pod"]
    return kept


def _gpus(config: Config, engine: EngineSource) -> list[GpuSource]:
    """Returns the GPU exporter of the engine's node, else the first one."""
    node = engine.labels.get("node", "")
    near = [
        gpu
        for gpu in config.gpus
        if node and gpu.match.hostname and same_host(gpu.match.hostname, node)
    ]
    return [*near, *config.gpus][:1]


def _engine(config: Config, target: str) -> EngineSource:
    engines = all_engines(config)
    if not engines:
        raise click.UsageError("The configuration has no engines, or finds none.")
    listed = ", ".join(engine.name for engine in engines[:LISTED])
    if len(engines) > LISTED:
        listed += f" and {len(engines) - LISTED} more"
    if not target and len(engines) > 1:
        raise click.UsageError(f"Give --target, one of: {listed}.")
    for engine in engines:
        if engine.name == (target or engines[0].name):
            return engine
    raise click.UsageError(f"No engine {target!r}; there are: {listed}.")


class _Recording:
    """One source being recorded; has `close()`."""

    def __init__(
        self, source: EngineSource | GpuSource, directory: Path, folder: str
    ) -> None:
        self.source = source
        self._fetcher = Fetcher.of(source)
        self.recorder = Recorder(directory, folder)
        self.failed = 0
        self._aborted = False

    def take(self) -> None:
        """Scrapes once and writes it."""
        at, begun = time.time(), time.monotonic()
        try:
            page = self._fetcher.get(self.source.url, timeout=self.source.timeout)
        except ScrapeError as error:
            if self._aborted:
                return
            self.failed += 1
            self.recorder.add(at, time.monotonic() - begun, None, error.reason)
        else:
            self.recorder.add(at, page.seconds, page.body, "")

    def abort(self) -> None:
        """Ends the scrape that another thread is in; nothing is written of it."""
        self._aborted = True
        self._fetcher.abort()

    def close(self) -> None:
        """Closes the connection and the index."""
        self._fetcher.close()
        self.recorder.close()


class _Aside:
    """A GPU exporter recorded at its own pace, in a thread; has `close()`.

    It may hang for as long as it likes: the engine's scrapes go on.
    """

    def __init__(self, source: GpuSource, directory: Path, every: float) -> None:
        self.name = source.name
        self.recording = _Recording(source, directory, GPU_SCRAPES)
        self._every = every or source.interval
        self._due: float | None = None  # monotonic
        self.flight: Future[None] | None = None

    def take(self) -> None:
        """Scrapes once when it is time and the scrape before has ended.

        Raises what went wrong with that one.
        """
        now = time.monotonic()
        if self.flight is not None:
            if not self.flight.done():
                return
            self.flight.result()
        if self._due is None or now >= self._due:
            due = (now if self._due is None else self._due) + self._every
            self._due = due if due > now else now + self._every
            self.flight = flying(self.recording.take)

    def close(self) -> None:
        """Ends the scrape in work, if there is one, and closes the recording."""
        if self.flight is not None and not self.flight.done():
            self.recording.abort()
            wait((self.flight,), ABORT_SECONDS)
        self.recording.close()


def _copies(config: Config, directory: Path) -> list[LogCopy]:
    """Returns the copy of the first request log that is a file."""
    files = [g for g in config.gateways if g.path not in ("", "-")]
    return [LogCopy(g.name, Path(g.path), directory) for g in files[:1]]


def _why(gateway: GatewaySource) -> str:
    if gateway.path in ("", "-"):
        return "its requests do not come from a file"
    return "a recording holds one request log, that of the first gateway with a file"


def _record(
    pages: _Recording,
    gpus: Sequence[_Aside],
    copies: Sequence[LogCopy],
    ending: Ending,
    *,
    seconds: float,
    every: float,
) -> None:
    length = max(1, math.ceil(seconds / every))
    with click.progressbar(range(length), label="recording", file=sys.stderr) as bar:
        done = 0
        for number in _ticks(seconds, every, ending):
            for gpu in gpus:
                gpu.take()
            ending.wait(flying(pages.take), pages.abort)
            for copy in copies:
                copy.take()
            bar.update(number + 1 - done)
            done = number + 1
        for gpu in gpus:
            if gpu.flight is not None:
                ending.wait(gpu.flight, gpu.recording.abort)


def _ticks(seconds: float, every: float, ending: Ending) -> Iterator[int]:
    """Yields at a steady pace; a scrape that takes longer skips, it does not shift."""
    begun = time.monotonic()
    number = 0
    while (due := number * every) < seconds:
        if ending.sleep(begun + due - time.monotonic()):
            return
        yield number
        late = time.monotonic() - begun
        number = max(number + 1, int(late / every) + 1 if late > due + every else 0)

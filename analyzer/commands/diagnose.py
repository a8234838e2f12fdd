"""`goodput diagnose`: what binds now, or bound in a recording, and what to do."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import click

from analyzer.commands.common import (
    Exit,
    config_option,
    fail,
    format_option,
    number,
    print_json,
)
from analyzer.commands.replay import (
    load_replay_config,
    recorded_gpus,
    recorded_log,
)
from analyzer.config import Config, load_config
from analyzer.config_gpus import GpuSource
from analyzer.config_sources import EngineSource
from analyzer.document import windows
from analyzer.flow import EngineFlow
from analyzer.gpus.activity import engine_activity
from analyzer.gpus.flow import GpuFlow
from analyzer.replay import replay
from analyzer.slo_rows import Document
from analyzer.sources.discover import all_engines
from analyzer.sources.recording import RecordingError, read_scrapes
from analyzer.sources.scrape import Fetcher, ScrapeError
from analyzer.strict import ConfigError, parse_duration
from analyzer.verdict import Family

CALM = (Family.NONE.value, Family.UNKNOWN.value)
LEAST_SAMPLES = 2
MOST_AT_ONCE = 16


@click.command("diagnose")
@click.argument(
    "directory", required=False, type=click.Path(path_type=Path, file_okay=False)
)
@config_option(required=False)
@click.option(
    "--for",
    "period",
    default="10s",
    show_default=True,
    help="How long to look at live engines; two samples at least.",
)
@format_option
def diagnose_command(
    directory: Path | None, config_file: Path | None, period: str, output_format: str
) -> None:
    """Says what binds, with evidence and advice: now, or in the recording DIRECTORY.

    Without DIRECTORY the engines of --config.file are sampled for a while; how step
    times grow with the batch is then known only as far as those seconds tell, so the
    exporter's verdicts are the surer ones. Exits with 1 when something binds, with 3
    when no engine could be read.

    \b
    Examples:
      goodput diagnose recordings/monday
      goodput diagnose --config.file goodput.yml
      goodput diagnose --config.file goodput.yml --for 30s --format json
    """
    if directory is not None:
        found = _recorded(directory, config_file)
        rows = _shares(windows(found, latest=False))
    elif config_file is not None:
        seconds = parse_duration(period)
        if not seconds:
            raise click.UsageError("--for is a duration such as 10s.")
        found = _watched(config_file, seconds)
        rows = windows(found, latest=True)
    else:
        raise click.UsageError("Give a DIRECTORY or --config.file.")
    if output_format == "json":
        print_json({"constraints": rows})
    else:
        for row in rows:
            _print(row)
    if any(row["family"] not in CALM for row in rows):
        raise SystemExit(int(Exit.FINDING))


def _recorded(directory: Path, config_file: Path | None) -> list[EngineFlow]:
    config = load_replay_config(directory, config_file)
    try:
        gpus, log = recorded_gpus(directory, config), recorded_log(directory, config)
        found = replay(read_scrapes(directory), config, gpus=gpus, log=log)
    except RecordingError as error:
        fail(str(error), Exit.FAILED)
    if found is None:
        fail(f"{directory}: the recording has no scrapes", Exit.FAILED)
    return [found[0]]


def _shares(rows: Iterable[Document]) -> list[Document]:
    """Returns one row for each verdict on each rank, the one that held longest first.

    Evidence and advice are those of its longest window; `seconds` and `share` say how
    much of the recording it holds for.
    """
    groups: dict[tuple[object, ...], list[Document]] = {}
    whole: dict[tuple[object, ...], float] = {}
    for row in rows:
        rank = (row["target"], row["model"], row["rank"])
        groups.setdefault((*rank, row["family"], row["cause"]), []).append(row)
        whole[rank] = whole.get(rank, 0.0) + row["end"] - row["start"]
    result = []
    for key, windows_of in groups.items():
        seconds = sum(row["end"] - row["start"] for row in windows_of)
        longest = max(windows_of, key=lambda row: float(row["end"] - row["start"]))
        total = whole[key[:3]]
        share = seconds / total if total else None
        result.append({**longest, "seconds": seconds, "share": share})
    return sorted(result, key=lambda row: -float(row["seconds"]))


def _watched(config_file: Path, seconds: float) -> list[EngineFlow]:
    """Returns the flows of all engines after *seconds* of sampling."""
    try:
        config = load_config(config_file)
    except ConfigError as error:
        fail(str(error), Exit.USAGE)
    sources = all_engines(config)
    if not sources:
        fail(f"{config_file}: there is no engine to ask", Exit.USAGE)
    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        gpus = list(pool.map(_look, config.gpus))
        watch = partial(_watch, config=config, gpus=gpus, seconds=seconds)
        flows = list(pool.map(watch, sources))
    if not any(flow.reading for flow in flows):
        reasons = {flow.attempt.reason for flow in flows if flow.attempt}
        fail(f"no engine could be read: {', '.join(sorted(reasons))}", Exit.FAILED)
    return flows


def _look(source: GpuSource) -> GpuFlow:
    """Returns a GPU exporter's flow after one page, which is a mean over a while."""
    flow = GpuFlow(source)
    began, at = time.monotonic(), time.time()
    fetcher = Fetcher.of(source)
    try:
        page = flow.read(fetcher.get(source.url, timeout=source.timeout).text, at)
    except ScrapeError as error:
        spent = time.monotonic() - began
        flow.fail(error.reason, at, seconds=spent, detail=error.detail)
    else:
        flow.observe(page, seconds=time.monotonic() - began)
    finally:
        fetcher.close()
    return flow


def _watch(
    source: EngineSource, *, config: Config, gpus: Sequence[GpuFlow], seconds: float
) -> EngineFlow:
    """Returns an engine's flow after *seconds* of samples at its interval."""
    flow = EngineFlow(source, config, since=time.time())
    end = time.monotonic() + seconds
    samples = 0
    fetcher = Fetcher.of(source)
    try:
        while samples < LEAST_SAMPLES or time.monotonic() < end:
            if samples:
                time.sleep(min(source.interval, seconds))
            began, at = time.monotonic(), time.time()
            try:
                text = fetcher.get(source.url, timeout=source.timeout).text
            except ScrapeError as error:
                spent = time.monotonic() - began
                flow.fail(error.reason, at, seconds=spent, detail=error.detail)
            else:
                spent = time.monotonic() - began
                flow.diagnosis.gpu = engine_activity(gpus, source, at)
                flow.observe(flow.read(text, at), seconds=spent)
            samples += 1
    finally:
        fetcher.close()
    return flow


def _print(row: Document) -> None:
    cause = f"/{row['cause']}" if row["cause"] else ""
    where = f"{row['target']} {row['model'] or '-'}/{row['rank'] or '-'}"
    held = f", {row['seconds']:.0f} s ({row['share']:.0%})" if row.get("share") else ""
    sure = f", confidence {row['confidence']:.2f}" if row["family"] != "unknown" else ""
    click.echo(f"{where}: {row['family']}{cause}{sure}{held}")
    rates = (
        number(row["requests_per_second"], " requests/s"),
        number(row["tokens_per_second"], " output tokens/s"),
    )
    click.echo(f"  rate: {rates[0]}, {rates[1]}")
    _list("evidence", [_evidence(item) for item in row["evidence"]])
    _list("missing", row["missing"])
    _list("or else", row["candidates"])
    for sentence in row["advice"]:
        click.echo(f"  → {sentence}")


def _list(title: str, items: Sequence[str]) -> None:
    if items:
        click.echo(f"  {title}: {', '.join(items)}")


def _evidence(item: Document) -> str:
    against = "" if item["threshold"] is None else f" (threshold {item['threshold']:g})"
    return f"{item['signal']} {item['value']:.3g}{against}"

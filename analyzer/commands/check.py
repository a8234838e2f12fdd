"""`goodput check`: is the configuration right, and can the engines be judged by it."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from analyzer.audit import Audit, as_document, audit
from analyzer.commands.check_gpus import GpuProbes, gpu_document, print_gpu
from analyzer.commands.check_logs import log_document, probe_logs
from analyzer.commands.check_logs_text import print_log
from analyzer.commands.common import (
    Exit,
    config_option,
    fail,
    format_option,
    print_json,
)
from analyzer.config import Config, load_config
from analyzer.config_sources import EngineSource
from analyzer.engines.capabilities import capabilities
from analyzer.engines.served import served_models, sibling_url
from analyzer.flow import EngineFlow
from analyzer.sources.discover import Discovered, discover
from analyzer.sources.scrape import Fetcher, ScrapeError
from analyzer.strict import ConfigError, format_duration, parse_duration


@dataclass(frozen=True, slots=True)
class Probe:
    """What one engine said: its flow after one page, its version, or an error."""

    flow: EngineFlow
    version: str
    error: str


@click.command("check")
@config_option(required=True)
@click.option(
    "--live",
    is_flag=True,
    help="Also ask every engine and GPU exporter, and read every request log.",
)
@click.option(
    "--listen",
    "period",
    default="0s",
    show_default=True,
    help="How long to listen at sockets and syslog addresses that are free, and to "
    "wait for GPU figures to change.",
)
@format_option
def check_command(
    config_file: Path,
    live: bool,  # noqa: FBT001
    period: str,
    output_format: str,
) -> None:
    """Checks the configuration, and with --live its engines and request logs.

    For each engine: version, signals present and absent, whether the SLO thresholds
    are bucket bounds, how many requests are undecided today because they are not,
    and the --custom-histogram-buckets argument to paste.

    For each request log, by its last 4 MiB: its files, its format and framing, lines
    that cannot be parsed, which criteria can be evaluated for how many answers and
    why not for the others, streams without usage, whether headers come before the
    first token, clocks that differ, requests without a class, and the configuration
    to add to the gateway. A socket that a running exporter holds cannot be read
    beside it; with --listen a free one is taken for that long, and what comes is not
    counted.

    For each GPU exporter: which GPUs are ours and how they were told, the signals
    there are and why the others are not, and the rows to add to its list of fields.
    How old figures are shows when they change, at which --listen looks as well.

    Exits with 1 for a bad configuration or a warning, with 3 when an engine, a log or
    a GPU exporter cannot be read or found.

    \b
    Examples:
      goodput check --config.file goodput.yml
      goodput check --config.file goodput.yml --live --format json
      goodput check --config.file goodput.yml --live --listen 30s
    """
    seconds = parse_duration(period)
    if seconds is None:
        raise click.UsageError("--listen is a duration such as 30s.")
    config = _load(config_file, output_format)
    asking = GpuProbes(config, seconds) if live else None
    groups = [discover(group) for group in config.engine_groups] if live else []
    found = [source for group in groups for source in group.sources]
    probes = [probe(s, config) for s in (*config.engines, *found)] if live else []
    audits = [audit(p.flow, version=p.version) for p in probes]
    logs = probe_logs(config, _aliases(probes), seconds) if live else []
    gpus = asking.found([p.flow.source for p in probes]) if asking else []
    if output_format == "json":
        given = _document(config_file, config, groups, probes, audits)
        found_logs = [log_document(log) for log in logs]
        found_gpus = [gpu_document(gpu) for gpu in gpus]
        print_json({**given, "gateways": found_logs, "gpus": found_gpus})
    else:
        click.echo(f"{config_file}: valid, {config.summary()}")
        _print_groups(groups)
        _print(probes, audits)
        for log in logs:
            print_log(log, config.slo_classes)
        for gpu in gpus:
            print_gpu(gpu)
    failed = (
        *(p.error for p in probes),
        *(group.faults for group in groups),
        *(log.failed for log in logs),
        *(gpu.error for gpu in gpus),
    )
    if any(failed):
        raise SystemExit(int(Exit.FAILED))
    findings = [finding for each in audits for finding in each.findings]
    findings += [finding for log in logs for finding in log.findings]
    findings += [finding for gpu in gpus for finding in gpu.findings]
    if any(finding.severity == "warning" for finding in findings):
        raise SystemExit(int(Exit.FINDING))


def _load(path: Path, output_format: str) -> Config:
    """Returns the configuration, or ends with a finding that says what is wrong."""
    try:
        return load_config(path)
    except ConfigError as error:
        if output_format == "json":
            print_json({"config": str(path), "valid": False, "error": str(error)})
        fail(str(error), Exit.FINDING)


def _aliases(probes: list[Probe]) -> dict[str, str]:
    """Returns which other names mean which served model, at any engine."""
    found: dict[str, str] = {}
    for each in probes:
        found.update(each.flow.served.aliases)
        found.update(each.flow.source.aliases)
    return found


def probe(source: EngineSource, config: Config) -> Probe:
    """Reads one page, the version and the served models of an engine."""
    fetcher = Fetcher.of(source)
    now = time.time()
    flow = EngineFlow(source, config, since=now)
    version = ""
    try:
        page = fetcher.get(source.url, timeout=source.timeout)
        # An engine may refuse to say either; the capability list shows what it did.
        with suppress(ScrapeError, ValueError):
            url = sibling_url(source.url, "/version")
            version = _version(fetcher.get(url, timeout=source.timeout).body)
        with suppress(ScrapeError, ValueError):
            url = sibling_url(source.url, "/v1/models")
            flow.learn(served_models(fetcher.get(url, timeout=source.timeout).body))
        flow.observe(flow.read(page.text, now), seconds=page.seconds)
    except ScrapeError as error:
        flow.fail(error.reason, now, seconds=0.0, detail=error.detail)
    finally:
        fetcher.close()
    attempt = flow.attempt
    if attempt is None or not attempt.reason:
        return Probe(flow, version, "")
    return Probe(flow, version, f"{attempt.reason}: {attempt.detail}")


def _version(body: bytes) -> str:
    found = msgspec.json.decode(body, type=dict[str, Any]).get("version", "")
    return found[:40] if isinstance(found, str) else ""


def _document(
    path: Path,
    config: Config,
    groups: list[Discovered],
    probes: list[Probe],
    audits: list[Audit],
) -> dict[str, Any]:
    return {
        "config": str(path),
        "valid": True,
        "slo_classes": [slo_class.name for slo_class in config.slo_classes],
        "discovery": [
            {
                "entry": group.entry,
                "targets": [source.name for source in group.sources],
                "errors": [f"{f.reason}: {f.detail}" for f in group.faults],
            }
            for group in groups
        ],
        "engines": [
            {
                "target": p.flow.source.name,
                "url": p.flow.source.url,
                "up": not p.error,
                "error": p.error,
                "engine": "vllm" if p.flow.reading else None,
                "version": p.version or None,
                "models": list(p.flow.reading.models) if p.flow.reading else [],
                "aliases": dict(p.flow.served.aliases),
                "max_model_len": p.flow.served.max_model_len,
                "capabilities": [
                    {
                        "signal": found.capability.signal,
                        "metric": found.name,
                        "present": found.name is not None,
                        "needs": found.capability.needs,
                    }
                    for found in (
                        capabilities(p.flow.reading) if p.flow.reading else ()
                    )
                ],
                **as_document(a),
            }
            for p, a in zip(probes, audits, strict=True)
        ],
    }


def _print_groups(groups: list[Discovered]) -> None:
    for group in groups:
        click.echo(f"\n{group.entry}: {len(group.sources)} targets found")
        for fault in group.faults:
            click.echo(f"  {fault.reason}: {fault.detail}")


def _print(probes: list[Probe], audits: list[Audit]) -> None:
    for found, audited in zip(probes, audits, strict=True):
        source = found.flow.source
        if found.error or found.flow.reading is None:
            click.echo(f"\n{source.name} ({source.url}): {found.error}")
            continue
        reading = found.flow.reading
        click.echo(
            f"\n{source.name} ({source.url}): vLLM {found.version or '(no version)'}"
            f", serving {', '.join(reading.models) or 'nothing yet'}"
        )
        aliases = found.flow.served.aliases
        if aliases:
            click.echo(f"  also known as: {', '.join(sorted(aliases))}")
        click.echo("  signals:")
        for item in capabilities(reading):
            mark = item.name or f"absent (needs {item.capability.needs})"
            click.echo(f"    {item.capability.signal:24} {mark}")
        _print_audit(audited)


def _print_audit(audited: Audit) -> None:
    if audited.buckets:
        click.echo("  thresholds:")
    for check in audited.buckets:
        if check.below is None or check.above is None:
            verdict = "no histogram"
        elif check.exact:
            verdict = "is a bound: exact"
        else:
            above = (
                "+Inf" if check.above == float("inf") else format_duration(check.above)
            )
            share = (
                "no requests yet"
                if check.undecided is None
                else f"{check.undecided:.1%} undecided"
            )
            verdict = f"between {format_duration(check.below)} and {above}: {share}"
        click.echo(
            f"    {check.slo_class}: {check.criterion} ≤ "
            f"{format_duration(check.threshold)} {verdict}"
        )
    for finding in audited.findings:
        click.echo(f"  {finding.severity}: {finding.message}")
        if finding.fix:
            click.echo(f"    → {finding.fix}")
    if audited.flag:
        click.echo(f"  to make every threshold exact:\n    {audited.flag}")

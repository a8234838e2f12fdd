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
from analyzer.strict import ConfigError, format_duration


@dataclass(frozen=True, slots=True)
class Probe:
    """What one engine said: its flow after one page, its version, or an error."""

    flow: EngineFlow
    version: str
    error: str


@click.command("check")
@config_option(required=True)
@click.option("--live", is_flag=True, help="Also ask every configured engine.")
@format_option
def check_command(config_file: Path, live: bool, output_format: str) -> None:  # noqa: FBT001
    """Checks the configuration, and with --live the engines against it.

    For each engine: version, signals present and absent, whether the SLO thresholds
    are bucket bounds, how many requests are undecided today because they are not,
    and the --custom-histogram-buckets argument to paste. Exits with 1 for a bad
    configuration or a warning, with 3 when an engine cannot be
    read or found.

    \b
    Examples:
      goodput check --config.file goodput.yml
      goodput check --config.file goodput.yml --live --format json
    """
    try:
        config = load_config(config_file)
    except ConfigError as error:
        if output_format == "json":
            print_json(
                {"config": str(config_file), "valid": False, "error": str(error)}
            )
        fail(str(error), Exit.FINDING)
    groups = [discover(group) for group in config.engine_groups] if live else []
    found = [source for group in groups for source in group.sources]
    probes = [probe(s, config) for s in (*config.engines, *found)] if live else []
    audits = [audit(p.flow, version=p.version) for p in probes]
    if output_format == "json":
        print_json(_document(config_file, config, groups, probes, audits))
    else:
        click.echo(f"{config_file}: valid, {config.summary()}")
        _print_groups(groups)
        _print(probes, audits)
    if any(p.error for p in probes) or any(group.faults for group in groups):
        raise SystemExit(int(Exit.FAILED))
    if any(f.severity == "warning" for a in audits for f in a.findings):
        raise SystemExit(int(Exit.FINDING))


def probe(source: EngineSource, config: Config) -> Probe:
    """Reads one page, the version and the served models of an engine."""
    fetcher = Fetcher(
        tls=source.tls, credentials=source.credentials, max_bytes=source.max_body_bytes
    )
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

"""How `goodput check --live` shows what it found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import click

from analyzer.finding import Finding


def finding_row(finding: Finding) -> dict[str, Any]:
    """Returns a finding for JSON."""
    return asdict(finding)


def print_findings(findings: Iterable[Finding]) -> None:
    """Prints findings, those that the same change mends together."""
    by_fix: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        fix = (finding.fix, finding.file, finding.snippet)
        by_fix.setdefault(fix, []).append(finding)
    for (advised, file, snippet), mended in by_fix.items():
        for finding in mended:
            click.echo(f"  {finding.severity}: {finding.message}")
        if advised:
            click.echo(f"    → {advised}")
        if file:
            click.echo(f"    see {file}")
        for line in snippet.splitlines():
            click.echo(f"      {line}")

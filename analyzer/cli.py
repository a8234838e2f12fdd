"""The command line of `goodput`."""

from __future__ import annotations

from importlib.metadata import version

import click

from analyzer.commands.check import check_command
from analyzer.commands.compare import compare_command
from analyzer.commands.dashboards import dashboards_command
from analyzer.commands.diagnose import diagnose_command
from analyzer.commands.record import record_command
from analyzer.commands.replay import replay_command
from analyzer.commands.report import report_command
from analyzer.commands.rules import rules_command
from analyzer.commands.sweep import sweep_command
from analyzer.commands.trace import trace_command


@click.group(context_settings={"max_content_width": 100})
@click.version_option(version("llm-goodput"), prog_name="goodput")
def main() -> None:
    """Analyses LLM serving: is it good for its users, and if not, what binds.

    Exit codes: 0 fine, 1 a finding or a missed objective, 2 usage, 3 failed.
    """


for command in (
    check_command,
    compare_command,
    dashboards_command,
    diagnose_command,
    record_command,
    replay_command,
    report_command,
    rules_command,
    sweep_command,
    trace_command,
):
    main.add_command(command)

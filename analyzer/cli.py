"""The command line of `goodput`."""

from __future__ import annotations

from importlib import import_module

import click

COMMANDS = (
    "check",
    "compare",
    "dashboards",
    "diagnose",
    "plan",
    "record",
    "replay",
    "report",
    "rules",
    "sweep",
    "trace",
)


class Commands(click.Group):
    """Subcommands by name; a module is loaded when its command is asked for.

    Loading all of them takes longer than many a command does.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Returns the names of the subcommands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Returns a subcommand, None when there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"analyzer.commands.{cmd_name}")
        found: click.Command = getattr(module, f"{cmd_name}_command")
        return found


@click.group(cls=Commands, context_settings={"max_content_width": 100})
@click.version_option(package_name="llm-goodput", prog_name="goodput")
def main() -> None:
    """Analyses LLM serving: is it good for its users, and if not, what binds.

    Exit codes: 0 fine, 1 a finding or a missed objective, 2 usage, 3 failed.
    """

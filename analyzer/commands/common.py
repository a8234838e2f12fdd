"""What the subcommands share: options, exit codes, output."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
import msgspec

F = TypeVar("F", bound=Callable[..., Any])


class Exit(IntEnum):
    """Exit codes of every subcommand; 2 is click's own for usage."""

    FINE = 0
    FINDING = 1
    USAGE = 2
    FAILED = 3


def config_option(*, required: bool) -> Callable[[F], F]:
    """Returns the `--config.file` option."""
    return click.option(
        "--config.file",
        "config_file",
        required=required,
        type=click.Path(path_type=Path, dir_okay=False),
        help="Configuration: SLO classes and sources.",
    )


results_argument = click.argument(
    "files",
    metavar="FILE…",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
)


format_option = click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format.",
)


def print_json(document: object) -> None:
    """Prints *document* as indented JSON; what has no value is null."""
    encoded = msgspec.json.format(msgspec.json.encode(document), indent=2)
    click.echo(encoded.decode())


def lacking(what: str, error: ImportError) -> NoReturn:
    """Ends *what* because a library of the optional part is not installed."""
    fail(
        f"{what} needs the libraries of the analyzer: pip install "
        f"'llm-goodput[analyzer]' ({error.name} is missing)",
        Exit.FAILED,
    )


def fail(message: str, code: Exit) -> NoReturn:
    """Prints one sentence on standard error and exits with *code*."""
    click.echo(f"Error: {message}", err=True)
    raise SystemExit(int(code))


def ratio(value: float | None) -> str:
    """Returns a share in percent, or a dash for none."""
    return "—" if value is None else f"{value:.2%}"


def number(value: float | None, unit: str = "") -> str:
    """Returns a figure with three significant digits, or a dash for none."""
    return "—" if value is None else f"{value:.3g}{unit}"

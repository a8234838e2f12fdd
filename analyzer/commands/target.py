"""The options by which a command learns what good is: a configuration, or a word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from analyzer.commands.common import Exit, fail
from analyzer.config import load_config
from analyzer.slo import CRITERIA, SloClass, read_classes
from analyzer.strict import ConfigError, Node

F = TypeVar("F", bound=Callable[..., Any])
_ALIASES = {"e2el": "e2e", "itl": "tpot"}


def target_options(command: F) -> F:
    """Adds the options `--class`, `--good` and `--objective`."""
    for option in (
        click.option(
            "--objective",
            type=click.FloatRange(0, 1, min_open=True, max_open=True),
            default=0.95,
            show_default=True,
            help="With --good: the share of requests that must be good.",
        ),
        click.option(
            "--good",
            default="",
            help="Criteria instead of a configuration, such as ttft=1s,tpot=50ms.",
        ),
        click.option("--class", "class_name", default="", help="Only this SLO class."),
    ):
        command = option(command)
    return command


def target_classes(
    config_file: Path | None, class_name: str, good: str, objective: float
) -> Sequence[SloClass]:
    """Returns the classes to judge by, none when neither option is given.

    Exits with 2 for options that cannot be used.
    """
    if good and config_file is not None:
        raise click.UsageError("--good replaces the classes of --config.file: give one")
    if good:
        return (_class(good, objective),)
    if config_file is None:
        if class_name:
            raise click.UsageError("--class is one of --config.file, which is missing")
        return ()
    try:
        classes = load_config(config_file).slo_classes
    except ConfigError as error:
        fail(str(error), Exit.USAGE)
    if class_name:
        classes = tuple(c for c in classes if c.name == class_name)
        if not classes:
            raise click.UsageError(
                f"--class: {config_file} has no class {class_name!r}"
            )
    return classes


def _class(good: str, objective: float) -> SloClass:
    criteria = {}
    for part in good.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals:
            raise click.UsageError(f"--good: {part!r} is not CRITERION=DURATION")
        known = _ALIASES.get(name, name)
        if known not in CRITERIA:
            raise click.UsageError(f"--good: {name!r} is none of {', '.join(CRITERIA)}")
        if known in criteria:
            raise click.UsageError(f"--good: {known} is given twice")
        criteria[known] = value
    document = [{"name": "good", "good": criteria, "objective": objective}]
    try:
        return read_classes(Node(document, "--good", ""))[0]
    except ConfigError as error:
        raise click.UsageError(str(error)) from None

"""`goodput trace`: the workload of a log, for benchmark tools, without its owners."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from analyzer.commands.common import (
    Exit,
    config_option,
    fail,
    format_option,
    lacking,
    number,
    print_json,
)
from analyzer.commands.report import configuration, gateway_of

DEFAULT_K = 10


@click.command("trace")
@click.argument("logs", metavar="LOG…", nargs=-1, required=True)
@click.option(
    "--output",
    "-o",
    "target",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write, a JSON line a request.",
)
@config_option(required=False)
@click.option("--gateway", help="Read the logs as this configured gateway's.")
@click.option("--model", default="", help="Only requests for this model.")
@click.option(
    "--for",
    "tool",
    type=click.Choice(["vllm", "aiperf"]),
    default="vllm",
    show_default=True,
    help="Tool that will replay it.",
)
@click.option(
    "--block-tokens",
    type=click.IntRange(min=1),
    help="Tokens of a block of the prompt; the tool's own default if unset.",
)
@click.option(
    "--k",
    type=click.IntRange(min=1),
    default=DEFAULT_K,
    show_default=True,
    help="Requests that must share a value for it to be kept.",
)
@click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Secret that hides tenants; a new one each time if unset.",
)
@format_option
def trace_command(
    logs: tuple[str, ...],
    target: Path,
    config_file: Path | None,
    gateway: str | None,
    model: str,
    tool: str,
    block_tokens: int | None,
    k: int,
    key_file: Path | None,
    output_format: str,
) -> None:
    """Writes the workload of logs as a trace that benchmark tools replay.

    A line has a request's arrival since the first one, its lengths, its class, a
    hidden group for its tenant, and blocks that say which prompts begin alike, as far
    as the log tells cached tokens. It has no text, no name and no time of day. See
    docs/report.md for what that protects and what it does not.

    \b
    Examples:
      goodput trace access.log -o trace.jsonl
      goodput trace 'logs/*.gz' --config.file goodput.yml --for aiperf -o mooncake.jsonl
    """
    config = configuration(config_file, logs)
    source = gateway_of(config, gateway)
    try:
        # Heavy libraries, which the other commands do without.
        from analyzer.report.from_logs import NothingRead, trace_logs  # noqa: PLC0415
        from analyzer.report.trace import STYLES  # noqa: PLC0415
    except ImportError as error:
        lacking("goodput trace", error)
    try:
        workload, errors = trace_logs(
            logs, config, source, key=_key(key_file), model=model, k=k
        )
    except NothingRead as error:
        fail(str(error), Exit.FAILED)
    if not len(workload):
        fail("the logs hold no request with a time", Exit.FAILED)
    style = next(style for style in STYLES if style.name == tool)
    block = block_tokens or style.block_tokens
    try:
        with target.open("wb") as file:
            file.writelines(workload.lines(style, block))
    except OSError as error:
        fail(f"{target}: {error.strerror}", Exit.FAILED)
    shape = workload.shape()
    command = style.command.format(file=target, block=block, count=len(workload))
    for said in errors:
        click.echo(f"Error: {said}", err=True)
    if output_format == "json":
        print_json({**shape, "k": k, "block_tokens": block, "command": command})
        return
    _print(shape)
    click.echo(f"Replay: {command}")


def _print(shape: dict[str, Any]) -> None:
    """Prints what a trace is like."""
    share = shape["cached_share"]
    click.echo(
        f"{shape['requests']} requests over {number(shape['seconds'], ' s')}, "
        f"{number(shape['requests_per_second'], ' a second')}; prompts "
        f"{number(shape['prompt_tokens']['mean'])} tokens, answers "
        f"{number(shape['output_tokens']['mean'])} in the mean"
    )
    click.echo(
        "The log does not tell cached tokens: no two prompts begin alike."
        if share is None
        else f"{share:.1%} of prompt tokens begin like earlier prompts of their group."
    )
    if shape["imputed"]:
        click.echo(
            f"{shape['imputed']} requests had no lengths and got those of others."
        )
    if shape["undated"]:
        click.echo(f"{shape['undated']} requests had no time and are left out.")


def _key(path: Path | None) -> bytes:
    """Returns the secret of a file, or a new one."""
    if path is None:
        return os.urandom(32)
    try:
        found = path.read_bytes().strip()
    except OSError as error:
        fail(f"{path}: {error.strerror}", Exit.USAGE)
    if not 16 <= len(found) <= 64:
        fail(f"{path}: a key has 16 to 64 bytes, this one {len(found)}", Exit.USAGE)
    return found

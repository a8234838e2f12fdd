"""What `goodput check --live` found of request logs, as text."""

from __future__ import annotations

import time

import click

from analyzer.commands.check_logs import LogProbe
from analyzer.commands.findings import print_findings
from analyzer.gateways.framing import Framing
from analyzer.judgement import Verdict
from analyzer.log_audit import REASONS, Answers, LogAudit
from analyzer.slo import SloClass
from analyzer.sources.log_probe import FileState
from analyzer.strict import format_duration

LISTED_FILES = 10
LISTED_ROTATED = 3
LISTED_ROUTES = 5


def print_log(probe: LogProbe, classes: tuple[SloClass, ...]) -> None:
    """Prints what was found of a log."""
    found = probe.audit
    head = probe.state.replace("_", " ")
    if found.lines:
        head = found.format.name if found.format else "no known format"
        if found.framing is not Framing.AUTO:
            head += f", {found.framing.value}"
    click.echo(f"\n{probe.source.name} ({probe.place}): {head}")
    if probe.detail:
        click.echo(f"  {probe.detail}")
    _print_files(probe.files)
    if found.lines:
        _print_lines(found)
        _print_requests(found)
        _print_classes(found, classes)
    print_findings(probe.findings)


def _print_files(files: tuple[FileState, ...]) -> None:
    now = time.time()
    for file in files[:LISTED_FILES]:
        said = [file.state + (f": {file.detail}" if file.detail else "")]
        if file.size is not None and file.written is not None:
            age = _age(max(0.0, now - file.written))
            said.append(f"{file.size} bytes, written {age} ago")
        if file.rotated:
            names = ", ".join(file.rotated[-LISTED_ROTATED:])
            more = len(file.rotated) - LISTED_ROTATED
            said.append(f"rotated: {names}" + (f" and {more} more" if more > 0 else ""))
        if file.read_from:
            said.append(f"lines are those of {file.read_from}")
        click.echo(f"  {file.path}: {'; '.join(said)}")
    if len(files) > LISTED_FILES:
        click.echo(f"  and {len(files) - LISTED_FILES} more files")


def _print_lines(found: LogAudit) -> None:
    click.echo(
        f"  {found.lines} lines at the end: {found.requests} requests, "
        f"{found.unparsed.total()} not parsed"
    )
    for reason, count in found.unparsed.most_common():
        example = found.examples.get(reason, "")
        such = f", such as {example}" if example else ""
        click.echo(f"    {reason} {count}{such}")


def _print_requests(found: LogAudit) -> None:
    excluded = ", ".join(f"{n} {reason}" for reason, n in found.excluded.items())
    click.echo(
        f"  {found.generation} generation requests: {found.streamed} streamed, "
        f"{found.unstreamed} not, {found.unknown_streaming} unknown"
        + (f"; excluded: {excluded}" if excluded else "")
    )
    streams = found.with_usage + found.without_usage
    usage = f"{found.without_usage} of {streams} streams without usage"
    click.echo(
        f"  {usage if streams else 'the log does not tell of usage'}; "
        f"{found.classless} of {found.judged} requests without a class"
    )
    for route, answers, late in found.habits.routes()[:LISTED_ROUTES]:
        when = {True: "with", False: "before", None: "perhaps before"}[late]
        click.echo(
            f"  {route}: headers come {when} the first token, by {answers} answers"
        )
    if found.clock.last is not None:
        age = time.time() - found.clock.last
        side = "ago" if age >= 0 else "ahead"
        click.echo(f"  last record ended {_age(abs(age))} {side}")


def _print_classes(found: LogAudit, classes: tuple[SloClass, ...]) -> None:
    told = found.format.criteria if found.format else frozenset()
    for slo_class in classes:
        row = found.classes[slo_class.name]
        verdicts = ", ".join(f"{row.verdicts[v]} {v.value}" for v in Verdict)
        click.echo(f"  class {slo_class.name}: {row.judged} requests; {verdicts}")
        for criterion, threshold in slo_class.good.items():
            limit = f"{criterion} ≤ {format_duration(threshold.seconds)}"
            said = _evaluable(row.criteria[criterion], told=criterion in told)
            click.echo(f"    {limit:16} {said}")


def _evaluable(answers: Answers, *, told: bool) -> str:
    if not told:
        return "never evaluable by this format"
    if not answers.total:
        return "no answer to judge by"
    said = f"evaluable for {answers.known} of {answers.total} answers"
    why = [f"{n} {REASONS[reason]}" for reason, n in answers.unknown.most_common()]
    return f"{said}: {', '.join(why)}" if why else said


def _age(seconds: float) -> str:
    """Returns a duration in its largest unit, roughly."""
    for unit, length in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"

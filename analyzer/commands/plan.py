"""`goodput plan`: how many replicas a rate needs, what would help, and the cost."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from analyzer.benchmarks.run import Problem, Run
from analyzer.capacity.fleet import Balancer
from analyzer.commands.common import (
    Exit,
    config_option,
    fail,
    format_option,
    print_json,
    results_argument,
)
from analyzer.commands.target import target_classes, target_options
from analyzer.plan.calibration import calibrated
from analyzer.plan.demand import Demand, of_points, of_trace
from analyzer.plan.document import Planned, document, enough
from analyzer.plan.plan import check_trust, plan
from analyzer.plan.search import Question
from analyzer.plan.settings import (
    NAMES,
    PlanError,
    settings_of,
    settings_on_page,
)
from analyzer.plan.text import lines
from analyzer.plan.what_if import GPUS, another_gpu, changes, untried
from analyzer.sweep.files import read_files
from analyzer.sweep.pool import CONCURRENCY, Pool, by_folder, pools, unique
from analyzer.sweep.words import named

MAX_PAGE_BYTES = 1 << 25
TICKS = {"s": 1.0, "ms": 0.001}


class Amount(click.FloatRange):
    """A number that can be counted with: click's ranges let NaN through."""

    def __init__(self) -> None:
        super().__init__(1e-6, 1e9)

    def convert(
        self,
        value: Any,  # noqa: ANN401 - as click has it: a text, or a default
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """Returns the number. Fails as click does."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


@click.command("plan")
@results_argument
@config_option(required=False)
@target_options
@click.option(
    "--rate",
    type=Amount(),
    help="Requests a second to plan replicas for.",
)
@click.option(
    "--replicas",
    "present",
    type=click.IntRange(min=1),
    help="Replicas there are now: exit code 1 when --rate needs more.",
)
@click.option(
    "--workload",
    "workload_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Lengths and bursts of production: a file of goodput trace.",
)
@click.option(
    "--timestamps",
    type=click.Choice(tuple(TICKS)),
    default="s",
    show_default=True,
    help="Unit of the trace's timestamps; ms with goodput trace --for aiperf.",
)
@click.option(
    "--setting",
    "given",
    metavar="NAME=VALUE",
    multiple=True,
    help=f"A setting of the server that was swept: {', '.join(NAMES)}.",
)
@click.option(
    "--page",
    "page_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Its /metrics, saved: the size of the KV cache.",
)
@click.option(
    "--try",
    "tried",
    metavar="NAME=VALUES",
    multiple=True,
    help="Only these changes, such as max_num_seqs=32,64.",
)
@click.option("--gpu", type=click.Choice(tuple(GPUS)), help="The GPU that was swept.")
@click.option(
    "--try-gpu",
    "tried_gpus",
    metavar="NAME[=PRICE]",
    multiple=True,
    help=f"Another GPU ({', '.join(GPUS)}) and the price of a replica on it.",
)
@click.option(
    "--price",
    type=Amount(),
    help="Of a replica for an hour, in any currency.",
)
@click.option(
    "--balancer",
    type=click.Choice([balancer.value for balancer in Balancer]),
    default=Balancer.ROUND_ROBIN.value,
    show_default=True,
    help="How requests are shared out among replicas.",
)
@format_option
def plan_command(
    *,
    files: tuple[Path, ...],
    config_file: Path | None,
    class_name: str,
    good: str,
    objective: float,
    rate: float | None,
    present: int | None,
    workload_file: Path | None,
    timestamps: str,
    given: tuple[str, ...],
    page_file: Path | None,
    tried: tuple[str, ...],
    gpu: str | None,
    tried_gpus: tuple[str, ...],
    price: float | None,
    balancer: str,
    output_format: str,
) -> None:
    """Plans replicas, knobs and cost on a twin of the server that was benchmarked.

    FILE is a benchmark result with single requests, or a folder of them, as for
    goodput sweep: a closed loop at three loads at least, of one configuration. A
    model of vLLM's scheduler is fitted to it, and says by simulation which rate a
    replica takes under your SLO, what another setting would do to that rate, and how
    many replicas a rate needs. Exits with 1 when no rate meets the target, or
    --replicas are too few; with 3 when the twin does not behave as the server did.

    \b
    Examples:
      goodput plan seqs16 --good ttft=1s,tpot=50ms --setting max_num_seqs=16
      goodput plan sweep --config.file goodput.yml --rate 12 --price 2.5
      goodput plan sweep --config.file goodput.yml --workload trace.jsonl
      goodput plan sweep --good ttft=1s --gpu a100 --try-gpu h100=4.2 --price 1.8
    """
    classes = target_classes(config_file, class_name, good, objective)
    if not classes:
        raise click.UsageError("give --config.file with SLO classes, or --good")
    if present is not None and rate is None:
        raise click.UsageError("--replicas are those for a --rate, which is missing")
    asked = _settings("--try", tried, many=True)
    gpus = _gpus(gpu, tried_gpus)
    told = {name: values[0] for name, values in _settings("--setting", given).items()}
    try:
        pool = _swept(files)
        demand = _demand(workload_file, TICKS[timestamps])
        longest = _longest(pool, demand)
        settings = settings_of(told, pool[0].config, _page(page_file), longest=longest)
        twin = calibrated(pool, settings)
        check_trust(twin, settings)
        demand = demand or of_points([point.requests for point in twin.points])
        ideas = [
            *changes(settings, twin.engine, asked),
            *(another_gpu(twin.engine, *one) for one in gpus),
        ]
    except PlanError as error:
        fail(str(error), Exit.FAILED)
    with _progress(len(classes) * (3 + len(ideas) + (rate is not None))) as on_step:
        plans = [
            plan(
                twin,
                Question(demand, slo_class, Balancer(balancer)),
                ideas,
                rate=rate,
                on_step=on_step,
            )
            for slo_class in classes
        ]
    missing = untried(settings, asked)
    found = Planned(settings, twin, demand, plans, missing, price, present)
    if output_format == "json":
        print_json(document(found))
    else:
        for line in lines(found):
            click.echo(line)
    if not all(enough(plan, present) for plan in plans):
        raise SystemExit(int(Exit.FINDING))


def _swept(files: Sequence[Path]) -> list[Run]:
    """Returns the closed loops of all files; what is wrong or left out is told."""
    runs, problems = read_files(files)
    kept, more = unique(runs)
    for problem in (*problems, *more):
        _warn(problem)
    if not kept:
        raise PlanError("no benchmark result could be read")
    found = [run for point in _one_configuration(by_folder(kept)) for run in point.runs]
    _tell_left_out(kept, found)
    return found


def _warn(problem: Problem) -> None:
    click.echo(f"Warning: {problem}", err=True)


def _tell_left_out(runs: Sequence[Run], pool: Sequence[Run]) -> None:
    """Warns of what the twin is not fitted to."""
    left_out = {
        "open loops": len(runs) - len(pool),
        "runs without single requests": sum(not run.requests for run in pool),
        "runs without a limit of concurrency": sum(not run.concurrency for run in pool),
        "requests that failed": sum(run.failed for run in pool),
    }
    told = ", ".join(f"{number} {what}" for what, number in left_out.items() if number)
    if told:
        click.echo(f"Warning: left out: {told}", err=True)


def _one_configuration(runs: Sequence[Run]) -> list[Pool]:
    """Returns the closed loops of the one configuration that *runs* are of."""
    closed = [pool for pool in pools(runs) if pool[0].axis == CONCURRENCY]
    if not closed:
        raise PlanError(
            "no closed loop (--max-concurrency) in the files: under a rate that a "
            "server keeps up with, its speed does not show"
        )
    if len(closed) > 1:
        listed = "; ".join(named(pool[0].config) for pool in closed)
        raise PlanError(
            f"{len(closed)} configurations ({listed}): give the files of one"
        )
    return closed[0]


def _longest(runs: Iterable[Run], demand: Demand | None) -> int:
    """Returns the tokens of the longest request, 1 when none is known."""
    found = [
        int(prompt + output)
        for run in runs
        if run.requests is not None
        for prompt, output in zip(
            run.requests.prompt_tokens, run.requests.output_tokens, strict=True
        )
        if prompt >= 0 and output >= 0
    ]
    return max([1, *found, *([demand.longest] if demand else [])])


def _demand(path: Path | None, tick: float) -> Demand | None:
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return of_trace(file, str(path), tick=tick)
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror or error}") from None


def _page(path: Path | None) -> Mapping[str, int]:
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            text = file.read(MAX_PAGE_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror or error}") from None
    try:
        return settings_on_page(text)
    except PlanError as error:
        raise PlanError(f"{path}: {error}") from None


def _settings(
    option: str, texts: Iterable[str], *, many: bool = False
) -> dict[str, list[int]]:
    """Returns the values of each setting. Raises UsageError."""
    found: dict[str, list[int]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in NAMES:
            raise click.UsageError(
                f"{option}: {text!r} is not NAME=VALUE with one of {', '.join(NAMES)}"
            )
        if name in found:
            raise click.UsageError(f"{option}: {name} is given twice")
        parts = values.split(",") if many else [values]
        if not all(part.strip().isdecimal() and int(part) for part in parts):
            raise click.UsageError(f"{option}: {text!r} needs whole numbers from 1 on")
        found[name] = [int(part) for part in parts]
    return found


def _gpus(
    present: str | None, texts: Iterable[str]
) -> list[tuple[str, str, float | None]]:
    """Returns GPUs to try: the present one, the other, and its price if given."""
    found = []
    for text in texts:
        name, equals, price = text.partition("=")
        if name not in GPUS:
            raise click.UsageError(f"--try-gpu: {name!r} is none of {', '.join(GPUS)}")
        if present is None:
            raise click.UsageError("--try-gpu needs the --gpu that was swept")
        try:
            value = Amount().convert(price, None, None) if equals else None
        except click.UsageError:
            raise click.UsageError(
                f"--try-gpu: {text!r} has no price above 0"
            ) from None
        found.append((present, name, value))
    return found


@contextmanager
def _progress(steps: int) -> Iterator[Callable[[], None]]:
    """Shows a progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with click.progressbar(length=steps, label="simulating", file=sys.stderr) as bar:
        yield lambda: bar.update(1)

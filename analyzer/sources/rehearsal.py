"""Would it have fired? A recording, played to the rules over its own time.

The exporter makes the series from the recording, as it would have served them then,
and promtool evaluates the rules on them: both are what runs in production.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from analyzer.rules.rule import Alert, Group, Options
from analyzer.rules.writing import rule_file
from analyzer.sources.promtool import Firing, World, evaluate

PLAYER = "exporter.recorded_pages"
LIMIT_SECONDS = 3600.0
EVERY = 30.0  # nominal seconds between two evaluations
_METRIC = re.compile(r"\bgoodput_[a-z0-9_]+\b(?!:)|\bup\b")


class RehearsalError(Exception):
    """A recording that cannot be played; the text is for the user."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The series of a recording; `begin` in Unix seconds, `interval` in seconds."""

    begin: float
    interval: float
    ticks: int
    series: Mapping[str, str]

    @property
    def seconds(self) -> float:
        """How long the recording is."""
        return (self.ticks - 1) * self.interval


@dataclass(frozen=True, slots=True)
class Episode:
    """A time for which an alert fired without a break, in seconds from the begin.

    `last` is the last firing of it, with labels and annotations as they were then.
    """

    start: float
    end: float
    last: Firing


def metrics_of(groups: Sequence[Group]) -> list[str]:
    """Returns the metrics that rules take from elsewhere than other rules."""
    texts = []
    for group in groups:
        for rule in group.rules:
            texts.append(rule.expr)
            if isinstance(rule, Alert):
                texts.extend(rule.annotations.values())
    names = {n for text in texts for n in _METRIC.findall(text)}
    return sorted(names)


def recorded(
    directory: Path, config_file: Path, groups: Sequence[Group], *, interval: float
) -> Recorded:
    """Returns the series that *groups* need of a recording. Raises RehearsalError."""
    wanted = [f"--metric={name}" for name in metrics_of(groups)]
    done = subprocess.run(  # noqa: S603 - our own module
        [
            *(sys.executable, "-m", PLAYER, str(directory), str(config_file)),
            *(f"--interval={interval}", *wanted),
        ],
        capture_output=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise RehearsalError(lines[-1].removeprefix("Error: ") if lines else "failed")
    found = msgspec.json.decode(done.stdout, type=Recorded)
    if found.ticks < 2:
        raise RehearsalError(f"{directory}: the recording has no scrapes")
    return found


def rehearse(
    promtool: str,
    groups: Sequence[Group],
    recordings: Mapping[str, Recorded],
    options: Options,
) -> dict[str, list[Episode]]:
    """Returns what would have fired in each of *recordings*, in order of time.

    Raises PromtoolError.
    """
    alerts = sorted(
        {rule.name for g in groups for rule in g.rules if isinstance(rule, Alert)}
    )
    worlds = []
    every = max(
        options.scaled(EVERY), *(found.interval for found in recordings.values())
    )
    for name, found in recordings.items():
        steps = int(found.seconds / every)
        times = [every * step for step in range(1, steps + 1)]
        worlds.append(World(name, found.series, times, alerts, interval=found.interval))
    answer = evaluate(promtool, rule_file(groups), worlds, every=every)
    episodes: dict[str, list[Episode]] = {name: [] for name in recordings}
    for firing in sorted(answer.firings, key=lambda f: f.at):
        episodes[firing.world] = _joined(episodes[firing.world], firing, every)
    return episodes


def _joined(known: list[Episode], firing: Firing, every: float) -> list[Episode]:
    """Returns *known* with one more firing, in its episode or a new one."""
    for index, episode in enumerate(known):
        goes_on = firing.at - episode.end <= every * 1.5
        if goes_on and episode.last.labels == firing.labels:
            longer = Episode(episode.start, firing.at, firing)
            return [*known[:index], longer, *known[index + 1 :]]
    return [*known, Episode(firing.at, firing.at, firing)]

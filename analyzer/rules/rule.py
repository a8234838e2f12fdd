"""Rules as values: recordings, alerts and the groups that Prometheus evaluates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

SITE = ("cluster", "namespace")  # kept where present
MODEL = (*SITE, "model")
CLASS = (*MODEL, "slo_class")
CRITERION = (*CLASS, "criterion")
TARGET = (*SITE, "job", "instance", "pod", "target")
GATEWAY = (*SITE, "job", "instance", "pod", "gateway")
# Nominal seconds between two evaluations. A series that is recorded less often than
# the 5 minutes that Prometheus looks back would be missing from time to time.
INTERVAL = 30.0
SLOW_INTERVAL = 240.0


class Severity(StrEnum):
    """What an alert asks for: a page, a ticket, or to be looked at some time."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Record:
    """A recording rule, named `level:metric:operations`; `comment` says why."""

    name: str
    expr: str
    comment: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alert:
    """An alerting rule.

    It fires when `expr` has held for `hold`, a duration of PromQL ("" for at once).
    `annotations` are templates; `comment` says how the threshold came about.
    """

    name: str
    expr: str
    severity: Severity
    hold: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Rules evaluated one after another, every `interval` (a duration of PromQL)."""

    name: str
    interval: str
    rules: tuple[Record | Alert, ...]


@dataclass(frozen=True, slots=True)
class Options:
    """What a site may choose about its rules.

    `runbook_url` stands before the name of a runbook. `minimum_events` requests must
    be judged in an alert's short window, and `minimum_failures` of them be bad in its
    long one. `time_scale` multiplies every duration in
    expressions, `for` and intervals, for rehearsals: names keep the nominal one.
    """

    runbook_url: str = "alerts/runbooks"
    minimum_events: int = 10
    minimum_failures: int = 3
    time_scale: float = 1.0

    def span(self, seconds: float) -> str:
        """Returns a nominal number of seconds as the duration to write in a rule."""
        return duration(self.scaled(seconds))

    def scaled(self, seconds: float) -> float:
        """Returns a nominal number of seconds in those of the rules."""
        return max(0.001, round(seconds * self.time_scale, 3))


def duration(seconds: float) -> str:
    """Returns *seconds*, which are whole milliseconds, as PromQL writes them."""
    milliseconds = round(seconds * 1000)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds >= size and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def by(labels: tuple[str, ...]) -> str:
    """Returns the clause that keeps *labels*."""
    return f"by ({', '.join(labels)})"


def on(labels: tuple[str, ...]) -> str:
    """Returns the clause that matches two vectors on *labels*."""
    return f"on ({', '.join(labels)})"


def newest(record: str, labels: tuple[str, ...]) -> str:
    """Returns 1 for the latest series of *record* for each value of *labels*.

    There may be several for minutes: a restart of Prometheus, or a ruler that never
    ends a series, leaves what was recorded before. Joined as it is, that is an error
    of the whole rule.
    """
    return f"(topk {by(labels)} (1, timestamp({record})) > bool 0)"


def regex(values: tuple[str, ...]) -> str:
    """Returns a pattern for any of *values*, which are names of SLO classes."""
    return "|".join(value.replace(".", "\\\\.") for value in values)

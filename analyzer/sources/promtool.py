"""Rules over past time, by Prometheus' own engine: `promtool test rules`.

promtool feeds series to rules as if time passed, and compares what fires with what is
expected. Expecting nothing, it prints all that fired; that is read here.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analyzer.rules.rule import duration

LIMIT_SECONDS = 600.0
_FAILED = re.compile(
    r"    (?:name: (?P<world>.*?),\n    )?"
    r"alertname: (?P<alert>\w+), time: (?P<at>\w+), \n"
    r"        exp:\[\], \n        got:\[(?P<got>.*?)\n            \]",
    re.DOTALL,
)
_VALUES = re.compile(
    r"    (?:name: .*?,\n    )?expr: (?P<expr>\"(?:[^\"\\]|\\.)*\"), time: (?P<at>\w+),"
    r"\n        exp: nil\n        got: (?P<got>.*?)\n"
)
_FIRED = re.compile(r"Labels:\{(?P<labels>.*)\}\n +Annotations:\{(?P<texts>.*)\}")
_PAIR = re.compile(r"(\w+)=(\"(?:[^\"\\]|\\.)*\")")
_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][\w:]*)?(?P<labels>\{(?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*\}) "
    r"(?P<value>[^ ,]+)"
)
_GROUP = re.compile(r"^(?:- |  )name: ['\"]?([\w.-]+)", re.MULTILINE)
_PART = re.compile(r"(\d+)(ms|[smhdwy])")
_UNITS = {
    "ms": 0.001,
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 86400,
    "w": 604800,
    "y": 31536000,
}


class PromtoolError(Exception):
    """promtool cannot be run, or refuses the rules; the text is for the user."""


@dataclass(frozen=True, slots=True)
class Firing:
    """An alert that fires at a time (seconds from the beginning) in a world."""

    world: str
    at: float
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def alert(self) -> str:
        """The alert's name."""
        return self.labels["alertname"]


@dataclass(frozen=True, slots=True)
class World:
    """Series (a selector and values in promtool's notation) and when to look.

    `interval` is the time between two values, `times` when to look, all in seconds;
    `queries` are looked up at the last of them.
    """

    name: str
    series: Mapping[str, str]
    times: Sequence[float]
    alerts: Sequence[str]
    interval: float = 30.0
    queries: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What fired, and the values of queries: labels as they are printed → value."""

    firings: Sequence[Firing]
    values: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def evaluate(
    promtool: str, rules: str, worlds: Sequence[World], *, every: float
) -> Answer:
    """Returns what *rules* (the text of a rule file) say in each of *worlds*.

    They are evaluated every *every* seconds. Raises PromtoolError.
    """
    with tempfile.TemporaryDirectory(prefix="goodput-rules-") as folder:
        directory = Path(folder)
        (directory / "rules.yml").write_text(rules, encoding="utf-8")
        document = {
            "rule_files": ["rules.yml"],
            # Otherwise any order, another one each time.
            "group_eval_order": _GROUP.findall(rules),
            "evaluation_interval": duration(every),
            "tests": [_test(world) for world in worlds],
        }
        test = directory / "tests.yml"  # JSON is YAML, and written faster
        test.write_text(json.dumps(document), encoding="utf-8")
        try:
            done = subprocess.run(  # noqa: S603 - the path is the caller's
                [promtool, "test", "rules", str(test)],
                capture_output=True,
                text=True,
                check=False,
                timeout=LIMIT_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PromtoolError(f"{promtool}: {error}") from error
    return _answer(done.stdout + done.stderr)


def _test(world: World) -> dict[str, object]:
    series = [{"series": name, "values": v} for name, v in world.series.items()]
    return {
        "name": world.name,
        "interval": duration(world.interval),
        "input_series": series,
        "alert_rule_test": [
            {"eval_time": duration(at), "alertname": alert, "exp_alerts": []}
            for at in world.times
            for alert in world.alerts
        ],
        "promql_expr_test": [
            {"eval_time": duration(world.times[-1]), "expr": query}
            for query in world.queries
        ],
    }


def _answer(output: str) -> Answer:
    rest = _VALUES.sub("", _FAILED.sub("", output))
    rest = re.sub(r"Unit Testing: .*|SUCCESS|FAILED:", "", rest).strip()
    if rest:
        raise PromtoolError(rest[:2000])
    firings = [f for match in _FAILED.finditer(output) for f in _firings(match)]
    values = {
        json.loads(match["expr"]): {
            (m["name"] or "") + m["labels"]: float(m["value"])
            for m in _SAMPLE.finditer(match["got"])
        }
        for match in _VALUES.finditer(output)
    }
    return Answer(firings, values)


def _firings(match: re.Match[str]) -> Iterator[Firing]:
    at = sum(float(n) * _UNITS[unit] for n, unit in _PART.findall(match["at"]))
    for found in _FIRED.finditer(match["got"]):
        labels, texts = _pairs(found["labels"]), _pairs(found["texts"])
        yield Firing(match["world"] or "", at, labels, texts)


def _pairs(text: str) -> dict[str, str]:
    return {name: json.loads(value) for name, value in _PAIR.findall(text)}

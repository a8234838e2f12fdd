"""A real Prometheus that watches the demonstration, and answers panels' queries."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from running_exporter import RunningExporter, wait_for
from running_prometheus import RunningPrometheus

from analyzer.rules.pack import rule_groups
from analyzer.rules.rule import Options, duration
from analyzer.rules.writing import rule_file
from analyzer.slo import read_classes
from analyzer.strict import load

EXAMPLE = Path(__file__).resolve().parents[1] / "alerts" / "example.yml"
PLACE = {"cluster": "demo", "namespace": "serving"}
SCALE = 0.02  # of the rules' windows: five minutes are six seconds
SCRAPE_SECONDS = 1
SUBQUERY = re.compile(r"\[(\d+)([mhd]):(\d+)([mhd])\]")
SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0}
VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)(?:[.:][^}]*)?\}")


def filled(
    expr: str,
    *,
    begin: float,
    end: float,
    step: float,
    scrape: float,
    known: Mapping[str, str],
) -> str:
    """Returns a panel's query as Grafana asks it, all in seconds.

    Variables that are not *known* are as a reader has them who has chosen nothing.
    """
    known = {
        "__rate_interval": f"{max(step + scrape, 4 * scrape):g}s",
        "__range": f"{math.ceil(end - begin)}s",
        "__to": str(int(end * 1000)),
        "__interval_ms": f"{1000 * step:g}",
        **known,
    }
    return VARIABLE.sub(lambda m: known.get(m[1] or m[2], ".*"), expr)


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer: its labels and its values that are numbers."""

    labels: Mapping[str, str]
    values: tuple[float, ...]


class Session:
    """Plays a scenario of the demonstration to Prometheus; has `close()`.

    Queries are asked over the whole session, with variables as a reader finds them
    who has chosen nothing.
    """

    def __init__(
        self, directory: Path, need_tool: Callable[[str], str], *, scenario: str
    ) -> None:
        self._stack = ExitStack()
        try:
            self._exporter = RunningExporter(
                f"--demo={scenario}",
                "--demo.speed=10",
                f"--storage.path={directory / 'state'}",
            )
            self._stack.callback(self._exporter.stop)
            self.begin = time.time()
            self._prometheus = self._watch(directory, need_tool)
        except BaseException:
            self._stack.close()
            raise

    def _watch(
        self, directory: Path, need_tool: Callable[[str], str]
    ) -> RunningPrometheus:
        rules = directory / "rules.yml"
        classes = read_classes(
            load(EXAMPLE).mapping(optional=("slo_classes", "engines", "gateways"))[
                "slo_classes"
            ]
        )
        groups = rule_groups(classes, Options(time_scale=SCALE))
        rules.write_text(rule_file(groups), encoding="utf-8")
        address = self._exporter.url.removeprefix("http://")
        config = {
            "global": {"scrape_interval": f"{SCRAPE_SECONDS}s"},
            "rule_files": [str(rules)],
            "scrape_configs": [
                {
                    "job_name": "goodput",
                    "static_configs": [{"targets": [address], "labels": PLACE}],
                }
            ],
        }
        return self._stack.enter_context(
            closing(RunningPrometheus(need_tool("prometheus"), directory, config))
        )

    def play(self, simulated_seconds: float) -> None:
        """Waits until the scenario has come so far, and its figures are recorded."""
        wait_for(lambda: self._played() >= simulated_seconds, seconds=300)
        time.sleep(3 * SCRAPE_SECONDS)
        self.end = time.time()

    def _played(self) -> float:
        time.sleep(0.5)  # each look costs the simulation a little
        answer = self._exporter.get("/demo/truth").json()
        return float(answer["seconds"])

    def ask(
        self, expr: str, variables: Mapping[str, str] | None = None
    ) -> list[Series]:
        """Returns the answer to a panel's query over the session, without NaN."""
        expr = filled(
            expr,
            begin=self.begin,
            end=self.end,
            step=SCRAPE_SECONDS,
            scrape=SCRAPE_SECONDS,
            known=variables or {},
        )
        answer = self._prometheus.http.post(
            f"{self._prometheus.url}/api/v1/query_range",
            {
                # Its resolution is that of recordings, which are faster here.
                "query": SUBQUERY.sub(_hurried, expr),
                "start": str(self.begin),
                "end": str(self.end),
                "step": str(SCRAPE_SECONDS),
            },
            timeout=60,
        ).json()
        assert answer["status"] == "success", (expr, answer)
        return list(_series(answer["data"]["result"]))

    def close(self) -> None:
        """Ends both programs."""
        self._stack.close()


def _hurried(subquery: re.Match[str]) -> str:
    window, step = (
        duration(SCALE * float(subquery[n]) * SECONDS[subquery[n + 1]]) for n in (1, 3)
    )
    return f"[{window}:{step}]"


def _series(result: list[Any]) -> Iterator[Series]:
    for row in result:
        values = tuple(float(value) for _, value in row["values"])
        numbers = tuple(value for value in values if not math.isnan(value))
        if numbers:
            yield Series(row["metric"], numbers)

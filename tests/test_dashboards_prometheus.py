"""Every query of every panel has an answer from a real Prometheus, of a sound size."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from builder.boards import BOARDS, build
from dashboard_session import Series, Session

from analyzer.simulation.scenarios import TOUR
from analyzer.verdict import Family

pytestmark = pytest.mark.slow

PRICE = {"price": "2"}
# What the demonstration has not: engines without a request log, lines that lack a
# criterion, speculation, a limit on queues, and unusual fields of a GPU exporter.
ABSENT = {
    "at least",
    "at most",
    "cannot be judged",
    "drafts kept {{target}} {{pod}}",
    "rejected",
    "limit {{hostname}} GPU {{gpu}} {{gpu_instance}}",
    "NVLink {{hostname}} GPU {{gpu}} {{gpu_instance}}",
    "PCIe {{hostname}} GPU {{gpu}} {{gpu_instance}}",
}
# It needs five minutes in a row that met the objective, which a tour may lack.
CHANCE = {"load"}


class Asked(NamedTuple):
    """A query of a panel: where it stands, its number there, its name and text."""

    board: str
    panel: str
    place: int
    name: str
    expr: str


def asked() -> Iterator[Asked]:
    """Yields every query of every panel and mark."""
    for file, text in build().items():
        board = json.loads(text)
        for panel in board["panels"]:
            for index, target in enumerate(panel.get("targets", ())):
                name = target.get("legendFormat", "")
                yield Asked(file, panel["title"], index, name, target["expr"])
        for mark in board["annotations"]["list"]:
            yield Asked(file, mark["name"], 0, "", mark["expr"])


QUERIES = tuple(asked())


@pytest.fixture(scope="module")
def session(
    tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[[str], str]
) -> Iterator[Session]:
    """One tour through all loads, ten times as fast, under rules as much faster."""
    found = Session(tmp_path_factory.mktemp("tour"), need_tool, scenario="tour")
    try:
        found.play(sum(seconds for _, seconds in TOUR))
        yield found
    finally:
        found.close()


def titles(session: Session, board: dict[str, Any], name: str) -> set[str]:
    """Returns what Grafana would write at the marks of a dashboard.

    Marks stand where a value is above 0. For a label that a series lacks Grafana
    writes the label's name.
    """
    (mark,) = (m for m in board["annotations"]["list"] if m["name"] == name)
    begin, label, end = re.split(r"\{\{(\w+)\}\}", mark["titleFormat"])
    return {
        begin + (series.labels.get(label) or label) + end
        for series in session.ask(mark["expr"])
        if max(series.values) > 0
    }


def legend(form: str, labels: Mapping[str, str]) -> str:
    """Returns the name of a series; a label that it lacks is left out."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), form)


def answer(session: Session, board: str, panel: str, index: int = 0) -> list[Series]:
    """Returns the answer to one query of a panel."""
    (found,) = (
        query
        for query in QUERIES
        if (query.board, query.panel, query.place) == (f"{board}.json", panel, index)
    )
    return session.ask(found.expr, PRICE)


def values(found: list[Series]) -> list[float]:
    """Returns the values of all series."""
    return [value for series in found for value in series.values]


def test_every_query_has_points(session: Session) -> None:
    """No panel is empty by mistake; what the demonstration lacks is named."""
    empty = [
        f"{query.panel} {query.place}: {query.expr}"
        for query in QUERIES
        if query.name not in ABSENT | CHANCE
        and not values(session.ask(query.expr, PRICE))
    ]
    assert not empty, "\n".join(empty)


def test_what_is_excused_is_absent(session: Session) -> None:
    """The list of excuses has no entry that hides a query with an answer."""
    excused = [query for query in QUERIES if query.name in ABSENT]
    assert {query.name for query in excused} == ABSENT
    assert not [q for q in excused if values(session.ask(q.expr, PRICE))]


def test_every_variable_has_values(session: Session) -> None:
    """A reader can choose from what is there."""
    for board in BOARDS:
        for variable in board.built()["templating"]["list"]:
            if variable["type"] == "query":
                series, _, label = variable["query"]["query"][13:-1].rpartition(", ")
                assert {s.labels[label] for s in session.ask(series)}, variable["name"]


SLO, CONSTRAINT, CAPACITY = (
    "llm-goodput-slo",
    "llm-goodput-constraint",
    "llm-goodput-capacity",
)
RANGES: tuple[tuple[str, str, int, float, float, float, float], ...] = (
    # board, panel, query, smallest value from … to …, largest from … to …
    (SLO, "Are we good?", 0, -1, 2, 3, 3),
    (SLO, "Good requests now", 0, 0, 0.5, 0.9, 1),
    (SLO, "Good requests now", 3, 0.95, 0.95, 0.95, 0.95),
    (SLO, "Share of good requests", 0, 0, 0.5, 0.9, 1),
    (SLO, "Burn rate against what alerts", 0, 0, 2, 10, 20.001),
    (SLO, "Burn rate against what alerts", 2, 9.99, 10.01, 9.99, 10.01),
    (SLO, "Error budget left", 0, -20, 0.5, -20, 1),
    (SLO, "Attainment by criterion", 0, -1e-9, 0.5, 0.99, 1),
    (SLO, "TTFT against target", 1, 0, 1, 2, 80),
    (SLO, "TTFT against target", 3, 1, 1, 1, 1),
    (CONSTRAINT, "Share of time by family", 0, 0, 0.2, 0.5, 1.001),
    (CONSTRAINT, "Memory: fullest KV cache", 0, 0, 0.6, 0.95, 1),
    (CONSTRAINT, "KV cache full in", 0, 0, 600, 86400, 86400),
    (CONSTRAINT, "Preemptions", 0, 0, 0, 0.1, 200),
    (CONSTRAINT, "Queueing: running requests", 0, 0, 32, 100, 1024),
    (CONSTRAINT, "GPU: bandwidth or arithmetic", 0, 0, 0.5, 0.3, 1),
    (CAPACITY, "Fullest KV cache", 0, 0, 0.6, 0.95, 1),
    (CAPACITY, "Share of requests that wait", 0, 0, 0, 0.3, 1),
    (CAPACITY, "Requests/s against concurrency", 0, 0, 100, 40, 1200),
    (CAPACITY, "Engines", 0, 0, 2, 2, 2),
)


@pytest.mark.parametrize(
    "expected", RANGES, ids=lambda r: f"{r[0][12:]}-{r[1]}-{r[2]}".replace(" ", "_")
)
def test_the_main_figures_are_of_a_sound_size(
    session: Session, expected: tuple[Any, ...]
) -> None:
    """Over a tour the smallest and the largest figure lie where they must."""
    board, panel, index, *bounds = expected
    found = values(answer(session, board, panel, index))
    low, high = min(found), max(found)
    assert bounds[0] <= low <= bounds[1], low
    assert bounds[2] <= high <= bounds[3], high


def test_the_tour_shows_its_limits_in_words(session: Session) -> None:
    """The table names causes of several families, each with what to do first."""
    found = answer(session, SLO, "What binds, and what to do first")
    named = {s.labels["family"]: s.labels["advice"] for s in found}
    # Which ones is left to chance: a verdict looks at 8 s, at this speed more than a
    # stage. That the tour shows every limit is tested at its natural speed.
    assert len(named.keys() & {"memory", "compute", "queueing", "traffic"}) >= 2
    assert all(named.values())
    assert "nothing" in named


@pytest.mark.parametrize(
    ("mark", "wanted"),
    [
        ("Alerts", r"Goodput\w+ (critical|warning|info)( \w+)? *"),
        ("Restarts of engines", r"demo/vllm-\d-\d +restarted"),
        ("Verdict changes", rf"now \S+ ({'|'.join(Family)}) ?\w*"),
    ],
)
def test_marks_say_what_happened(session: Session, mark: str, wanted: str) -> None:
    """The tour's alerts, restarts and changes are marked, each text whole."""
    for board in BOARDS:
        built = board.built()
        if mark not in {one["name"] for one in built["annotations"]["list"]}:
            assert not board.by_model
            continue
        found = titles(session, built, mark)
        assert found
        assert not [text for text in found if not re.fullmatch(wanted, text)]


def test_no_two_lines_of_a_panel_have_one_name(session: Session) -> None:
    """A reader can tell engines, classes and reasons apart by the legend."""
    for board in BOARDS:
        for panel in board.built()["panels"]:
            if panel["type"] != "timeseries":
                continue
            names = [
                legend(target["legendFormat"], series.labels)
                for target in panel["targets"]
                for series in session.ask(target["expr"], PRICE)
            ]
            assert len({*names}) == len(names), (panel["title"], names)

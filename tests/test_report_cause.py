"""The sentences that say why requests were bad."""

from __future__ import annotations

import pytest

from analyzer.gateways.record import RequestRecord, TtftKind
from analyzer.report.cause import cause_of
from analyzer.report.columns import columns_of
from analyzer.report.constraints import Constraint
from analyzer.report.report import Report, records
from analyzer.report.summary import Summary
from analyzer.report.tables import report_of
from analyzer.report.verdicts import Judge
from analyzer.slo import Match, SloClass, Threshold

BEGIN = 1_790_000_000.0
SLO = SloClass(
    "chat", Match(), {"ttft": Threshold(1.0), "e2e": Threshold(10.0)}, 0.9, 3600.0
)


def request(at: float, ttft: float, e2e: float) -> RequestRecord:
    """Returns a stream whose time after the first token is its output's."""
    return RequestRecord(
        start=BEGIN + at,
        model="m",
        status=200,
        stream=True,
        ttft=ttft,
        ttft_kind=TtftKind.TOKEN,
        e2e=e2e,
        gateway_time=0.0,
        delivery_time=0.0,
    )


def report(found: list[RequestRecord], *bound: tuple[float, float, str]) -> Report:
    """Returns the report of requests, with what *bound* the engine and when."""
    columns = columns_of(found)
    judge = Judge((SLO,), aliases={})
    summary = Summary()
    summary.add(columns, judge.judge(columns), judge)
    constraints = [
        Constraint(
            BEGIN + begin,
            BEGIN + end,
            *("t", "m", "0"),
            family=what.partition("/")[0],
            cause=what.partition("/")[2],
            seconds=end - begin,
        )
        for begin, end, what in bound
    ]
    return report_of(summary, (SLO,), constraints=constraints)


def causes(made: Report) -> list[str]:
    """Returns the sentences on its one row."""
    (row,) = records(made["goodput"])
    return list(cause_of(made, row))


GOOD = [request(n, 0.1, 2.0) for n in range(20)]
QUEUED = [request(n, 6.0, 9.0) for n in range(30, 40)]


def test_the_criterion_and_the_stage_and_what_bound() -> None:
    """Each is named when it is known."""
    made = report([*GOOD, *QUEUED], (25, 45, "queueing/sequence_cap"))
    assert causes(made) == [
        "10 were bad, all for TTFT > 1 s.",
        "Most of their time went here: server, to the first token (66.67%).",
        "In the worst stretches engines were bound by queueing/sequence_cap.",
    ]


def test_most_of_them_are_told_by_number() -> None:
    """The criterion with the most misses, which not all have."""
    made = report([*GOOD, *QUEUED, request(41, 0.2, 30.0)])
    assert causes(made)[0] == "11 were bad, 10 of them for TTFT > 1 s."


@pytest.mark.parametrize("what", ["none/headroom", ""])
def test_an_engine_that_nothing_bound_is_not_blamed(what: str) -> None:
    """What is no constraint, or not known, is left out."""
    bound = [(25.0, 45.0, what)] if what else []
    assert len(causes(report([*GOOD, *QUEUED], *bound))) == 2


def test_without_bad_requests_nothing_is_said() -> None:
    """There is no cause of what did not happen."""
    assert causes(report(GOOD)) == []

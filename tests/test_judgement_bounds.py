"""What a record that knows less than everything still decides."""

from __future__ import annotations

import pytest
from gateway_truth import slo

from analyzer.gateways.record import Outcome, RequestRecord, TtftKind
from analyzer.judgement import Verdict, judge

CHAT = slo(ttft=1.0, tpot=0.05, e2e=10.0)


def left(
    *, ttft: float | None, kind: TtftKind, e2e: float | None = 5.0
) -> RequestRecord:
    """Returns the record of a client that left after *e2e* seconds."""
    return RequestRecord(
        outcome=Outcome.CLIENT_ABORT, ttft=ttft, ttft_kind=kind, e2e=e2e
    )


def test_who_waited_too_long_for_a_first_token_was_served_badly() -> None:
    """Where somebody looked for the first token and none came within the limit."""
    judgement = judge(left(ttft=None, kind=TtftKind.TOKEN), CHAT)
    assert judgement.verdict is Verdict.BAD
    assert judgement.misses == ("ttft", "abort")


def test_who_left_a_log_without_first_tokens_may_have_had_one() -> None:
    """Nobody looked, so a missing time says nothing: only the total can be missed."""
    judgement = judge(left(ttft=None, kind=TtftKind.NONE), CHAT)
    assert (judgement.verdict, judgement.reason) == (Verdict.EXCLUDED, "client_abort")
    late = judge(left(ttft=None, kind=TtftKind.NONE, e2e=11.0), CHAT)
    assert late.misses == ("e2e", "abort")


def test_who_left_with_a_timely_first_token_is_excluded() -> None:
    """Leaving is no fault of the serving then."""
    judgement = judge(left(ttft=0.4, kind=TtftKind.TOKEN), CHAT)
    assert judgement.verdict is Verdict.EXCLUDED


@pytest.mark.parametrize(
    ("tpot", "verdict", "reason"),
    [(0.05, Verdict.GOOD, ""), (0.051, Verdict.UNEVALUABLE, "tpot")],
)
def test_a_time_per_token_that_may_be_less(
    tpot: float, verdict: Verdict, reason: str
) -> None:
    """Within the limit it is certain; above it the true one may be within."""
    record = RequestRecord(
        outcome=Outcome.OK,
        ttft=0.5,
        ttft_kind=TtftKind.TOKEN,
        tpot=tpot,
        e2e=5.0,
        completion_tokens=50,
        tpot_at_most=True,
    )
    judgement = judge(record, CHAT)
    assert (judgement.verdict, judgement.reason) == (verdict, reason)


def test_another_criterion_is_missed_all_the_same() -> None:
    """What is known to be bad stays bad beside what is doubtful."""
    record = RequestRecord(
        outcome=Outcome.OK, ttft=2.0, tpot=0.9, e2e=5.0, tpot_at_most=True
    )
    assert judge(record, CHAT).misses == ("ttft",)

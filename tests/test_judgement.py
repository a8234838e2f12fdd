"""The verdict on single requests, held against the one definition on plain values."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from analyzer.gateways.record import Outcome, RequestRecord, TtftKind
from analyzer.judgement import (
    UNKNOWN,
    Judge,
    Judgement,
    Verdict,
    criterion_values,
    ending_of,
    exclusion,
    has_failed,
    is_good,
    judge,
)
from analyzer.slo import Match, SloClass, Threshold

POLICY = frozenset({402, 429})
# Few values, so that many are equal to a limit.
SECONDS = st.none() | st.sampled_from((0.0, 0.1, 0.2, 0.3, 1.0, math.nan))
LIMITS = st.builds(
    Threshold,
    st.sampled_from((0.1, 0.2, 0.3)),
    st.sampled_from((0.0, 0.0, 0.01)),
)
RECORDS = st.builds(
    RequestRecord,
    route=st.sampled_from(("", "/v1/completions", "/v1/models")),
    status=st.none() | st.sampled_from((200, 400, 402, 408, 429, 499, 503)),
    outcome=st.sampled_from(Outcome),
    ttft=SECONDS,
    ttft_kind=st.sampled_from((TtftKind.TOKEN, TtftKind.NONE)),
    tpot=SECONDS,
    max_gap=SECONDS,
    e2e=SECONDS,
    prompt_tokens=st.none() | st.sampled_from((0, 10, 20)),
    completion_tokens=st.none() | st.integers(0, 3),
    tpot_at_most=st.booleans(),
)


def slo_class(good: dict[str, Threshold]) -> SloClass:
    """Returns a class with these criteria."""
    return SloClass("c", Match(), good, objective=0.9, window_seconds=3600.0)


CLASSES = st.none() | st.builds(
    slo_class,
    st.fixed_dictionaries(
        {},
        optional={"ttft": LIMITS, "tpot": LIMITS, "max_gap": LIMITS, "e2e": LIMITS},
    ),
)


def values_of(record: RequestRecord, limits: dict[str, float]) -> dict[str, float]:
    """Returns what is known of each criterion, by the words of the design."""
    values = criterion_values(record)
    if record.outcome is Outcome.CLIENT_ABORT:
        ttft, elapsed, gap = record.ttft, record.e2e, record.max_gap
        if ttft is None and record.ttft_kind is not TtftKind.NONE:
            ttft = elapsed
        left = {"ttft": ttft, "tpot": None, "max_gap": gap, "e2e": elapsed}
        return {name: UNKNOWN if v is None else v for name, v in left.items()}
    if record.tpot_at_most and values["tpot"] > limits.get("tpot", math.inf):
        values["tpot"] = UNKNOWN
    return values


def limits_of(record: RequestRecord, good: dict[str, Threshold]) -> dict[str, float]:
    """Returns the seconds that each criterion allows for the record's prompt."""
    limits = {}
    for name, threshold in good.items():
        if not threshold.per_prompt_token:
            limits[name] = threshold.seconds
        elif record.prompt_tokens is not None:
            limits[name] = threshold.at(record.prompt_tokens)
        else:
            within = record.ttft is not None and record.ttft <= threshold.seconds
            limits[name] = threshold.seconds if within else UNKNOWN
    return limits


def by_definition(record: RequestRecord, given_class: SloClass | None) -> Judgement:
    """Returns the verdict by `is_good` on the record's values, one by one."""
    excluded = exclusion(record, POLICY)
    if excluded:
        return Judgement(Verdict.EXCLUDED, excluded)
    limits = limits_of(record, dict(given_class.good) if given_class else {})
    values = values_of(record, limits)
    failed = has_failed(record)
    good, bad = is_good(values, limits, failed)
    missed = tuple(name for name, limit in limits.items() if values[name] > limit)
    if record.outcome is Outcome.CLIENT_ABORT:
        if not bad:
            return Judgement(Verdict.EXCLUDED, "client_abort")
        return Judgement(Verdict.BAD, misses=(*missed, "abort"))
    if bad:
        return Judgement(Verdict.BAD, misses=(*missed, *(("error",) * failed)))
    if good and record.outcome is not Outcome.UNKNOWN:
        return Judgement(Verdict.GOOD)
    unknown = [
        name
        for name, limit in limits.items()
        if math.isnan(values[name]) or math.isnan(limit)
    ]
    return Judgement(Verdict.UNEVALUABLE, ", ".join(unknown) or "outcome")


@given(RECORDS, CLASSES)
def test_a_single_verdict_is_that_of_the_definition(
    record: RequestRecord, given_class: SloClass | None
) -> None:
    """Comparing in place, and looking up what follows, changes no verdict."""
    assert judge(record, given_class, policy_statuses=POLICY) == by_definition(
        record, given_class
    )


@given(st.lists(RECORDS, min_size=2, max_size=40), CLASSES)
def test_a_judge_that_saw_other_requests_judges_as_a_new_one(
    records: list[RequestRecord], given_class: SloClass | None
) -> None:
    """What it remembers of one request says nothing wrong of another."""
    judges: dict[object, Judge] = {}
    for record in records:
        ending = ending_of(record, POLICY)
        if ending not in judges:
            judges[ending] = Judge(given_class, ending)
        found = judges[ending].judge(record)
        assert found == by_definition(record, given_class)

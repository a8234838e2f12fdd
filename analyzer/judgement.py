"""Whether a request was good: one definition, for single floats and whole columns.

A request is *bad* if it failed or missed a criterion that is known; else
*unevaluable* if a criterion of its class cannot be known; else *good*. Some requests
are *excluded*: they say nothing about the serving.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from analyzer.gateways.record import Outcome, RequestRecord, TtftKind
from analyzer.slo import CRITERIA, SloClass, Threshold

UNKNOWN = math.nan
DOES_NOT_APPLY = -math.inf
# How a value stands to its limit, as a number and as an example beside a limit of 0.
ABOVE, NOT_KNOWN = 1, 2
STANDINGS = (-math.inf, math.inf, UNKNOWN)
GENERATION_ROUTES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/generate",
)
CAPACITY_STATUSES = frozenset({408, 429})
FAILURES = frozenset({Outcome.UPSTREAM_CUT, Outcome.TIMEOUT, Outcome.STREAM_ERROR})


class Verdict(StrEnum):
    """What is said of one request."""

    GOOD = "good"
    BAD = "bad"
    UNEVALUABLE = "unevaluable"
    EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict on one request.

    `reason` says why it is excluded or what could not be known; `misses` names the
    criteria it missed, `error` when it failed, `abort` when its client left late.
    """

    verdict: Verdict
    reason: str = ""
    misses: tuple[str, ...] = ()


def is_good(
    values: Mapping[str, Any],
    limits: Mapping[str, Any],
    failed: Any,  # noqa: ANN401
) -> tuple[Any, Any]:
    """Returns (good, bad), elementwise: for floats and for columns alike.

    *values* and *limits* map each criterion to seconds; NaN is a value that is not
    known, −Inf one that does not apply. Neither good nor bad is unevaluable.
    Criteria are inclusive.
    """
    bad, met = failed, True
    for criterion, limit in limits.items():
        value = values[criterion]
        bad = bad | (value > limit)
        met = met & (value <= limit)
    return met & (bad ^ True), bad


class Ending(NamedTuple):
    """What the route, status and outcome of a request say, whatever its times.

    `excluded` is why it says nothing about the serving, "" when it does; `told` is
    whether its log tells how it ended.
    """

    excluded: str
    failed: bool
    aborted: bool
    told: bool


def ending_of(record: RequestRecord, policy_statuses: frozenset[int]) -> Ending:
    """Returns how *record* ended; *policy_statuses* are as for `judge`."""
    return Ending(
        exclusion(record, policy_statuses),
        failed=has_failed(record),
        aborted=record.outcome is Outcome.CLIENT_ABORT,
        told=record.outcome is not Outcome.UNKNOWN,
    )


def judge(
    record: RequestRecord,
    slo_class: SloClass | None,
    *,
    policy_statuses: frozenset[int] = frozenset(),
) -> Judgement:
    """Returns the verdict on *record* under its class, None for no class.

    *policy_statuses* are statuses by which this gateway enforces a policy, such as
    429 for a customer's quota: they say nothing about capacity.
    """
    return Judge(slo_class, ending_of(record, policy_statuses)).judge(record)


class Judge:
    """Judges the requests of one class that ended alike: many, and quickly.

    How each value stands to its limit is all that is looked at in a request. What
    follows from that, `is_good` says once for each combination.
    """

    __slots__ = ("_ending", "_good", "_limits", "_verdicts")

    def __init__(self, slo_class: SloClass | None, ending: Ending) -> None:
        self._ending = ending
        self._good: Mapping[str, Threshold] = slo_class.good if slo_class else {}
        fixed = not any(limit.per_prompt_token for limit in self._good.values())
        self._limits = tuple(map(self._fixed, CRITERIA)) if fixed else None
        self._verdicts: dict[int, Judgement] = {}

    def judge(self, record: RequestRecord) -> Judgement:
        """Returns the verdict on *record*, which ended as was said."""
        limits = self._limits or self._limits_for(record)
        ttft_limit, tpot_limit, gap_limit, e2e_limit = limits
        ttft, tpot, gap, e2e = record.ttft, record.tpot, record.max_gap, record.e2e
        tokens = record.completion_tokens
        if self._ending.aborted:
            # The mean of a whole answer is not known before its end.
            ttft, tpot = _passed_when_left(record), None
        elif tokens is not None and tokens <= 1:
            tpot = gap = DOES_NOT_APPLY
        standing = 0
        if ttft_limit is not None and (ttft is None or not ttft <= ttft_limit):
            standing = _beyond(ttft, ttft_limit)
        if tpot_limit is not None and (tpot is None or not tpot <= tpot_limit):
            # Within the limit a bound is certain, above it is not.
            at_most = record.tpot_at_most
            standing |= (NOT_KNOWN if at_most else _beyond(tpot, tpot_limit)) << 2
        if gap_limit is not None and (gap is None or not gap <= gap_limit):
            standing |= _beyond(gap, gap_limit) << 4
        if e2e_limit is not None and (e2e is None or not e2e <= e2e_limit):
            standing |= _beyond(e2e, e2e_limit) << 6
        verdict = self._verdicts.get(standing)
        if verdict is None:
            verdict = self._verdicts[standing] = self._verdict(standing)
        return verdict

    def _fixed(self, criterion: str) -> float | None:
        threshold = self._good.get(criterion)
        return None if threshold is None else threshold.seconds

    def _limits_for(self, record: RequestRecord) -> tuple[float | None, ...]:
        """Returns the limits for a prompt of that length; NaN where it is not known."""
        limits: list[float | None] = []
        for criterion in CRITERIA:
            threshold = self._good.get(criterion)
            if threshold is None or not threshold.per_prompt_token:
                limits.append(self._fixed(criterion))
            elif record.prompt_tokens is None:
                # The limit is at least the base, so what meets that meets it all.
                within = record.ttft is not None and record.ttft <= threshold.seconds
                limits.append(threshold.seconds if within else UNKNOWN)
            else:
                limits.append(threshold.at(record.prompt_tokens))
        return tuple(limits)

    def _verdict(self, standing: int) -> Judgement:
        """Returns what follows when the criteria stand like that."""
        excluded, failed, aborted, told = self._ending
        if excluded:
            return Judgement(Verdict.EXCLUDED, excluded)
        values = {
            criterion: STANDINGS[standing >> 2 * place & 3]
            for place, criterion in enumerate(CRITERIA)
        }
        limits = dict.fromkeys(self._good, 0.0)
        good, bad = is_good(values, limits, failed)
        missed = tuple(c for c in limits if values[c] > limits[c])
        if aborted:
            if not bad:
                return Judgement(Verdict.EXCLUDED, "client_abort")
            return Judgement(Verdict.BAD, misses=(*missed, "abort"))
        if bad:
            misses = (*missed, "error") if failed else missed
            return Judgement(Verdict.BAD, misses=misses)
        if good and told:
            return Judgement(Verdict.GOOD)
        unknown = ", ".join(c for c in limits if math.isnan(values[c]))
        return Judgement(Verdict.UNEVALUABLE, unknown or "outcome")


def _beyond(value: float | None, limit: float) -> int:
    """Returns how a value that is not within its limit stands to it."""
    return ABOVE if value is not None and value > limit else NOT_KNOWN


def _passed_when_left(record: RequestRecord) -> float | None:
    """Returns the part of the TTFT that had surely passed when the client left."""
    if record.ttft is None and record.ttft_kind is not TtftKind.NONE:
        return record.e2e  # somebody looked, and no token had come
    return record.ttft


def exclusion(record: RequestRecord, policy_statuses: frozenset[int]) -> str:
    """Returns why a request says nothing about the serving, "" when it does."""
    if record.route and not is_generation(record.route):
        return "not_generation"
    status = record.status
    if status is not None and status in policy_statuses:
        return "policy"
    if (
        status is not None
        and 400 <= status < 500
        and status not in CAPACITY_STATUSES
        and record.outcome is not Outcome.CLIENT_ABORT
    ):
        return "caller_error"
    return ""


def is_generation(route: str) -> bool:
    """Whether a path asks a model for output; a query string does not matter."""
    path = route.partition("?")[0].rstrip("/")
    return any(path == r or path.endswith(r) for r in GENERATION_ROUTES)


def has_failed(record: RequestRecord) -> bool:
    """Whether a request failed by its outcome or by its status."""
    if record.outcome in FAILURES:
        return True
    status = record.status
    return status is not None and (status >= 500 or status in CAPACITY_STATUSES)


def criterion_values(record: RequestRecord) -> dict[str, float]:
    """Returns the value of each criterion: NaN unknown, −Inf when it does not apply.

    An answer of at most one token has no time per output token and no gap.
    """
    single = record.completion_tokens is not None and record.completion_tokens <= 1
    between = DOES_NOT_APPLY if single else None
    return {
        "ttft": _known(record.ttft),
        "tpot": _known(record.tpot if between is None else between),
        "max_gap": _known(record.max_gap if between is None else between),
        "e2e": _known(record.e2e),
    }


def _known(value: float | None) -> float:
    return UNKNOWN if value is None else value


def class_for(
    record: RequestRecord, classes: tuple[SloClass, ...], names: tuple[str, ...]
) -> SloClass | None:
    """Returns the first class that takes *record*, whose model has these *names*."""
    for slo_class in classes:
        if not takes_kind(slo_class, record, names):
            continue
        limits = slo_class.match.prompt_tokens
        if limits is not None:
            low, high = limits
            if record.prompt_tokens is None or not low <= record.prompt_tokens <= high:
                continue
        return slo_class
    return None


def takes_kind(
    slo_class: SloClass, record: RequestRecord, names: tuple[str, ...]
) -> bool:
    """Whether a class takes requests like *record*, whatever the prompt's length."""
    match = slo_class.match
    if not match.takes_model(names or ("",)):
        return False
    if match.routes and not _any(record.route, match.routes):
        return False
    if match.tenants and not _any(record.tenant, match.tenants):
        return False
    return all(
        _any(record.headers.get(name, ""), patterns)
        for name, patterns in match.headers.items()
    )


def _any(value: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(value, pattern) for pattern in patterns)

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
from typing import Any

from analyzer.gateways.record import Outcome, RequestRecord, TtftKind
from analyzer.slo import SloClass

UNKNOWN = math.nan
DOES_NOT_APPLY = -math.inf
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
    excluded = _excluded(record, policy_statuses)
    if excluded:
        return Judgement(Verdict.EXCLUDED, excluded)
    failed = _failed(record)
    limits = _limits(record, slo_class)
    values = criterion_values(record)
    if record.tpot_at_most and "tpot" in limits and values["tpot"] > limits["tpot"]:
        values["tpot"] = UNKNOWN  # within the limit it is certain, above it is not
    aborted = record.outcome is Outcome.CLIENT_ABORT
    if aborted:
        values = _values_when_left(record)
    good, bad = is_good(values, limits, failed)
    missed = tuple(c for c, limit in limits.items() if values[c] > limit)
    if aborted:
        if not bad:
            return Judgement(Verdict.EXCLUDED, "client_abort")
        return Judgement(Verdict.BAD, misses=(*missed, "abort"))
    if bad:
        return Judgement(Verdict.BAD, misses=(*missed, *(("error",) if failed else ())))
    if good and record.outcome is not Outcome.UNKNOWN:
        return Judgement(Verdict.GOOD)
    unknown = [c for c in limits if math.isnan(values[c]) or math.isnan(limits[c])]
    return Judgement(Verdict.UNEVALUABLE, ", ".join(unknown) or "outcome")


def _excluded(record: RequestRecord, policy_statuses: frozenset[int]) -> str:
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


def _failed(record: RequestRecord) -> bool:
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


def _values_when_left(record: RequestRecord) -> dict[str, float]:
    """Returns what had surely passed when the client left; the rest is unknown."""
    elapsed = _known(record.e2e)
    ttft = _known(record.ttft)
    if record.ttft is None and record.ttft_kind is not TtftKind.NONE:
        ttft = elapsed  # somebody looked, and no token had come
    return {
        "ttft": ttft,
        "tpot": UNKNOWN,  # the mean of a whole answer is not known before its end
        "max_gap": _known(record.max_gap),
        "e2e": elapsed,
    }


def _limits(record: RequestRecord, slo_class: SloClass | None) -> dict[str, float]:
    if slo_class is None:
        return {}
    limits: dict[str, float] = {}
    for criterion, threshold in slo_class.good.items():
        if not threshold.per_prompt_token:
            limits[criterion] = threshold.seconds
        elif record.prompt_tokens is None:
            # The limit is at least the base, so what meets that meets it all.
            within = record.ttft is not None and record.ttft <= threshold.seconds
            limits[criterion] = threshold.seconds if within else UNKNOWN
        else:
            limits[criterion] = threshold.at(record.prompt_tokens)
    return limits


def _known(value: float | None) -> float:
    return UNKNOWN if value is None else value


def class_for(
    record: RequestRecord, classes: tuple[SloClass, ...], names: tuple[str, ...]
) -> SloClass | None:
    """Returns the first class that takes *record*, whose model has these *names*."""
    for slo_class in classes:
        match = slo_class.match
        if not match.takes_model(names or ("",)):
            continue
        if match.routes and not _any(record.route, match.routes):
            continue
        if match.tenants and not _any(record.tenant, match.tenants):
            continue
        if any(
            not _any(record.headers.get(name, ""), patterns)
            for name, patterns in match.headers.items()
        ):
            continue
        if match.prompt_tokens is not None:
            low, high = match.prompt_tokens
            if record.prompt_tokens is None or not low <= record.prompt_tokens <= high:
                continue
        return slo_class
    return None


def _any(value: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(value, pattern) for pattern in patterns)

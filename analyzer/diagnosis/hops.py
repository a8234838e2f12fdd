"""What gateways saw of a model's late requests: which stage of theirs took the time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from analyzer.diagnosis.intervals import Count, Window
from analyzer.diagnosis.thresholds import LONGER, MISSED, STAGE_PART
from analyzer.gateways.record import RequestRecord
from analyzer.judgement import Verdict
from analyzer.recent_requests import Judged, RecentRequests

# Stages that are not the engine's, by the criteria that they are a part of.
STAGES = {"ttft": ("gateway",), "e2e": ("gateway", "delivery")}


@dataclass(frozen=True, slots=True)
class Stage:
    """A gateway's stage in the late requests that tell it: `told` of them.

    `owed` would have been in time without it; `seconds` is its mean, `threshold` the
    class's budget or else half of the latency.
    """

    told: int
    owed: int
    seconds: float
    threshold: float


@dataclass(frozen=True, slots=True)
class Hops:
    """Requests that ended in the last 20 seconds, by the gateways' clocks.

    `late` of the `judged` ones missed `criterion`; `first` and `last` are the ends of
    the earliest and the latest of these (Unix seconds), `latency` and `limit` their
    means in seconds. `beyond` has for each how much of its latency, without the
    gateway's stage, is above its limit. `passed` are the first tokens as the gateways
    passed them on, less their own stage, and `engines` those of the engines in the
    same time, None when they were not looked at.
    """

    criterion: str
    judged: int
    late: int
    first: float
    last: float
    latency: float
    limit: float
    stages: Mapping[str, Stage]
    beyond: Sequence[float]
    passed: Count
    engines: Count | None = None

    @property
    def share(self) -> float:
        """The share of requests that were late."""
        return self.late / self.judged


@dataclass(frozen=True, slots=True)
class _Late:
    judged: Judged
    end: float
    latency: float
    limit: float


def hops(
    logs: Iterable[RecentRequests], windows: Iterable[Window], model: str, at: float
) -> Hops | None:
    """Returns what *logs* have of *model* until *at* (Unix seconds).

    *windows* are those of all its engines. None when no request missed TTFT or E2E.
    """
    recent = [j for log in logs for j in log.ended(model, at - LONGER.value, at)]
    late = {criterion: _late(recent, criterion) for criterion in STAGES}
    criterion = max(late, key=lambda name: len(late[name]))
    found = late[criterion]
    if not found:
        return None
    number = len(found)
    judged = sum(
        criterion in j.slo_class.good and j.judgement.verdict is not Verdict.UNEVALUABLE
        for j in recent
    )
    result = Hops(
        criterion,
        judged,
        number,
        min(item.end for item in found),
        max(item.end for item in found),
        sum(item.latency for item in found) / number,
        sum(item.limit for item in found) / number,
        {name: _stage(found, name) for name in STAGES[criterion]},
        [
            item.latency - (item.judged.record.gateway_time or 0.0) - item.limit
            for item in found
        ],
        Count(),
    )
    if criterion != "ttft" or result.share < MISSED.value:
        return result
    return _beside_engines(result, [j.record for j in recent], windows)


def _late(recent: Iterable[Judged], criterion: str) -> list[_Late]:
    found = []
    for judged in recent:
        record = judged.record
        if criterion not in judged.judgement.misses or record.e2e is None:
            continue
        # Who left without a first token had waited for it until then.
        latency = record.e2e if criterion == "e2e" else record.ttft
        limit = judged.slo_class.good[criterion].at(record.prompt_tokens or 0)
        end = (record.start or 0.0) + record.e2e
        value = record.e2e if latency is None else latency
        found.append(_Late(judged, end, value, limit))
    return found


def _stage(late: Iterable[_Late], name: str) -> Stage:
    told = owed = 0
    seconds = threshold = 0.0
    for item in late:
        record = item.judged.record
        spent = record.gateway_time if name == "gateway" else record.delivery_time
        if spent is None:
            continue
        told += 1
        seconds += spent
        part = STAGE_PART.value * item.latency
        allowed = min(part, item.judged.slo_class.stages.get(name, part))
        threshold += allowed
        owed += spent >= allowed and item.latency - spent <= item.limit
    number = told or 1
    return Stage(told, owed, seconds / number, threshold / number)


def _beside_engines(
    found: Hops, records: Iterable[RequestRecord], windows: Iterable[Window]
) -> Hops:
    """Returns *found* with the first tokens of gateways and engines in one time."""
    tokens = [
        (r.start + r.ttft, r.ttft - (r.gateway_time or 0.0))
        for r in records
        if r.start is not None and r.ttft is not None
    ]
    if not tokens:
        return found
    begin, end = min(tokens)[0], max(tokens)[0]
    number = seconds = 0.0
    for window in windows:
        for interval in window:
            if interval.ttft and interval.end > begin and interval.begin < end:
                number += interval.ttft.number
                seconds += interval.ttft.seconds
    passed = Count(float(len(tokens)), sum(spent for _, spent in tokens))
    return replace(found, passed=passed, engines=Count(number, seconds))

"""What is known of a rank beside its verdict: where it is heading, how it was."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.diagnosis.intervals import stretch
from analyzer.diagnosis.rank import RankDiagnosis
from analyzer.slo_rows import Document
from analyzer.timeline import Segment

STRIP_SECONDS = 3600.0
SLOTS = 240
RATE_SECONDS = 60.0


def outlook(known: RankDiagnosis | None, *, stale: str) -> Document:
    """Returns forecast, burstiness and preemptions of a rank; None is unknown."""
    row: Document = {
        "kv_cache_exhaustion_seconds": None,
        "kv_cache_filled_by": None,
        "arrival_dispersion_index": None,
        "preemptions_per_second": None,
    }
    if known is None or stale:
        return row
    if known.forecast is not None:
        row["kv_cache_exhaustion_seconds"] = known.forecast.seconds
        row["kv_cache_filled_by"] = known.forecast.filled_by
    if known.burst is not None and known.burst.known:
        row["arrival_dispersion_index"] = known.burst.index
    minute = stretch(known.window.last(RATE_SECONDS))
    if minute.preemptions is not None and minute.seconds:
        row["preemptions_per_second"] = minute.preemptions / minute.seconds
    return row


def hottest(usages: Sequence[tuple[str, float | None]]) -> str | None:
    """Returns the rank with the fullest KV cache, None when none is told."""
    known = [(usage, rank) for rank, usage in usages if usage is not None]
    return max(known)[1] if known else None


def strip(segments: Sequence[Segment], at: float) -> list[tuple[float, float, str]]:
    """Returns the last hour as (start, end, family), at most 240 stretches of it.

    Of each quarter of a minute the family is the one that held longest.
    """
    width = STRIP_SECONDS / SLOTS
    begin = at - STRIP_SECONDS
    slots: list[dict[str, float]] = [{} for _ in range(SLOTS)]
    for segment in segments:
        low, high = max(segment.start, begin), min(segment.end, at)
        family = segment.verdict.family.value
        slot = max(0, int((low - begin) / width))
        while low < high and slot < SLOTS:
            end = min(high, begin + (slot + 1) * width)
            slots[slot][family] = slots[slot].get(family, 0.0) + end - low
            low, slot = end, slot + 1
    found: list[tuple[float, float, str]] = []
    for index, held in enumerate(slots):
        if not held:
            continue
        family = max(held, key=held.__getitem__)
        start, end = begin + index * width, begin + (index + 1) * width
        if found and found[-1][2] == family and found[-1][1] == start:
            found[-1] = (found[-1][0], end, family)
        else:
            found.append((start, end, family))
    return found

"""Reads expositions of one vLLM target into canonical signals."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from analyzer.engines import vllm
from analyzer.engines.labels import EngineLabels
from analyzer.engines.reading import EngineReading
from analyzer.engines.vllm import Field, Kind
from analyzer.exposition import Exposition, Series
from analyzer.histogram import Histogram
from analyzer.snapshot import Group, Key, Snapshot

_FIELDS: Mapping[str, Field] = dict(vllm.fields())
_BARE_PREFERENCE = len(vllm.PREFIXES)
_MAX_KNOWN_SERIES = 50_000
_PROCESS_START = "process_start_time_seconds"
_DROPPED_LABELS = frozenset({*vllm.MODEL_LABELS, vllm.RANK_LABEL, "le"})


@dataclass(frozen=True, slots=True)
class _Slot:
    """What the reader worked out about one series: where its value goes."""

    signal: str  # "" for a creation stamp, which is no sign of the signal itself
    name: str  # of its metric, without _bucket and the like
    part: str  # of its metric: value, bucket, sum, count or created
    kind: Kind
    key: Key
    bound: float
    page: tuple[int, int]  # preference of its prefix, then of its name
    labels: Mapping[str, str]


@dataclass(slots=True)
class _Page:
    """The values found under one prefix and one generation of names."""

    counters: dict[Key, float] = field(default_factory=dict)
    buckets: defaultdict[Key, list[tuple[float, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    sums: dict[Key, float] = field(default_factory=dict)
    created: dict[Key, float] = field(default_factory=dict)
    gauges: dict[Group, float] = field(default_factory=dict)
    cache_config: dict[str, Mapping[str, str]] = field(default_factory=dict)
    signals: dict[str, str] = field(default_factory=dict)
    spoilt: bool = False  # a cumulative value that none can have: NaN, −1, +Inf


class VllmReader:
    """Reads one target's expositions; remembers its series between scrapes.

    *model* names the model of series without a model label (before 0.3.3);
    *labels* gives the label values under which models, ranks and the like are kept.
    """

    def __init__(
        self, *, model: str = "unknown", labels: EngineLabels | None = None
    ) -> None:
        self._model = model
        self._labels = labels or EngineLabels()
        self._slots: dict[Series, _Slot | None] = {}

    def read(self, exposition: Exposition, at: float) -> EngineReading:
        """Returns what *exposition*, scraped at *at* (Unix seconds), says."""
        slots = self._slots
        if len(slots) > _MAX_KNOWN_SERIES:
            slots.clear()
        pages: dict[tuple[int, int], _Page] = {}
        http: dict[Key, float] = {}
        started: float | None = None
        frontend = False
        for series, value in zip(exposition.series, exposition.values, strict=True):
            try:
                slot = slots[series]
            except KeyError:
                slot = slots[series] = self._slot(series)
            if slot is None:
                if series.name == _PROCESS_START:  # of several processes: unknown
                    started = value if started in (None, value) else math.nan
                elif series.name in vllm.FRONTEND_NAMES:
                    frontend = True
                    _add_completion(http, series, value)
                continue
            page = pages.get(slot.page)
            if page is None:
                page = pages[slot.page] = _Page()
            if slot.part == "bucket":
                if 0 <= value < math.inf:
                    page.buckets[slot.key].append((slot.bound, value))
                else:
                    page.spoilt = True
            else:
                _put(page, slot, value)
            if slot.signal and slot.signal not in page.signals:
                page.signals[slot.signal] = slot.name
        return _assemble(
            pages,
            at=at,
            started=started if started and math.isfinite(started) else None,
            http=http,
            frontend=frontend,
            damaged=exposition.damaged_lines > 0,
        )

    def _slot(self, series: Series) -> _Slot | None:
        """Works out where *series* leads, None when it is not an engine signal."""
        name = series.name
        for preference, prefix in enumerate(vllm.PREFIXES):  # noqa: B007 - used below
            if name.startswith(prefix):
                found = _FIELDS.get(name[len(prefix) :])
                break
        else:
            preference = _BARE_PREFERENCE
            found = _FIELDS.get(name)
            if found is not None and not found.metric.bare:
                found = None
        if found is None:
            return None
        labels = series.labels
        bound = math.nan
        if found.part == "bucket":
            try:
                bound = float(labels["le"])
            except (KeyError, ValueError):
                return None
            if math.isnan(bound):
                return None
        own = found.metric.label
        model = next((labels[n] for n in vllm.MODEL_LABELS if n in labels), self._model)
        rank = labels.get(vllm.RANK_LABEL, "0") if found.metric.ranked else ""
        extra = labels.get(own, "") if own else ""
        group = self._labels.group(found.metric, model, rank, extra)
        dropped = _DROPPED_LABELS | {own}
        origin = sorted((k, v) for k, v in labels.items() if k not in dropped)
        # What shares the place of `other` keeps its own history all the same.
        origin += (
            (name, value)
            for name, value, kept in (
                ("model_name", model, group.model),
                (vllm.RANK_LABEL, rank, group.rank),
                (own, extra, group.extra),
            )
            if value != kept
        )
        return _Slot(
            "" if found.part == "created" else group.signal,
            name if found.part == "value" else name.removesuffix(f"_{found.part}"),
            found.part,
            found.metric.kind,
            Key(group, tuple(origin)),
            bound,
            (preference, found.preference),
            labels,
        )


def known_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Returns the labels that say something; vLLM prints the rest as "None"."""
    return {name: value for name, value in labels.items() if value not in ("None", "")}


def _put(page: _Page, slot: _Slot, value: float) -> None:
    part, kind, key = slot.part, slot.kind, slot.key
    if part == "sum":
        page.sums[key] = value
    elif part == "created":
        page.created[key] = value
    elif part == "value":
        if kind is Kind.COUNTER:
            if 0 <= value < math.inf:
                page.counters[key] = value
            else:
                page.spoilt = True
        elif kind is Kind.INFO:
            page.cache_config[key.group.rank] = known_labels(slot.labels)
        elif not math.isfinite(value):
            return
        elif kind is Kind.GAUGE:
            page.gauges[key.group] = page.gauges.get(key.group, 0.0) + value
        elif kind is Kind.RATIO:
            page.gauges[key.group] = max(page.gauges.get(key.group, 0.0), value)


def _add_completion(http: dict[Key, float], series: Series, value: float) -> None:
    """Counts answers that ended on a generation route, by class of status."""
    labels = series.labels
    if series.name != "http_requests_total" or labels.get("method") != "POST":
        return
    if labels.get("handler") in vllm.GENERATION_HANDLERS and 0 <= value < math.inf:
        group = Group("http_completions", "", "", labels.get("status", ""))
        key = Key(group, (("handler", labels["handler"]),))
        http[key] = value


def _assemble(
    pages: dict[tuple[int, int], _Page],
    *,
    at: float,
    started: float | None,
    http: dict[Key, float],
    frontend: bool,
    damaged: bool,
) -> EngineReading:
    """Takes each signal from the best page that has it, under one prefix only."""
    counters: dict[Key, float] = dict(http)
    histograms: dict[Key, Histogram] = {}
    created: dict[Key, float] = {}
    gauges: dict[Group, float] = {}
    cache_config: dict[str, Mapping[str, str]] = {}
    names: dict[str, str] = {}
    best = min(pages)[0] if pages else None
    for preference in sorted(pages):
        if preference[0] != best:
            continue
        page = pages[preference]
        damaged = damaged or page.spoilt
        cache_config.update(page.cache_config)
        new = page.signals.keys() - names.keys()
        names.update((signal, page.signals[signal]) for signal in new)
        counters.update(
            (k, v) for k, v in page.counters.items() if k.group.signal in new
        )
        created.update((k, v) for k, v in page.created.items() if k.group.signal in new)
        gauges.update((g, v) for g, v in page.gauges.items() if g.signal in new)
        for key, buckets in page.buckets.items():
            if key.group.signal in new:
                histogram = _histogram(buckets, page.sums.get(key, 0.0))
                if histogram is not None:
                    histograms[key] = histogram
    bare = best == _BARE_PREFERENCE
    if bare and not {"running", "ttft"} <= names.keys():
        return EngineReading(Snapshot(at, started, damaged=damaged), frontend=frontend)
    snapshot = Snapshot(at, started, counters, histograms, created, damaged=damaged)
    prefix = None
    if best is not None:
        prefix = "" if bare else vllm.PREFIXES[best]
    return EngineReading(snapshot, gauges, cache_config, names, prefix, frontend)


def _histogram(buckets: list[tuple[float, float]], total: float) -> Histogram | None:
    """Returns the histogram of *buckets*, None when its +Inf bucket is missing."""
    bounds, counts = zip(*buckets, strict=True)
    if any(a >= b for a, b in pairwise(bounds)):
        ordered = sorted(dict(buckets).items())
        bounds, counts = zip(*ordered, strict=True)
    if bounds[-1] != math.inf:
        return None
    return Histogram(bounds, counts, total)

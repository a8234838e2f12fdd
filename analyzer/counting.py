"""Requests into totals: each is judged, counted, and put into its histograms."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping

from analyzer.config_gateways import GatewaySource
from analyzer.gateways.record import RequestRecord
from analyzer.judgement import Judge, Judgement, Verdict, class_for, ending_of
from analyzer.recent_requests import RecentRequests
from analyzer.requests_total import RequestTotals, Row
from analyzer.slo import NO_CLASS, SloClass, matched_headers

FUTURE_SECONDS = 300.0
NO_MODEL = "unknown"
MAX_KINDS = 8192
MAX_KIND_LENGTH = 512  # characters; requests with longer ones are looked up anew
# A member of an enumeration costs two look-ups, a name of the module one.
_GOOD, _BAD, _EXCLUDED = Verdict.GOOD, Verdict.BAD, Verdict.EXCLUDED

_Key = tuple[object, ...]


class RequestCounter:
    """Adds requests to *totals*; `recent` has the latest of them.

    *admit* gives the label value of a model, *admit_failed* that of one whose request
    failed, which may not claim a place.
    """

    def __init__(
        self,
        totals: RequestTotals,
        *,
        admit: Callable[[str], str],
        admit_failed: Callable[[str], str],
    ) -> None:
        self.recent = RecentRequests()
        self._totals = totals
        self._admit = admit
        self._admit_failed = admit_failed
        self._served: Mapping[str, str] = {}
        self._kinds: dict[_Key, _Kind] = {}
        self._rows: dict[tuple[str, str], _RowCounter] = {}
        self._judges: dict[_Key, Judge] = {}

    def configure(self, source: GatewaySource, classes: tuple[SloClass, ...]) -> None:
        """Takes over a configuration. The totals have its histogram bounds already."""
        self._classes = classes
        self._counts = source.counts
        self._policy = frozenset(source.policy_statuses)
        ranges = {c.match.prompt_tokens for c in classes if c.match.prompt_tokens}
        self._headers = matched_headers(classes)
        self._prompt_limits = sorted({limit for limits in ranges for limit in limits})
        self._kinds.clear()
        self._rows.clear()
        self._judges.clear()

    def know(self, served: Mapping[str, str]) -> None:
        """Takes over which names mean which served model."""
        if served != self._served:
            self._served = served
            self._kinds.clear()

    def count(self, records: Iterable[RequestRecord], at: float) -> None:
        """Counts *records* that were read at *at*."""
        totals, find = self._totals, self._kinds.get
        last, latest = totals.last_record or 0.0, at + FUTURE_SECONDS
        more = self._headers or self._prompt_limits
        for record in records:
            if record.start is not None:
                end = record.start + (record.e2e or 0.0)
                if last < end <= latest:
                    last = end
            if not self._counts:
                continue
            key: _Key = (
                record.model,
                record.route,
                record.tenant,
                record.status,
                record.outcome,
            )
            if more:
                key += self._matched(record)
            kind = find(key) or self._kind(key, record)
            judgement = kind.judge(record)
            row = kind.row or self._row(kind, judgement)
            if judgement.verdict is _EXCLUDED:
                totals.excluded[judgement.reason] += 1.0
                row.exclude(judgement.reason)
                continue
            row.records.append(record)
            row.judgements.append(judgement)
            if judgement.reason:
                unknown, reason = totals.unknown, judgement.reason
                unknown[reason] = unknown.get(reason, 0.0) + 1.0
        if last:
            totals.last_record = last
        for row in self._rows.values():
            row.settle()

    def _matched(self, record: RequestRecord) -> _Key:
        """Returns what else of a request some class matches on."""
        tokens, limits = record.prompt_tokens, self._prompt_limits
        # Limits are inclusive: a number that is one differs from both its neighbours.
        place = (
            -1
            if tokens is None
            else bisect_left(limits, tokens) + bisect_right(limits, tokens)
        )
        return (place, *map(record.headers.get, self._headers))

    def _kind(self, key: _Key, record: RequestRecord) -> _Kind:
        """Returns the kind of requests that *record* is of, known from now on."""
        served = self._served.get(record.model, record.model) or NO_MODEL
        names = (served,) if served == record.model else (served, record.model)
        slo_class = class_for(record, self._classes, names)
        name = slo_class.name if slo_class else NO_CLASS
        ending = ending_of(record, self._policy)
        judge = self._judges.get((name, ending))
        if judge is None:
            judge = self._judges[name, ending] = Judge(slo_class, ending)
        kind = _Kind(judge, served, name)
        if sum(len(part) for part in key if isinstance(part, str)) <= MAX_KIND_LENGTH:
            if len(self._kinds) >= MAX_KINDS:
                self._kinds.clear()
            self._kinds[key] = kind
        return kind

    def _row(self, kind: _Kind, judgement: Judgement) -> _RowCounter:
        """Returns the row of a request, for all of its kind once its model has one."""
        failed = judgement.verdict is _EXCLUDED or "error" in judgement.misses
        model = (self._admit_failed if failed else self._admit)(kind.model)
        key = model, kind.slo_class
        counter = self._rows.get(key)
        if counter is None:
            row = self._totals.row(*key, self._classes)
            named = (c for c in self._classes if c.name == kind.slo_class)
            counter = _RowCounter(row, model, next(named, None), self.recent)
            self._rows[key] = counter
        if model == kind.model:
            kind.row = counter
        return counter


class _Kind:
    """What requests share that are alike in all but their times.

    `row` is None until their model has its place among the label values.
    """

    __slots__ = ("judge", "model", "row", "slo_class")

    def __init__(self, judge: Judge, model: str, slo_class: str) -> None:
        self.judge = judge.judge
        self.model = model
        self.slo_class = slo_class
        self.row: _RowCounter | None = None


class _RowCounter:
    """Adds requests to a row: put them into the lists, then call `settle`.

    Many at once cost less than one by one, in histograms above all.
    """

    __slots__ = (
        "_model",
        "_recent",
        "_row",
        "_slo_class",
        "exclude",
        "judgements",
        "records",
    )

    def __init__(
        self,
        row: Row,
        model: str,
        slo_class: SloClass | None,
        recent: RecentRequests,
    ) -> None:
        self._row = row
        self._model = model
        self._slo_class = slo_class
        self._recent = recent
        self.exclude = row.exclude
        self.records: list[RequestRecord] = []
        self.judgements: list[Judgement] = []

    def settle(self) -> None:
        """Adds the requests that came since the last call; none is excluded."""
        if not self.records:
            return
        self._count()
        requests, latencies = self.records, self._row.latencies
        for criterion, values in (
            ("ttft", [v for r in requests if (v := r.ttft) is not None]),
            ("tpot", [v for r in requests if (v := r.tpot) is not None]),
            ("max_gap", [v for r in requests if (v := r.max_gap) is not None]),
            ("e2e", [v for r in requests if (v := r.e2e) is not None]),
        ):
            latencies[criterion].observe(values)
        for stage, values in (
            ("gateway", [v for r in requests if (v := r.gateway_time) is not None]),
            ("serving", [v for r in requests if (v := r.serving_time) is not None]),
            ("delivery", [v for r in requests if (v := r.delivery_time) is not None]),
        ):
            self._row.stages[stage].observe(values)
        if self._slo_class is not None:
            self._recent.add(
                self._model, self.records, self.judgements, self._slo_class
            )
        self.records, self.judgements = [], []

    def _count(self) -> None:
        row = self._row
        good = bad = tokens = good_tokens = 0
        for record, judgement in zip(self.records, self.judgements, strict=True):
            verdict, output = judgement.verdict, record.completion_tokens or 0
            tokens += output
            if verdict is _GOOD:
                good += 1
                good_tokens += output
            elif verdict is _BAD:
                bad += 1
                for miss in judgement.misses:
                    row.misses[miss] += 1.0
            else:
                unknown, reason = row.unevaluable_for, judgement.reason
                unknown[reason] = unknown.get(reason, 0.0) + 1.0
                row.unstreamed += record.stream is False
        row.requests += len(self.records)
        row.good += good
        row.bad += bad
        row.unevaluable += len(self.records) - good - bad
        row.tokens += tokens
        row.good_tokens += good_tokens

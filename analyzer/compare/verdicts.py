"""The verdict on each figure of two sides, and on the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

from analyzer.compare.drift import Drift, drifts
from analyzer.compare.sample import CompareError, Figure, Sample, Side
from analyzer.sweep.intervals import LEVEL, Interval

SHARE = "attainment"


class Verdict(StrEnum):
    """What can be said of B beside A."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "not distinguishable"
    UNKNOWN = "unknown"  # no interval on one side
    UNLIKE = "not comparable"  # the loads differ


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of both sides; `difference` is B less A, with its interval.

    A side of which only bounds are known has no figure, and `bounds` of A or B.
    """

    metric: str
    a: float | None
    b: float | None
    difference: Interval | None
    verdict: Verdict
    a_bounds: tuple[float, float] | None = None
    b_bounds: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """One class (and load point) of both sides.

    The verdict is that of attainment: the other rows say where it comes from.
    """

    name: str
    a: Sample
    b: Sample
    rows: tuple[Row, ...]
    drifts: tuple[Drift, ...]

    @property
    def unlike(self) -> bool:
        """Whether the loads surely differ."""
        return any(drift.alike is False for drift in self.drifts)

    @property
    def verdict(self) -> Verdict:
        """What the shares of good requests say, whatever the loads were."""
        return self.rows[0].verdict


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides, pair by pair; `unpaired` names what only one of them has."""

    a: Side
    b: Side
    pairs: tuple[Pair, ...]
    unpaired: tuple[str, ...]
    allow_drift: bool

    @property
    def verdict(self) -> Verdict:
        """The worst that is certain; unlike loads leave nothing certain."""
        if not self.allow_drift and any(pair.unlike for pair in self.pairs):
            return Verdict.UNLIKE
        found = {pair.verdict for pair in self.pairs}
        for verdict in (Verdict.WORSE, Verdict.BETTER, Verdict.SAME):
            if verdict in found:
                return verdict
        return Verdict.UNKNOWN


def compare(a: Side, b: Side, *, margin: float, allow_drift: bool) -> Comparison:
    """Returns what can be said of *b* beside *a*.

    Differences of shares up to *margin* do not count. With several pairs each
    interval is wider (Bonferroni), so that one of them seldom errs. Raises
    CompareError when the sides have nothing in common.
    """
    names = [name for name in a.samples if name in b.samples]
    pairs = [(name, a.samples[name], b.samples[name]) for name in names]
    if not names and len(a.samples) == len(b.samples) == 1:
        ((one, first),), ((other, second),) = a.samples.items(), b.samples.items()
        pairs = [(f"{one} → {other}", first, second)]
    if not pairs:
        raise CompareError(
            f"nothing to compare: A has {_listed(a)}; B has {_listed(b)}"
        )
    paired = {*names} if names else {*a.samples, *b.samples}
    unpaired = [
        f"{side.name}: {name}"
        for side in (a, b)
        for name in side.samples
        if name not in paired
    ]
    factor = _widening(len(pairs))
    return Comparison(
        a,
        b,
        tuple(
            Pair(
                name,
                first,
                second,
                tuple(_rows(first, second, margin, factor)),
                tuple(drifts(first, second)),
            )
            for name, first, second in pairs
        ),
        tuple(unpaired),
        allow_drift,
    )


def _listed(side: Side) -> str:
    names = list(side.samples)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return (", ".join(names[:5]) or "no requests") + more


def _widening(pairs: int) -> float:
    tail = (1 - LEVEL) / 2
    normal = NormalDist()
    return normal.inv_cdf(1 - tail / pairs) / normal.inv_cdf(1 - tail)


def _rows(a: Sample, b: Sample, margin: float, factor: float) -> Sequence[Row]:
    rows = [_row("attainment", a.attainment, b.attainment, factor, margin, higher=True)]
    for key in a.latencies:
        if key in b.latencies:
            name = f"{key[0]}_{key[1]}_seconds"
            rows.append(
                _row(
                    name, a.latencies[key], b.latencies[key], factor, 0.0, higher=False
                )
            )
    rows.append(
        Row(
            "requests_per_second",
            a.throughput,
            b.throughput,
            None,
            Verdict.UNKNOWN,
        )
    )
    return rows


def _row(
    metric: str,
    a: Figure | None,
    b: Figure | None,
    factor: float,
    margin: float,
    *,
    higher: bool,
) -> Row:
    first = None if a is None else a.value
    second = None if b is None else b.value
    bounds = None if a is None else a.bounds, None if b is None else b.bounds
    if a is None or b is None or a.interval is None or b.interval is None:
        return Row(metric, first, second, None, Verdict.UNKNOWN, *bounds)
    if bounds == (None, None):
        difference = b.interval.minus(a.interval).widened(factor)
    else:
        difference = _farthest(a.interval, b.interval)
    if metric == SHARE:  # no share is outside 0 and 1, so no difference beyond 1
        low, high = max(-1.0, difference.lower), min(1.0, difference.upper)
        difference = Interval(difference.estimate, low, high)
    verdict = Verdict.SAME
    if difference.lower > margin:
        verdict = Verdict.BETTER if higher else Verdict.WORSE
    elif difference.upper < -margin:
        verdict = Verdict.WORSE if higher else Verdict.BETTER
    return Row(metric, first, second, difference, verdict, *bounds)


def _farthest(a: Interval, b: Interval) -> Interval:
    """Returns all differences that two ranges leave room for, wherever truth lies.

    A bound has no distribution within which errors could cancel.
    """
    return Interval(b.estimate - a.estimate, b.lower - a.upper, b.upper - a.lower)

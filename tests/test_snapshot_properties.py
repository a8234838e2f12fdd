"""Growth over any history of processes, scrapes and damage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, zip_longest

from hypothesis import given
from hypothesis import strategies as st
from snapshots import BOUNDS, INF, follow, key, page, totals

from analyzer.histogram import Histogram
from analyzer.snapshot import Group, Key, Reset, Snapshot


@dataclass
class Process:
    """One life of an engine: when it ran, and what happened in it.

    Events are (time, rank, milliseconds of latency); each also generates as many
    tokens as it has milliseconds. Nothing is served in the first ten seconds.
    """

    start: float
    end: int
    events: list[tuple[int, str, int]] = field(default_factory=list)

    def page(
        self, at: int, *, start_known: bool, lazy: bool, damage: int = 0
    ) -> Snapshot:
        """Returns the page at *at*; some series and buckets are lost by *damage*."""
        values: dict[Key, float | Histogram] = {}
        for rank in ("0", "1"):
            seen = [ms for t, r, ms in self.events if r == rank and t <= at]
            if lazy and not seen:
                continue
            latencies = [ms / 1000 for ms in seen]
            counts = tuple(float(sum(x <= b for x in latencies)) for b in BOUNDS)
            values[key("ttft", rank)] = Histogram(BOUNDS, counts, sum(latencies))
            values[key("generation_tokens", rank)] = float(sum(seen))
            values[key("finished", rank)] = float(len(seen))
        for bit, lost in enumerate(list(values)):
            if damage >> bit & 1:
                del values[lost]
        for rank in ("0", "1"):
            whole = values.get(key("ttft", rank))
            if damage >> 6 & 1 and isinstance(whole, Histogram):
                values[key("ttft", rank)] = Histogram(
                    (*BOUNDS[:2], INF), (*whole.counts[:2], whole.count), whole.sum
                )
        started = float(self.start) if start_known else None
        if damage >> 7 & 1:
            started = None
        return page(float(at), values, started=started, damaged=damage > 0)


@st.composite
def lives(draw: st.DrawFn, *, most: int) -> list[Process]:
    """Draws an engine's processes, one after the other, with their events."""
    found = []
    at = 0
    for _ in range(draw(st.integers(1, most))):
        length = draw(st.integers(20, 120))
        times = st.integers(at + 10, at + length - 1)
        event = st.tuples(
            times, st.sampled_from(("0", "1")), st.sampled_from((20, 300, 700, 4000))
        )
        events = sorted(draw(st.lists(event, min_size=most + 1, max_size=16)))
        found.append(Process(at, at + length, events))
        at += length + draw(st.integers(1, 30))
    return found


def scrape(
    processes: Sequence[Process],
    times: Sequence[int],
    *,
    start_known: bool = True,
    lazy: bool = False,
    damage: Sequence[int] = (),
) -> list[Snapshot]:
    """Returns the pages at *times*; none while no process runs."""
    pages = []
    for at, lost in zip_longest(times, damage[: len(times)], fillvalue=0):
        alive = next((p for p in processes if p.start <= at < p.end), None)
        if alive is not None:
            pages.append(
                alive.page(at, start_known=start_known, lazy=lazy, damage=lost)
            )
    return pages


def happened(events: Sequence[tuple[int, str, int]]) -> dict[Group, float]:
    """Returns the true totals of events."""
    found: dict[Group, float] = {}
    for _, rank, ms in events:
        for signal, amount in (
            ("ttft", 1),
            ("finished", 1),
            ("generation_tokens", ms),
        ):
            group = key(signal, rank).group
            found[group] = found.get(group, 0.0) + amount
    return found


def counted(
    processes: Sequence[Process], pages: Sequence[Snapshot]
) -> list[tuple[int, str, int]]:
    """Returns the events that pages can show: in each process up to its last page."""
    seen = []
    first = pages[0].at
    for process in processes:
        last = max(
            (p.at for p in pages if process.start <= p.at < process.end), default=0
        )
        seen += [event for event in process.events if first < event[0] <= last]
    return seen


def same(found: Mapping[Group, float], truth: Mapping[Group, float]) -> bool:
    """Whether totals are equal, rows that never moved aside."""
    return {g: v for g, v in found.items() if v} == {
        g: v for g, v in truth.items() if v
    }


def within(found: Mapping[Group, float], truth: Mapping[Group, float]) -> bool:
    """Whether no total is above the truth."""
    return all(value <= truth.get(group, 0.0) for group, value in found.items())


# Lists of many short gaps: sparse samples would hardly meet the interesting moments.
TIMES = st.lists(st.integers(1, 25), min_size=20, max_size=60).map(
    lambda gaps: list(accumulate(gaps, initial=0))
)
DAMAGE = st.lists(st.sampled_from((0, 0, 0, *range(1, 256))), min_size=61, max_size=61)


@given(
    processes=lives(most=1),
    some=TIMES,
    others=TIMES,
    start_known=st.booleans(),
    lazy=st.booleans(),
)
def test_any_cadence_gives_the_true_totals_without_a_restart(
    processes: list[Process],
    some: list[int],
    others: list[int],
    *,
    start_known: bool,
    lazy: bool,
) -> None:
    """Two samplings with the same ends count the same, bucket by bucket: the truth."""
    first, last = 0, processes[0].end - 1
    results = []
    for times in ([first, *some, last], [first, *others, last]):
        kept = sorted(t for t in set(times) if first <= t <= last)
        pages = scrape(processes, kept, start_known=start_known, lazy=lazy)
        grown, _ = follow(pages)
        assert same(totals(grown), happened(counted(processes, pages)))
        buckets: dict[Group, list[float]] = {}
        for step in grown:
            assert step.reset is Reset.NONE
            assert step.sum_anomalies == 0
            for group, grown_by in step.histograms.items():
                row = buckets.setdefault(group, [0.0] * len(BOUNDS))
                buckets[group] = [
                    a + b for a, b in zip(row, grown_by.counts, strict=True)
                ]
        results.append({g: row for g, row in buckets.items() if any(row)})
    assert results[0] == results[1]


@given(processes=lives(most=4), times=TIMES, lazy=st.booleans())
def test_restarts_cost_exactly_what_was_never_shown(
    processes: list[Process], times: list[int], *, lazy: bool
) -> None:
    """With start times totals are the truth less each process's last unseen part."""
    pages = scrape(processes, times, lazy=lazy)
    grown, _ = follow(pages)
    assert same(totals(grown), happened(counted(processes, pages)))


@given(processes=lives(most=4), times=TIMES, lazy=st.booleans())
def test_restarts_without_start_times_never_count_too_much(
    processes: list[Process], times: list[int], *, lazy: bool
) -> None:
    """A restart that no value shows is missed, but nothing is counted twice."""
    pages = scrape(processes, times, start_known=False, lazy=lazy)
    grown, _ = follow(pages)
    assert within(totals(grown), happened(counted(processes, pages)))
    assert all(
        count >= 0
        for step in grown
        for grown_by in step.histograms.values()
        for count in grown_by.counts
    )


@given(lives(most=1), TIMES, DAMAGE)
def test_damage_between_whole_pages_changes_no_total(
    processes: list[Process], times: list[int], damage: list[int]
) -> None:
    """Lost series, torn histograms and lost start times only delay the growth."""
    last = processes[0].end - 1
    kept = sorted({0, last, *(t for t in times if t < last)})
    lost = [0, *damage[1 : len(kept) - 1], 0]
    grown, _ = follow(scrape(processes, kept, damage=lost))
    assert same(totals(grown), happened(processes[0].events))


@given(
    processes=lives(most=4),
    times=TIMES,
    damage=DAMAGE,
    start_known=st.booleans(),
    lazy=st.booleans(),
)
def test_damage_and_restarts_never_count_too_much(
    processes: list[Process],
    times: list[int],
    damage: list[int],
    *,
    start_known: bool,
    lazy: bool,
) -> None:
    """Whatever is lost on whichever page, no event counts twice."""
    pages = scrape(processes, times, start_known=start_known, lazy=lazy, damage=damage)
    grown, _ = follow(pages)
    assert within(totals(grown), happened(counted(processes, pages)))


@given(
    lives(most=3),
    lives(most=3),
    TIMES,
    st.lists(st.booleans(), min_size=61, max_size=61),
    st.integers(-100, 100),
)
def test_a_load_balancer_in_between_never_counts_too_much(
    ours: list[Process],
    others: list[Process],
    times: list[int],
    sides: list[bool],
    shift: int,
) -> None:
    """Two replicas behind one address: less is counted than both did, never more."""
    theirs = [
        Process(
            p.start + shift + 0.5,  # no two processes begin at the same moment
            p.end + shift,
            [(t + shift, rank, ms) for t, rank, ms in p.events],
        )
        for p in others
    ]
    pages = []
    for at, side in zip(times, sides, strict=False):
        pages += scrape(ours if side else theirs, [at])
    if not pages:
        return
    grown, _ = follow(pages)
    events = [e for p in (*ours, *theirs) for e in p.events if e[0] > pages[0].at]
    assert within(totals(grown), happened(events))


@given(lives(most=2), lives(most=2), TIMES)
def test_ranks_that_begin_anew_by_themselves_never_count_too_much(
    zero: list[Process], one: list[Process], times: list[int]
) -> None:
    """Without start times each rank's own falls decide about that rank alone."""
    pages = []
    for at in times:
        values: dict[Key, float | Histogram] = {}
        for rank, processes in (("0", zero), ("1", one)):
            for shown in scrape(processes, [at], start_known=False):
                values |= {k: v for k, v in shown.counters.items() if k[0].rank == rank}
                values |= {
                    k: v for k, v in shown.histograms.items() if k[0].rank == rank
                }
        pages.append(page(float(at), values, started=None))
    grown, _ = follow(pages)
    events = [e for p in zero for e in p.events if e[1] == "0"]
    events += [e for p in one for e in p.events if e[1] == "1"]
    assert within(totals(grown), happened(events))

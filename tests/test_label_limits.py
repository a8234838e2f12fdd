"""Label values that an engine's page names, held to the limits of distinct ones."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest
from watched_engine import observe

from analyzer import snapshot
from analyzer.config import parse_config
from analyzer.engines.vllm import METRICS
from analyzer.flow import EngineFlow, Memory
from analyzer.labels import OTHER, LabelCap

LIMITS = "limits: {models: 3, label_values: 7, ranks: 4}"
CONFIG = parse_config(f'engines: [{{name: e, url: "http://e/metrics"}}]\n{LIMITS}')
MANY = 1_000
KNOWN = {metric.signal: metric.values for metric in METRICS}


def followed(cap: LabelCap | None = None, memory: Memory | None = None) -> EngineFlow:
    """Returns a flow under the limits of this module."""
    places = cap or LabelCap(CONFIG.limits.models)
    return EngineFlow(
        CONFIG.engines[0], CONFIG, since=0.0, admit=places.admit, memory=memory
    )


def finished(reasons: Iterable[str], number: int, *, model: str = "m") -> str:
    """Returns a page on which requests finished, *number* of each reason."""
    line = 'vllm:request_success_total{{engine="0",finished_reason="{}",{}}} {}\n'
    return "".join(line.format(r, f'model_name="{model}"', number) for r in reasons)


def by_reason(flow: EngineFlow) -> dict[str, float]:
    """Returns the requests that finished, by reason."""
    rows = flow.ledger.rows("goodput_engine_finished_requests_total")
    return {labels[1]: value for labels, value in rows}


def test_reasons_beyond_the_limit_add_up_under_other() -> None:
    """None is lost, and those that vLLM is known to print keep their names."""
    flow = followed()
    reasons = [*(f"junk{n}" for n in range(MANY)), *KNOWN["finished"]]
    observe(flow, finished(reasons, 1), 1.0)
    observe(flow, finished(reasons, 3), 2.0)
    rows = by_reason(flow)
    assert sum(rows.values()) == 2 * len(reasons)
    kept = 7 - len(KNOWN["finished"])
    names = {*KNOWN["finished"], *(f"junk{n}" for n in range(kept)), OTHER}
    assert rows.keys() == names
    assert rows[OTHER] == 2 * (MANY - kept)
    assert flow.take_dropped() == {"rank": 0, "reason": MANY - kept, "source": 0}
    assert not flow.take_dropped()


@pytest.mark.parametrize(
    ("signal", "line"),
    [
        ("waiting_by_reason", 'num_requests_waiting_by_reason{engine="0",reason="{}"}'),
        ("prompt_tokens_by_source", 'prompt_tokens_by_source_total{source="{}"}'),
        ("rejections", 'admission_rejections_total{reason="{}"}'),
        ("sleep_state", 'engine_sleep_state{sleep_state="{}"}'),
    ],
)
def test_every_label_of_an_engine_has_its_limit(signal: str, line: str) -> None:
    """Whatever a page names, a signal has few groups, and the known ones are in."""
    values = [*(f"junk{n}" for n in range(MANY)), *KNOWN[signal]]
    page = "".join(f"vllm:{line} 1\n".replace("{}", value) for value in values)
    flow = followed()
    observe(flow, page, 1.0)
    assert flow.reading is not None
    groups = {
        group.extra
        for group in (
            *flow.reading.gauges,
            *(key.group for key in flow.reading.snapshot.counters),
        )
        if group.signal == signal
    }
    assert len(groups) == 7 + 1
    assert {*KNOWN[signal], OTHER} < groups


def test_ranks_beyond_the_limit_share_one() -> None:
    """Their requests add up, and the fullest cache stands for theirs."""
    flow = followed()
    lines = [
        f'vllm:num_requests_running{{engine="{n}",model_name="m"}} 1\n'
        f'vllm:kv_cache_usage_perc{{engine="{n}",model_name="m"}} {n / MANY}\n'
        for n in range(MANY)
    ]
    observe(flow, "".join(lines), 1.0)
    assert flow.ranks() == tuple(("m", rank) for rank in (*"0123", OTHER))
    assert flow.gauge("running", "m", OTHER) == MANY - 4
    assert flow.gauge("kv_cache_usage", "m", OTHER) == (MANY - 1) / MANY
    assert flow.take_dropped()["rank"] == 2 * (MANY - 4)


def test_one_engine_takes_no_place_of_another() -> None:
    """Reasons are held to the limit engine by engine."""
    noisy, quiet = followed(), followed()
    observe(noisy, finished((f"junk{n}" for n in range(MANY)), 1), 1.0)
    observe(quiet, finished(["new"], 1), 1.0)
    assert by_reason(quiet) == {"new": 0}


def test_totals_keep_their_places_over_a_restart() -> None:
    """What the state holds has a place before any page; nothing new takes it."""
    first = followed()
    observe(first, finished(["a", "b"], 1, model="old"), 1.0)
    cap = LabelCap(CONFIG.limits.models)
    second = followed(cap, first.memory)
    assert [cap.admit(model) for model in "xyz"] == ["x", "y", OTHER]
    assert cap.admit("old") == "old"
    junk = [f"junk{n}" for n in range(MANY)]
    observe(second, finished([*junk, "a", "b"], 1, model="old"), 2.0)
    assert by_reason(second) == {"a": 0, "b": 0, OTHER: MANY}


def test_any_total_of_a_model_keeps_its_place() -> None:
    """Also one that is no counter of the engine's; the target's own have no model."""
    first = followed()
    first.ledger.add("goodput_constraint_seconds_total", ("m", "none", "idle"), 1.0)
    first.fail("timeout", 1.0, seconds=5.0)
    assert first.memory.models == {"m"}
    cap = LabelCap(CONFIG.limits.models)
    followed(cap, first.memory)
    assert [cap.admit(model) for model in "xyz"] == ["x", "y", OTHER]
    assert cap.admit("m") == "m"


def test_other_limits_hold_from_the_next_value_on() -> None:
    """A reload that allows more lets new values in, and keeps those that are in."""
    flow = followed()
    observe(flow, finished(["a", "b", "c"], 1), 1.0)
    assert by_reason(flow).keys() == {"a", "b", OTHER}
    more = parse_config("limits: {label_values: 8}")
    flow.configure(flow.source, more, at=2.0)
    observe(flow, finished(["a", "b", "c", "d", "e"], 1), 3.0)
    assert by_reason(flow).keys() == {"a", "b", "d", OTHER}


def test_a_model_whose_place_went_while_its_page_was_read_has_it_again() -> None:
    """Places are freed under the lock, and pages are read outside it."""
    cap = LabelCap(CONFIG.limits.models)
    flow = followed(cap)
    page = flow.read(finished(["stop"], 1), 1.0)
    cap.retain(())
    flow.observe(page)
    cap.retain({model for model, _ in flow.ranks()})
    assert [cap.admit(model) for model in "xyz"] == ["x", "y", OTHER]
    assert cap.admit("m") == "m"


def test_threads_that_ask_at_once_get_no_more_places_than_there_are() -> None:
    """Each value has one answer for all of them, and every refusal is counted."""
    cap = LabelCap(100, lock=threading.Lock())
    start = threading.Barrier(8)
    answers: list[list[str]] = []

    def ask() -> None:
        start.wait()
        answers.append([cap.admit(f"v{n}") for n in range(MANY)])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = {name for given in answers for name in given if name != OTHER}
    assert len(names) == 100
    assert len(set(map(tuple, answers))) == 1
    refused = sum(given.count(OTHER) for given in answers)
    assert cap.take_dropped() == refused == 8 * (MANY - 100)


def test_a_page_of_other_series_each_time_costs_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Series that went are remembered up to a number, the latest first."""
    monkeypatch.setattr(snapshot, "ABSENT_SERIES_KEPT", 50)
    flow = followed()
    for at in range(1, 9):
        reasons = [f"at{at}-{n}" for n in range(40)]
        observe(flow, finished(reasons, 1) + finished(["stop"], at), float(at))
    kept = flow.memory.snapshot
    assert kept is not None
    assert len(kept.counters) == 41 + 50
    assert sorted(set(kept.absent_since.values())) == [7.0, 8.0]
    assert by_reason(flow)["stop"] == 7

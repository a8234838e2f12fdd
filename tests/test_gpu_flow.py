"""One GPU exporter over time: age, frozen caches, throttling, lost pages and GPUs."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from gpu_pages import UUID, flow_of, only, page, rows
from hypothesis import example, given
from hypothesis import strategies as st

from analyzer.catalogue import GPU_SCRAPE_FAILURES
from analyzer.config_gpus import GpuSource
from analyzer.gpus.dcgm import NAMES
from analyzer.gpus.fields import RATIOS
from analyzer.gpus.flow import (
    KEPT_SECONDS,
    MAX_BOARDS,
    THROTTLED,
    GpuFlow,
    GpuMemory,
)
from analyzer.gpus.match import GpuMatch
from analyzer.gpus.page import MAX_DEVICES
from analyzer.gpus.reading import SIGNALS, THROTTLE_REASONS
from analyzer.signals import State

AGE = "gpu_data_age_seconds"
POWER = "DCGM_FI_DEV_POWER_USAGE"
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
VIOLATION = "DCGM_FI_DEV_POWER_VIOLATION"
MASK = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"


def busy(energy: int, *more: str) -> str:
    """Returns the page of a GPU at work that has drawn so much, in millijoules."""
    return rows(f"{ENERGY} {energy}", f"{POWER} 400.5", *more)


def throttled(flow: GpuFlow, reason: str = "power") -> float | None:
    """Returns the total of seconds for which a reason held the first GPU's clocks."""
    return flow.ledger.counter(THROTTLED, (UUID, "", reason))


def failures(flow: GpuFlow) -> dict[str, float]:
    """Returns how often scrapes failed, by reason, zeros left out."""
    found = flow.ledger.rows("goodput_target_scrape_failures_total")
    return {labels[1]: value for labels, value in found if value}


def test_age_counts_from_the_change_seen() -> None:
    """A cache is served again and again; only a change tells when it was refreshed."""
    flow = flow_of((0.0, busy(1)), (10.0, busy(1)))
    assert only(flow, 10.0).signal(AGE).state is State.ABSENT
    flow.observe(flow.read(busy(9), 20.0))
    flow.observe(flow.read(busy(9), 30.0))
    assert only(flow, 35.0).signal(AGE).value == 15.0


def test_energy_that_stands_still_makes_figures_stale() -> None:
    """Two refreshes and no joule more: nobody updates what the exporter prints."""
    flow = flow_of(*((10.0 * n, busy(1)) for n in range(8)))
    assert only(flow, 70.0).signal("gpu_power_watts").state is State.PRESENT
    flow.observe(flow.read(busy(1), 80.0))
    signal = only(flow, 80.0).signal("gpu_power_watts")
    assert (signal.state, signal.value) == (State.STALE, 400.5)
    assert "energy counter has not moved for 80 s" in signal.reason
    assert only(flow, 80.0).throttled["power"].state is State.ABSENT
    flow.observe(flow.read(busy(2), 90.0))
    assert only(flow, 90.0).signal("gpu_power_watts").state is State.PRESENT


def test_exporter_that_refreshes_slowly_is_not_frozen() -> None:
    """With a refresh every 100 s, 150 s without one are no more than late."""
    pages = [(10.0 * n, busy(n // 10)) for n in range(46)]
    flow = flow_of(*pages)
    for at in (460.0, 540.0):
        flow.observe(flow.read(busy(4), at))
        assert only(flow, at).signal("gpu_power_watts").state is State.PRESENT
    flow.observe(flow.read(busy(4), 620.0))
    assert only(flow, 620.0).signal("gpu_power_watts").state is State.STALE


def test_gpu_without_power_may_stand_still() -> None:
    """A GPU that draws nothing adds no energy, and is no frozen cache."""
    text = rows(f"{ENERGY} 5", f"{POWER} 0", "DCGM_FI_DEV_GPU_UTIL 0")
    flow = flow_of(*((10.0 * n, text) for n in range(40)))
    assert only(flow, 390.0).signal("gpu_power_watts").state is State.PRESENT


def test_figures_with_fractions_tell_a_frozen_cache_too() -> None:
    """Without the energy counter the same fractions for 140 s are no coincidence.

    Whole numbers may stay the same for ever.
    """
    lively = rows("DCGM_FI_PROF_DRAM_ACTIVE 0.703000")
    still = rows("DCGM_FI_DEV_GPU_UTIL 0", "DCGM_FI_PROF_DRAM_ACTIVE 0.000000")
    for text, state in ((lively, State.STALE), (still, State.PRESENT)):
        flow = flow_of(*((10.0 * n, text) for n in range(16)))
        assert only(flow, 150.0).signal("gpu_dram_active_ratio").state is state


def test_old_page_is_stale_as_a_whole() -> None:
    """Pages no longer come: figures count for three intervals and the timeout."""
    flow = flow_of((0.0, busy(1)), (10.0, busy(2)))
    flow.fail("timeout", 20.0, seconds=10.0)
    assert flow.stale(49.0) == ""
    assert flow.stale(51.0) == "last page is 41 s old"
    assert only(flow, 51.0).signal("gpu_power_watts").state is State.STALE
    assert flow.join(51.0).devices != ()


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        ("", "empty_page", "reloads"),
        ("\n", "empty_page", "reloads"),
        ("<html>no</html>\n", "not_an_exposition", "<html>"),
        (busy(2)[:-5], "connection", "within a line"),
        ("vllm:num_requests_running 4\n", "no_gpu_metrics", "vllm:num_requests"),
        ("DCGM_FI_DEV_GPU_UTIL 4\n", "no_gpu_metrics", "DCGM_FI_DEV_GPU_UTIL"),
    ],
)
def test_page_without_gpus_fails_and_changes_nothing(
    text: str, reason: str, words: str
) -> None:
    """What is no GPU page counts as a failure, and the page before it stays."""
    flow = flow_of((0.0, busy(1)))
    assert not flow.observe(flow.read(text, 10.0))
    assert failures(flow) == {reason: 1}
    assert flow.attempt is not None
    assert words in flow.attempt.detail
    assert only(flow, 10.0).signal("gpu_power_watts").value == 400.5


def test_page_of_another_node_is_refused() -> None:
    """A Service that leads to any node gives now ours, now another's GPUs."""
    ours = rows(f"{POWER} 100.5", labels='Hostname="node-a"')
    other = rows(f"{POWER} 300.5", uuid="GPU-other", labels='Hostname="node-b"')
    match = GpuMatch(hostname="node-a")
    flow = flow_of((0.0, ours), (10.0, other), match=match)
    assert failures(flow) == {"wrong_node": 1}
    assert only(flow, 10.0).signal("gpu_power_watts").value == 100.5
    assert flow.attempt is not None
    assert "internalTrafficPolicy" in flow.attempt.detail


def test_failures_exist_before_they_happen() -> None:
    """Every reason has its row at 0."""
    rows_of = flow_of().ledger.rows("goodput_target_scrape_failures_total")
    assert dict(rows_of) == {("gpu", reason): 0 for reason in GPU_SCRAPE_FAILURES}


def test_power_cap_is_counted_and_shared_out() -> None:
    """25.5 of 30 seconds at the cap: the counter, and the share of the time.

    How old the first page's figures were is unknown, so the first share is bounded.
    """
    first, second = (page(f"h100x8_tp8_prefill_powercap_composed_t{n}") for n in (0, 1))
    flow = flow_of((0.0, first))
    share = flow.reading(0.0).devices[0].throttled["power"]
    assert (share.state, share.value) == (State.PROXY, 1.0)
    flow.observe(flow.read(second, 30.0))
    for device in flow.reading(30.0).devices:
        share = device.throttled["power"]
        assert share.state is State.BOUNDED
        assert share.lower == pytest.approx(25.5 / 60)
        assert share.upper == pytest.approx(25.5 / 30)
        totals = flow.ledger.counters[THROTTLED]
        assert totals[device.uuid, "", "power"] == pytest.approx(25.5)
        assert totals[device.uuid, "", "thermal"] == 0.0


def test_share_between_two_refreshes_seen_is_exact() -> None:
    """From the second change on the time between them is known."""
    flow = flow_of(
        (0.0, busy(1, f"{VIOLATION} 0")),
        (10.0, busy(2, f"{VIOLATION} 5000000000")),
        (20.0, busy(2, f"{VIOLATION} 5000000000")),
        (40.0, busy(3, f"{VIOLATION} 20000000000")),
        (50.0, busy(3, f"{VIOLATION} 20000000000")),
    )
    once = only(flow_of((0.0, busy(1, f"{VIOLATION} 0"))), 0.0).throttled
    assert "the counter was read once" in once["power"].reason
    assert "neither DCGM_FI_DEV_THERMAL_VIOLATION" in once["thermal"].reason
    share = only(flow, 50.0).throttled["power"]
    assert (share.state, share.value) == (State.PRESENT, 0.5)
    flow.observe(flow.read(busy(4, f"{VIOLATION} 20000000000"), 70.0))
    share = only(flow, 70.0).throttled["power"]
    assert (share.state, share.value) == (State.PRESENT, 0.0)
    assert throttled(flow) == pytest.approx(20.0)


def test_counters_of_one_reason_are_not_added() -> None:
    """Two counters tell of the same seconds: the one that grew most counts."""
    cap = "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS"
    flow = flow_of(
        (0.0, busy(1, f"{VIOLATION} 0", f"{cap} 0")),
        (10.0, busy(2, f"{VIOLATION} 4000000000", f"{cap} 5000000000")),
    )
    assert throttled(flow) == pytest.approx(5.0)


def test_counter_that_falls_began_anew() -> None:
    """The driver was loaded again: nothing is added, nothing steps back."""
    flow = flow_of(
        (0.0, busy(9, f"{VIOLATION} 9000000000")),
        (10.0, busy(10, f"{VIOLATION} 12000000000")),
        (20.0, busy(1, f"{VIOLATION} 1000000000")),
        (30.0, busy(2, f"{VIOLATION} 2000000000")),
    )
    assert throttled(flow) == pytest.approx(3.0 + 1.0)


def test_counter_that_outruns_time_was_misread() -> None:
    """An hour of throttling within ten seconds is none."""
    flow = flow_of(
        (0.0, busy(1, f"{VIOLATION} 0")),
        (10.0, busy(2, f"{VIOLATION} {3600 * 10**9}")),
        (20.0, busy(3, f"{VIOLATION} {3601 * 10**9}")),
    )
    assert throttled(flow) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("mask", "reasons"),
    [
        (0x0, set()),
        (0x1, set()),  # idle is no throttle
        (0x4, {"power"}),
        (0x20, {"thermal"}),
        (0x48, {"thermal"}),  # a hardware slowdown, and heat is its cause
        (0x88, {"hardware"}),
        (0x8, {"hardware"}),
        (0x10, {"sync_boost"}),
        (0x2 | 0x100, set()),  # clocks set by a user, a display
        (0x4 | 0x40, {"power", "thermal"}),
    ],
)
def test_mask_tells_the_reasons_of_the_moment(mask: int, reasons: set[str]) -> None:
    """Each bit has its reason; without counters each reading stands for its time."""
    flow = flow_of(*((10.0 * n, busy(n, f"{MASK} {mask}")) for n in range(3)))
    shares = only(flow, 20.0).throttled
    assert {r for r in THROTTLE_REASONS if shares[r].value == 1.0} == reasons
    assert all(share.state is State.PROXY for share in shares.values())
    for reason in THROTTLE_REASONS:
        assert throttled(flow, reason) == (20.0 if reason in reasons else 0.0)


def test_mask_of_nobody_looking_adds_nothing() -> None:
    """An hour without a page is no hour under the mask before or after it."""
    flow = flow_of((0.0, busy(1, f"{MASK} 4")), (3600.0, busy(2, f"{MASK} 4")))
    assert throttled(flow) == 0.0


def test_missing_throttle_fields_are_named() -> None:
    """Neither counter nor mask: the row that is missing, in the page's own names."""
    old = only(flow_of((0.0, busy(1))), 0.0).throttled["power"]
    assert "DCGM_FI_DEV_POWER_VIOLATION nor DCGM_FI_DEV_CLOCKS_EVENT" in old.reason
    text = rows("DCGM_FI_DEV_BOARD_POWER_WATTS 5.5")
    new = only(flow_of((0.0, text)), 0.0).throttled["power"]
    assert "DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL" in new.reason
    assert throttled(flow_of((0.0, busy(1)))) is None


def test_totals_go_on_over_a_restart_of_ours() -> None:
    """What the GPU counted while nobody watched is added, whatever the process."""
    before = flow_of(
        (0.0, busy(1, f"{VIOLATION} 0")), (10.0, busy(2, f"{VIOLATION} 4000000000"))
    )
    data = msgspec.msgpack.encode(before.memory)
    memory = msgspec.msgpack.decode(data, type=GpuMemory)
    after = GpuFlow(before.source, memory=memory)
    assert after.reading(20.0).devices == ()
    after.observe(after.read(busy(3, f"{VIOLATION} 9000000000"), 40.0))
    assert throttled(after) == pytest.approx(9.0)


def test_gpu_that_vanished_keeps_its_total_for_a_staleness_period() -> None:
    """Its signals end at once, its counter when every scraper has seen the end."""
    both = busy(1, f"{VIOLATION} 0") + rows(f"{POWER} 50.5", uuid="GPU-2")
    flow = flow_of((0.0, both))
    left = rows(f"{POWER} 50.5", uuid="GPU-2")
    flow.observe(flow.read(left, KEPT_SECONDS - 1))
    assert only(flow, 299.0).uuid == "GPU-2"
    assert throttled(flow) == 0.0
    flow.observe(flow.read(left, KEPT_SECONDS + 1))
    assert throttled(flow) is None
    assert UUID not in flow.memory.boards


def test_another_address_begins_anew() -> None:
    """A reload that moves the exporter forgets what the old one showed."""
    flow = flow_of((0.0, busy(1, f"{VIOLATION} 5000000000")))
    flow.configure(replace(flow.source, url="http://other:9400/metrics"))
    assert flow.reading(1.0).devices == ()
    assert flow.stale(1.0) == "no page read yet"
    assert failures(flow) == {}


def test_selection_follows_the_match() -> None:
    """Shown are the GPUs selected and their boards; all when nothing selects."""
    text = page("a800x8_mig_mixed_idle")
    uuid = "GPU-00000000-0000-4000-8000-a00000000000"
    flow = flow_of((0.0, text))
    assert len(flow.shown(0.0)) == 11
    match = GpuMatch(uuids=(f"{uuid}/5",))
    flow.configure(replace(flow.source, match=match))
    found = {(d.uuid, d.gpu_instance) for d in flow.shown(0.0)}
    assert found == {(uuid, "5"), (uuid, "")}
    assert [d.gpu_instance for d in flow.join(0.0).devices] == ["5"]
    flow.configure(replace(flow.source, match=GpuMatch(pod="none")))
    assert flow.shown(0.0) == ()


def test_selection_without_a_match_is_of_the_host() -> None:
    """A page of many nodes gives the GPUs of the one that is configured."""
    text = rows(f"{POWER} 1.5", labels='hostname="a"') + rows(
        f"{POWER} 2.5", uuid="GPU-2", labels='hostname="b"'
    )
    flow = flow_of((0.0, text), match=GpuMatch(hostname="b"))
    assert [device.uuid for device in flow.shown(0.0)] == ["GPU-2"]


def test_gpus_that_come_and_go_are_remembered_within_limits() -> None:
    """Whatever UUIDs a page makes up, what is kept of them is bounded."""
    flow = flow_of()
    for number in range(4):
        text = "".join(
            rows(f"{VIOLATION} 5", uuid=f"GPU-{number}-{n}") for n in range(MAX_DEVICES)
        )
        flow.observe(flow.read(text, 10.0 * number))
    assert len(flow.memory.boards) == MAX_BOARDS
    assert len(flow.ledger.counters[THROTTLED]) == MAX_BOARDS


def test_join_before_the_first_page_says_so() -> None:
    """There is no GPU yet, and that is the reason."""
    assert GpuFlow(GpuSource("n", "")).join(0.0).problem == "no page read yet"


def test_clock_set_back_begins_the_age_anew() -> None:
    """Times before the last page's prove nothing about the figures."""
    flow = flow_of((100.0, busy(1)), (110.0, busy(2)), (5.0, busy(3)))
    assert only(flow, 5.0).signal(AGE).state is State.ABSENT
    assert throttled(flow) is None


HOSTILE_NAMES = st.sampled_from(
    [*NAMES, "dcgm_fb_used", "amd_gpu_gfx_activity", "gpu_clock", "DCGM_EXP_X", "up"]
)
HOSTILE_LABELS = st.dictionaries(
    st.sampled_from(
        [
            *("UUID", "uuid", "gpu_uuid", "gpu", "GPU_I_ID", "hostname", "pod"),
            *("exported_pod", "namespace", "nvlink", "gpu_partition_id"),
            "gpu_compute_partition_type",
        ]
    ),
    st.text(st.characters(exclude_characters='"\\\n'), max_size=8),
)
HOSTILE_LINES = st.lists(
    st.tuples(HOSTILE_NAMES, HOSTILE_LABELS, st.floats() | st.integers(0, 10**20)),
    max_size=12,
)
HOSTILE_PAGES = st.lists(
    st.tuples(HOSTILE_LINES, st.floats(0, 1e9, allow_nan=False)), max_size=4
)


@given(HOSTILE_PAGES)
@example([([("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", {"UUID": "a"}, 2.5)], 0.0)])
def test_hostile_pages_break_no_rule(
    pages: list[tuple[list[tuple[str, dict[str, str], float]], float]],
) -> None:
    """Whatever a page says: shares are shares, totals grow, absence has its reason."""
    flow = GpuFlow(GpuSource("n", ""))
    totals: dict[tuple[str, ...], float] = {}
    for lines, at in pages:
        text = "".join(
            name
            + "{"
            + ",".join(f'{key}="{value}"' for key, value in labels.items())
            + f"}} {value!r}\n"
            for name, labels, value in lines
        )
        flow.observe(flow.read(text, at))
        for device in flow.reading(at).devices:
            assert set(device.signals) == set(SIGNALS)
            assert set(device.throttled) == set(THROTTLE_REASONS)
            shares = [s for n, s in device.signals.items() if n.endswith("_ratio")]
            assert len(shares) == len(RATIOS) - 2
            for signal in (*shares, *device.throttled.values()):
                for value in (signal.value, signal.lower, signal.upper):
                    assert value is None or 0 <= value <= 1
            for signal in device.signals.values():
                assert bool(signal.reason) or signal.state is State.PRESENT
                assert signal.value is None or 0 <= signal.value < float("inf")
        now = dict(flow.ledger.rows(THROTTLED))
        assert all(value >= totals.get(labels, 0.0) for labels, value in now.items())
        totals = now

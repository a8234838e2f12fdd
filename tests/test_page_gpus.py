"""The status page's part on GPUs: figures, whose they are, and what is wrong."""

from __future__ import annotations

from dataclasses import replace

from gpu_pages import flow_of, page, rows
from status_page import Page

from analyzer.document import document
from analyzer.gpus.flow import GpuFlow
from analyzer.gpus.match import GpuMatch
from exporter import page as status_page

OURS = GpuMatch(pod="llama-70b-0")
POWERCAP = "h100x8_tp8_prefill_powercap_composed_t"


def shown(*flows: GpuFlow, at: float) -> Page:
    """Returns the page that shows these exporters and nothing else."""
    found = document([], at, gpus=flows, seconds=300.0, pictures=True)
    return Page(status_page.render(found, version="0", at=at, refresh_seconds=0))


def capped() -> GpuFlow:
    """Returns a node of eight GPUs at their power cap, after two pages."""
    pages = ((0.0, page(f"{POWERCAP}0")), (30.0, page(f"{POWERCAP}1")))
    return flow_of(*pages, match=OURS)


def test_gpus_that_are_ours_stand_with_their_figures() -> None:
    """Model, pod, activity, power of its limit, memory, age, and what holds it down."""
    found = shown(capped(), at=34.0)
    assert (found.faults, found.open) == ([], [])
    said = found.said("main")
    assert "1 GPU exporter read" in said
    assert "read · 8 GPUs, 8 ours" in said
    assert "Ourspod llama-70b-0" in said
    (first, *_) = said.partition("0 NVIDIA H100 80GB HBM3")[2].split("1 NVIDIA")
    for text in ("llm/llama-70b-0", "99.1", "33.4", "61.2", "697 W", "700 W", "77"):
        assert text in first
    assert "power 42.5" in first
    assert "85" in first


def test_exporter_in_trouble_stands_first_and_says_why() -> None:
    """Own GPUs not known, a page that fails, figures that stand still."""
    unknown = flow_of((30.0, page("t4_idle")), match=GpuMatch(pod="x"))
    failing = capped()
    failing.fail("wrong_node", 34.0, seconds=0.1, detail="the page is of node-b")
    dead = flow_of()
    dead.fail("refused", 34.0, seconds=0.1, detail="Connection refused")
    frozen = flow_of(*((10.0 * n, page(f"{POWERCAP}0")) for n in range(-9, 4)))
    for flow, word, reason in (
        (unknown, "own GPUs not known", "no row names a pod"),
        (failing, "last page failed", "wrong_node: the page is of node-b"),
        (dead, "not read", "refused: Connection refused"),
        (frozen, "figures stand still", "energy counter has not moved for 124 s"),
    ):
        found = shown(flow, at=34.0)
        assert (found.faults, found.open) == ([], []), word
        trouble = found.said("ul")
        assert word in trouble
        assert reason in trouble
        assert "1 in trouble" in found.said("title")
        links = [a["href"] for a in found.of("a") if a["href"].startswith("#")]
        assert set(links) <= {f"#{a['id']}" for _, a in found.elements if "id" in a}


def test_exporter_that_was_not_asked_yet_is_no_trouble() -> None:
    """Just started: nothing is known, and nothing is wrong."""
    found = shown(flow_of(), at=1.0)
    assert "1 GPU exporter not asked yet" in found.said("main")
    assert "in trouble" not in found.said("title")


def test_missing_signals_have_their_reason() -> None:
    """What no GPU of ours has is listed, and every dash says why it is one."""
    found = shown(flow_of((0.0, page("rtx4070_no_profiling"))), at=1.0)
    said = found.said("main")
    assert "signals missing, and why" in said
    assert "GeForce before the 50 series" in said
    reasons = [a["title"] for a in found.of("abbr")]
    assert len(reasons) == 5
    assert all(reasons)


def test_board_stands_beside_its_instances() -> None:
    """Instances have activity, the board has the power, and GPUs are counted right."""
    found = shown(flow_of((0.0, page("a800x8_mig_mixed_idle"))), at=1.0)
    said = found.said("main")
    assert "10 GPUs, 10 ours" in said
    assert said.count("78 W") == 1
    assert said.index("78 W") < said.index("0 MIG 3") < said.index("0 MIG 6")


def test_section_stays_small_with_many_exporters() -> None:
    """A hundred nodes of eight GPUs: the first are shown, the rest is counted."""
    fine, failing = capped(), capped()
    failing.fail("timeout", 34.0, seconds=1.0)
    found = shown(*[fine, failing] * 50, at=34.0)
    assert (found.faults, found.open) == ([], [])
    links = {a["href"] for a in found.of("a") if a["href"].startswith("#")}
    assert links <= {f"#{a['id']}" for _, a in found.elements if "id" in a}
    assert "47 more GPU exporters in trouble" in found.said("ul")
    assert len(found.source) < 700_000
    assert "GPU exporters left out to keep this page small" in found.said("main")


def test_hostile_labels_stay_text() -> None:
    """Whatever a label holds, it is escaped and cut."""
    labels = 'pod="<script>x</script>",namespace="n",modelName="' + "m" * 300 + '"'
    flow = flow_of((0.0, rows("DCGM_FI_DEV_GPU_UTIL 5", labels=labels)))
    flow.configure(replace(flow.source, name="a"))
    found = shown(flow, at=1.0)
    assert (found.faults, found.open) == ([], [])
    assert found.of("script") == []
    assert "<script>x</script>" in found.said("main")
    assert "m" * 100 not in found.said("main")

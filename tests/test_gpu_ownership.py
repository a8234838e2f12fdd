"""Which of several engines has which GPUs, over the exporters of several nodes."""

from __future__ import annotations

from gpu_pages import flow_of, rows

from analyzer.config_sources import EngineSource
from analyzer.gpus.match import GpuMatch, expected_gpus
from analyzer.gpus.ownership import joins, together
from analyzer.gpus.rows import exporter_row

PAGE = rows(
    "DCGM_FI_PROF_DRAM_ACTIVE 0.5",
    uuid="GPU-a",
    labels='Hostname="n1",namespace="llm",pod="a"',
) + rows(
    "DCGM_FI_PROF_DRAM_ACTIVE 0.6",
    uuid="GPU-b",
    labels='Hostname="n1",namespace="llm",pod="b"',
)


def engine(pod: str, node: str) -> EngineSource:
    """Returns an engine that discovery found in a pod on a node."""
    return EngineSource(f"fleet/{pod}", "", labels={"pod": pod, "node": node})


ENGINES = (engine("a", "n1"), engine("b", "n1"), engine("c", "n2"))


def test_each_engine_has_the_gpus_of_its_pod() -> None:
    """Discovery's pod and node tell them; another node's exporter has none."""
    flow = flow_of((0.0, PAGE))
    found = dict(joins(flow, ENGINES, 0.0))
    assert [d.uuid for d in found["fleet/a"].devices] == ["GPU-a"]
    assert [d.uuid for d in found["fleet/b"].devices] == ["GPU-b"]
    assert "not of n2" in found["fleet/c"].problem


def test_exporter_is_in_no_trouble_while_some_engine_has_gpus_there() -> None:
    """The engine of another node is its own exporter's business."""
    flow = flow_of((0.0, PAGE))
    whole = together(joins(flow, ENGINES, 0.0))
    assert (len(whole.devices), whole.problem) == (2, "")
    assert whole.how == "pod a; pod b"
    alone = together(joins(flow, ENGINES[2:], 0.0))
    assert alone.devices == ()
    assert "not of n2" in alone.problem


def test_without_engines_the_match_decides() -> None:
    """An exporter beside no engine shows whose the GPUs are by itself."""
    flow = flow_of((0.0, PAGE), match=GpuMatch(pod="b"))
    ((name, join),) = joins(flow, (), 0.0)
    assert (name, [d.uuid for d in join.devices]) == ("", ["GPU-b"])


def test_rows_say_ours_of_every_engine_together() -> None:
    """With two engines in two pods both GPUs are ours; without engines neither."""
    flow = flow_of((0.0, PAGE))
    row = exporter_row(flow, 0.0, ENGINES[:2])
    assert [d["ours"] for d in row["devices"]] == [True, True]
    names = [each["devices"] for each in row["join"]["engines"]]
    assert names == [["GPU-a"], ["GPU-b"]]
    alone = exporter_row(flow, 0.0)
    assert "several pods have GPUs here" in alone["join"]["problem"]
    assert [d["ours"] for d in alone["devices"]] == [False, False]


def test_expected_gpus_follow_the_declared_parallelism() -> None:
    """Tensor, pipeline and data parallelism multiply; nothing declared, no number."""
    assert expected_gpus({}) is None
    assert expected_gpus({"pipeline_parallel": 2}) is None
    assert expected_gpus({"tensor_parallel": 4}) == 4
    sizes = {"tensor_parallel": 4, "pipeline_parallel": 2, "data_parallel": 3}
    assert expected_gpus(sizes) == 24

"""Which GPUs of a page are a workload's own, and why they cannot be told."""

from __future__ import annotations

import pytest
from gpu_pages import devices

from analyzer.gpus.match import GpuMatch, find, on_host, same_host
from analyzer.gpus.reading import Device, Workload

OURS = Workload("llm", "llama-0", "vllm")
OTHER = Workload("llm", "llama-1", "vllm")
BUS = "00000000:53:00.0"


def gpu(
    number: int, *workloads: Workload, host: str = "node-a", mig: str = ""
) -> Device:
    """Returns a GPU of a node."""
    return Device(
        f"GPU-{number}",
        mig,
        index=str(number),
        hostname=host,
        pci_bus_id=BUS if number == 0 else "",
        workloads=workloads,
    )


NODE = (gpu(0, OURS), gpu(1, OURS), gpu(2, OTHER), gpu(3))


@pytest.mark.parametrize(
    ("match", "numbers"),
    [
        (GpuMatch(pod="llama-0"), "01"),
        (GpuMatch(pod="llama-0", namespace="llm", container="vllm"), "01"),
        (GpuMatch(hostname="node-a", pod="llama-1"), "2"),
        (GpuMatch(namespace="llm"), "012"),
        (GpuMatch(uuids=("GPU-3", "gpu-1")), "13"),
        (GpuMatch(indexes=("3",)), "3"),
        (GpuMatch(pci_bus_ids=("0000:53:00.0",)), "0"),
        (GpuMatch(uuids=("GPU-0", "GPU-2"), pod="llama-1"), "2"),
    ],
)
def test_gpus_are_told_by_all_that_is_given(match: GpuMatch, numbers: str) -> None:
    """Pod, UUID, number and bus select; several together must all hold."""
    join = find(NODE, match)
    assert (join.problem, join.caution) == ("", "")
    assert "".join(device.index for device in join.devices) == numbers
    assert join.how


@pytest.mark.parametrize(
    ("match", "words"),
    [
        (
            GpuMatch(pod="llama-9", namespace="llm"),
            ("no GPU is given to llm/llama-9", "llm/llama-0, llm/llama-1"),
        ),
        (GpuMatch(pod="llama-0", container="api"), ("(container api)",)),
        (GpuMatch(uuids=("GPU-9",)), ("no GPU of the page has a UUID", "GPU-9")),
        (GpuMatch(uuids=("MIG-1",)), ("a MIG instance is given as",)),
        (GpuMatch(indexes=("9",)), ("the number 9",)),
        (GpuMatch(pci_bus_ids=("00000000:01:00.0",)), ("PCI bus id",)),
        (GpuMatch(hostname="node-b"), ("of node-a, not of node-b", "Local")),
        (GpuMatch(), ("several pods have GPUs here (llm/llama-0, llm/llama-1)",)),
    ],
)
def test_failed_join_says_which_and_why(
    match: GpuMatch, words: tuple[str, ...]
) -> None:
    """Without a GPU there is one sentence, which names what is there instead."""
    join = find(NODE, match)
    assert (join.devices, join.how) == ((), "")
    for word in words:
        assert word in join.problem


def test_rows_without_pods_name_the_mapping() -> None:
    """A pod is wanted and no row names one: the exporter's mapping is at fault."""
    join = find((gpu(0), gpu(1)), GpuMatch(pod="llama-0"))
    assert "no row names a pod" in join.problem
    assert "nvidia.com/gpu" in join.problem


def test_only_pod_with_gpus_needs_no_match() -> None:
    """One pod holds GPUs, so they are its; free ones are nobody's."""
    join = find((gpu(0, OURS), gpu(1, OURS), gpu(2)), GpuMatch(hostname="node-a"))
    assert [device.index for device in join.devices] == ["0", "1"]
    assert "llm/llama-0 is the only pod" in join.how


def test_page_without_pods_is_taken_whole() -> None:
    """On bare metal every GPU counts, and the engine's number is compared."""
    pair = (gpu(0), gpu(1))
    join = find(pair, GpuMatch(), expected=2)
    assert (join.devices, join.caution) == (pair, "")
    assert "every GPU of the page counts" in join.how
    caution = find(pair, GpuMatch(), expected=8).caution
    assert caution == "2 GPUs found where the engine should have 8"


def test_shared_gpus_are_named_as_such() -> None:
    """The figures of a GPU that pods share are of all of them."""
    join = find((gpu(0, OURS, OTHER),), GpuMatch(pod="llama-0"))
    assert len(join.devices) == 1
    assert "shared by several pods (llm/llama-0, llm/llama-1)" in join.caution


def test_pod_of_the_right_name_proves_the_host() -> None:
    """An exporter that calls its host otherwise is of our node if our pod is there."""
    exporter = "nvidia-dcgm-exporter-abcde"
    page = (gpu(0, OURS, host=exporter), gpu(1, host=exporter))
    match = GpuMatch(hostname="node-a", pod="llama-0")
    join = find(page, match)
    assert [device.index for device in join.devices] == ["0"]
    assert exporter in join.caution
    assert on_host(page, match).problem == ""
    assert "not of node-a" in on_host(page[1:], match).problem


def test_page_that_tells_no_host_is_used_with_caution() -> None:
    """Without the label nothing speaks against the page."""
    join = find((gpu(0, OURS, host=""),), GpuMatch(hostname="node-a", pod="llama-0"))
    assert len(join.devices) == 1
    assert join.caution == "the page does not tell its host"


def test_page_of_several_hosts_is_filtered_by_host() -> None:
    """Out of Prometheus a page may hold many nodes."""
    page = (gpu(0, OURS), gpu(1, OURS, host="node-b"))
    assert find(page, GpuMatch(hostname="node-b")).devices == page[1:]
    assert "node-a, node-b" in find(page, GpuMatch(pod="llama-0")).caution


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("node-a", "node-a.example.org", True),
        ("NODE-A", "node-a", True),
        ("node-a", "node-ab", False),
        ("node-a.x", "node-a.y", False),
    ],
)
def test_hosts_may_lack_their_domain(one: str, other: str, *, same: bool) -> None:
    """A short name is its long one's host, and no other."""
    assert same_host(one, other) is same
    assert same_host(other, one) is same


@pytest.mark.parametrize(
    ("uuid", "instances"),
    [
        ("GPU-0", ["1", "2"]),
        ("GPU-0/2", ["2"]),
        ("MIG-GPU-0/1/0", ["1"]),
    ],
)
def test_mig_instances_are_told_by_board_and_number(
    uuid: str, instances: list[str]
) -> None:
    """The board itself runs nothing; its UUID means all of its instances."""
    page = (gpu(0), gpu(0, mig="1"), gpu(0, mig="2"))
    join = find(page, GpuMatch(uuids=(uuid,)))
    assert [device.gpu_instance for device in join.devices] == instances


def test_discovered_pod_and_node_fill_what_is_not_configured() -> None:
    """What the configuration gives stands above what discovery told."""
    assert GpuMatch().of(pod="p", node="n") == GpuMatch(pod="p", hostname="n")
    own = GpuMatch(hostname="h", uuids=("GPU-1",))
    assert own.of(pod="p", node="n") == own


def test_real_page_tells_the_one_gpu_of_the_pod() -> None:
    """Of eight real H100 the one with vLLM is found by its pod's labels."""
    page = tuple(devices("h100x8_vllm_loaded_idle").values())
    join = find(page, GpuMatch(namespace="dynamo-workload", hostname="gpu-node-h100"))
    assert [device.index for device in join.devices] == ["0"]
    assert find(page, GpuMatch()).devices == join.devices


def test_empty_page_is_a_problem() -> None:
    """No GPU at all is said as such."""
    assert find((), GpuMatch()).problem == "the page has no GPU"

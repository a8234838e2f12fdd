"""The simulated GPUs are read like real ones, and are as busy as their engines."""

from __future__ import annotations

from functools import cache

import pytest

from analyzer.capacity.machines import A100, machines
from analyzer.config import parse_config
from analyzer.gpus.flow import GpuFlow
from analyzer.gpus.reading import Device
from analyzer.signals import State
from analyzer.simulation.dcgm_page import REFRESH_SECONDS, Board, Node
from analyzer.simulation.scenarios import SCENARIOS
from analyzer.simulation.site import Site

BEGIN = 1_700_000_000.0
BOARD = Board(A100, "NVIDIA A100-SXM4-80GB", 62.0, 400.0)
CONFIG = """
gpus: [{name: node, url: "http://x/metrics", match: {hostname: sim-node-1}}]
"""


@cache
def watched(scenario: str) -> GpuFlow:
    """Returns what is known of two replicas' GPUs after a minute."""
    site = Site(SCENARIOS[scenario], machines()["a100-llama-8b"], replicas=2, seed=1)
    node = Node(BOARD, hostname="sim-node-1", namespace="serving")
    (source,) = parse_config(CONFIG, "simulated").gpus
    flow = GpuFlow(source)
    for second in range(0, 61, int(REFRESH_SECONDS)):
        site.advance(float(second))
        node.look(site.replicas, float(second))
        at = BEGIN + second
        assert flow.observe(flow.read(node.page(site.replicas), at))
    return flow


def device(scenario: str) -> Device:
    """Returns the first replica's GPU, found by its pod."""
    join = watched(scenario).join(BEGIN + 61, pod="vllm-0-0", node="sim-node-1")
    assert join.problem == ""
    (found,) = join.devices
    return found


def ratio(scenario: str, name: str) -> float:
    """Returns a signal that must be there."""
    signal = device(scenario).signal(f"gpu_{name}_ratio")
    assert signal.state is State.PRESENT
    assert signal.value is not None
    return signal.value


def test_a_replicas_gpu_is_found_by_its_pod_and_tells_what_a_default_one_tells() -> (
    None
):
    """Identity, memory, power and activities, in base units."""
    found = device("healthy")
    assert (found.pod, found.namespace) == ("vllm-0-0", "serving")
    assert found.model_name == "NVIDIA A100-SXM4-80GB"
    memory = found.signal("gpu_memory_bytes").value
    assert memory == pytest.approx(85.0e9, rel=0.001)
    used = found.signal("gpu_memory_used_bytes").value
    assert used == pytest.approx(0.92 * 85.0e9, rel=0.001)
    watts = found.signal("gpu_power_watts").value
    assert watts is not None
    assert 62 < watts < 400


def test_decoding_reads_memory_and_prefilling_computes() -> None:
    """What the two phases are limited by shows in the activities, as on real GPUs."""
    assert ratio("healthy", "dram_active") > 0.5
    assert ratio("healthy", "tensor_active") < 0.25
    assert ratio("long-prompts", "tensor_active") > 0.4
    assert ratio("long-prompts", "dram_active") < 0.3
    assert ratio("wide-decode", "tensor_active") > 2 * ratio("healthy", "tensor_active")


def test_a_busy_gpu_looks_fully_used_whatever_it_does() -> None:
    """NVML's utilisation cannot tell regimes apart, and neither can ours."""
    assert ratio("overload", "utilization") > 0.95
    assert ratio("kv-pressure", "utilization") > 0.95
    assert ratio("long-prompts", "utilization") > 0.95

"""Every page of every exporter gives its figures in base units, or says why not."""

from __future__ import annotations

import pytest
from gpu_pages import MIB, NAMES, devices, flow_of, only, page, rows

from analyzer.gpus.reading import SIGNALS, Workload
from analyzer.signals import State

Wanted = dict[str, float | str]  # a value, or words of the reason why there is none

BOARD = "a figure of the whole board"
PER_INSTANCE = "told of each MIG instance"
NO_PROFILING = "nor any other profiling field"
SENTINEL = "not supported or not permitted"


def _absent(*without: str, before_4_9: bool = True, profiling: bool = True) -> Wanted:
    """Returns the reasons of a page that lacks everything but *without*."""
    fields = {
        "gpu_utilization_ratio": ("DEV_GPU_UTIL", "DEV_GPU_UTIL_RATIO"),
        "gpu_engine_active_ratio": (
            "PROF_GR_ENGINE_ACTIVE",
            "PROF_GR_ENGINE_UTIL_RATIO",
        ),
        "gpu_dram_active_ratio": ("PROF_DRAM_ACTIVE", "PROF_DRAM_UTIL_RATIO"),
        "gpu_tensor_active_ratio": (
            "PROF_PIPE_TENSOR_ACTIVE",
            "PROF_TENSOR_UTIL_RATIO",
        ),
        "gpu_sm_active_ratio": ("PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO"),
        "gpu_memory_used_bytes": ("DEV_FB_USED", "DEV_FB_USED_BYTES"),
        "gpu_memory_bytes": ("DEV_FB_USED", "DEV_FB_CAPACITY_BYTES"),
        "gpu_power_watts": ("DEV_POWER_USAGE", "DEV_BOARD_POWER_WATTS"),
        "gpu_power_limit_watts": (
            "DEV_ENFORCED_POWER_LIMIT",
            "DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",
        ),
        "gpu_sm_clock_hertz": ("DEV_SM_CLOCK", "DEV_SM_CLOCK_HERTZ"),
        "gpu_nvlink_bytes_per_second": (
            "DEV_NVLINK_BANDWIDTH_TOTAL",
            "DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND",
        ),
        "gpu_pcie_bytes_per_second": ("PROF_PCIE_TX_BYTES", "PROF_PCIE_TX_BYTES"),
    }
    return {
        signal: NO_PROFILING
        if names[0].startswith("PROF_") and not profiling
        else f"no DCGM_FI_{names[0 if before_4_9 else 1]}"
        for signal, names in fields.items()
        if signal not in without
    }


def _of(values: Wanted, *, before_4_9: bool = True, profiling: bool = True) -> Wanted:
    lacking = _absent(*values, before_4_9=before_4_9, profiling=profiling)
    return {**lacking, **values}


def _h100(
    shares: tuple[float, float, float, float, float],
    traffic: tuple[float, float],
    watts: float,
    clock: float = 1980e6,
) -> Wanted:
    util, engine, sm, tensor, dram = shares
    return {
        "gpu_utilization_ratio": util,
        "gpu_engine_active_ratio": engine,
        "gpu_sm_active_ratio": sm,
        "gpu_tensor_active_ratio": tensor,
        "gpu_dram_active_ratio": dram,
        "gpu_memory_used_bytes": 73403 * MIB,
        "gpu_memory_bytes": 81559 * MIB,
        "gpu_power_watts": watts,
        "gpu_power_limit_watts": 700,
        "gpu_sm_clock_hertz": clock,
        "gpu_nvlink_bytes_per_second": traffic[0],
        "gpu_pcie_bytes_per_second": traffic[1],
    }


MIG_INSTANCE: Wanted = {
    "gpu_utilization_ratio": BOARD,
    "gpu_engine_active_ratio": 0.0,
    "gpu_dram_active_ratio": 0.0,
    "gpu_tensor_active_ratio": 0.0,
    "gpu_sm_active_ratio": "no DCGM_FI_PROF_SM_ACTIVE",
    "gpu_memory_used_bytes": 10 * MIB,
    "gpu_memory_bytes": 19967 * MIB,
    "gpu_power_watts": BOARD,
    "gpu_power_limit_watts": BOARD,
    "gpu_sm_clock_hertz": BOARD,
    "gpu_nvlink_bytes_per_second": BOARD,
    "gpu_pcie_bytes_per_second": BOARD,
}
A800: dict[tuple[str, str], Wanted] = {
    ("0", "3"): MIG_INSTANCE,
    ("0", "5"): MIG_INSTANCE,
    ("0", "6"): MIG_INSTANCE,
    ("0", ""): {  # 78 W of one board stand on the page three times
        "gpu_utilization_ratio": "split into MIG instances",
        "gpu_engine_active_ratio": PER_INSTANCE,
        "gpu_dram_active_ratio": PER_INSTANCE,
        "gpu_tensor_active_ratio": PER_INSTANCE,
        "gpu_sm_active_ratio": "no DCGM_FI_PROF_SM_ACTIVE",
        "gpu_memory_used_bytes": PER_INSTANCE,
        "gpu_memory_bytes": PER_INSTANCE,
        "gpu_power_watts": 78.174,
        "gpu_power_limit_watts": "no DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
        "gpu_sm_clock_hertz": 1410e6,
        "gpu_nvlink_bytes_per_second": 0.0,
        "gpu_pcie_bytes_per_second": "split into MIG instances",
    },
    ("1", ""): _of(
        {
            "gpu_utilization_ratio": 0.0,
            "gpu_engine_active_ratio": 0.0,
            "gpu_dram_active_ratio": 0.0,
            "gpu_tensor_active_ratio": 0.0,
            "gpu_memory_used_bytes": 2 * MIB,
            "gpu_memory_bytes": 81228 * MIB,
            "gpu_power_watts": 55.942,
            "gpu_sm_clock_hertz": 210e6,
            "gpu_nvlink_bytes_per_second": 0.0,
            "gpu_pcie_bytes_per_second": 355187.0,
        }
    ),
}
DECODE = _h100((0.99, 0.962, 0.742, 0.071, 0.703), (12199968768, 103341856), 421.3)
PREFILL = _h100(
    (1.0, 0.991, 0.921, 0.612, 0.334), (99573760000, 123613184), 697.2, 1455e6
)
TABLE: dict[str, dict[tuple[str, str], Wanted]] = {
    "a100_tensor_load_mig": {
        ("0", ""): {
            "gpu_utilization_ratio": "split into MIG instances",
            "gpu_engine_active_ratio": 0.99563,
            "gpu_dram_active_ratio": 0.690789,
            "gpu_tensor_active_ratio": 0.92926,
            "gpu_sm_active_ratio": "no DCGM_FI_PROF_SM_ACTIVE",
            "gpu_memory_used_bytes": 4845 * MIB,
            "gpu_memory_bytes": 40535 * MIB,
            "gpu_power_watts": 409.692,
            "gpu_power_limit_watts": "no DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
            "gpu_sm_clock_hertz": 1215e6,
            "gpu_nvlink_bytes_per_second": 0.0,
            "gpu_pcie_bytes_per_second": 130875405.0,
        },
        ("0", "13"): {
            **MIG_INSTANCE,
            "gpu_engine_active_ratio": 0.995687,
            "gpu_dram_active_ratio": 0.800339,
            "gpu_tensor_active_ratio": 0.930433,
            "gpu_memory_used_bytes": "no DCGM_FI_DEV_FB_USED of this GPU",
            "gpu_memory_bytes": "of this GPU, though others",
        },
    },
    "a800x8_mig_mixed_idle": A800,
    "a800x8_mig_mixed_idle_invalid_values": A800,
    "base_units_4_9_0_composed": {
        ("0", ""): {
            **DECODE,
            "gpu_sm_active_ratio": "no DCGM_FI_PROF_SM_UTIL_RATIO",
            "gpu_power_limit_watts": "no DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",
        }
    },
    "exp_event_counts": {("0", ""): _absent(profiling=False)},
    "h100x8_nim_loaded_idle": {
        ("0", ""): _of(
            {"gpu_utilization_ratio": 0.0, "gpu_power_watts": 67.692}, profiling=False
        ),
        ("6", ""): _of(
            {"gpu_utilization_ratio": 0.0, "gpu_power_watts": 112.67}, profiling=False
        ),
    },
    "h100x8_tp8_comms_stall_composed": {
        ("0", ""): _h100((1.0, 1.0, 0.121, 0.0, 0.001), (3072000, 5251072), 168.2),
        ("3", ""): _h100((0.0, 0.0, 0.0, 0.0, 0.0), (3072000, 5251072), 118.4),
    },
    "h100x8_tp8_decode_composed": {("0", ""): DECODE},
    "h100x8_tp8_prefill_powercap_composed_t0": {("0", ""): PREFILL},
    "h100x8_tp8_prefill_powercap_composed_t1": {("0", ""): PREFILL},
    "h100x8_vllm_loaded_idle": {
        ("0", ""): _of(
            {"gpu_utilization_ratio": 0.0, "gpu_power_watts": 113.611}, profiling=False
        )
    },
    "hostname_lowercase_4_8_3": {
        ("0", ""): _of({"gpu_utilization_ratio": 0.75}, profiling=False)
    },
    "invalid_lines": {
        ("0", ""): _of({"gpu_utilization_ratio": 0.37, "gpu_dram_active_ratio": 0.412})
    },
    "l40s_idle": {
        ("0", ""): _of(
            {
                "gpu_utilization_ratio": 0.0,
                "gpu_engine_active_ratio": 0.0,
                "gpu_dram_active_ratio": 0.000131,
                "gpu_tensor_active_ratio": 0.0,
                "gpu_memory_used_bytes": 0.0,
                "gpu_memory_bytes": 46067 * MIB,
                "gpu_power_watts": 35.686,
                "gpu_sm_clock_hertz": 210e6,
                "gpu_nvlink_bytes_per_second": "the GPU has no NVLink",
                "gpu_pcie_bytes_per_second": 194915.0,
            }
        )
    },
    "rtx4000ada_pod_labels": {
        ("0", ""): _of(
            {
                "gpu_utilization_ratio": 0.0,
                "gpu_engine_active_ratio": 0.004656,
                "gpu_dram_active_ratio": 0.003074,
                "gpu_tensor_active_ratio": 0.0,
                "gpu_memory_used_bytes": 1 * MIB,
                "gpu_memory_bytes": 20473 * MIB,
                "gpu_power_watts": 40.979,
                "gpu_sm_clock_hertz": 2310e6,
                "gpu_nvlink_bytes_per_second": 0.0,
                "gpu_pcie_bytes_per_second": 124386273.0,
            }
        )
    },
    "rtx4070_no_profiling": {
        ("0", ""): _of(
            {
                "gpu_utilization_ratio": 0.0,
                "gpu_memory_used_bytes": 296 * MIB,
                "gpu_memory_bytes": 12273 * MIB,
                "gpu_power_watts": 8.61,
                "gpu_sm_clock_hertz": 210e6,
                "gpu_nvlink_bytes_per_second": "the GPU has no NVLink",
            },
            profiling=False,
        )
    },
    "sentinels": {
        ("0", ""): _of({"gpu_sm_clock_hertz": 139e6}),
        ("1", ""): _of(
            {
                "gpu_utilization_ratio": "DCGM_FI_DEV_GPU_UTIL printed 4294967295",
                "gpu_dram_active_ratio": SENTINEL,
                "gpu_sm_active_ratio": "DCGM_FI_PROF_SM_ACTIVE printed 1.43",
                "gpu_memory_used_bytes": SENTINEL,
                "gpu_memory_bytes": SENTINEL,
                "gpu_power_watts": SENTINEL,
                "gpu_sm_clock_hertz": "of this GPU, though others",
            }
        ),
        ("2", ""): _of(
            {
                "gpu_utilization_ratio": "DCGM_FI_DEV_GPU_UTIL printed 136000",
                "gpu_dram_active_ratio": "DCGM_FI_PROF_DRAM_ACTIVE printed nan",
                "gpu_memory_used_bytes": SENTINEL,
                "gpu_memory_bytes": SENTINEL,
                "gpu_power_watts": SENTINEL,
                "gpu_sm_active_ratio": "of this GPU, though others",
                "gpu_sm_clock_hertz": "of this GPU, though others",
            }
        ),
    },
    "t4_busy_util91_prof_low": {
        ("0", ""): _of(
            {
                "gpu_utilization_ratio": 0.91,
                "gpu_engine_active_ratio": 0.156205,
                "gpu_dram_active_ratio": 0.092781,
                "gpu_tensor_active_ratio": 0.005822,
                "gpu_memory_used_bytes": 5120 * MIB,
                "gpu_memory_bytes": 15358 * MIB,
                "gpu_power_watts": 68.244,
                "gpu_sm_clock_hertz": 660e6,
                "gpu_pcie_bytes_per_second": 11727740.0,
            }
        )
    },
    "t4_idle": {
        ("0", ""): _of(
            {
                "gpu_utilization_ratio": 0.0,
                "gpu_engine_active_ratio": 0.0,
                "gpu_dram_active_ratio": 0.000001,
                "gpu_tensor_active_ratio": 0.0,
                "gpu_memory_used_bytes": 0.0,
                "gpu_memory_bytes": 15359 * MIB,
                "gpu_power_watts": 14.512,
                "gpu_sm_clock_hertz": 300e6,
                "gpu_pcie_bytes_per_second": 59663.0,
            }
        )
    },
    "timeslicing_duplicate_rows": {
        ("0", ""): _of({"gpu_engine_active_ratio": 0.714, "gpu_power_watts": 26.14})
    },
}
COUNTS = {"a100_tensor_load_mig": 2, "sentinels": 3}


@pytest.mark.parametrize("name", NAMES)
def test_page_gives_its_values_or_a_reason(name: str) -> None:
    """Each signal of each file has the value on the page, or the reason why not."""
    found = devices(name)
    number = {"h100": 8, "a800": 11}.get(name[:4], COUNTS.get(name, 1))
    assert len(found) == number
    for key, wanted in TABLE[name].items():
        device = found[key]
        assert wanted.keys() | {"gpu_data_age_seconds"} == set(SIGNALS)
        for signal, value in wanted.items():
            given = device.signal(signal)
            if isinstance(value, str):
                assert given.value is None, signal
                assert value in given.reason, signal
            else:
                assert given.value == pytest.approx(value, rel=1e-12), signal
    for device in found.values():
        for given in map(device.signal, SIGNALS):
            assert given.state in (State.PRESENT, State.PROXY, State.ABSENT)
            assert bool(given.reason) == (given.state is not State.PRESENT)


def test_memory_without_the_reserve_is_a_proxy() -> None:
    """Older drivers do not tell the reserve apart: used and free are nearly all."""
    memory = devices("a800x8_mig_mixed_idle")["1", ""].signal("gpu_memory_bytes")
    assert memory.state is State.PROXY
    assert "reserve" in memory.reason
    assert (
        devices("l40s_idle")["0", ""].signal("gpu_memory_bytes").state is State.PRESENT
    )


def test_damaged_lines_cost_themselves_only() -> None:
    """Values that are text lose their line, and the page is told as damaged."""
    flow = flow_of((0.0, page("a800x8_mig_mixed_idle_invalid_values")))
    rows_of = dict(flow.ledger.rows("goodput_target_damaged_lines_total"))
    assert rows_of == {("gpu",): 10}
    assert flow.damaged[0].excerpt.startswith("DCGM_FI_DEV_VGPU_PER_PROCESS")


def test_sharing_pods_are_all_named_and_counted_once() -> None:
    """Three pods that time-slice one GPU make one device, which is nobody's alone."""
    device = devices("timeslicing_duplicate_rows")["0", ""]
    assert device.workloads == tuple(
        Workload("default", f"gpu-workload-{n}", "main") for n in (1, 2, 3)
    )
    assert (device.pod, device.namespace) == ("", "")


def test_devices_know_their_place_and_owner() -> None:
    """Number, model, host, bus and workload come from labels of any spelling."""
    device = devices("hostname_lowercase_4_8_3")["0", ""]
    assert (device.hostname, device.model_name, device.pci_bus_id) == (
        "workstation",
        "NVIDIA GeForce RTX 4090",
        "00000000:06:00.0",
    )
    assert (device.namespace, device.pod) == ("llm", "llama-0")
    assert device.workloads[0].container == "vllm"


def test_version_1_is_read_alike() -> None:
    """Names in lower case, `uuid`, `pod_name`: the oldest exporter's page."""
    labels = (
        'gpu="0",uuid="GPU-1",pod_name="llama-0",pod_namespace="llm",'
        'container_name="vllm"'
    )
    text = (
        f"dcgm_gpu_utilization{{{labels}}} 85\n"
        f"dcgm_fb_used{{{labels}}} 1024\n"
        f"dcgm_fb_free{{{labels}}} 3072\n"
        f"dcgm_power_usage{{{labels}}} 250.5\n"
        f"dcgm_sm_clock{{{labels}}} 1410\n"
        f"dcgm_fi_prof_dram_active{{{labels}}} 0.625\n"
    )
    device = only(flow_of((0.0, text)), 0.0)
    assert device.uuid == "GPU-1"
    assert device.workloads == (Workload("llm", "llama-0", "vllm"),)
    values = {name: device.signal(name).value for name in SIGNALS}
    assert values["gpu_utilization_ratio"] == pytest.approx(0.85)
    assert values["gpu_memory_used_bytes"] == 1024 * MIB
    assert values["gpu_memory_bytes"] == 4096 * MIB
    assert values["gpu_power_watts"] == 250.5
    assert values["gpu_sm_clock_hertz"] == 1410e6
    assert values["gpu_dram_active_ratio"] == 0.625


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        # DCGM 4.7 and later: names that only they have are on the page.
        (("DCGM_FI_DEV_GPU_UTIL_RATIO 1", "DCGM_FI_DEV_SM_CLOCK_HERTZ 2e9"), 1.0),
        (("DCGM_FI_DEV_GPU_UTIL_RATIO 1", "DCGM_FI_DEV_FB_USED_BYTES 5"), 1.0),
        (("DCGM_FI_DEV_GPU_UTIL_RATIO 0.25",), 0.25),
        # DCGM 4.6: an integer of percent.
        (("DCGM_FI_DEV_GPU_UTIL_RATIO 37",), 0.37),
        (("DCGM_FI_DEV_GPU_UTIL_RATIO 100",), 1.0),
        # 0 is 0 in either, and 1 cannot be told.
        (("DCGM_FI_DEV_GPU_UTIL_RATIO 0",), 0.0),
        (("DCGM_FI_DEV_GPU_UTIL_RATIO 1",), None),
        # Nonsense of the ratio's name is nonsense still.
        (("DCGM_FI_DEV_GPU_UTIL_RATIO 136000",), None),
    ],
)
def test_utilisation_ratio_means_what_the_page_shows(
    lines: tuple[str, ...], value: float | None
) -> None:
    """The name is of percent in DCGM 4.6 and of a ratio since: the page decides."""
    signal = only(flow_of((0.0, rows(*lines))), 0.0).signal("gpu_utilization_ratio")
    assert signal.value == (None if value is None else pytest.approx(value))
    assert bool(signal.reason) == (value is None)


def test_one_gpu_of_a_node_tells_the_unit_for_all() -> None:
    """A 1 beside another GPU's 80 is one percent, and beside a 0.8 all of it."""
    for printed, one, other in (("80", 0.01, 0.8), ("0.8", 1.0, 0.8)):
        text = rows("DCGM_FI_DEV_GPU_UTIL_RATIO 1") + rows(
            f"DCGM_FI_DEV_GPU_UTIL_RATIO {printed}", uuid="GPU-2"
        )
        first, second = flow_of((0.0, text)).reading(0.0).devices
        assert first.signal("gpu_utilization_ratio").value == pytest.approx(one)
        assert second.signal("gpu_utilization_ratio").value == pytest.approx(other)


def test_type_lines_are_not_believed() -> None:
    """A rate typed counter and a counter typed gauge stay what their names say."""
    head = (
        "# TYPE DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL counter\n"
        "# TYPE DCGM_FI_PROF_DRAM_ACTIVE counter\n"
        "# TYPE DCGM_FI_DEV_POWER_VIOLATION gauge\n"
    )
    lines = ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL 11914", "DCGM_FI_PROF_DRAM_ACTIVE 0.5")
    first = head + rows(*lines, "DCGM_FI_DEV_POWER_VIOLATION 5000000000")
    second = head + rows(*lines, "DCGM_FI_DEV_POWER_VIOLATION 8000000000")
    flow = flow_of((0.0, first), (10.0, second))
    device = only(flow, 10.0)
    assert device.signal("gpu_nvlink_bytes_per_second").value == 11914 * 1_024_000
    assert device.signal("gpu_dram_active_ratio").value == 0.5
    assert dict(flow.ledger.rows("goodput_gpu_throttled_seconds_total")) == {
        (device.uuid, "", "power"): pytest.approx(3.0)
    }


def test_counters_pass_the_limits_of_gauges() -> None:
    """39 hours of a throttle in nanoseconds look like a double's sentinel, and are not.

    The true sentinels are none for counters either.
    """
    flow = flow_of(
        (0.0, rows("DCGM_FI_DEV_POWER_VIOLATION 140737488355400")),
        (10.0, rows("DCGM_FI_DEV_POWER_VIOLATION 140742488355400")),
        (20.0, rows("DCGM_FI_DEV_POWER_VIOLATION 140737488355330")),
        (30.0, rows("DCGM_FI_DEV_POWER_VIOLATION 9223372036854775794")),
    )
    totals = dict(flow.ledger.rows("goodput_gpu_throttled_seconds_total"))
    assert list(totals.values()) == [pytest.approx(5.0)]


def test_stuck_profiling_is_not_idleness() -> None:
    """Busy by NVML while every profiling figure is 0: those are not believed."""
    text = rows(
        "DCGM_FI_DEV_GPU_UTIL 100",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE 0.000000",
        "DCGM_FI_PROF_DRAM_ACTIVE 0.000000",
    )
    device = only(flow_of((0.0, text)), 0.0)
    for name in ("gpu_engine_active_ratio", "gpu_dram_active_ratio"):
        assert device.signal(name).state is State.ABSENT
        assert "stuck" in device.signal(name).reason
    idle = text.replace(" 100\n", " 0\n")
    found = only(flow_of((0.0, idle)), 0.0).signal("gpu_dram_active_ratio")
    assert (found.state, found.value) == (State.PRESENT, 0.0)


def test_row_of_the_gpu_stands_above_those_of_its_pods() -> None:
    """With figures per process the GPU's own row is the GPU's figure."""
    text = (
        rows("DCGM_FI_DEV_FB_USED 300", labels='pod="a",namespace="n"')
        + rows("DCGM_FI_DEV_FB_USED 1000")
        + rows("DCGM_FI_DEV_FB_USED 600", labels='pod="b",namespace="n"')
    )
    device = only(flow_of((0.0, text)), 0.0)
    assert device.signal("gpu_memory_used_bytes").value == 1000 * MIB
    assert len(device.workloads) == 2


def test_labels_that_prometheus_moved_are_the_workloads() -> None:
    """Out of Prometheus `pod` is the exporter, and `exported_pod` the workload."""
    exporter = 'pod="gpu-metrics-x",namespace="gpu-operator",container="e"'
    moved = 'exported_pod="llama-0",exported_namespace="llm",exported_container="vllm"'
    text = rows("DCGM_FI_DEV_GPU_UTIL 5", labels=f"{exporter},{moved}") + rows(
        "DCGM_FI_DEV_GPU_UTIL 6", uuid="GPU-free", labels=exporter
    )
    ours, free = flow_of((0.0, text)).reading(0.0).devices
    assert ours.workloads == (Workload("llm", "llama-0", "vllm"),)
    assert free.workloads == ()
    alone = rows("DCGM_FI_DEV_GPU_UTIL 6", labels='pod="nvidia-dcgm-exporter-x"')
    assert only(flow_of((0.0, alone)), 0.0).workloads == ()


def test_amd_figures_have_the_same_names_and_units() -> None:
    """AMD's exporter, with a prefix: percent, MiB, megabits, and what stands in."""
    labels = (
        'gpu_id="0",serial_number="69",card_model="MI300X",hostname="amd-1",'
        'gpu_partition_id="0",gpu_compute_partition_type="spx",pod="llama-0",'
        'namespace="llm",container="vllm"'
    )
    text = (
        f"amd_gpu_gfx_activity{{{labels}}} 93\n"
        f"amd_gpu_umc_activity{{{labels}}} 61\n"
        f"amd_gpu_used_vram{{{labels}}} 150000\n"
        f"amd_gpu_total_vram{{{labels}}} 196592\n"
        f"amd_gpu_package_power{{{labels}}} 640\n"
        f'amd_gpu_clock{{{labels},clock_type="system"}} 2100\n'
        f'amd_gpu_clock{{{labels},clock_type="memory"}} 2600\n'
        f"amd_pcie_bandwidth{{{labels}}} 80\n"
        f"amd_gpu_violation_ppt_residency_percentage{{{labels}}} 12\n"
    )
    device = only(flow_of((0.0, text)), 0.0)
    assert (device.uuid, device.gpu_instance, device.hostname) == ("69", "", "amd-1")
    assert device.pod == "llama-0"
    assert device.signal("gpu_utilization_ratio").value == pytest.approx(0.93)
    assert device.signal("gpu_dram_active_ratio").value == pytest.approx(0.61)
    assert device.signal("gpu_dram_active_ratio").state is State.PROXY
    assert device.signal("gpu_memory_used_bytes").value == 150000 * MIB
    assert device.signal("gpu_memory_bytes").value == 196592 * MIB
    assert device.signal("gpu_power_watts").value == 640
    assert device.signal("gpu_sm_clock_hertz").value == 2100e6
    assert device.signal("gpu_pcie_bytes_per_second").value == 10e6
    assert device.throttled["power"].value == pytest.approx(0.12)
    assert device.throttled["thermal"].state is State.ABSENT
    assert device.signal("gpu_tensor_active_ratio").state is State.ABSENT


def test_amd_partitions_are_told_apart() -> None:
    """Activity is the whole GPU's, and stands on its first partition only."""
    labels = 'serial_number="7",hostname="h",gpu_compute_partition_type="cpx"'
    text = "".join(
        f'gpu_used_vram{{gpu_id="{n}",gpu_partition_id="{n}",{labels}}} {n + 1}\n'
        for n in range(2)
    )
    text += f'gpu_gfx_activity{{gpu_id="0",gpu_partition_id="0",{labels}}} 50\n'
    found = flow_of((0.0, text)).reading(0.0).devices
    used = {d.gpu_instance: d.signal("gpu_memory_used_bytes").value for d in found}
    assert used == {"": None, "0": MIB, "1": 2 * MIB}
    busy = {d.gpu_instance: d.signal("gpu_utilization_ratio").value for d in found}
    assert busy == {"": 0.5, "0": None, "1": None}


def test_nvidia_smi_figures_prove_no_bandwidth() -> None:
    """nvidia_gpu_exporter has no profiling figures; its UUIDs lack their prefix."""
    labels = 'uuid="f1d2-3"'
    text = (
        f"nvidia_smi_utilization_gpu_ratio{{{labels}}} 0.97\n"
        f"nvidia_smi_memory_used_bytes{{{labels}}} 1000\n"
        f"nvidia_smi_memory_total_bytes{{{labels}}} 4000\n"
        f"nvidia_smi_power_draw_watts{{{labels}}} 627\n"
        f"nvidia_smi_clocks_event_reasons_sw_power_cap{{{labels}}} 1\n"
    )
    device = only(flow_of((0.0, text)), 0.0)
    assert device.uuid == "GPU-f1d2-3"
    assert device.signal("gpu_utilization_ratio").value == 0.97
    assert device.signal("gpu_memory_bytes").value == 4000
    assert device.throttled["power"].value == 1.0
    assert device.signal("gpu_dram_active_ratio").state is State.ABSENT

"""What a simulated node's dcgm-exporter says of the GPUs under its replicas.

Names, units and labels of dcgm-exporter 4.8.3. Activities follow from the engines'
steps: reading weights and cache keeps the memory interface busy, tokens the tensor
cores, each as much as the machine's step costs say. As a real one it looks now and
then only, and serves what it saw until it looks again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from analyzer.capacity.engine import Engine, Work
from analyzer.capacity.machines import MEMORY_UTILIZATION, Accelerator
from analyzer.simulation.site import Replica

REFRESH_SECONDS = 10.0  # dcgm-exporter -c 10000; its default is 30 s
DRIVER = "580.105.08"
MEGABYTE = 1 << 20
RESERVED_MEGABYTES = 550


@dataclass(frozen=True, slots=True)
class Board:
    """A replica's kind of GPU: its data sheet, its name in NVML, watts idle and most.

    One replica has `tensor_parallel` of them.
    """

    accelerator: Accelerator
    name: str
    idle_watts: float
    most_watts: float
    tensor_parallel: int = 1


@dataclass(slots=True)
class _Activity:
    """Shares of the last interval, and the energy since the begin in joules."""

    busy: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0
    watts: float = 0.0
    joules: float = 0.0


class Node:
    """The GPUs of all replicas on one node, as dcgm-exporter caches them."""

    def __init__(self, board: Board, *, hostname: str, namespace: str) -> None:
        self._board = board
        self._hostname = hostname
        self._namespace = namespace
        self._seen: dict[int, tuple[Engine, Work]] = {}
        self._activities: dict[int, _Activity] = {}
        self._looked = 0.0

    def look(self, replicas: Sequence[Replica], now: float) -> None:
        """Takes the engines' work in, when it is time; *now* is simulated seconds."""
        elapsed = now - self._looked
        if elapsed < REFRESH_SECONDS and self._activities:
            return
        self._looked = now
        for replica in replicas:
            activity = self._activities.setdefault(replica.number, _Activity())
            self._measure(replica, activity, elapsed)

    def _measure(self, replica: Replica, activity: _Activity, elapsed: float) -> None:
        engine, board = replica.engine, self._board
        activity.busy = activity.tensor = activity.dram = 0.0
        if engine is not None and elapsed > 0:
            before = Work()
            if replica.number in self._seen:
                known, seen = self._seen[replica.number]
                before = seen if known is engine else before
            work = engine.work
            now = replace(work)
            self._seen[replica.number] = (engine, now)
            costs = engine.config.costs
            accelerator = board.accelerator
            tokens = (now.prefill_tokens - before.prefill_tokens) * costs.prefill_token
            tokens += (now.decode_tokens - before.decode_tokens) * costs.decode_token
            tokens += (now.prefill_pairs - before.prefill_pairs) * costs.prefill_pair
            reading = (now.steps - before.steps) * costs.base
            reading += (now.kv_tokens - before.kv_tokens) * costs.kv_token
            activity.busy = min(1.0, (now.busy - before.busy) / elapsed)
            activity.tensor = min(1.0, tokens / elapsed * accelerator.flops_share)
            activity.dram = min(1.0, reading / elapsed * accelerator.bandwidth_share)
        load = max(activity.tensor, 0.7 * activity.dram)
        activity.watts = board.idle_watts + load * (board.most_watts - board.idle_watts)
        activity.joules += activity.watts * max(0.0, elapsed)

    def page(self, replicas: Sequence[Replica]) -> str:
        """Returns the exposition."""
        lines = []
        rows = [
            (labels, values)
            for replica in replicas
            for labels, values in self._rows(replica)
        ]
        for at, (name, kind, text) in enumerate(FIELDS):
            lines.append(f"# HELP {name} {text}")
            lines.append(f"# TYPE {name} {kind}")
            lines += [f"{name}{{{labels}}} {values[at]}" for labels, values in rows]
        return "\n".join(lines) + "\n"

    def _rows(self, replica: Replica) -> Iterator[tuple[str, tuple[str, ...]]]:
        board = self._board
        activity = self._activities.get(replica.number, _Activity())
        loaded = MEMORY_UTILIZATION if replica.engine is not None else 0.005
        used = round(board.accelerator.memory / MEGABYTE * loaded)
        free = round(board.accelerator.memory / MEGABYTE) - used - RESERVED_MEGABYTES
        values = (
            "1980" if activity.busy else "1410",
            f"{activity.watts:.3f}",
            str(round(activity.joules * 1000)),
            str(round(activity.busy * 100)),
            "0",
            str(free),
            str(used),
            str(RESERVED_MEGABYTES),
            f"{activity.busy:.6f}",
            f"{activity.busy * 0.85:.6f}",
            f"{activity.tensor:.6f}",
            f"{activity.dram:.6f}",
        )
        for gpu in range(board.tensor_parallel):
            yield self._labels(replica, gpu), values

    def _labels(self, replica: Replica, gpu: int) -> str:
        number = replica.number * self._board.tensor_parallel + gpu
        identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"{number}.{self._hostname}")
        labels = {
            "DCGM_FI_DRIVER_VERSION": DRIVER,
            "UUID": f"GPU-{identity}",
            "container": "vllm",
            "device": f"nvidia{number}",
            "gpu": str(number),
            "hostname": self._hostname,
            "modelName": self._board.name,
            "namespace": self._namespace,
            "pci_bus_id": f"00000000:{number:02X}:00.0",
            "pod": replica.pod,
        }
        return ",".join(f'{name}="{value}"' for name, value in labels.items())


# In the order of the values above.
FIELDS = (
    ("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz)."),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W)."),
    (
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "counter",
        "Total energy consumption since boot (in mJ).",
    ),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %)."),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "gauge", "Current clock event reasons."),
    ("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB)."),
    ("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB)."),
    ("DCGM_FI_DEV_FB_RESERVED", "gauge", "Framebuffer memory reserved (in MiB)."),
    (
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "gauge",
        "Ratio of time the graphics engine is active.",
    ),
    (
        "DCGM_FI_PROF_SM_ACTIVE",
        "gauge",
        "The ratio of cycles an SM has at least 1 warp assigned.",
    ),
    (
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "gauge",
        "Ratio of cycles the tensor (HMMA) pipe is active.",
    ),
    (
        "DCGM_FI_PROF_DRAM_ACTIVE",
        "gauge",
        "Ratio of cycles the device memory interface is active sending or receiving.",
    ),
)

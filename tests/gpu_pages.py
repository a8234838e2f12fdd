"""GPU exporters' pages: real ones and some composed after the documentation."""

from __future__ import annotations

import lzma
from pathlib import Path

from analyzer.config_gpus import GpuSource
from analyzer.gpus.flow import GpuFlow
from analyzer.gpus.match import GpuMatch
from analyzer.gpus.reading import Device

DIRECTORY = Path(__file__).parent / "fixtures" / "dcgm"
NAMES = tuple(
    sorted(path.name.removesuffix(".prom.xz") for path in DIRECTORY.iterdir())
)
UUID = "GPU-00000000-0000-4000-8000-a00000000000"
MIB = 1024 * 1024


def page(name: str) -> str:
    """Returns the text of a page, whose first lines say where it is from."""
    path = DIRECTORY / f"{name}.prom.xz"
    return lzma.decompress(path.read_bytes()).decode()


def rows(*lines: str, uuid: str = UUID, labels: str = "") -> str:
    """Returns a page of lines such as `DCGM_FI_DEV_GPU_UTIL 5`, all of one GPU."""
    more = f",{labels}" if labels else ""
    found = (line.partition(" ") for line in lines)
    return "".join(
        f'{name}{{gpu="0",UUID="{uuid}"{more}}} {value}\n' for name, _, value in found
    )


def flow_of(*pages: tuple[float, str], match: GpuMatch | None = None) -> GpuFlow:
    """Returns a flow that has seen pages, each at its time, every 10 seconds."""
    source = GpuSource("node", "http://node:9400/metrics", match=match or GpuMatch())
    flow = GpuFlow(source)
    for at, text in pages:
        flow.observe(flow.read(text, at))
    return flow


def only(flow: GpuFlow, at: float) -> Device:
    """Returns the one device that a flow knows."""
    (device,) = flow.reading(at).devices
    return device


def devices(name: str) -> dict[tuple[str, str], Device]:
    """Returns the devices of a page by number and MIG instance."""
    flow = flow_of((0.0, page(name)))
    return {(d.index, d.gpu_instance): d for d in flow.reading(0.0).devices}

"""GPUs: busy with what, held down by what, and how old the figures are."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.models import dashboard as d

from analyzer.diagnosis.thresholds import DRAM_HIGH, TENSOR_HIGH, Threshold
from builder.board import Board, Line, exporters
from builder.panels import BAD, GOOD, PLAIN, WARN, About, Query, Step, series, tile
from builder.query import INSTANCE, or_none, ratio
from builder.tables import Column, table_of

DEVICE = "instance, uuid, gpu_instance"
NAMED = "hostname, gpu, model_name"
NAME = "{{hostname}} GPU {{gpu}} {{gpu_instance}}"
# What is reached in practice of every cycle.
DRAM_PEAK, TENSOR_PEAK = 0.8, 0.93
NO_GPUS = "No GPU exporter read"
NO_PROFILING = "No GPU exporter read, or it has no profiling metrics (DCGM_FI_PROF_…)"


def _named(expr: str) -> str:
    """Returns *expr* of each GPU with the node and number that one knows it by."""
    info = f"group by ({DEVICE}, {NAMED}) (goodput_gpu_info{{{INSTANCE}}})"
    return f"{expr} * on ({DEVICE}) group_left ({NAMED}) {info}"


def _of(metric: str) -> str:
    return _named(f"max by ({DEVICE}) (goodput_gpu_{metric}{{{INSTANCE}}})")


def _activity(metric: str, about: About, peak: float | None = None) -> d.Panel:
    """Returns a share of cycles by GPU, against its practical *peak*."""
    queries = [Query(_of(metric), NAME)]
    if peak is not None:
        busiest = f"0 * max(goodput_gpu_{metric}{{{INSTANCE}}}) + {peak:g}"
        queries.append(Query(busiest, "practical peak"))
    return series(about, *queries, unit="percentunit", most=1.0)


def _table() -> d.Panel:
    def column(
        name: str, metric: str, unit: str = "percentunit", colors: Sequence[Step] = ()
    ) -> Column:
        return Column(name, _of(metric), unit, colors, decimals=0, width=110)

    def high(limit: Threshold) -> Sequence[Step]:
        return ((None, GOOD), (limit.value, WARN))

    memory = f"goodput_gpu_memory_used_bytes{{{INSTANCE}}}"
    whole = f"goodput_gpu_memory_bytes{{{INSTANCE}}}"
    taken = ratio(f"max by ({DEVICE}) ({memory})", f"max by ({DEVICE}) ({whole})")
    return table_of(
        About(
            "GPUs",
            "A row a GPU or MIG instance. “Busy” only says that some kernel ran; DRAM "
            "and tensor activity say with what. Memory is taken by vLLM at its start.",
            "All alike, figures seconds old.",
            "One that differs under the same load: throttled, or badly routed. Old "
            "figures: see the GPU exporter.",
            NO_GPUS,
        ),
        labels={
            "hostname": "Node",
            "gpu": "GPU",
            "gpu_instance": "MIG",
            "model_name": "Board",
        },
        hidden=("uuid", "instance"),
        widths={"Node": 150, "GPU": 60, "MIG": 60, "Board": 230},
        columns=[
            column("Busy", "utilization_ratio"),
            column("DRAM", "dram_active_ratio", colors=high(DRAM_HIGH)),
            column("Tensor", "tensor_active_ratio", colors=high(TENSOR_HIGH)),
            column("SM", "sm_active_ratio"),
            Column("Memory taken", _named(taken), "percentunit", decimals=0, width=130),
            column("Power", "power_watts", "watt"),
            column("Clock", "sm_clock_hertz", "hertz"),
            column(
                "Age of figures",
                "data_age_seconds",
                "s",
                ((None, GOOD), (60, WARN), (300, BAD)),
            ),
        ],
        sort_by="DRAM",
    )


def _throttled() -> d.Panel:
    rate = f"rate(goodput_gpu_throttled_seconds_total{{{INSTANCE}}}[$__rate_interval])"
    return series(
        About(
            "Clocks held down",
            "Share of time in which clocks were below what was asked, by reason; the "
            "GPU with the most.",
            "power alone: the board works at its limit.",
            "thermal, hardware: check cooling and power of the node, drain it.",
            NO_GPUS,
        ),
        Query(
            or_none(
                f"max by (reason) ({rate})",
                "reason",
                f"goodput_gpu_devices{{{INSTANCE}}}",
            ),
            "{{reason}}",
        ),
        unit="percentunit",
        most=1.0,
        colors=(("thermal|hardware", BAD), ("power", WARN)),
    )


def _power() -> d.Panel:
    return series(
        About(
            "Power",
            "Power of each board, and what it may draw where the exporter tells.",
            "It follows the load.",
            "At the limit clocks fall: a higher limit, or fewer GPUs in the rack.",
            NO_GPUS,
        ),
        Query(_of("power_watts"), NAME),
        Query(_of("power_limit_watts"), f"limit {NAME}"),
        unit="watt",
    )


def _links() -> d.Panel:
    return series(
        About(
            "Traffic between GPUs",
            "NVLink and PCIe, both directions, where the exporter tells.",
            "Hardly any for one GPU a replica.",
            "Near the link's rate with tensor parallelism: collectives bind; fewer "
            "GPUs a replica need them less.",
            "The GPU exporter tells nothing of links",
        ),
        Query(_of("nvlink_bytes_per_second"), f"NVLink {NAME}"),
        Query(_of("pcie_bytes_per_second"), f"PCIe {NAME}"),
        unit="Bps",
    )


def _count() -> d.Panel:
    return tile(
        About(
            "GPUs watched",
            "GPUs and MIG instances that the configuration selects.",
            "As many as the engines have.",
            "0: the status page of the exporter says why they cannot be told.",
            NO_GPUS,
        ),
        Query(f"sum(goodput_gpu_devices{{{INSTANCE}}})", "devices"),
        unit="short",
    )


def _nearest() -> d.Panel:
    def busiest(metric: str, peak: float) -> str:
        return f"max(goodput_gpu_{metric}_active_ratio{{{INSTANCE}}}) / {peak:g}"

    return tile(
        About(
            "Busiest GPU, of its peak",
            "Memory traffic and arithmetic of the busiest GPU over what is reached in "
            f"practice, {DRAM_PEAK:.0%} and {TENSOR_PEAK:.0%} of all cycles.",
            "Any share: a busy GPU is one that is used.",
            "Near 100 % while users wait: more or faster GPUs help. Far below: they "
            "would not, see what binds.",
            NO_PROFILING,
        ),
        Query(busiest("dram", DRAM_PEAK), "bandwidth"),
        Query(busiest("tensor", TENSOR_PEAK), "arithmetic"),
        unit="percentunit",
        colors=((None, PLAIN), (0.9, WARN)),
    )


def _worst_throttle() -> d.Panel:
    chosen = f'{INSTANCE},reason=~"thermal|hardware"'
    rate = f"rate(goodput_gpu_throttled_seconds_total{{{chosen}}}[$__rate_interval])"
    return tile(
        About(
            "Worst throttling",
            "Share of time in which heat or hardware held the worst GPU's clocks down.",
            "0 %.",
            "Check cooling and power of its node; drain it if it lasts.",
            NO_GPUS,
        ),
        Query(f"max(sum by ({DEVICE}) ({rate}))", "of the worst GPU"),
        unit="percentunit",
        colors=((None, GOOD), (0.01, WARN), (0.1, BAD)),
    )


def _oldest() -> d.Panel:
    return tile(
        About(
            "Oldest figures",
            "How long the oldest GPU's figures have not changed.",
            "Below a minute: exporters refresh every 30 s by default.",
            "Minutes: the GPU exporter hangs; verdicts lack their evidence.",
            NO_GPUS,
        ),
        Query(f"max(goodput_gpu_data_age_seconds{{{INSTANCE}}})", "oldest"),
        unit="s",
        colors=((None, GOOD), (60, WARN), (300, BAD)),
    )


BOARD = Board(
    uid="llm-goodput-gpu",
    title="LLM Goodput: GPU",
    description="What the GPUs are busy with, what holds them down, and how old the "
    "figures are.",
    variables=(exporters(),),
    by_model=False,
    lines=(
        Line(
            4,
            ((4, _count()), (8, _nearest()), (6, _worst_throttle()), (6, _oldest())),
        ),
        Line(7, ((24, _table()),)),
        Line(
            8,
            (
                (
                    8,
                    _activity(
                        "dram_active_ratio",
                        About(
                            "Memory bandwidth",
                            "Share of cycles in which device memory moved data.",
                            "Below the practical peak: 60 to 80 % is healthy decode.",
                            "At the peak while outputs slow down: bandwidth binds.",
                            NO_PROFILING,
                        ),
                        DRAM_PEAK,
                    ),
                ),
                (
                    8,
                    _activity(
                        "tensor_active_ratio",
                        About(
                            "Tensor cores",
                            "Share of cycles in which a tensor core was busy.",
                            "High while prompts are computed, low while decoding.",
                            "At the peak with requests waiting: arithmetic binds.",
                            NO_PROFILING,
                        ),
                        TENSOR_PEAK,
                    ),
                ),
                (
                    8,
                    _activity(
                        "sm_active_ratio",
                        About(
                            "Multiprocessors",
                            "Share of cycles in which a multiprocessor had work, also "
                            "while it waited for memory.",
                            "High under load.",
                            "Low while requests wait: the CPU, the links or the "
                            "scheduler keep the GPU waiting.",
                            NO_PROFILING,
                        ),
                    ),
                ),
            ),
        ),
        Line(8, ((8, _power()), (8, _throttled()), (8, _links()))),
    ),
)

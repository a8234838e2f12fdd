"""A simulated replica's `/metrics`: the text that vLLM 0.32 would serve.

Process families first, the engine's, then the API server's, each with the `_created`
gauges of prometheus_client, in the order and with the labels of a real page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import utils

from analyzer.capacity.families import Family, Row, families
from analyzer.capacity.metrics import Buckets
from analyzer.histogram import Histogram
from analyzer.simulation.clock import Clock
from analyzer.simulation.http_counts import HttpCounts
from analyzer.simulation.site import Replica

HANDLER = "/v1/chat/completions"
IMPORT_SECONDS = 9.0  # of a server's start, before its metrics are created


def page(replica: Replica, *, model: str, clock: Clock) -> str:
    """Returns the exposition of a replica that is up. Raises ValueError."""
    engine = replica.engine
    if engine is None:
        raise ValueError(f"replica {replica.number} is down")
    born = clock.wall(engine.started)
    # Simulated time as well: a fast clock's server starts faster.
    start = clock.wall(engine.started - IMPORT_SECONDS)
    found: list[Family] = [*_process(start, cpu=engine.work.busy)]
    found += families(engine.metrics, model=model)
    found += _http(replica.http)
    lines: list[str] = []
    for family in found:
        _print(family, lines)
        created = _created(family, born)
        if created is not None:
            _print(created, lines)
    return "\n".join(lines) + "\n"


def _print(family: Family, lines: list[str]) -> None:
    name = family.name
    lines.append(f"# HELP {name} {family.help}")
    lines.append(f"# TYPE {name} {family.kind}")
    for labels, value in family.rows:
        if isinstance(value, Histogram):
            for bound, count in zip(value.bounds, value.counts, strict=True):
                with_bound = {**labels, "le": _number(bound)}
                lines.append(_line(f"{name}_bucket", with_bound, count))
            lines.append(_line(f"{name}_count", labels, value.count))
            lines.append(_line(f"{name}_sum", labels, value.sum))
        elif family.kind == "summary":
            # A summary without quantiles: the row has its suffix as a label.
            suffix = labels["suffix"]
            name_of_part = f"{name}_{suffix}"
            lines.append(_line(name_of_part, _without_suffix(labels), value))
        else:
            lines.append(_line(name, labels, value))


def _number(value: float) -> str:
    return str(utils.floatToGoString(value))  # type: ignore[no-untyped-call]


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    if not labels:
        return f"{name} {_number(value)}"
    text = ",".join(f'{k}="{v}"' for k, v in sorted(labels.items()))
    return f"{name}{{{text}}} {_number(value)}"


def _without_suffix(labels: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in labels.items() if k != "suffix"}


def _created(family: Family, at: float) -> Family | None:
    """Returns the gauges that say when each series of *family* began."""
    ours = family.name.startswith(("vllm:", "http_"))
    if not ours or family.kind == "gauge":
        return None
    labels = [_without_suffix(row.labels) for row in family.rows]
    unique = {tuple(item.items()): item for item in labels}
    counter = family.kind == "counter"
    name = family.name.removesuffix("_total") if counter else family.name
    rows = [Row(item, at) for item in unique.values()]
    return Family(f"{name}_created", "gauge", family.help, rows)


def _process(start: float, *, cpu: float) -> Iterator[Family]:
    """Yields what prometheus_client says of its process; memory is an example."""
    generations = [{"generation": str(n)} for n in range(3)]
    for name, text, values in (
        ("objects_collected", "Objects collected during gc", (15428.0, 2339.0, 532.0)),
        (
            "objects_uncollectable",
            "Uncollectable objects found during GC",
            (0.0, 0.0, 0.0),
        ),
        (
            "collections",
            "Number of times this generation was collected",
            (1572.0, 143.0, 10.0),
        ),
    ):
        rows = [Row(labels, v) for labels, v in zip(generations, values, strict=True)]
        yield Family(f"python_gc_{name}_total", "counter", text, rows)
    python = {
        "implementation": "CPython",
        "major": "3",
        "minor": "12",
        "patchlevel": "11",
        "version": "3.12.11",
    }
    info = "Python platform information"
    yield Family("python_info", "gauge", info, [Row(python, 1.0)])
    for name, kind, text, value in (
        ("virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", 2.2e10),
        ("resident_memory_bytes", "gauge", "Resident memory size in bytes.", 1.4e9),
        ("start_time_seconds", "gauge", "Start time of the process.", start),
        ("cpu_seconds_total", "counter", "User and system CPU time.", cpu),
        ("open_fds", "gauge", "Number of open file descriptors.", 64.0),
        ("max_fds", "gauge", "Maximum number of open file descriptors.", 1048576.0),
    ):
        yield Family(f"process_{name}", kind, text, [Row({}, value)])


def _http(http: HttpCounts) -> Iterator[Family]:
    """Yields what prometheus-fastapi-instrumentator counts, once there is something."""
    handler = {"handler": HANDLER}
    method = {**handler, "method": "POST"}
    answered = float(sum(http.answers.values()))
    if answered:
        rows = [Row({**method, "status": s}, float(n)) for s, n in http.answers.items()]
        text = "Total number of requests by method, status and handler."
        yield Family("http_requests_total", "counter", text, rows)
        for name, size in (("request", http.request_bytes), ("response", 0.0)):
            rows = _summary(handler, answered, size)
            text = f"Content length of {name}s by handler."
            yield Family(f"http_{name}_size_bytes", "summary", text, rows)
    fine = "Latency with many buckets but no labels."
    yield _histogram("http_request_duration_highr_seconds", fine, {}, http.fine)
    if answered:
        coarse = "Latency with few buckets by handler."
        name = "http_request_duration_seconds"
        yield _histogram(name, coarse, method, http.coarse)


def _summary(labels: Mapping[str, str], count: float, total: float) -> list[Row]:
    return [
        Row({**labels, "suffix": "count"}, count),
        Row({**labels, "suffix": "sum"}, total),
    ]


def _histogram(
    name: str, text: str, labels: Mapping[str, str], buckets: Buckets
) -> Family:
    return Family(name, "histogram", text, [Row(labels, buckets.histogram())])


def models(model: str, *, max_model_len: int, aliases: Iterable[str] = ()) -> object:
    """Returns the body of `/v1/models`, ready to be encoded."""
    return {
        "object": "list",
        "data": [
            {
                "id": name,
                "object": "model",
                "owned_by": "vllm",
                "root": model,
                "parent": None,
                "max_model_len": max_model_len,
            }
            for name in (model, *aliases)
        ],
    }

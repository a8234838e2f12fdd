"""From an engine's page and its growth to one rank's interval, knobs and signals."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from analyzer.diagnosis.intervals import Count, Interval
from analyzer.diagnosis.situation import Knobs
from analyzer.engines.reading import EngineReading
from analyzer.goodput import Marginal
from analyzer.histogram import Histogram
from analyzer.snapshot import Group, Increase

COMPUTED, EXTERNAL = "local_compute", "external_kv_transfer"
Counter = Callable[..., float | None]


def interval(
    reading: EngineReading,
    grown: Increase,
    model: str,
    rank: str,
    marginals: Mapping[str, Marginal],
) -> Interval:
    """Returns what *rank* of *model* did in *grown*, whose end *reading* shows.

    *marginals* are those of the model's class in the same growth.
    """
    gauges, counters, histograms = reading.gauges, grown.counters, grown.histograms

    def gauge(signal: str, extra: str = "") -> float | None:
        return gauges.get(Group(signal, model, rank, extra))

    def counter(signal: str, extra: str = "") -> float | None:
        return counters.get(Group(signal, model, rank, extra))

    def histogram(signal: str) -> Histogram | None:
        return histograms.get(Group(signal, model, rank))

    steps, e2e = histogram("iteration_tokens"), histogram("e2e")
    waiting = gauge("waiting")
    deferred = gauge("waiting_by_reason", "deferred")
    if waiting is None and deferred is not None:
        waiting = deferred + (gauge("waiting_by_reason", "capacity") or 0.0)
    swapped = gauge("swapped")
    if swapped:
        waiting = swapped + (waiting or 0.0)
    return Interval(
        grown.begin,
        grown.end,
        running=gauge("running"),
        waiting=waiting,
        deferred=deferred,
        kv=gauge("kv_cache_usage"),
        prefill=_computed(counter),
        decode=counter("generation_tokens"),
        external=counter("prompt_tokens_by_source", EXTERNAL) or 0.0,
        steps=None if steps is None else steps.count,
        itl=histogram("itl"),
        ttft=_count(histogram("ttft")),
        queue=_count(histogram("queue")),
        prefill_time=_count(histogram("prefill")),
        preemptions=counter("preemptions"),
        finished=_finished(grown, model, rank) if e2e is None else e2e.count,
        flops=counter("flops") or 0.0,
        read_bytes=counter("read_bytes") or 0.0,
        missed={
            criterion: (marginal.events, max(0.0, marginal.events - marginal.upper))
            for criterion, marginal in marginals.items()
            if marginal.events
        },
    )


def _computed(counter: Counter) -> float | None:
    """Returns the prompt tokens computed: those by source, else all but cache hits."""
    computed = counter("prompt_tokens_by_source", COMPUTED)
    if computed is not None:
        return computed
    prompt, hits = counter("prompt_tokens"), counter("prefix_cache_hits")
    return None if prompt is None else max(0.0, prompt - (hits or 0.0))


def _finished(grown: Increase, model: str, rank: str) -> float | None:
    found = [
        value
        for group, value in grown.counters.items()
        if group[:3] == ("finished", model, rank)
    ]
    return sum(found) if found else None


def _count(histogram: Histogram | None) -> Count | None:
    return None if histogram is None else Count(histogram.count, histogram.sum)


def knobs(
    cache_config: Mapping[str, str],
    declared: Mapping[str, int],
    told_seqs: float | None,
) -> Knobs:
    """Returns the settings told by the page (*cache_config*, *told_seqs*) or declared.

    What is declared wins: it is given where the page says nothing or is wrong.
    """
    blocks, size = (
        _number(cache_config.get(name)) for name in ("num_gpu_blocks", "block_size")
    )
    tokens = _number(cache_config.get("kv_cache_size_tokens"))
    if tokens is None and blocks is not None and size is not None:
        tokens = blocks * size
    source, seqs = "declared", _number(declared.get("max_num_seqs"))
    if seqs is None:
        source, seqs = "engine" if told_seqs is not None else "", told_seqs
    caching = cache_config.get("enable_prefix_caching")
    return Knobs(
        max_num_seqs=seqs,
        seqs_source=source,
        max_num_batched_tokens=declared.get("max_num_batched_tokens"),
        kv_tokens=tokens,
        prefix_caching=None if caching is None else caching == "True",
        kv_dtype=cache_config.get("cache_dtype", ""),
        memory_utilization=_number(cache_config.get("gpu_memory_utilization")),
        blocks_override="num_gpu_blocks_override" in cache_config,
        tensor_parallel=declared.get("tensor_parallel"),
        pipeline_parallel=declared.get("pipeline_parallel"),
    )


def _number(text: str | float | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None

"""Samples of benchmark results: one a class and load point of a configuration."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analyzer.compare.sample import (
    LATENCIES,
    LEVELS,
    CompareError,
    Figure,
    Sample,
    Side,
    figures,
    lengths,
)
from analyzer.sweep.columns import blocks
from analyzer.sweep.curve import Curve
from analyzer.sweep.intervals import Interval, cut
from analyzer.sweep.point import Point
from analyzer.sweep.text import load
from analyzer.sweep.words import named

Key = tuple[str, str, str, str]  # class, configuration, axis, load


def recognises(document: Mapping[str, Any]) -> bool:
    """Whether a document is one that goodput sweep wrote."""
    return "curves" in document and "operating_point" in document


def curves_side(
    name: str, curves: Sequence[Sequence[Curve]], warnings: Iterable[str]
) -> Side:
    """Returns the load points of benchmark results."""
    samples = {}
    for listed in curves:
        for curve in listed:
            slo_class = curve.slo_class.name if curve.slo_class else "none"
            config = named(curve.points[0].pool.config) if len(listed) > 1 else ""
            for point in curve.points:
                key = title((slo_class, config, curve.axis, load(point.load)))
                samples[key] = _sample(point)
    return Side(name, "sweep", samples, tuple(warnings))


def title(key: Key) -> str:
    """Returns the name of a load point."""
    slo_class, config, axis, at = key
    parts = [slo_class, *([config] if config else []), axis.replace("_", " "), at]
    return " ".join(parts)


def _sample(point: Point) -> Sample:
    goodput, requests = point.goodput, point.requests
    workload = {}
    latencies = {
        key: Figure(value)
        for key, value in point.latencies.items()
        if key[0] in LATENCIES and value is not None
    }
    if requests is not None:
        found = {
            "prompt_tokens": lengths(requests.prompt_tokens),
            "output_tokens": lengths(requests.output_tokens[~requests.failed]),
        }
        workload = {name: spread for name, spread in found.items() if spread}
        if point.judgement is not None and point.judgement.taken.all():
            cuts = blocks(requests, point.judgement)
        else:
            parts = list(zip(requests.bounds, requests.bounds[1:], strict=False))
            cuts = cut(
                [requests.e2e[a:b] for a, b in parts],
                [point.load if point.load < b - a else 1.0 for a, b in parts],
            )
        columns = {name: getattr(requests, name) for name in LATENCIES}
        latencies.update(figures(columns, ~requests.failed, cuts))
    share = goodput.attainment if goodput else None
    return Sample(
        requests=point.sent,
        seconds=point.seconds,
        attainment=None
        if share is None
        else Figure(share, goodput.interval if goodput else None),
        latencies=latencies,
        workload=workload,
        concurrency=point.load if point.pool.axis == "concurrency" else None,
        rate=point.load if point.pool.axis == "request_rate" else None,
        throughput=point.throughput,
        blocks=goodput.blocks.number if goodput and goodput.blocks else None,
        reason=goodput.reason if goodput else "",
    )


def document_side(name: str, data: bytes) -> Side:
    """Returns the load points of a sweep's JSON. Raises CompareError."""
    try:
        document = json.loads(data)
        samples = {}
        for row in document.get("classes", [document]):
            several = len(row["curves"]) > 1
            for point in row["points"]:
                axis = "request_rate" if point["request_rate"] else "concurrency"
                value = point[axis]
                at = load(float("inf") if value is None else value)
                config = named(point["config"]) if several else ""
                key = (row["class"] or "none", config, axis, at)
                samples[title(key)] = _told(point)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CompareError(f"{name}: no sweep of goodput: {error!r}") from None
    warning = (
        "a sweep's JSON has no lengths: loads are compared for benchmark files only"
    )
    return Side(name, "sweep", samples, (warning,))


def _told(point: Mapping[str, Any]) -> Sample:
    share, limits = point["attainment"], point["attainment_interval"]
    interval = None if limits is None or share is None else Interval(share, *limits)
    return Sample(
        requests=point["requests"],
        seconds=point["seconds"],
        attainment=None if share is None else Figure(share, interval),
        latencies={
            (latency, level): Figure(value)
            for latency in LATENCIES
            for level in LEVELS
            if (value := point[f"{latency}_{level}_seconds"]) is not None
        },
        concurrency=point["concurrency"],
        rate=point["request_rate"],
        throughput=point["requests_per_second"],
        blocks=point["blocks"],
        reason=point["reason"],
    )

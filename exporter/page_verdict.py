"""The status page's words for verdicts: what binds, since when, and the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from exporter import page_strip
from exporter.page_text import (
    Markup,
    absent,
    clock,
    count,
    escape,
    join,
    name,
    pairs,
    percent,
    seconds,
    tag,
)

Row = dict[str, Any]
STRIPS = 4  # of ranks that share a verdict: they look alike
CALM = ("none", "unknown")
UNREAD = ("down", "stats_disabled")  # faults under which nothing can be counted

GLOSSES = {
    ("memory", "kv_capacity"): "the KV cache runs out of blocks",
    ("memory", "hbm_bandwidth"): "decode is limited by memory bandwidth",
    ("compute", "prefill"): "prefill is limited by arithmetic",
    ("compute", "decode"): "decode is limited by arithmetic",
    ("queueing", "sequence_cap"): "requests wait for a place in the batch",
    ("queueing", "token_budget"): "requests wait for the token budget of a step",
    ("queueing", "deferral"): "the scheduler puts requests off",
    ("queueing", "api_server"): "requests wait before the engine, in its API server",
    ("queueing", "flow_control"): "requests are held back by flow control",
    ("communication", "collectives"): "links between GPUs are the limit",
    ("communication", "kv_transfer"): "KV transfer is the limit",
    ("traffic", "burst"): "the mean load fits, bursts do not",
    ("gateway", "overhead"): "time is spent in the gateway, before the engine",
    ("gateway", "network"): "time is spent in the network, before the engine",
    ("fault", "down"): "the engine does not answer",
    ("fault", "stalled"): "requests are present and nothing moves",
    ("fault", "frozen_gauges"): "the gauges show requests that have gone",
    ("fault", "stats_disabled"): "the engine's statistics are switched off",
    ("fault", "throttled"): "the GPU is throttled by heat or hardware",
    ("none", "headroom"): "nothing binds, there is room",
    ("none", "underbatched"): "nothing binds, batches are small",
    ("none", "idle"): "nothing to do",
    ("unknown", None): "the evidence is not sufficient",
}


def title(window: Row) -> str:
    """Returns family and cause as labels and rules spell them."""
    cause = window["cause"]
    return f"{window['family']} / {cause}" if cause else str(window["family"])


def binding(windows: Iterable[Row]) -> list[str]:
    """Returns in words what binds, faults included, each once."""
    found = []
    for window in windows:
        if window["family"] not in CALM:
            gloss = GLOSSES.get((window["family"], window["cause"]))
            found.append(f"{title(window)}: {gloss}" if gloss else title(window))
    return list(dict.fromkeys(found))


def section(windows: Sequence[Row], at: float) -> Markup:
    """Returns the verdicts in force; ranks under the same verdict share one."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for window in windows:
        key = (
            window["model"],
            window["family"],
            window["cause"],
            *(tuple(window[part]) for part in ("missing", "candidates", "advice")),
        )
        groups.setdefault(key, []).append(window)
    models = {window["model"] for window in windows}
    ranked = len(windows) > len(models)
    return join(
        _verdict(group, at, model=len(models) > 1, ranked=ranked)
        for group in groups.values()
    )


def _verdict(group: Sequence[Row], at: float, *, model: bool, ranked: bool) -> Markup:
    first = group[0]
    gloss = GLOSSES.get((first["family"], first["cause"]))
    since = min(window["start"] for window in group)
    calm = first["family"] in CALM
    parts: list[str] = [
        tag("strong", title(first), class_=None if calm else "warn"),
        f": {gloss}" if gloss else "",
    ]
    if first["family"] != "unknown":
        least = min(window["confidence"] for window in group)
        parts.append(f" · confidence {percent(least)}")
    parts += [" · since ", clock(since), f" ({seconds(max(0.0, at - since))})"]
    if model:
        parts += [" · ", name(first["model"])]
    if ranked:
        ranks = ", ".join(window["rank"] for window in group)
        parts.append(f" · rank{'s' * (len(group) > 1)} {ranks}")
    advice = [tag("p", f"→ {text}") for text in first["advice"]]
    facts = _facts(group, ranked=ranked)
    strips = [page_strip.strip(w, at, ranked=ranked) for w in group[:STRIPS]]
    return tag("div", tag("p", *parts), *advice, facts, *strips, class_="verdict")


def _facts(group: Sequence[Row], *, ranked: bool) -> Markup:
    first = group[0]
    rows: list[tuple[str, Markup]] = []
    evidence = _evidence(group, ranked=ranked)
    if evidence:
        rows.append(("Evidence", evidence))
    if first["missing"]:
        rows.append(("Missing", join(map(name, first["missing"]), ", ")))
    if first["candidates"]:
        rows.append(("Or else", join(map(name, first["candidates"]), ", ")))
    rows += page_strip.outlook(group, ranked=ranked)
    blind = first["family"] == "fault" and first["cause"] in UNREAD
    rates = [
        absent("no engine series was read") if blind else _sum(w[key] for w in group)
        for key in ("requests_per_second", "tokens_per_second")
    ]
    rows.append(
        ("Rate", join([rates[0], " requests/s, ", rates[1], " output tokens/s"]))
    )
    return pairs(rows)


def _sum(values: Iterable[float | None]) -> Markup:
    known = [value for value in values if value is not None]
    if not known:
        return absent("no interval has passed under this verdict yet")
    return escape(count(sum(known), 1))


def _evidence(group: Sequence[Row], *, ranked: bool) -> Markup:
    lines: dict[Markup, list[str]] = {}
    for window in group:
        if window["evidence"]:
            line = join(map(_item, window["evidence"]), ", ")
            lines.setdefault(line, []).append(window["rank"])
    said = [
        join([f"rank {', '.join(ranks)}: ", line])
        if ranked and len(lines) > 1
        else line
        for line, ranks in lines.items()
    ]
    return join(said, "; ")


def _item(item: Row) -> Markup:
    if "=" in item["signal"]:  # a state: its value is always 1
        return join([name(item["signal"]), f" ({item['source']})"])
    threshold = item["threshold"]
    against = "" if threshold is None else f", threshold {_value(item, threshold)}"
    shown = f" {_value(item, item['value'])} ({item['source']}{against})"
    return join([name(item["signal"]), shown])


def _value(item: Row, value: float) -> str:
    signal = item["signal"]
    if signal.endswith(("_usage", "_ratio", "_share")):
        return percent(value)
    if signal.endswith("_seconds"):
        return seconds(value)
    return count(value, 2)

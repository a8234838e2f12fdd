"""What stands beside a verdict: the last hour as a strip, and the outlook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from analyzer.outlook import STRIP_SECONDS
from exporter.page_text import Markup, count, escape, join, percent, seconds, tag

Row = dict[str, Any]
HEIGHT = 14


def strip(window: Row, at: float, *, ranked: bool) -> Markup:
    """Returns the families of a rank over the last hour, nothing without any."""
    stretches = window.get("strip")
    if not stretches:
        return Markup()
    begin = at - STRIP_SECONDS
    held: dict[str, float] = {}
    rects = []
    for start, end, family in stretches:
        held[family] = held.get(family, 0.0) + end - start
        rects.append(
            f'<rect class="{escape(family)}" x="{max(0.0, start - begin):.0f}" '
            f'width="{end - start:.0f}" height="{HEIGHT}"/>'
        )
    total = sum(held.values())
    shares = sorted(held.items(), key=lambda item: -item[1])
    said = ", ".join(f"{family} {percent(part / total)}" for family, part in shares)
    rank = f" of rank {window['rank']}" if ranked else ""
    label = escape(f"Last hour{rank}: {said}")
    picture = Markup(
        f'<svg class="strip" viewBox="0 0 {STRIP_SECONDS:.0f} {HEIGHT}" '
        f'preserveAspectRatio="none" role="img" aria-label="{label}">'
        f"{''.join(rects)}</svg>"
    )
    return join([picture, tag("p", Markup(label), class_="soft small")])


def outlook(group: Sequence[Row], *, ranked: bool) -> list[tuple[str, Markup]]:
    """Returns what is known beside the verdicts of *group*, by title."""
    rows = []
    filling = [w for w in group if w.get("kv_cache_exhaustion_seconds") is not None]
    if filling:
        rows.append(
            (
                "KV cache",
                _each(filling, "full in {}", "kv_cache_exhaustion_seconds", ranked),
            )
        )
    bursty = [w for w in group if (w.get("arrival_dispersion_index") or 0.0) >= 2.0]
    if bursty:
        said = _each(bursty, "dispersion {}", "arrival_dispersion_index", ranked)
        rows.append(("Arrivals", said))
    thrash = [w for w in group if w.get("preemptions_per_second")]
    if thrash:
        said = _each(thrash, "{} a second", "preemptions_per_second", ranked)
        rows.append(("Preemptions", said))
    return rows


def _each(
    windows: Iterable[Row],
    form: str,
    key: str,
    ranked: bool,  # noqa: FBT001
) -> Markup:
    parts = []
    for window in windows:
        show = seconds if key.endswith("_seconds") else _plain
        text = form.format(show(window[key]))
        if key == "kv_cache_exhaustion_seconds":
            text += f" ({window['kv_cache_filled_by']})"
        parts.append(f"rank {window['rank']}: {text}" if ranked else text)
    return join([escape(part) for part in parts], "; ")


def _plain(value: float) -> str:
    return count(value, 2)

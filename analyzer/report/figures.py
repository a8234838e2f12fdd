"""Figures as people read them: shares, amounts, latencies, times, and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

TOKENS = ("prompt_tokens", "output_tokens")


def moment(seconds: float | None) -> str:
    """Returns a Unix time as a stamp in UTC."""
    if seconds is None:
        return "—"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def share(value: float | None) -> str:
    """Returns a share in percent; what rounds to all or nothing and is not, says so."""
    if value is None:
        return "—"
    text = f"{value:.2%}"
    if value < 1 and text == "100.00%":
        return ">99.99%"
    return "<0.01%" if value > 0 and text == "0.00%" else text


def amount(value: float | None) -> str:
    """Returns a count with separators, or three digits of a figure."""
    if value is None:
        return "—"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def latency(value: float | None) -> str:
    """Returns seconds as milliseconds or seconds, three digits."""
    if value is None:
        return "—"
    if value < 1:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.3g} s" if value < 1000 else f"{value:,.0f} s"


def span(seconds: float | None) -> str:
    """Returns a length of time in its two greatest units."""
    if seconds is None:
        return "—"
    if seconds < 60:
        return f"{seconds:.3g} s"
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    left = round(seconds)
    found = []
    for name, size in units:
        if left >= size:
            found.append(f"{left // size} {name}")
            left %= size
    return " ".join(found[:2])


def measured(measure: str, value: float | None) -> str:
    """Returns a value of a measure with its unit."""
    return amount(value) if measure in TOKENS else latency(value)


def grid(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields a table whose first columns are names and the others figures."""
    table = [heads, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(heads))]
    for row in table:
        yield "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()

"""Plots as inline SVG, drawn with the colours of the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

WIDTH, HEIGHT = 960, 220
LABEL = 56  # width of one below an axis
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 28
SPANS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600)
DAY = 86400
Show = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Layer:
    """One part of stacked bars: its name, its style, and a height for each bar."""

    name: str
    style: str
    heights: Sequence[float]


@dataclass(frozen=True, slots=True)
class Frame:
    """The axes of a plot: what the edges of its area mean."""

    left: float
    right: float
    top: float
    bottom: float = 0.0

    def x(self, value: float) -> float:
        """Returns the place of a value on the horizontal axis."""
        share = (value - self.left) / ((self.right - self.left) or 1.0)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Returns the place of a value on the vertical axis."""
        share = (value - self.bottom) / ((self.top - self.bottom) or 1.0)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def stacked(
    starts: Sequence[float],
    width: float,
    layers: Sequence[Layer],
    *,
    what: str,
    show: Show,
) -> str:
    """Returns bars over time; each is *width* seconds wide and has all layers."""
    sums = [sum(layer.heights[i] for layer in layers) for i in range(len(starts))]
    frame = Frame(min(starts), max(starts) + width, _round_up(max(sums, default=0.0)))
    parts = [*_time_axis(frame), *_value_axis(frame, show)]
    gap = 1.0 if frame.x(starts[0] + width) - frame.x(starts[0]) > 4 else 0.0
    for i, start in enumerate(starts):
        base = 0.0
        left, right = frame.x(start), frame.x(start + width)
        bars = []
        for layer in layers:
            height = layer.heights[i]
            if height:
                top, bottom = frame.y(base + height), frame.y(base)
                bars.append(
                    f'<rect class="{layer.style}" x="{left:.1f}" y="{top:.1f}" '
                    f'width="{max(right - left - gap, 0.5):.1f}" '
                    f'height="{bottom - top:.1f}"/>'
                )
                base += height
        told = ", ".join(f"{layer.name} {show(layer.heights[i])}" for layer in layers)
        title = f"<title>{escape(stamp(start))} UTC: {escape(told)}</title>"
        parts.append(f"<g>{title}{''.join(bars)}</g>")
    return picture(parts, what)


def line(
    points: Sequence[tuple[float, float]],
    *,
    what: str,
    show: Show,
    mark: float | None = None,
    frame: Frame,
    width: float,
) -> str:
    """Returns values over time as steps of *width* seconds, gaps left open.

    *mark* is a level to be reached, drawn across.
    """
    parts = [*_time_axis(frame), *_value_axis(frame, show)]
    if mark is not None:
        y = frame.y(mark)
        parts.append(
            f'<line class="mark" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" '
            f'y2="{y:.1f}"><title>objective {escape(show(mark))}</title></line>'
        )
    path, last = [], None
    for start, value in points:
        joined = last is not None and start - last <= width * 1.01
        x, y = frame.x(start), frame.y(value)
        path.append(f"{'L' if joined else 'M'}{x:.1f} {y:.1f}")
        path.append(f"H{frame.x(start + width):.1f}")
        last = start
    parts.append(f'<path class="line" d="{"".join(path)}"/>')
    parts += [
        f'<rect class="hit" x="{frame.x(start):.1f}" y="{TOP}" '
        f'width="{frame.x(start + width) - frame.x(start):.1f}" '
        f'height="{HEIGHT - TOP - BOTTOM}"><title>{escape(stamp(start))} UTC: '
        f"{escape(show(value))}</title></rect>"
        for start, value in points
    ]
    return picture(parts, what)


def strips(
    segments: Sequence[tuple[float, float, str, str]],
    begin: float,
    end: float,
    *,
    what: str,
) -> str:
    """Returns stretches of time on one strip: start, end, style and name of each."""
    frame = Frame(begin, end, 1.0)
    height = 28
    parts = [*_time_axis(frame, bottom=TOP + height)]
    for start, stop, style, name in segments:
        left, right = frame.x(max(start, begin)), frame.x(min(stop, end))
        if right > left:
            parts.append(
                f'<rect class="{style}" x="{left:.1f}" y="{TOP}" '
                f'width="{max(right - left, 0.7):.1f}" height="{height}"><title>'
                f"{escape(stamp(start))} to {escape(stamp(stop))} UTC: {escape(name)}"
                "</title></rect>"
            )
    return picture(parts, what, height=TOP + height + BOTTOM)


def ranges(
    rows: Sequence[tuple[str, float, float, str]], *, what: str, show: Show
) -> str:
    """Returns for each name two values on a logarithmic axis: usual and high."""
    values = [v for _, low, high, _ in rows for v in (low, high) if v > 0]
    if not values:
        return ""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    frame = Frame(low, max(high, low + 1), 1.0)
    step, height = 26, TOP + 26 * len(rows) + BOTTOM
    bottom = height - BOTTOM
    parts = []
    for power in range(low, int(frame.right) + 1):
        x = frame.x(power)
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>'
            f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="{_anchor(x)}">'
            f"{escape(show(10.0**power))}</text>"
        )
    for i, (name, usual, far, told) in enumerate(rows):
        y = TOP + step * i + step / 2
        a, b = (frame.x(math.log10(v)) if v > 0 else LEFT for v in (usual, far))
        parts.append(
            f"<g><title>{escape(told)}</title>"
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{escape(name)}</text>"
            f'<rect class="hit" x="{LEFT}" y="{y - 12:.1f}" '
            f'width="{WIDTH - LEFT - RIGHT}" height="24"/>'
            f'<line class="range" x1="{a:.1f}" x2="{b:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<circle class="usual" cx="{a:.1f}" cy="{y:.1f}" r="5"/>'
            f'<circle class="far" cx="{b:.1f}" cy="{y:.1f}" r="5"/></g>'
        )
    return picture(parts, what, height=height)


def overlay(
    curve: Sequence[tuple[float, float]],
    dots: Sequence[tuple[float, float, str]],
    *,
    what: str,
    show: Show,
) -> str:
    """Returns a curve of shares over a load, and single points with what they tell."""
    loads = [x for x, _ in curve] + [x for x, _, _ in dots]
    frame = Frame(0.0, _round_up(max(loads, default=1.0)), 1.0)
    parts = _value_axis(frame, lambda v: f"{v:.0%}")
    for i in range(5):
        x = frame.x(frame.right * i / 4)
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" '
            f'text-anchor="{_anchor(x)}">'
            f"{escape(show(frame.right * i / 4))}</text>"
        )
    path = "L".join(f"{frame.x(x):.1f} {frame.y(y):.1f}" for x, y in curve)
    if path:
        parts.append(f'<path class="line" d="M{path}"/>')
    parts += (
        f'<circle class="far" cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="3.5">'
        f"<title>{escape(told)}</title></circle>"
        for x, y, told in dots
    )
    return picture(parts, what)


def picture(parts: Sequence[str], what: str, *, height: float = HEIGHT) -> str:
    """Returns an SVG element; *what* says in words what it shows."""
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(what, quote=True)}">{"".join(parts)}</svg>'
    )


def stamp(seconds: float) -> str:
    """Returns a Unix time as a stamp in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _round_up(value: float) -> float:
    """Returns the next number of the series 1, 2, 5, 10 from *value* on."""
    if value <= 0:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(value))
    return next(m * scale for m in (1, 2, 2.5, 5, 10) if m * scale >= value * 0.999)


def _value_axis(frame: Frame, show: Show) -> list[str]:
    parts = []
    for i in range(5):
        value = frame.bottom + (frame.top - frame.bottom) * i / 4
        y = frame.y(value)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" '
            f'y2="{y:.1f}"/><text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{escape(show(value))}</text>"
        )
    return parts


def _anchor(x: float) -> str:
    """Returns where a label at *x* has its place, so that none leaves the picture."""
    return "end" if x > WIDTH - RIGHT - LABEL / 2 else "middle"


def _time_axis(frame: Frame, *, bottom: float = HEIGHT - BOTTOM) -> list[str]:
    """Returns about eight times along the bottom, at round moments."""
    seconds = frame.right - frame.left
    wanted = seconds / 8
    days = max(1, math.ceil(wanted / DAY))
    step = next((s for s in SPANS if s >= wanted), days * DAY)
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < DAY else "%b %-d"
    parts = []
    moment = math.ceil(frame.left / step) * step
    while moment <= frame.right:
        at = datetime.fromtimestamp(moment, UTC)
        text = at.strftime(form)
        if step < DAY and not moment % DAY:
            text = at.strftime("%b %-d")
        x = frame.x(moment)
        parts.append(
            f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" '
            f'y2="{bottom + 4}"/><text x="{x:.1f}" y="{bottom + 18}" '
            f'text-anchor="{_anchor(x)}">{text}</text>'
        )
        moment += step
    return parts

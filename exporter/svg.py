"""Small pictures of the status page: a sparkline with its gaps, an attainment bar."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median

from exporter.page_text import Markup, escape, percent, tag

Trail = Sequence[tuple[float, float]]

SPARK_SECONDS = 600.0
SHORTEST_GAP_SECONDS = 15.0
GAP_SPACINGS = 2.5
HEIGHT = 100


def usable(trail: Trail, at: float) -> list[tuple[float, float]]:
    """Returns the points of the last ten minutes, as (seconds from the left, value)."""
    begin = at - SPARK_SECONDS
    return [
        (min(when - begin, SPARK_SECONDS), value)
        for when, value in trail
        if when >= begin and math.isfinite(value)
    ]


def top_of(trails: Sequence[Trail], at: float) -> float:
    """Returns the common end of the y axis of several sparklines: their maximum."""
    found = [value for trail in trails for _, value in usable(trail, at)]
    return max(found, default=0.0) or 1.0


def pieces(points: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Returns the stretches without a gap.

    A gap is a distance of more than 2.5 times the usual one, and of at least 15 s.
    """
    found: list[list[tuple[float, float]]] = []
    limit = longest_step(points)
    for point in points:
        if found and point[0] - found[-1][-1][0] <= limit:
            found[-1].append(point)
        else:
            found.append([point])
    return found


def longest_step(points: Sequence[tuple[float, float]]) -> float:
    """Returns the seconds between points beyond which there is a gap."""
    steps = [b[0] - a[0] for a, b in pairwise(points)]
    usual = median(steps) if steps else 0.0
    return max(SHORTEST_GAP_SECONDS, GAP_SPACINGS * usual)


def sparkline(
    trail: Trail, *, at: float, top: float, what: str, show: Callable[[float], str]
) -> Markup:
    """Returns the last ten minutes as a picture, from 0 to *top*.

    The x axis always ends at *at*. Gaps in the data are shaded, what lies before the
    first point is not, and a lone point is a dot. *what* names the signal in the
    text for screen readers, *show* prints its values.
    """
    points = usable(trail, at)
    stretches = pieces(points)
    limit = longest_step(points)
    lines: list[str] = []
    holes: list[tuple[float, float]] = []
    for before, stretch in zip([None, *stretches], stretches, strict=False):
        if before is not None:
            holes.append((before[-1][0], stretch[0][0]))
        lines.append(_path(stretch, top))
    if points and SPARK_SECONDS - points[-1][0] > limit:
        holes.append((points[-1][0], SPARK_SECONDS))
    label = f"{what}, last 10 minutes: "
    if points:
        highest = max(value for _, value in points)
        label += f"highest {show(highest)} on a scale from 0 to {show(top)}"
        label += f", {len(holes)} gap{'s' * (len(holes) > 1)}" if holes else ""
    else:
        label += "no data"
    shade = "".join(
        f'<rect x="{begin:.0f}" width="{end - begin:.0f}" height="{HEIGHT}"/>'
        for begin, end in holes
    )
    return Markup(
        f'<svg class="spark" viewBox="0 0 {SPARK_SECONDS:.0f} {HEIGHT}" '
        f'preserveAspectRatio="none" role="img" aria-label="{escape(label)}">'
        f'{shade}<path d="{"".join(lines)}"/></svg>'
    )


def _path(stretch: Sequence[tuple[float, float]], top: float) -> str:
    """Returns a line in whole units, level runs as one step."""
    places = [
        (round(x), round(HEIGHT * (1 - min(max(value / top, 0.0), 1.0))))
        for x, value in stretch
    ]
    x, y = places[0]
    path = [f"M{x} {y}"]
    level = 0
    for next_x, next_y in places[1:]:
        if next_y == y:
            level += next_x - x
        else:
            path.extend([f"h{level}"] if level else [])
            level = 0
            path.append(f"l{next_x - x} {next_y - y}")
        x, y = next_x, next_y
    if level or len(path) == 1:
        path.append(f"h{level}")  # a line of no length is a dot with round ends
    return "".join(path)


def bar(lower: float, upper: float, objective: float) -> Markup:
    """Returns attainment from 0 to 100 %: certain, possible, and the objective."""
    good = f"certainly good {percent(lower)}, possibly good {percent(upper)}"
    if lower == upper:
        good = f"good {percent(lower)}"
    label = f"{good}, objective {percent(objective)}"
    mark = f"{100 * objective:.3f}%"
    text_end = "end" if objective > 0.5 else "start"
    return tag(
        "svg",
        tag("rect", class_="track", y="12", width="100%", height="12"),
        tag(
            "rect",
            class_="possible",
            x=f"{100 * lower:.3f}%",
            y="12",
            width=f"{100 * max(upper - lower, 0.0):.3f}%",
            height="12",
        ),
        tag("rect", class_="certain", y="12", width=f"{100 * lower:.3f}%", height="12"),
        tag("line", class_="mark", x1=mark, x2=mark, y1="4", y2="32"),
        tag(
            "line",
            class_="edge",
            x1=f"{100 * upper:.3f}%",
            x2=f"{100 * upper:.3f}%",
            y1="9",
            y2="27",
        ),
        tag(
            "text",
            f"objective {percent(objective)}",
            x=mark,
            y="43",
            text_anchor=text_end,
        ),
        class_="bar",
        role="img",
        aria_label=label,
    )

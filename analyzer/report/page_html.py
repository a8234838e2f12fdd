"""Pieces of the report's page: tables, marks and legends, with all text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Cells = Sequence[Sequence[str]]


class Markup(str):
    """Text that is HTML already; all other text is escaped."""

    __slots__ = ()


def table(
    heads: Sequence[str], rows: Cells, *, names: int = 1, caption: str = ""
) -> str:
    """Returns a table of text; the first columns are names, the others figures."""
    above = "".join(
        f'<th scope="col"{_figure(i, names)}>{escape(head)}</th>'
        for i, head in enumerate(heads)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_figure(i, names)}>{_cell(cell)}</td>" for i, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    told = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll"><table>{told}<thead><tr>{above}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(text: str) -> str:
    return text if isinstance(text, Markup) else escape(text)


def _figure(column: int, names: int) -> str:
    return ' class="n"' if column >= names else ""


def mark(text: str, *, bad: bool | None) -> Markup:
    """Returns a verdict with a sign, so that colour is not all that tells it."""
    if bad is None:
        return Markup(escape(text))
    style, sign = ("bad", "✗") if bad else ("good-text", "✓")
    return Markup(f'<span class="{style}">{sign} {escape(text)}</span>')


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Returns a list of names with the style of each."""
    items = "".join(
        f'<li><svg viewBox="0 0 12 12"><rect class="{style}" width="12" height="12"/>'
        f"</svg>{escape(name)}</li>"
        for name, style in entries
    )
    return f'<ul class="legend">{items}</ul>'

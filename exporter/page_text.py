"""Text of the status page: escaping by construction, and numbers for people.

Everything that is not `Markup` is escaped, so text from engines, logs and URLs can
reach the page in one way only.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from html import escape as escape_html
from typing import TypeVar

NNBSP = "\u202f"  # narrow no-break space: between thousands and before a unit
DASH = "—"
NAME_CHARACTERS = 80
TEXT_CHARACTERS = 1000
MAX_DECIMALS = 5
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
T = TypeVar("T")
_VOID = frozenset({"meta", "link", "br"})


class Markup(str):
    """Text that is HTML already: it is not escaped again."""

    __slots__ = ()


def visible(text: str) -> str:
    """Returns *text* with invisible characters (controls, bidi marks) spelled out."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if unicodedata.category(char) not in _INVISIBLE else ascii(char).strip("'")
        for char in text
    )


def clip(text: str, characters: int = TEXT_CHARACTERS) -> str:
    """Returns *text*, cut to at most *characters* with an ellipsis."""
    return text if len(text) <= characters else text[: characters - 1] + "…"


def escape(text: str) -> Markup:
    """Returns *text* as HTML, for elements and attributes alike."""
    if isinstance(text, Markup):
        return text
    return Markup(escape_html(visible(clip(text))))


def join(parts: Iterable[str], separator: str = "") -> Markup:
    """Returns the parts, escaped unless they are markup, one after the other."""
    return Markup(escape(separator).join(map(escape, parts)))


def tag(element: str, /, *children: str, **attributes: str | None) -> Markup:
    """Returns an element; attributes that are None are left out.

    A trailing underscore of an attribute is dropped (`class_`), others are hyphens;
    an empty value makes a bare attribute (`open`).
    """
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}"
        + (f'="{escape(value)}"' if value else "")
        for key, value in attributes.items()
        if value is not None
    )
    if element in _VOID:
        return Markup(f"<{element}{given}>")
    return Markup(f"<{element}{given}>{join(children)}</{element}>")


def name(text: str) -> Markup:
    """Returns a name from outside: isolated from its neighbours, cut when long."""
    if not text:
        return absent("it has no name")
    short = clip(text, NAME_CHARACTERS)
    return tag("bdi", short, title=text if short != text else None)


def absent(why: str) -> Markup:
    """Returns a dash that says why there is no value."""
    return tag("abbr", DASH, class_="absent", title=why or "not known")


def table(
    heads: Sequence[str],
    rows: Iterable[Markup],
    *,
    numeric: Collection[str] = (),
    caption: str = "",
    class_: str | None = None,
    label: str | None = None,
) -> Markup:
    """Returns a table; the heads of *numeric* columns stand on the right.

    Roles are spelled out, since narrow screens lay the rows out as blocks, and
    browsers then forget that they are a table's.
    """
    columns = [
        tag(
            "th",
            head,
            scope="col",
            role="columnheader",
            class_="n" if head in numeric else None,
        )
        for head in heads
    ]
    return tag(
        "table",
        tag("caption", caption) if caption else "",
        tag("thead", tag("tr", *columns, role="row"), role="rowgroup"),
        tag("tbody", *rows, role="rowgroup"),
        class_=class_,
        role="table",
        aria_label=label,
    )


def pairs(facts: Iterable[tuple[str, str]]) -> Markup:
    """Returns a list of terms and what is to be said of each."""
    items = [
        part for term, text in facts for part in (tag("dt", term), tag("dd", text))
    ]
    return tag("dl", *items, class_="facts")


def within(
    things: Sequence[T], show: Callable[[T], Markup], limit: int
) -> tuple[list[Markup], int]:
    """Returns the things that fit in *limit* bytes as shown, and how many do not."""
    kept: list[Markup] = []
    size = 0
    for thing in things:
        part = show(thing)
        size += len(part.encode())
        if size > limit:
            break
        kept.append(part)
    return kept, len(things) - len(kept)


def left_out(number: int, what: str) -> Markup:
    """Returns a line that says how many things had no place, nothing when all had."""
    if not number:
        return Markup()
    told = (
        f"{count(number)} {what}{'s' * (number > 1)} left out to keep this page small"
    )
    return tag("p", f"{told}; /api/v1/status has all.", class_="soft")


def count(value: float, decimals: int = 0) -> str:
    """Returns a number with thin separators; decimals only when it has some."""
    if not math.isfinite(value):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    rounded = round(value, decimals)
    places = 0 if rounded == int(rounded) else decimals
    return f"{rounded:,.{places}f}".replace(",", NNBSP)


def percent(ratio: float, *, beside: Iterable[float] = ()) -> str:
    """Returns *ratio* in percent, with as many decimals as it takes.

    It never reads the same as 0, 100 or another number *beside* it (an objective)
    unless it is the same.
    """
    if not math.isfinite(ratio):
        return count(ratio)
    others = [other for other in (0.0, 1.0, *beside) if other != ratio]
    text = ""
    for decimals in range(1, MAX_DECIMALS + 1):
        text = _fixed(ratio, decimals)
        if all(text != _fixed(other, decimals) for other in others):
            return f"{text}{NNBSP}%"
    alike = next(o for o in others if text == _fixed(o, MAX_DECIMALS))
    return f"{'<' if ratio < alike else '>'}{text}{NNBSP}%"


def _fixed(ratio: float, decimals: int) -> str:
    text = f"{100 * ratio:.{decimals}f}"
    return text.rstrip("0").rstrip(".")


def seconds(value: float) -> str:
    """Returns a duration to about three digits: 350 µs, 13 ms, 1.2 s, 2 h 5 min."""
    if not math.isfinite(value):
        return f"{count(value)}{NNBSP}s"
    if value <= 0:
        return f"-{seconds(-value)}" if value else f"0{NNBSP}s"
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (60.0, 1.0, "s")):
        shown = value * factor
        if value < limit and float(f"{shown:.3g}") < limit * factor:
            return f"{float(f'{shown:.3g}'):g}{NNBSP}{unit}"
    whole = round(value)
    for size, unit, smaller, least in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller
            tail = f"{NNBSP}{rest}{NNBSP}{least}" if rest else ""
            return f"{whole // size}{NNBSP}{unit}{tail}"
    return f"{whole}{NNBSP}s"


def duration(value: float) -> str:
    """Returns a configured duration with all its digits, unlike a measured one."""
    if 1.0 <= value < 60.0:
        return f"{value:.6g}{NNBSP}s"
    if 1e-3 <= value < 1.0:
        return f"{value * 1e3:.6g}{NNBSP}ms"
    return seconds(value)


def threshold(value: float, per_prompt_token: float) -> str:
    """Returns a criterion's threshold, with the part that grows with the prompt."""
    text = duration(value)
    if per_prompt_token:
        text += f" + {duration(per_prompt_token)} per prompt token"
    return text


def plural(number: float, what: str) -> str:
    """Returns a number of things: 1 gap, 2 gaps."""
    return f"{count(number)} {what}{'s' * (number != 1)}"


def series(words: Sequence[str], last: str = "and") -> str:
    """Returns words as a list in a sentence: a, b and c."""
    head, tail = ", ".join(words[:-1]), words[-1] if words else ""
    return f"{head} {last} {tail}" if head else tail


def size(value: float) -> str:
    """Returns a number of bytes: 0 B, 999 B, 1.2 kB, 3.4 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5 or unit == "GB":
            break
        value /= 1000
    return f"{float(f'{value:.3g}'):g}{NNBSP}{unit}"


def about(value: float) -> str:
    """Returns a duration in whole minutes when it is within 5 % of them."""
    minutes = round(value / 60)
    if minutes and abs(value - 60 * minutes) <= 0.05 * value:
        return seconds(60.0 * minutes)
    return seconds(float(round(value)) if value >= 1 else value)


def clock(at: float | None) -> Markup:
    """Returns a time of day in UTC; its date and the exact stamp as attributes."""
    moment = _moment(at)
    if moment is None:
        return absent("no time known")
    return tag(
        "time",
        f"{moment:%H:%M:%S} UTC",
        datetime=f"{moment:%Y-%m-%dT%H:%M:%SZ}",
        title=f"{moment:%Y-%m-%d %H:%M:%S} UTC",
    )


def date(at: float) -> Markup:
    """Returns a date and time in UTC."""
    moment = _moment(at)
    if moment is None:
        return absent("no time known")
    shown = f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    return tag("time", shown, datetime=f"{moment:%Y-%m-%dT%H:%M:%SZ}")


def _moment(at: float | None) -> datetime | None:
    try:
        return None if at is None else datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):
        return None

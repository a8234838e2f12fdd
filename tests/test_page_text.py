"""The status page's numbers, escapes and small pictures."""

from __future__ import annotations

import math
import re
from functools import partial

import pytest

from exporter import svg
from exporter.page_text import (
    NNBSP,
    Markup,
    about,
    clock,
    count,
    escape,
    join,
    name,
    percent,
    plural,
    seconds,
    series,
    size,
    tag,
    threshold,
)

AT = 1_800_000_000.0


def plain(text: str) -> str:
    """Returns *text* with the thin spaces made plain."""
    return text.replace(NNBSP, " ")


@pytest.mark.parametrize(
    ("ratio", "beside", "text"),
    [
        (0.0, [], "0 %"),
        (1.0, [], "100 %"),
        (0.5, [], "50 %"),
        (0.8216, [], "82.2 %"),
        (0.9996, [], "99.96 %"),
        (0.9999999, [], "99.99999 %"),
        (0.999999999, [], "<100 %"),
        (0.0004, [], "0.04 %"),
        (1e-12, [], ">0 %"),
        (0.94996, [0.95], "94.996 %"),
        (0.95, [0.95], "95 %"),
        (0.95000000001, [0.95], ">95 %"),
        (1.7, [], "170 %"),
        (math.nan, [], "NaN"),
    ],
)
def test_a_percentage_never_reads_as_another(
    ratio: float, beside: list[float], text: str
) -> None:
    """Decimals grow until it differs from 0, from 100 and from the objective."""
    assert plain(percent(ratio, beside=beside)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (0.00035, "350 µs"),
        (0.0131, "13.1 ms"),
        (0.9996, "1 s"),
        (1.234, "1.23 s"),
        (59.96, "1 min"),
        (118.0, "1 min 58 s"),
        (3600.0, "1 h"),
        (7500.0, "2 h 5 min"),
        (90_000.0, "1 d 1 h"),
        (-1.5, "-1.5 s"),
        (math.inf, "+Inf s"),
    ],
)
def test_durations_are_for_people(value: float, text: str) -> None:
    """About three digits, in the unit that fits."""
    assert plain(seconds(value)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(300.0, "5 min"), (308.0, "5 min"), (98.0, "1 min 38 s"), (20.0, "20 s")],
)
def test_windows_are_rounded_to_minutes_only_when_close(
    value: float, text: str
) -> None:
    """A window of 5 min 8 s is 5 minutes, one of 1 min 38 s is not 2."""
    assert plain(about(value)) == text


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (44289.0, 0, "44 289"),
        (12.0, 1, "12"),
        (1.25, 1, "1.2"),
        (1e6, 0, "1 000 000"),
        (math.nan, 0, "NaN"),
        (math.inf, 1, "+Inf"),
    ],
)
def test_counts_have_thin_separators(value: float, decimals: int, text: str) -> None:
    """Thousands are apart, and whole numbers have no decimals."""
    assert plain(count(value, decimals)) == text


def test_everything_but_markup_is_escaped() -> None:
    """Children, attributes and joined parts alike; markup is left as it is."""
    inner = tag("b", "<&>")
    assert inner == "<b>&lt;&amp;&gt;</b>"
    assert tag("i", inner, title="\"'<") == f'<i title="&quot;&#x27;&lt;">{inner}</i>'
    assert join(["<", inner], "&") == f"&lt;&amp;{inner}"
    assert isinstance(join([]), Markup)


def test_invisible_characters_are_spelled_out() -> None:
    """Controls, bidi marks, lone surrogates and separators cannot hide or reorder."""
    assert escape("a\x00\u202e\u2066\ud800\u2028\u200bb") == (
        r"a\x00\u202e\u2066\ud800\u2028\u200bb"
    )
    assert escape("größe 模型 שלום") == "größe 模型 שלום"


def test_a_name_is_isolated_and_cut() -> None:
    """A long name ends in an ellipsis and has more of it in its title."""
    assert name("m") == "<bdi>m</bdi>"
    long = name("x" * 3000)
    assert len(long) < 1200
    assert "x…</bdi>" in long
    assert "—" in name("")


def test_a_time_is_in_utc_and_need_not_exist() -> None:
    """A time beyond the calendar or none at all is a dash."""
    assert ">08:00:00 UTC<" in clock(AT)
    for unknown in (None, math.nan, 1e300):
        assert "—" in clock(unknown)


def picture(trail: list[tuple[float, float]], *, top: float = 10.0) -> str:
    """Returns the sparkline of a trail."""
    show = partial(count, decimals=0)
    return svg.sparkline(trail, at=AT, top=top, what="Waiting", show=show)


def path_of(shown: str) -> str:
    """Returns the line of a sparkline."""
    found = re.search(r'<path d="([^"]*)"', shown)
    assert found is not None
    return found[1]


def test_a_sparkline_without_points_says_no_data() -> None:
    """No line is drawn at 0."""
    shown = picture([])
    assert path_of(shown) == ""
    assert "<rect" not in shown
    assert 'aria-label="Waiting, last 10 minutes: no data"' in shown


def test_a_sparkline_of_one_point_is_a_dot() -> None:
    """A line of no length at the point's place."""
    shown = picture([(AT - 5.0, 5.0)])
    assert path_of(shown) == "M595 50h0"
    assert "<rect" not in shown
    assert "highest 5 on a scale from 0 to 10" in shown


def test_a_sparkline_without_gaps_is_one_line() -> None:
    """Level runs are one step; the scale is cut at its ends."""
    values = [0.0, 0.0, 0.0, 10.0, 99.0, -1.0]
    trail = [(AT - 30.0 + 5.0 * n, value) for n, value in enumerate(values)]
    assert path_of(picture(trail)) == "M570 100h10l5 -100h5l5 100"


def test_a_gap_breaks_the_sparkline_and_is_shaded() -> None:
    """Both sides are lines of their own, and nothing is drawn between them."""
    trail = [(AT - 100.0, 1.0), (AT - 95.0, 1.0), (AT - 10.0, 2.0), (AT - 5.0, 2.0)]
    shown = picture(trail)
    assert path_of(shown) == "M500 90h5M590 80h5"
    assert '<rect x="505" width="85" height="100"/>' in shown
    assert "1 gap" in shown


def test_an_outage_that_lasts_is_shaded_to_the_right_edge() -> None:
    """The time axis ends now, not at the last point."""
    shown = picture([(AT - 200.0, 1.0), (AT - 195.0, 1.0)])
    assert '<rect x="405" width="195" height="100"/>' in shown


def test_slow_sampling_is_no_gap() -> None:
    """A distance is a gap only when it is far from the usual one."""
    trail = [(AT - 60.0 * n, 1.0) for n in range(9, -1, -1)]
    shown = picture(trail)
    assert path_of(shown).count("M") == 1
    assert "<rect" not in shown


def test_old_points_and_values_that_are_no_numbers_are_left_out() -> None:
    """Ten minutes are shown, and NaN is no data."""
    trail = [(AT - 700.0, 9.0), (AT - 10.0, 1.0), (AT - 5.0, math.nan)]
    assert path_of(picture(trail)) == "M590 90h0"
    assert svg.top_of([trail, []], AT) == 1.0
    assert svg.top_of([], AT) == 1.0


def test_the_bar_names_both_bounds_and_the_objective() -> None:
    """The certain part ends at the lower bound, the possible one at the upper."""
    shown = svg.bar(0.25, 0.75, 0.95)
    label = plain(shown).partition('aria-label="')[2].partition('"')[0]
    assert label == "certainly good 25 %, possibly good 75 %, objective 95 %"
    assert re.search(r'class="certain"[^>]*width="25.000%"', shown)
    assert re.search(r'class="possible" x="25.000%"[^>]*width="50.000%"', shown)
    assert 'x1="95.000%"' in shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.9, "1 kB"),
        (12_345, "12.3 kB"),
        (999_499, "999 kB"),
        (999_600, "1 MB"),
        (5e9, "5 GB"),
        (5e13, "50000 GB"),
    ],
)
def test_sizes_have_a_unit_that_fits(value: float, text: str) -> None:
    """Bytes in steps of a thousand, to three digits."""
    assert plain(size(value)) == text


def test_words_in_sentences() -> None:
    """Lists end with a word before the last, and one thing is not many."""
    assert [series(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
    assert series(["a", "b"], "or") == "a or b"
    assert plural(1, "gap") == "1 gap"
    assert plural(0, "gap") == "0 gaps"


def test_a_threshold_keeps_all_its_digits() -> None:
    """Configured durations are not rounded as measured ones are."""
    assert plain(threshold(1.2345, 0.0)) == "1.2345 s"
    assert plain(threshold(0.3, 0.0002)) == "300 ms + 200 µs per prompt token"


def test_a_bar_without_doubt_names_one_share() -> None:
    """Where nothing is unknown, the picture's label has no bounds either."""
    label = re.search('aria-label="([^"]*)"', svg.bar(0.5, 0.5, 0.95))
    assert label
    assert plain(label[1]) == "good 50 %, objective 95 %"

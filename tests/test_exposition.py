"""The parser's grammar, its damage report and its memory."""

from __future__ import annotations

import math

import pytest
from parsed_twice import first_and_again

from analyzer.exposition import (
    MAX_ERRORS_KEPT,
    MAX_LINE_CHARACTERS,
    MAX_UNKNOWN_CHARACTERS,
    LineError,
    Parser,
    Sample,
    parse_text,
)

PAGE = """\
# HELP requests_total Requests, by "code" {and} path.
# TYPE requests_total counter
requests_total{code="200",path="/v1/chat"} 12.0
requests_total{code="500",path="/v1/chat"} 3.0

# TYPE up gauge
up 1.0
latency_seconds_bucket{le="0.5",model="m"} 7.0
latency_seconds_bucket{le="+Inf",model="m"} 9.0
"""
PAGE_SAMPLES = [
    Sample("requests_total", {"code": "200", "path": "/v1/chat"}, 12.0),
    Sample("requests_total", {"code": "500", "path": "/v1/chat"}, 3.0),
    Sample("up", {}, 1.0),
    Sample("latency_seconds_bucket", {"le": "0.5", "model": "m"}, 7.0),
    Sample("latency_seconds_bucket", {"le": "+Inf", "model": "m"}, 9.0),
]


def read(line: str) -> Sample:
    """Returns the only sample of *line*, the same at first sight, again and in rows."""
    first, again = first_and_again(line)
    assert first.errors == again.errors == ()
    assert list(first.samples()) == list(again.samples()) == parse_text(line)
    (sample,) = first.samples()
    return sample


def refuse(line: str) -> LineError:
    """Returns the error of *line* amid two good ones, which are read all the same."""
    text = f'before{{a="b"}} 1\n{line}\nafter 2\n'
    first, again = first_and_again(text)
    good = [Sample("before", {"a": "b"}, 1.0), Sample("after", {}, 2.0)]
    assert list(first.samples()) == list(again.samples()) == parse_text(text) == good
    assert first.damaged_lines == again.damaged_lines == 1
    assert first.errors == again.errors
    (error,) = first.errors
    assert error.line == 2
    assert error.excerpt == line[:80]
    return error


def test_samples_come_in_the_order_printed() -> None:
    """A page gives its samples in order, without its comments and blanks."""
    first, again = first_and_again(PAGE)
    assert list(first.samples()) == list(again.samples()) == PAGE_SAMPLES
    assert parse_text(PAGE) == PAGE_SAMPLES
    assert first == again
    assert first.damaged_lines == 0


def test_a_series_is_the_same_object_at_every_scrape() -> None:
    """A parser hands out one object a series, whatever its value."""
    parser = Parser()
    one = parser.parse(PAGE)
    two = parser.parse(PAGE.replace(" 12.0", " 13.0"))
    assert all(a is b for a, b in zip(one.series, two.series, strict=True))
    assert len({*one.series, *two.series}) == len(PAGE_SAMPLES)
    assert one.values[0] == 12.0
    assert two.values[0] == 13.0


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        ("m 1", {}),
        ("m{} 1", {}),
        ("m { } 1", {}),
        ('m{a="b",} 1', {"a": "b"}),
        ('m{ a = "b" , c = "d" , } 1', {"a": "b", "c": "d"}),
        ('m {a="b"} 1', {"a": "b"}),
        ('m{a="b"}1', {"a": "b"}),
        ('m{a="b"}\t1', {"a": "b"}),
        ("m\t1", {}),
        ("  m   1  ", {}),
        ("m 1 ", {}),
        ('m{a=""} 1', {"a": ""}),
        ('m{a="b c"} 1', {"a": "b c"}),
        ('m{a="x} y"}\t1', {"a": "x} y"}),
        ('m{a="{b},c=d"} 1', {"a": "{b},c=d"}),
        ('m{a="b,",c="=,="} 1', {"a": "b,", "c": "=,="}),
        ('m{a="# no comment"} 1', {"a": "# no comment"}),
        (r'm{a="say \"hi\""} 1', {"a": 'say "hi"'}),
        (r'm{a="C:\\new\\"} 1', {"a": "C:\\new\\"}),
        (r'm{a="two\nlines"} 1', {"a": "two\nlines"}),
        (r'm{a="\\n"} 1', {"a": "\\n"}),
        (r'm{a="\q"} 1', {"a": "\\q"}),
        ('m{a="模型 \U0001f680"} 1', {"a": "模型 \U0001f680"}),
        ('m{a="tab\there"} 1', {"a": "tab\there"}),
        ('m{__address__="x:1",le="+Inf"} 1', {"__address__": "x:1", "le": "+Inf"}),
    ],
)
def test_label_values_may_hold_anything(line: str, labels: dict[str, str]) -> None:
    """Braces, commas, spaces, quotes, escapes and UTF-8 in labels are read as meant."""
    assert read(line) == Sample("m", labels, 1.0)


@pytest.mark.parametrize(
    "line",
    [
        'm{le="1"} 5 1700000000000',
        'm{le="1"} 5 1700000000.123',
        'm{le="1"} 5 -1',
        'm{le="1"}\t5\t1700000000000',
        'm{le="1"} 5 # {trace_id="x"} 0.67',
        'm{le="1"} 5 # {trace_id="x"} 0.67 1700000000.123',
        'm{le="1"} 5 # {trace_id="a} b\\"c"} 0.67',
        'm{le="1"} 5 1700000000 # {} 1',
        'm{le="1"} 5 1700000000 # {span_id="y",trace_id="x"} 1 1700000000',
    ],
)
def test_time_stamps_and_exemplars_are_passed_over(line: str) -> None:
    """A time stamp, an exemplar or both do not change a sample."""
    assert read(line) == Sample("m", {"le": "1"}, 5.0)


def test_the_same_series_with_and_without_an_exemplar_is_one_object() -> None:
    """A bucket that has an exemplar in some scrapes only stays the same series."""
    parser = Parser()
    (plain,) = parser.parse('m{le="1"} 5').series
    (marked,) = parser.parse('m{le="1"} 6 # {trace_id="x"} 0.7').series
    assert marked is plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0.0),
        ("-0.0", -0.0),
        ("+5", 5.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1.5E-07", 1.5e-7),
        ("9007199254740993", 9007199254740992.0),
        ("+Inf", math.inf),
        ("Inf", math.inf),
        ("-Inf", -math.inf),
        ("NaN", math.nan),
        ("nan", math.nan),
    ],
)
def test_values_are_read_as_prometheus_reads_them(text: str, value: float) -> None:
    """Decimal and exponent forms, infinities and NaN are values."""
    for line in (f"m {text}", f'm{{a="b"}} {text}', f"m {text} 1700000000000"):
        first, again = first_and_again(line)
        for found in (*first.values, *again.values):
            assert repr(found) == repr(value)
        assert len(first.values) == len(again.values) == 1


@pytest.mark.parametrize(
    "number",
    ["1_000", "0x10", "0x1p-2", "١٢", "1,5", "--1", "1e", "1x2", "ERROR", "None", "1#"],
)
def test_a_value_that_is_no_number_costs_its_line(number: str) -> None:
    """Spellings of Python or Go alone, and plain text, are damage, never a value."""
    for series in ("m", 'm{a="b"}', 'm{a="b\\n"}'):
        error = refuse(f"{series} {number}")
        assert error.reason == f"not a number: {number}"
    known = Parser()
    known.parse('m{a="b"} 1')
    found = known.parse(f'm{{a="b"}} {number}')
    assert found.values == []
    assert found.errors[0].reason == f"not a number: {number}"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("m", "not a sample"),
        ("m1", "not a sample"),
        ("m{", "not a sample"),
        ("m{} ", "not a sample"),
        ('m{a="b"}', "not a sample"),
        ('m{a="b" 1', "not a sample"),
        ('m{a="b} 1', "not a sample"),
        ('{a="b"} 1', "not a sample"),
        ("1m 1", "not a sample"),
        ("m-n 1", "not a sample"),
        ("模 1", "not a sample"),
        ("\x00\x01\x02 1", "not a sample"),
        ("m{a=b} 1", 'labels are not name="value" pairs'),
        ('m{a="b"c="d"} 1', 'labels are not name="value" pairs'),
        ('m{a="b" c="d"} 1', 'labels are not name="value" pairs'),
        ('m{a="b",,c="d"} 1', 'labels are not name="value" pairs'),
        ('m{a="b",,} 1', 'labels are not name="value" pairs'),
        ('m{,a="b"} 1', 'labels are not name="value" pairs'),
        ("m{,} 1", 'labels are not name="value" pairs'),
        ('m{a="b",1c="d"} 1', 'labels are not name="value" pairs'),
        ('m{a:b="c"} 1', 'labels are not name="value" pairs'),
        ('m{="b"} 1', 'labels are not name="value" pairs'),
        ('m{a="b",a="c"} 1', "label a given twice"),
        ('m{a="b", a="b"} 1', "label a given twice"),
        ("m 1 2 3", "neither a time stamp nor an exemplar: 2 3"),
        ("m 1 now", "neither a time stamp nor an exemplar: now"),
        ("m 1 # comment", "neither a time stamp nor an exemplar: # comment"),
    ],
)
def test_a_line_that_is_no_sample_costs_itself_and_says_why(
    line: str, reason: str
) -> None:
    """One damaged line is counted and explained; no other line is touched."""
    assert refuse(line).reason == reason


def test_a_damaged_line_is_not_remembered_as_a_series() -> None:
    """What follows a damaged line at the next scrape is judged on its own."""
    parser = Parser()
    assert parser.parse('m{a="b"} x').damaged_lines == 1
    assert list(parser.parse('m{a="b"} 2').samples()) == [Sample("m", {"a": "b"}, 2.0)]
    assert parser.parse('m{a="b"} x').damaged_lines == 1


def test_all_damaged_lines_are_counted_but_few_are_kept() -> None:
    """The count is complete where the list of errors is cut."""
    found = Parser().parse("\n".join(f"good_{n} {n}\nbad_{n} ?" for n in range(20)))
    assert len(found.values) == found.damaged_lines == 20
    lines = [error.line for error in found.errors]
    assert lines == [2 * n for n in range(1, MAX_ERRORS_KEPT + 1)]


@pytest.mark.parametrize(
    "garbage",
    [
        "a" * 60_000 + " b c",
        "m{" + "a" * 60_000 + "} 1",
        "m" + " " * 60_000 + "}",
        "m{" + '"' * 60_000,
        'm{a="' + '\\"' * 30_000,
        "m 1 " + "# " * 30_000,
        "m{" + 'a="b",' * 10_000 + "} 1",
    ],
    ids=["name", "label name", "spaces", "quotes", "escapes", "hashes", "labels"],
)
def test_long_garbage_is_refused_without_searching_it_again_and_again(
    garbage: str,
) -> None:
    """Long garbage costs one line; with backtracking it would cost minutes."""
    assert refuse(garbage).reason


def test_an_over_long_line_is_damaged_whatever_it_holds() -> None:
    """A line past the limit is refused with the limit as its reason."""
    too_long = "x" * (MAX_LINE_CHARACTERS + 1)
    reason = f"line longer than {MAX_LINE_CHARACTERS} characters"
    assert refuse(f'm{{a="{too_long}"}} 1').reason == reason
    assert refuse(f'm{{ a="{too_long}" }} 1').reason == reason
    assert refuse(f"{too_long} 1").reason == reason
    fits = "x" * (MAX_LINE_CHARACTERS - 100)
    assert read(f'm{{a="{fits}"}} 1').labels == {"a": fits}


def test_comments_and_blanks_are_no_damage() -> None:
    """Comments, indented ones too, blanks and the end mark cost nothing."""
    found = Parser().parse("# EOF\n\n   \n\t# indented {x\n#\n#m 1\n# UNIT m s\n\r\n")
    assert (found.values, found.damaged_lines, found.errors) == ([], 0, ())


def test_line_ends_of_windows_are_read_as_line_ends() -> None:
    """With CR LF the samples are those with LF: a carriage return is no damage."""
    more = PAGE + 'm{a="b"} 5 1700000000000\nm{a="b c"}\t5\n'
    first, again = first_and_again(more.replace("\n", "\r\n"))
    assert list(first.samples()) == list(again.samples()) == parse_text(more)
    assert first.damaged_lines == again.damaged_lines == 0
    assert parse_text(more.replace("\n", "\r\n")) == parse_text(more)


def test_line_ends_of_old_macs_are_damage_and_not_another_value() -> None:
    """A lone carriage return ends no line: what cannot be read is counted."""
    found = Parser().parse("m 1\rn 2\r")
    assert found.values == []
    assert found.damaged_lines == 1


def test_samples_past_the_limit_are_left_out_and_that_is_said() -> None:
    """They are counted as lost lines, and the first of them is named."""
    found = Parser(max_samples=3).parse(PAGE)
    assert list(found.samples()) == PAGE_SAMPLES[:3]
    assert found.damaged_lines == len(PAGE_SAMPLES) - 3
    (error,) = found.errors
    assert error.reason == "past the limit of 3 samples"
    assert PAGE.split("\n")[error.line - 1].startswith(error.excerpt)
    assert parse_text(error.excerpt) == [PAGE_SAMPLES[3]]


def test_a_page_of_just_the_limit_is_whole() -> None:
    """No sample is lost, and nothing is said."""
    found = Parser(max_samples=len(PAGE_SAMPLES)).parse(PAGE)
    assert list(found.samples()) == PAGE_SAMPLES
    assert (found.damaged_lines, found.errors) == (0, ())


def test_a_cut_is_told_before_errors_in_lines() -> None:
    """However many lines were damaged before it."""
    found = Parser(max_samples=1).parse("bad\n" * 9 + "a 1\nb 2\n# comment\nc 3\n\n")
    assert found.damaged_lines == 11
    assert [error.line for error in found.errors] == [11, 1, 2, 3, 4]


def remembered(parser: Parser) -> list[int]:
    """Returns how many things of each kind a parser remembers."""
    reader = parser._reader
    return [
        len(parser._known),
        len(reader._names),
        len(reader._labels),
        len(reader._label_names),
    ]


@pytest.mark.parametrize(
    "line",
    ['m{{a="{n}"}} 1', "m_{n} 1", 'm{{a_{n}="b"}} 1', 'm{{a="{n}"}} x', "m_{n} x"],
    ids=["values", "names", "label names", "damaged values", "damaged names"],
)
def test_memory_stays_bounded_when_every_scrape_brings_new_series(line: str) -> None:
    """A target of endless cardinality does not grow the parser, damaged or not."""
    parser = Parser(max_unknown=500)
    for scrape in range(100):
        numbers = range(scrape * 100, scrape * 100 + 100)
        text = "\n".join(line.format(n=n) for n in numbers)
        found = parser.parse(text)
        assert len(found.values) + found.damaged_lines == 100
        assert max(remembered(parser)) <= 600


def test_memory_stays_bounded_when_new_series_are_long() -> None:
    """Few but long series are forgotten as well."""
    parser = Parser()
    for scrape in range(12):
        labels = (f'{{a="{scrape}-{n}{"x" * 60_000}"}}' for n in range(100))
        page = "\n".join(f"m{label} 1" for label in labels)
        assert len(parser.parse(page).values) == 100
        held = sum(map(len, parser._known))
        assert held <= MAX_UNKNOWN_CHARACTERS + 2 * len(page)


def test_a_parser_that_forgets_reads_on() -> None:
    """Starting afresh changes no sample and no count of damage."""
    parser = Parser(max_unknown=3)
    for _ in range(5):
        found = parser.parse(f"{PAGE}damaged\n")
        assert list(found.samples()) == PAGE_SAMPLES
        assert [error.line for error in found.errors] == [10]

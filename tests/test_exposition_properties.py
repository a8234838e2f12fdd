"""Whatever is printed is read back, and no text at all breaks the parser."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from parsed_twice import first_and_again

from analyzer.exposition import parse_text

METRIC_NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True)
LABEL_NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True)
LABEL_VALUES = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]), st.sampled_from('\\"{}=,# \n\t\r')
    ),
    max_size=12,
)
LABELS = st.dictionaries(LABEL_NAMES, LABEL_VALUES, max_size=4)
SAMPLES = st.lists(st.tuples(METRIC_NAMES, LABELS, st.floats()), max_size=8)
LAYOUTS = st.sampled_from(
    [
        "{name}{{{pairs}}} {value}",
        "{name}{{{pairs},}} {value}",
        "{name} {{ {pairs} }}  {value}",
        "{name}{{{pairs}}}\t{value}\t1700000000000",
        "{name}{{{pairs}}} {value} 1700000000.5",
        '{name}{{{pairs}}} {value} # {{trace_id="a b"}} 0.5',
        "  {name}{{{pairs}}} {value}\r",
    ]
)


def escape(value: str) -> str:
    """Writes a label value as the text format has it."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@given(SAMPLES, LAYOUTS)
def test_what_is_printed_is_read_back(
    samples: list[tuple[str, dict[str, str], float]], layout: str
) -> None:
    """Any samples, printed in any layout that is allowed, come back as they were."""
    lines = []
    for name, labels, value in samples:
        pairs = ",".join(f'{key}="{escape(text)}"' for key, text in labels.items())
        bare = layout.replace("{pairs},", "{pairs}") if not labels else layout
        lines.append(bare.format(name=name, pairs=pairs, value=value))
    first, again = first_and_again("\n".join(lines))
    wanted = [(name, labels, repr(value)) for name, labels, value in samples]
    for found in (first, again):
        assert found.errors == ()
        rows = [(s.name, dict(s.labels), repr(s.value)) for s in found.samples()]
        assert rows == wanted


FRAGMENTS = st.lists(
    st.sampled_from([*'m{}"\\ \t=,1_#\n\r.a:', 'a="b"', "m{", '"} ', "NaN", "٣", "é"]),
    max_size=40,
).map("".join)


@given(st.one_of(st.text(), FRAGMENTS))
def test_no_text_raises_and_every_line_is_accounted_for(text: str) -> None:
    """Each line is a sample, damaged, or empty; the second look agrees with the first.

    Rows and columns agree as well.
    """
    first, again = first_and_again(text)
    lines = text.split("\n")
    nothing = sum(line.strip()[:1] in ("", "#") for line in lines)
    assert len(first.values) + first.damaged_lines + nothing == len(lines)
    assert first.damaged_lines == again.damaged_lines
    assert first.errors == again.errors
    rows = repr(list(first.samples()))
    assert rows == repr(list(again.samples())) == repr(parse_text(text))

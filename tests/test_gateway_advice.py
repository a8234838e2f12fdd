"""What is advised to add to a gateway stands in the files that are shipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzer.config_gateways import FORMATS, GatewaySource
from analyzer.gateways.advice import ADVICE, Advice, advice
from analyzer.gateways.detect import format_for

ROOT = Path(__file__).parents[1]
EVERY = [
    pytest.param(log_format, given, id=f"{log_format}-{missing}")
    for log_format, found in ADVICE.items()
    for missing, given in found.items()
]


@pytest.mark.parametrize(("log_format", "given"), EVERY)
def test_a_snippet_stands_line_by_line_in_its_file(
    log_format: str, given: Advice
) -> None:
    """In that order, whatever stands between: so what is advised is what is tested."""
    assert given.text, log_format
    assert given.file
    shipped = [line.strip() for line in (ROOT / given.file).read_text().splitlines()]
    place = 0
    for line in given.snippet.splitlines():
        assert line.strip() in shipped[place:], line
        place += shipped[place:].index(line.strip()) + 1


@pytest.mark.parametrize("name", [f for f in FORMATS if f not in ("auto", "custom")])
def test_every_criterion_that_a_format_may_lack_has_its_advice(name: str) -> None:
    """Nobody is told that something is missing without what to do about it."""
    log_format = format_for(GatewaySource("edge", format=name))
    assert log_format is not None
    for criterion in ("ttft", "tpot", "max_gap"):
        if name != "middleware":  # it knows them all, or nobody does
            assert advice(name, criterion) is not None
    assert (advice(name, "ttft") is None) is (name == "middleware")

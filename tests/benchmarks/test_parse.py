"""How fast a page of a real vLLM is parsed, beside prometheus_client's parser."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import pytest
from episodes import DIRECTORY
from prometheus_client.parser import text_string_to_metric_families

from analyzer.exposition import Parser, parse_text
from analyzer.sources.recording import read_scrapes

pytestmark = pytest.mark.benchmark

EPISODE, MOMENT = "overload-a", 60
REPETITIONS = 100


class AnySample(Protocol):
    """A sample of either parser."""

    @property
    def name(self) -> str:
        """The metric's name."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels."""

    @property
    def value(self) -> float:
        """The value."""


def counted(samples: Iterable[AnySample]) -> Counter[tuple[object, ...]]:
    """Returns how often each sample occurs, NaN being equal to NaN."""
    return Counter(
        (s.name, tuple(sorted(s.labels.items())), repr(float(s.value))) for s in samples
    )


def theirs(text: str) -> list[AnySample]:
    """Returns the samples that prometheus_client's parser reads."""
    return [
        s for family in text_string_to_metric_families(text) for s in family.samples
    ]


def milliseconds(work: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Returns the median time of each piece of work, done in turns."""
    taken: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(REPETITIONS):
        for name, do in work.items():
            begun = time.perf_counter()
            do()
            taken[name].append(time.perf_counter() - begun)
    return {name: 1000 * statistics.median(times) for name, times in taken.items()}


def test_parse_one_page(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the times and ratios for one page; asserts that the samples are equal."""
    pages = [s.text for s in read_scrapes(DIRECTORY / EPISODE) if s.text is not None]
    before, page = pages[MOMENT : MOMENT + 2]
    wanted = counted(theirs(page))
    followed = Parser()
    followed.parse(before)
    assert counted(followed.parse(page).samples()) == wanted
    assert counted(Parser().parse(page).samples()) == wanted
    assert counted(parse_text(page)) == wanted

    reference = "prometheus_client"
    times = milliseconds(
        {
            reference: lambda: theirs(page),
            "steady state (a Parser that follows the target)": (
                lambda: followed.parse(page)
            ),
            "cold, rows (parse_text)": lambda: parse_text(page),
            "cold, columns (a new Parser)": lambda: Parser().parse(page),
        }
    )
    lines = [
        f"{name:<48} {taken:8.3f} ms {times[reference] / taken:6.1f} ×"
        for name, taken in times.items()
    ]
    with capsys.disabled():
        print(f"\none page, {wanted.total()} samples, {len(page):,} characters")
        print("\n".join(lines))

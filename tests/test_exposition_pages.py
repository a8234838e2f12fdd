"""Pages of a real vLLM: the samples are those of prometheus_client's parser."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
from episodes import DIRECTORY, NAMES
from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client import Counter as ClientCounter
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from analyzer.exposition import Parser, Sample, parse_text
from analyzer.sources.recording import read_scrapes

PAGES = sorted((Path(__file__).parent / "fixtures" / "vllm").glob("*.prom.gz"))
# One page each: idle, under load, two ranks, two API servers, after a restart.
MOMENTS = {
    "healthy-a": 0,
    "overload-a": 60,
    "kv-a": 90,
    "dp2-a": 50,
    "apiservers-a": 50,
    "restart-a": -1,
}

Row = tuple[str, tuple[tuple[str, str], ...], str]


def row(name: str, labels: Mapping[str, str], value: float) -> Row:
    """Returns a sample in a form that counts NaN as equal to NaN."""
    return name, tuple(sorted(labels.items())), repr(float(value))


def ours(samples: Iterable[Sample]) -> Counter[Row]:
    """Returns how often each sample was read by our parser."""
    return Counter(row(s.name, s.labels, s.value) for s in samples)


def theirs(text: str) -> Counter[Row]:
    """Returns how often prometheus_client's parser reads each sample."""
    families = text_string_to_metric_families(text)
    return Counter(row(s.name, s.labels, s.value) for f in families for s in f.samples)


def page(path: Path) -> str:
    """Returns the text of a stored page."""
    return gzip.decompress(path.read_bytes()).decode()


def moments(name: str) -> list[str]:
    """Returns the pages of an episode, without the scrapes that failed."""
    return [s.text for s in read_scrapes(DIRECTORY / name) if s.text is not None]


def assert_read_alike(parser: Parser, text: str) -> None:
    """Asserts that rows and columns hold what prometheus_client's parser reads."""
    wanted = theirs(text)
    assert wanted
    found = parser.parse(text)
    assert found.damaged_lines == 0
    assert ours(found.samples()) == wanted
    assert ours(parse_text(text)) == wanted


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name.partition(".")[0])
def test_single_pages_are_read_alike(path: Path) -> None:
    """Two ranks before the first step, MFU counters with two names, stats disabled."""
    assert_read_alike(Parser(), page(path))


@pytest.mark.parametrize("name", MOMENTS)
def test_pages_of_episodes_are_read_alike(name: str) -> None:
    """Idle, loaded, with ranks, with API servers, after a restart: read alike."""
    assert_read_alike(Parser(), moments(name)[MOMENTS[name]])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_scrape_of_an_episode_is_read_alike(name: str) -> None:
    """One parser that follows an episode reads each of its pages alike."""
    parser = Parser()
    for text in moments(name):
        assert_read_alike(parser, text)


def test_openmetrics_with_exemplars_is_read_alike() -> None:
    """Counters, gauges and histograms with exemplars and `_created` are read alike."""
    registry = CollectorRegistry()
    counter = ClientCounter("requests", "Requests.", ["path"], registry=registry)
    counter.labels('/a "b" {c},\\d\n').inc(3, {"trace_id": "1 2}3"})
    counter.labels("/模型").inc()
    Gauge("up", "Up.", registry=registry).set(float("nan"))
    histogram = Histogram("latency_seconds", "Latency.", registry=registry)
    for value in (0.003, 0.3, 30.0):
        histogram.observe(value, {"trace_id": f"t{value}"})
    text = openmetrics.generate_latest(registry).decode()  # type: ignore[no-untyped-call]
    assert " # {" in text
    wanted = Counter(
        row(s.name, s.labels, s.value)
        for family in openmetrics_families(text)  # type: ignore[no-untyped-call]
        for s in family.samples
    )
    parser = Parser()
    for _ in range(2):
        found = parser.parse(text)
        assert found.damaged_lines == 0
        assert ours(found.samples()) == wanted
    assert ours(parse_text(text)) == wanted


DAMAGES: dict[str, Callable[[str], str]] = {
    "value lost": lambda line: line.rpartition(" ")[0],
    "value garbled": lambda line: line.rpartition(" ")[0] + " 1.2.3",
    "value with a separator": lambda line: line.rpartition(" ")[0] + " 1_000",
    "brace lost": lambda line: line.replace("}", "", 1),
    "quote lost": lambda line: line.replace('"', "", 1),
    "comma doubled": lambda line: line.replace('",', '",,', 1),
    "name garbled": lambda line: "\ufffd" + line[1:],
    "overwritten": lambda line: "\x00" * len(line),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("known", [False, True], ids=["at first sight", "known"])
def test_one_damaged_line_costs_one_line(damage: str, *, known: bool) -> None:
    """Wherever a line is damaged, it alone is lost, and its number is told."""
    lines = page(PAGES[1]).split("\n")
    random_ = random.Random(damage)
    candidates = [n for n, line in enumerate(lines) if '",' in line and line[0] != "#"]
    for n in random_.sample(candidates, 25):
        parser = Parser()
        if known:
            parser.parse("\n".join(lines))
        damaged = [*lines[:n], DAMAGES[damage](lines[n]), *lines[n + 1 :]]
        found = parser.parse("\n".join(damaged))
        (error,) = found.errors
        assert error.line == n + 1
        assert error.reason
        assert found.damaged_lines == 1
        rest = ours(parse_text("\n".join([*lines[:n], *lines[n + 1 :]])))
        assert ours(found.samples()) == rest
        assert rest.total() == theirs("\n".join(lines)).total() - 1

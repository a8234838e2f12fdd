"""Formats and faults of an engine's pages: the rest of the page stands."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm_pages import INF, counters, histograms, page, read

from analyzer.engines.reader import VllmReader
from analyzer.exposition import Parser
from analyzer.histogram import Histogram
from analyzer.snapshot import increase


def test_openmetrics_means_what_text_means() -> None:
    """Base-name types, exemplars, whole numbers and the end mark change nothing."""
    reading = read(page("v1-0.32.0-rust-frontend.openmetrics"))
    assert not reading.snapshot.damaged
    assert reading.names["prompt_tokens"] == "vllm:prompt_tokens_total"
    assert counters(reading)["prompt_tokens_by_source", "local_cache_hit"] == 2048
    assert reading.snapshot.started is None


def test_custom_bounds_are_read_from_the_page() -> None:
    """`--custom-histogram-buckets` may set any bounds, in any spelling and order."""
    series = 'vllm:e2e_request_latency_seconds_{}{{{}engine="0",model_name="m"}} {}\n'
    text = "".join(
        series.format("bucket", f'le="{bound}",', count)
        for bound, count in (("+Inf", 9), ("7.5", 4), ("0.25", 1), ("1e1", 5))
    ) + series.format("sum", "", 60.5)
    found = histograms(read(text))["e2e"]
    assert found == Histogram((0.25, 7.5, 10.0, INF), (1, 4, 5, 9), 60.5)


def test_a_histogram_without_its_last_bucket_is_left_out() -> None:
    """Without +Inf its total is unknown; the others stay."""
    lines = page("v1-0.15.0.prom").split("\n")
    lost = 'vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"'
    assert any(line.startswith(lost) for line in lines)
    reading = read("\n".join(line for line in lines if not line.startswith(lost)))
    assert "ttft" not in histograms(reading)
    assert histograms(reading)["e2e"].count == 5


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1.0", "1e400"])
def test_values_that_no_counter_can_have_are_left_out(value: str) -> None:
    """They mark the page as damaged, so that the series is not new when it returns."""
    text = page("v1-0.15.0.prom")
    whole = read(text, at=1.0)
    spoilt = re.sub(
        r"^(vllm:(?:generation_tokens_total|e2e_request_latency_seconds_bucket).*) .*$",
        rf"\1 {value}",
        text,
        flags=re.MULTILINE,
    )
    reading = read(spoilt, at=2.0)
    assert reading.snapshot.damaged
    assert not whole.snapshot.damaged
    assert ("generation_tokens", "") not in counters(reading)
    assert "e2e" not in histograms(reading)
    assert counters(reading)["prompt_tokens", ""] == 6000
    back = increase(reading.snapshot, read(text, at=3.0).snapshot)
    assert back.counter("generation_tokens") == 0


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_gauges_that_are_no_number_are_absent(value: str) -> None:
    """A load that is not finite is no load."""
    text = re.sub(
        r"^(vllm:(?:num_requests_running|kv_cache_usage_perc).*) .*$",
        rf"\1 {value}",
        page("v1-0.15.0.prom"),
        flags=re.MULTILINE,
    )
    reading = read(text)
    assert reading.gauge("running", "m") is None
    assert reading.gauge("kv_cache_usage", "m") is None
    assert reading.gauge("waiting", "m") == 2


@pytest.mark.parametrize("le", ["", 'le="NaN",', 'le="abc",', 'le="",'])
def test_buckets_without_a_usable_bound_are_left_out(le: str) -> None:
    """The rest of the histogram stands."""
    text = page("v1-0.15.0.prom")
    odd = (
        f'vllm:e2e_request_latency_seconds_bucket{{{le}engine="0",model_name="m"}} 9\n'
    )
    assert histograms(read(text + odd)) == histograms(read(text))


def test_a_page_beyond_the_limit_is_damaged() -> None:
    """Series past the limit are not new when a later page has them."""
    exposition = Parser(max_samples=50).parse(page("v1-0.15.0.prom"))
    assert exposition.damaged_lines
    assert VllmReader().read(exposition, 0.0).snapshot.damaged


def test_what_a_reader_remembers_changes_no_reading() -> None:
    """A second page of the same series gives what a fresh reader gives."""
    parser, reader = Parser(), VllmReader()
    text = page("v1-0.15.0.prom")
    later = text.replace(" 6000.0", " 6100.0").replace(" 3.0", " 4.0")
    reader.read(parser.parse(text), 1.0)
    assert reader.read(parser.parse(later), 2.0) == read(later, at=2.0)


LINES = page("v1-0.15.0.prom").split("\n")
WHOLE = read("\n".join(LINES))
AT = st.integers(0, len(LINES) - 1)


@given(st.lists(AT, max_size=40), st.lists(st.tuples(AT, st.integers(1, 60))))
def test_lost_and_cut_lines_cost_no_other_value(
    lost: list[int], cut: list[tuple[int, int]]
) -> None:
    """Whatever is gone, each value that is left is the one that was printed."""
    lines = list(LINES)
    for at, length in cut:
        end = max(lines[at].rfind("}"), 0) or lines[at].find(" ")
        lines[at] = lines[at][: min(length, end)]
    for at in lost:
        lines[at] = ""
    reading = read("\n".join(lines))
    assert reading.snapshot.counters.items() <= WHOLE.snapshot.counters.items()
    assert reading.gauges.items() <= WHOLE.gauges.items()
    assert reading.names.items() <= WHOLE.names.items()
    for key, histogram in reading.snapshot.histograms.items():
        full = WHOLE.snapshot.histograms[key]
        printed = set(zip(full.bounds, full.counts, strict=True))
        assert set(zip(histogram.bounds, histogram.counts, strict=True)) <= printed
    torn = [line for line in lines if line and line[0] != "#" and line not in LINES]
    assert reading.snapshot.damaged == bool(torn)

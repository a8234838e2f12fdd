"""A real restart, followed on the recorded pages."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from episodes import DIRECTORY
from watched_engine import CONFIG, SOURCE, observe, state, total

from analyzer.flow import EngineFlow
from analyzer.replay import replay
from analyzer.sources.recording import Scrape, read_scrapes

START = re.compile(r"^process_start_time_seconds (\S+)$", re.MULTILINE)
COUNTERS = {
    "generation_tokens": r"^vllm:generation_tokens_total\{.*\} (\S+)$",
    "preemptions": r"^vllm:num_preemptions_total\{.*\} (\S+)$",
    "finished:length": r'^vllm:request_success_total\{.*"length".*\} (\S+)$',
    "finished:stop": r'^vllm:request_success_total\{.*"stop".*\} (\S+)$',
    "prompt:computed": r"^vllm:prompt_tokens_by_source_total\{.*compute.*\} (\S+)$",
    "ttft count": r"^vllm:time_to_first_token_seconds_count\{.*\} (\S+)$",
    "ttft sum": r"^vllm:time_to_first_token_seconds_sum\{.*\} (\S+)$",
}


def restart_totals(scrapes: list[Scrape]) -> dict[str, float]:
    """Adds up each line's growth from the raw text; another start counts from 0."""
    pages = [scrape.text for scrape in scrapes if scrape.text is not None]
    found = dict.fromkeys(COUNTERS, 0.0)
    for before, after in pairwise(pages):
        anew = START.findall(before) != START.findall(after)
        for name, pattern in COUNTERS.items():
            (past,) = re.findall(pattern, before, re.MULTILINE)
            (value,) = re.findall(pattern, after, re.MULTILINE)
            found[name] += float(value) - (0.0 if anew else float(past))
    return found


@pytest.fixture(scope="module")
def recorded() -> list[Scrape]:
    """The scrapes around a kill and restart of a real vLLM 0.32.0."""
    return list(read_scrapes(DIRECTORY / "restart-a"))


def test_a_recorded_restart_gives_exact_totals(recorded: list[Scrape]) -> None:
    """Every counter at the end is what the raw lines add up to."""
    found = replay(recorded, CONFIG)
    assert found is not None
    followed, _ = found
    model = followed.reading.models[0] if followed.reading else ""
    expected = restart_totals(recorded)
    ttft = followed.ledger.histograms["goodput_engine_ttft_seconds"][(model,)]
    assert {
        "generation_tokens": total(followed, "engine_generation_tokens", model),
        "preemptions": total(followed, "engine_preemptions", model),
        "finished:length": total(followed, "engine_finished_requests", model, "length"),
        "finished:stop": total(followed, "engine_finished_requests", model, "stop"),
        "prompt:computed": total(
            followed, "engine_prompt_tokens", model, "local_compute"
        ),
        "ttft count": ttft.count,
        "ttft sum": pytest.approx(ttft.sum),
    } == {name: pytest.approx(value) for name, value in expected.items()}
    assert expected["finished:length"] > 20
    assert total(followed, "target_resets", "engine", "restart") == 1
    assert total(followed, "target_resets", "engine", "series") == 0
    assert total(followed, "target_sum_anomalies", "engine") == 0


def test_a_recorded_restart_is_down_once_and_serves_again(
    recorded: list[Scrape],
) -> None:
    """From the first refused scrape to the next page, and no moment more."""
    seen: list[tuple[bool, str]] = []
    followed = EngineFlow(SOURCE, CONFIG, since=recorded[0].at)
    for scrape in recorded:
        if scrape.text is None:
            followed.fail("refused", scrape.at, seconds=scrape.seconds)
        else:
            observe(followed, scrape.text, scrape.at, seconds=scrape.seconds)
        seen.append((scrape.text is not None, state(followed, scrape.at)))
    assert set(seen) == {(True, "serving"), (False, "down")}
    assert followed.liveness.gaps == 1


def test_a_sparser_sampling_of_the_restart_loses_only_what_it_never_saw(
    recorded: list[Scrape],
) -> None:
    """Every seventh scrape: less by what the first process did after its last page."""
    sparse = [*recorded[::7], recorded[-1]]
    found = replay(sparse, CONFIG)
    dense = replay(recorded, CONFIG)
    assert found is not None
    assert dense is not None
    pages = [s for s in recorded if s.text is not None]
    first = START.findall(pages[0].text or "")
    old = [s for s in pages if START.findall(s.text or "") == first]
    seen = [s for s in sparse if s in old]
    lost = restart_totals([seen[-1], old[-1]])
    name, labels = "goodput_engine_generation_tokens_total", ("demo-small",)
    fewer = found[0].ledger.counter(name, labels)
    all_of_them = dense[0].ledger.counter(name, labels)
    assert fewer is not None
    assert all_of_them is not None
    assert seen[-1] != old[-1]
    assert all_of_them - fewer == lost["generation_tokens"] > 0

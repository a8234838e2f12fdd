"""Targets whose pages are far too large: what is kept of them is bounded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from exporter_pages import CLASSES, EVENTS, Page, check_metrics, scraped, source
from raw_server import Peer, RawServer, answer
from running_exporter import RunningExporter, wait_for
from synthetic_engine import MODEL, SyntheticEngine

from analyzer.exposition import MAX_SAMPLES


def peak_memory(exporter: RunningExporter) -> int:
    """Returns the highest resident memory of the process so far, in MiB."""
    status = Path(f"/proc/{exporter.process.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0]) // 1024


@contextmanager
def flooded(
    folder: Path, page: Callable[[int], str], *, scrapes: int, limits: str = ""
) -> Iterator[tuple[RunningExporter, Page]]:
    """Runs an exporter with a target that prints *page*(number of the scrape, from 1).

    Gives it when the good engine beside has one request and *scrapes* are counted.
    """
    printed = 0

    def script(peer: Peer) -> None:
        nonlocal printed
        while request := peer.request():
            if b" /metrics " in request:
                printed += 1
                peer.send(answer(page(printed).encode()))
            else:
                peer.send(answer(b"", status="404 Not Found"))

    # Each of our scrapes is a sample; the timer's hour does not come.
    slow = ("interval: 1h", "timeout: 30s", "max_body_bytes: 67108864")
    with SyntheticEngine() as engine, RawServer(script) as server:
        path = folder / "c.yml"
        sources = source("flood", server.url, *slow) + source("good", engine.url, *slow)
        path.write_text(f"{CLASSES}{limits}\nengines:\n{sources}", encoding="utf-8")
        with RunningExporter(f"--config.file={path}") as exporter:
            wait_for(
                lambda: exporter.value(EVENTS, target="good", criterion="e2e") == 0
            )
            engine.finish()
            pages: list[Page] = []

            def counted() -> bool:
                page = scraped(exporter)
                pages.append(page)
                seen = page.value("goodput_target_scrapes_total", target="flood") or 0
                good = page.value(EVENTS, target="good", criterion="e2e")
                return seen >= scrapes and good == 1

            wait_for(counted, seconds=120)
            yield exporter, pages[-1]


MANY = 100_000
LINES = 'vllm:num_requests_running{engine="0",model_name="m"} 1\n'


def many_models(number: int) -> str:
    """Returns a page on which each of many models has *number* tokens."""
    line = 'vllm:generation_tokens_total{{engine="0",model_name="m{}"}} {}\n'
    return "".join(line.format(model, number) for model in range(MANY))


@pytest.mark.slow
def test_a_hundred_thousand_models_are_held_to_the_limit(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    """Some keep their name, the rest is `other` and counted, and no token is lost."""
    limits = "limits: {models: 5}"
    with flooded(tmp_path, many_models, scrapes=2, limits=limits) as (exporter, page):
        assert page.value("goodput_target_up", target="flood") == 1
        assert page.failures("flood") == {}
        tokens = {
            s.labels["model"]: s.value
            for s in page.samples
            if s.name == "goodput_engine_generation_tokens_total"
            and s.labels["target"] == "flood"
        }
        # One of the five is reserved for the model that the configuration names.
        assert len(tokens) == 5
        assert "other" in tokens
        scrapes = page.value("goodput_target_scrapes_total", target="flood")
        assert scrapes is not None
        assert sum(tokens.values()) == MANY * (scrapes - 1)
        dropped = page.value("goodput_label_values_dropped_total", label="model")
        assert dropped is not None
        assert dropped >= MANY - 4
        assert {s.labels.get("model") for s in page.samples} == {
            *tokens,
            MODEL,
            None,
        }
        assert peak_memory(exporter) < 512
        check_metrics(need_tool("promtool"), page)


NAMES = {
    "num_requests_running": "engine",
    "num_requests_waiting_by_reason": "reason",
    "request_success_total": "finished_reason",
    "prompt_tokens_by_source_total": "source",
    "admission_rejections_total": "reason",
}
# Rows of ours for them, with a limit of 7: gauges are of the last page, on which all
# values are new; of counters there are `other` and what the known ones left room for.
LIMITED = {
    "goodput_engine_running_requests": 1,
    "goodput_engine_waiting_requests": 1,
    "goodput_engine_finished_requests_total": 1 + 2 + len({"stop"}),
    "goodput_engine_prompt_tokens_total": 1 + 4,
    "goodput_engine_rejected_requests_total": 1 + 5,
}


def many_values(number: int) -> str:
    """Returns a page with other ranks, reasons and sources at every scrape."""
    line = 'vllm:{}{{{}="{}-{}",model_name="m"}} 1\n'
    text = "".join(
        line.format(name, label, number, value)
        for name, label in NAMES.items()
        for value in range(MANY // len(NAMES))
    )
    known = 'vllm:request_success_total{finished_reason="stop",model_name="m"}'
    return f"{text}{known} {number}\n"


@pytest.mark.slow
def test_a_hundred_thousand_label_values_are_held_to_the_limits(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    """Other ones at every scrape: few rows, bounded memory, and known values right."""
    limits = "limits: {label_values: 7, ranks: 3}"
    with flooded(tmp_path, many_values, scrapes=4, limits=limits) as (exporter, page):
        assert page.failures("flood") == {}
        scrapes = page.value("goodput_target_scrapes_total", target="flood")
        assert scrapes is not None
        finished = "goodput_engine_finished_requests_total"
        stopped = page.value(finished, target="flood", reason="stop")
        assert stopped == scrapes - 1
        rows = Counter(
            s.name for s in page.samples if s.labels.get("target") == "flood"
        )
        assert {name: rows[name] for name in LIMITED} == LIMITED
        for label, lines in (("rank", 1), ("reason", 3), ("source", 1)):
            dropped = page.value("goodput_label_values_dropped_total", label=label)
            assert dropped is not None
            assert dropped >= scrapes * lines * (MANY // 5) - 3 * 7
        assert peak_memory(exporter) < 512
        check_metrics(need_tool("promtool"), page)


def million_lines(_: int) -> str:
    """Returns an engine's page with very many series that nobody knows."""
    return LINES + "".join(f"vllm:x{n} 1\n" for n in range(1_000_000))


@pytest.mark.slow
def test_a_million_lines_cost_bounded_memory(tmp_path: Path) -> None:
    """What stands before the limit is read, and what is lost is told and counted."""
    with flooded(tmp_path, million_lines, scrapes=2) as (exporter, page):
        assert page.value("goodput_target_up", target="flood") == 1
        running = "goodput_engine_running_requests"
        assert page.value(running, target="flood", model="m") == 1
        assert page.value("goodput_engine_generation_tokens_total", target="good") == 10
        scrapes = page.value("goodput_target_scrapes_total", target="flood")
        lost = page.value("goodput_target_damaged_lines_total", target="flood")
        assert scrapes is not None
        assert lost == scrapes * (1 + 1_000_000 - MAX_SAMPLES)
        status = exporter.get("/api/v1/status").json()
        told = {row["target"]: row["damaged_lines"] for row in status["targets"]}
        reason = f"past the limit of {MAX_SAMPLES} samples"
        assert [row["reason"] for row in told["flood"]] == [reason]
        assert told["good"] == []
        assert reason in exporter.get("/").text
        logged = [line for line in exporter.log if "page is damaged" in line]
        assert len(logged) == 1
        assert "target=flood" in logged[0]
        assert peak_memory(exporter) < 512

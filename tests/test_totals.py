"""Totals over kills, restarts and several scrapers: none steps back, none is lost."""

from __future__ import annotations

import random
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from running_exporter import RunningExporter, configuration, value, wait_for
from synthetic_engine import MODEL, SyntheticEngine, free_port

from analyzer.catalogue import METRICS
from analyzer.exposition import Sample
from analyzer.metric import Kind

EVENTS = "goodput_engine_criterion_events_total"
COUNTER_NAMES = {m.name for m in METRICS if m.kind is Kind.COUNTER}
HISTOGRAM_NAMES = {
    f"{m.name}_{part}"
    for m in METRICS
    if m.kind is Kind.HISTOGRAM
    for part in ("bucket", "count", "sum")
}

Totals = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def totals(samples: list[Sample]) -> Totals:
    """Returns the counters and histogram parts of one scrape."""
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for s in samples
        if s.name in COUNTER_NAMES | HISTOGRAM_NAMES
    }


class Scraper:
    """Scrapes whatever exporter is up, and remembers each time a counter fell."""

    def __init__(self, period: float) -> None:
        self.period = period
        self.latest: Totals = {}
        self.steps_back: list[str] = []
        self.scrapes = 0

    def scrape(self, exporter: RunningExporter) -> None:
        """Scrapes once and compares with the scrape before."""
        now = totals(exporter.samples())
        self.scrapes += 1
        for key, before in self.latest.items():
            if now.get(key, -1.0) < before:
                self.steps_back.append(f"{key}: {before} → {now.get(key)}")
        self.latest = now


class Load:
    """Finishes requests in the background, until it is told to stop."""

    def __init__(self, engine: SyntheticEngine, rng: random.Random) -> None:
        self._engine = engine
        self._rng = rng
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            ttft = self._rng.choice((0.05, 0.3))
            self._engine.finish(ttft=ttft, tpot=0.02, e2e=0.9)

    def stop(self) -> None:
        """Stops after the request in work."""
        self._stop.set()
        self._thread.join()


def live(exporter: RunningExporter, scrapers: list[Scraper], seconds: float) -> None:
    """Lets every scraper scrape at its own period for some seconds."""
    end = time.monotonic() + seconds
    due = dict.fromkeys(scrapers, 0.0)
    while time.monotonic() < end:
        for scraper, at in due.items():
            if time.monotonic() >= at:
                scraper.scrape(exporter)
                due[scraper] = time.monotonic() + scraper.period
        time.sleep(0.02)


def all_counted(exporter: RunningExporter, engine: SyntheticEngine) -> bool:
    """Whether every finished request has arrived in the counters."""
    return exporter.value(EVENTS, criterion="e2e") == engine.finished


def test_no_counter_steps_back_and_totals_are_exact_over_kills_and_restarts(
    tmp_path: Path,
) -> None:
    """Random `kill -9` under load, an engine restart, two scrapers: all events once."""
    rng = random.Random(20261129)
    quick, slow = Scraper(0.3), Scraper(1.1)
    lives = 6
    with SyntheticEngine() as engine:
        config = configuration(tmp_path / "c.yml", engine.url, interval="500ms")
        arguments = (f"--config.file={config}", f"--storage.path={tmp_path / 'state'}")
        exporter = RunningExporter(*arguments)
        wait_for(lambda: exporter.value(EVENTS, criterion="e2e") == 0)
        load = Load(engine, rng)
        for number in range(lives):
            live(exporter, [quick, slow], rng.uniform(1.0, 2.5))
            exporter.kill()
            time.sleep(rng.uniform(0.0, 0.6))  # the engine works on meanwhile
            exporter = RunningExporter(*arguments)
            if number == lives // 2:  # quiet first: what nobody scraped is lost
                load.stop()
                wait_for(partial(all_counted, exporter, engine))
                engine.restart()
                load = Load(engine, rng)
        load.stop()
        wait_for(partial(all_counted, exporter, engine))
        quick.scrape(exporter)
        slow.scrape(exporter)
        samples = exporter.samples()
        assert exporter.stop() == 0
    assert quick.steps_back == []
    assert slow.steps_back == []
    assert quick.scrapes > slow.scrapes > lives
    assert value(samples, EVENTS, criterion="ttft") == engine.finished
    assert value(samples, EVENTS, criterion="tpot") == engine.finished
    count = value(samples, "goodput_engine_e2e_seconds_count", model=MODEL)
    assert count == engine.finished
    tokens = value(samples, "goodput_engine_generation_tokens_total")
    assert tokens == 10 * engine.finished
    resets = value(samples, "goodput_target_resets_total", reset="restart")
    assert resets == 1


def test_events_during_our_own_downtime_are_counted(tmp_path: Path) -> None:
    """What the engine did while the exporter was dead is there after its restart."""
    with SyntheticEngine() as engine:
        config = configuration(tmp_path / "c.yml", engine.url)
        arguments = (f"--config.file={config}", f"--storage.path={tmp_path / 'state'}")
        with RunningExporter(*arguments) as exporter:
            wait_for(lambda: exporter.value(EVENTS, criterion="e2e") == 0)
            assert exporter.stop() == 0
        for _ in range(7):
            engine.finish()
        with RunningExporter(*arguments) as exporter:
            wait_for(lambda: exporter.value(EVENTS, criterion="e2e") == 7)


def test_an_engine_restart_during_our_downtime_counts_the_new_process(
    tmp_path: Path,
) -> None:
    """Ten before, a restart, four after: fourteen, and one reset."""
    with SyntheticEngine() as engine:
        config = configuration(tmp_path / "c.yml", engine.url)
        arguments = (f"--config.file={config}", f"--storage.path={tmp_path / 'state'}")
        with RunningExporter(*arguments) as exporter:
            wait_for(lambda: exporter.value(EVENTS, criterion="e2e") == 0)
            for _ in range(10):
                engine.finish()
            wait_for(lambda: exporter.value(EVENTS, criterion="e2e") == 10)
            exporter.kill()
        engine.restart()
        for _ in range(4):
            engine.finish()
        with RunningExporter(*arguments) as exporter:
            wait_for(lambda: exporter.value(EVENTS, criterion="e2e") == 14)
            assert exporter.value("goodput_target_resets_total", reset="restart") == 1.0


def test_without_storage_counters_start_at_zero_and_the_page_says_so(
    tmp_path: Path,
) -> None:
    """No storage path: history is not ours, and nobody is told otherwise."""
    with SyntheticEngine() as engine:
        engine.finish()
        config = configuration(tmp_path / "c.yml", engine.url)
        with RunningExporter(f"--config.file={config}") as exporter:
            wait_for(lambda: exporter.value(EVENTS, criterion="e2e") == 0)
            assert exporter.value("goodput_state_last_write_successful") is None
            assert "no --storage.path" in exporter.get("/").text


def test_a_process_that_began_after_us_is_counted_from_its_first_request(
    tmp_path: Path,
) -> None:
    """An engine that starts beside us loses none of its first requests."""
    port = free_port()
    config = configuration(tmp_path / "c.yml", f"http://127.0.0.1:{port}/metrics")
    with RunningExporter(f"--config.file={config}") as exporter:
        wait_for(lambda: exporter.value("goodput_target_up") == 0)
        assert exporter.value("goodput_engine_state", state="starting") == 1
        with SyntheticEngine(port=port) as engine:
            engine.finish()
            engine.finish()
            wait_for(lambda: exporter.value("goodput_target_up") == 1)
            assert exporter.value(EVENTS, criterion="e2e") == 2


@pytest.mark.parametrize("damage", [b"", b"garbage", b"goodput-state-1\n1234garbage"])
def test_a_damaged_state_is_kept_aside_and_told(tmp_path: Path, damage: bytes) -> None:
    """A state that cannot be read costs the history, not the service."""
    storage = tmp_path / "state"
    storage.mkdir()
    (storage / "state.bin").write_bytes(damage)
    with SyntheticEngine() as engine:
        config = configuration(tmp_path / "c.yml", engine.url)
        with RunningExporter(
            f"--config.file={config}", f"--storage.path={storage}"
        ) as exporter:
            assert "counters start at 0" in exporter.get("/").text
            wait_for(lambda: exporter.value(EVENTS, criterion="e2e") == 0)
            assert (storage / "state.damaged").read_bytes() == damage


def test_a_state_that_cannot_be_written_is_told_and_the_scrape_goes_out(
    tmp_path: Path,
) -> None:
    """A full or vanished disk shows in a metric and on the page."""
    storage = tmp_path / "state"
    with SyntheticEngine() as engine:
        config = configuration(tmp_path / "c.yml", engine.url)
        with RunningExporter(
            f"--config.file={config}", f"--storage.path={storage}"
        ) as exporter:
            assert exporter.value("goodput_state_last_write_successful") == 1
            (storage / "state.new").mkdir()  # open() for writing fails, also for root
            engine.finish()
            wait_for(lambda: exporter.value(EVENTS, criterion="e2e") == 1)
            wait_for(lambda: exporter.value("goodput_state_last_write_successful") == 0)
            assert (exporter.value("goodput_state_write_failures_total") or 0) >= 1
            assert "state.bin" in exporter.get("/").text
            (storage / "state.new").rmdir()
            wait_for(lambda: exporter.value("goodput_state_last_write_successful") == 1)


def test_two_exporters_cannot_share_a_storage_path(tmp_path: Path) -> None:
    """The second says who has the directory and ends."""
    with SyntheticEngine() as engine:
        config = configuration(tmp_path / "c.yml", engine.url)
        arguments = (f"--config.file={config}", f"--storage.path={tmp_path / 'state'}")
        with (
            RunningExporter(*arguments),
            pytest.raises(AssertionError, match="in use by another process"),
        ):
            RunningExporter(*arguments)

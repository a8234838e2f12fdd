"""Targets that went: their series, their state and all that they held end in time."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from open_files import open_files
from running_exporter import value, wait_for
from synthetic_engine import SyntheticEngine

from analyzer.config import load_config
from analyzer.exposition import Sample, parse_text
from exporter.service import Exporter, Options
from exporter.state import Store

EVENTS = "goodput_engine_criterion_events_total"
SECONDS = 1.0
CONFIG = """
slo_classes: [{name: c, good: {e2e: 2s}, objective: 0.95}]
limits: {models: 1}
engines:
  - {name: fleet, interval: 1s, file_sd: {files: [targets.yml], refresh: 1s}}
"""


@contextmanager
def running(folder: Path) -> Iterator[Exporter]:
    """Runs an exporter in this process whose targets stay for a second only."""
    path = folder / "c.yml"
    path.write_text(CONFIG)
    options = Options(lambda: load_config(path), "test", retired_seconds=SECONDS)
    exporter = Exporter(options, Store(folder / "state"))
    try:
        exporter.start()
        yield exporter
    finally:
        exporter.close()


def samples(exporter: Exporter) -> list[Sample]:
    """Scrapes once."""
    _, page = exporter.metrics(None, "")
    return parse_text(page.decode())


def put(folder: Path, *engines: SyntheticEngine) -> None:
    """Makes these the targets, each with its model as pod."""
    text = "".join(
        f"- targets: ['{engine.url.removeprefix('http://').removesuffix('/metrics')}']\n"
        f"  labels: {{pod: {engine.model}}}\n"
        for engine in engines
    )
    (folder / "new").write_text(text or "[]")
    (folder / "new").replace(folder / "targets.yml")


def stored(folder: Path) -> set[str]:
    """Returns the targets that the state on disk holds."""
    store = Store(folder / "copy")
    (folder / "copy" / "state.bin").write_bytes(
        (folder / "state" / "state.bin").read_bytes()
    )
    state, error = store.load()
    store.close()
    assert error == ""
    return set(state.targets)


def shown(exporter: Exporter) -> set[str]:
    """Returns the targets that any series has."""
    return {s.labels["target"] for s in samples(exporter) if "target" in s.labels}


def test_what_went_ends_after_the_staleness_period(tmp_path: Path) -> None:
    """Series and state go together, while those of the others stay."""
    with SyntheticEngine("one") as one, SyntheticEngine("two") as two:
        put(tmp_path, one, two)
        with running(tmp_path) as exporter:
            assert shown(exporter) == stored(tmp_path) == {"fleet/one", "fleet/two"}
            put(tmp_path, two)
            wait_for(lambda: shown(exporter) == {"fleet/two"})
            assert stored(tmp_path) == {"fleet/two"}


def test_the_counters_of_one_that_returns_late_begin_at_0(tmp_path: Path) -> None:
    """After the period it is a new target, and what the engine counted is not new."""
    with SyntheticEngine("one") as one:
        put(tmp_path, one)
        with running(tmp_path) as exporter:
            one.finish()
            samples(exporter)
            one.finish()
            wait_for(lambda: value(samples(exporter), EVENTS) == 1)
            put(tmp_path)
            wait_for(lambda: not shown(exporter))
            put(tmp_path, one)
            wait_for(lambda: shown(exporter) == {"fleet/one"})
            assert value(samples(exporter), EVENTS) == 0


def test_models_that_went_free_their_places(tmp_path: Path) -> None:
    """With room for one model, the next one gets a name of its own in the end."""
    with SyntheticEngine("one") as one, SyntheticEngine("two") as two:
        put(tmp_path, one)
        with running(tmp_path) as exporter:

            def models(target: str) -> set[str]:
                return {
                    s.labels["model"]
                    for s in samples(exporter)
                    if s.labels.get("target") == f"fleet/{target}"
                    and "model" in s.labels
                }

            assert models("one") == {"one"}
            put(tmp_path, one, two)
            wait_for(lambda: models("two") == {"other"})
            put(tmp_path)
            wait_for(lambda: not shown(exporter))
            put(tmp_path, two)
            wait_for(lambda: models("two") == {"two"})


def test_state_of_targets_that_never_return_ends_too(tmp_path: Path) -> None:
    """What a restart finds on disk waits for the period, and only for it."""
    with SyntheticEngine("one") as one, SyntheticEngine("two") as two:
        put(tmp_path, one, two)
        with running(tmp_path) as exporter:
            samples(exporter)
        put(tmp_path, two)
        with running(tmp_path) as exporter:
            samples(exporter)
            assert stored(tmp_path) == {"fleet/one", "fleet/two"}
            wait_for(lambda: samples(exporter) and stored(tmp_path) == {"fleet/two"})


def test_targets_that_come_and_go_leave_nothing_behind(tmp_path: Path) -> None:
    """No thread, no connection, no timer and no flow stays of two dozen targets."""
    (tmp_path / "targets.yml").write_text("[]")
    with running(tmp_path) as exporter:
        samples(exporter)
        time.sleep(SECONDS)
        before = _held(exporter)
        for turn in range(3):
            engines = [SyntheticEngine(f"m{turn}-{n}") for n in range(8)]
            put(tmp_path, *engines)
            wait_for(lambda: len(shown(exporter)) == 8)
            put(tmp_path)
            wait_for(lambda: not shown(exporter))
            for engine in engines:
                engine.close()
        wait_for(lambda: _held(exporter) == before)
        assert before[0] == 0
        assert not exporter._engines._targets
        assert {s.labels.get("target") for s in samples(exporter)} == {None}


def _held(exporter: Exporter) -> tuple[int, ...]:
    """Returns how many flows, timers, threads beside pools and open files there are."""
    gc.collect()
    kinds = [type(thing).__name__ for thing in gc.get_objects()]
    threads = [t for t in threading.enumerate() if "ThreadPool" not in t.name]
    return (
        kinds.count("EngineFlow"),
        kinds.count("Fetcher"),
        len(exporter._sampler._scheduler.get_jobs()),
        len([t for t in threads if not t.name.startswith("scrape")]),
        open_files(),
    )


def test_a_page_of_the_old_address_is_none_of_the_new_one(tmp_path: Path) -> None:
    """A pod that moves while its page is on the way begins with the new page."""
    with SyntheticEngine("pod") as old, SyntheticEngine("pod") as new:
        put(tmp_path, old)
        with running(tmp_path) as exporter:
            old.finish()
            samples(exporter)
            target = exporter._engines._targets["fleet/pod"]
            with old.lock:  # its page does not come
                late = threading.Thread(target=target.sample, kwargs={"tick": False})
                late.start()
                wait_for(lambda: target._flight.flying)
                for _ in range(5):
                    new.finish()
                put(tmp_path, new)
                wait_for(lambda: target.flow.source.url == new.url)
                exporter._sampler.forget("fleet/pod")  # nobody samples but us
                assert target._flight.flying
                old.process.e2e.observe(1.0)
            late.join(10)
            assert target.flow.memory.snapshot is None
            assert value(samples(exporter), EVENTS) == 0
            new.finish()
            wait_for(lambda: value(samples(exporter), EVENTS) == 1)

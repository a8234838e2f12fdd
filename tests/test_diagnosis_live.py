"""The running exporter says what binds, and goes on counting after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from running_exporter import RunningExporter, configuration, wait_for
from synthetic_engine import SyntheticEngine

SECONDS = "goodput_constraint_seconds_total"


def window(exporter: RunningExporter) -> dict[str, Any]:
    """Returns the verdict in force, empty before there is one."""
    rows: list[dict[str, Any]] = exporter.get("/api/v1/status").json()["windows"]
    return rows[0] if rows else {}


def test_a_full_cache_with_a_queue_is_named_everywhere(tmp_path: Path) -> None:
    """Metrics, JSON and page agree, and the seconds survive a kill."""
    with SyntheticEngine() as engine:
        path = configuration(tmp_path / "c.yml", engine.url)
        arguments = [f"--config.file={path}", f"--storage.path={tmp_path / 'state'}"]

        def named(exporter: RunningExporter) -> bool:
            with engine.lock:
                engine.process.running.set(4)
                engine.process.waiting.set(12)
                engine.process.kv.set(0.99)
            engine.finish()
            return window(exporter).get("family") == "memory"

        with RunningExporter(*arguments) as exporter:
            wait_for(lambda: named(exporter), seconds=40.0)
            found = window(exporter)
            assert found["cause"] == "kv_capacity"
            assert {e["signal"] for e in found["evidence"]} >= {"kv_cache_usage"}
            assert found["advice"]
            assert exporter.value("goodput_constraint", family="memory") == 1.0
            assert exporter.value("goodput_constraint", family="none") == 0.0
            text = exporter.get("/").text
            assert "memory / kv_capacity" in text
            assert 'class="strip"' in text

            def counted() -> float:
                return exporter.value(SECONDS, cause="kv_capacity") or 0.0

            wait_for(lambda: named(exporter) and counted() > 0)
            before = counted()
            exporter.kill()
        with RunningExporter(*arguments) as exporter:
            after = exporter.value(SECONDS, cause="kv_capacity")
            assert after is not None
            assert after >= before

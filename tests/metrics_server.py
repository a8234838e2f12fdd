"""Real servers with Prometheus' API, filled with what the exporter would have said."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests
from prometheus_client.core import Metric as Family
from prometheus_client.utils import floatToGoString
from synthetic_engine import free_port

from analyzer.config import Config
from analyzer.flow import EngineFlow
from analyzer.ledger import Ledger
from analyzer.logflow import LogFlow
from exporter.collector import View, families
from exporter.request_rows import LogView

Pages = Sequence[tuple[int, list[Family]]]


def page(
    at: float, config: Config, flows: Sequence[EngineFlow], logs: Sequence[LogFlow]
) -> list[Family]:
    """Returns what the exporter would publish of some flows."""
    view = View(
        at=at,
        config=config,
        flows=flows,
        retired=(),
        process=Ledger(),
        reload_ok=True,
        loaded_at=0.0,
        state_ok=None,
        version="test",
        logs=[LogView(log.source.name, log.totals, {}, 0.0) for log in logs],
    )
    return [f for f in families(view) if f.name.startswith("goodput_")]


def text_of(pages: Pages, *, milliseconds: bool) -> str:
    """Returns pages as lines with their times, grouped by family.

    In OpenMetrics times are seconds, in the text format milliseconds.
    """
    lines: dict[str, list[str]] = {}
    kinds: dict[str, str] = {}
    for at, found in pages:
        stamp = at * 1000 if milliseconds else at
        for family in found:
            kinds[family.name] = family.type
            rows = lines.setdefault(family.name, [])
            for sample in family.samples:
                labels = ",".join(f'{k}="{v}"' for k, v in sample.labels.items())
                value = floatToGoString(sample.value)  # type: ignore[no-untyped-call]
                rows.append(f"{sample.name}{{{labels}}} {value} {stamp}")
    parts = []
    for name, rows in lines.items():
        parts.append(f"# TYPE {name} {kinds[name]}")
        parts += sorted(rows, key=lambda row: row.rpartition(" ")[0].rpartition(" ")[0])
    return "\n".join([*parts, *([] if milliseconds else ["# EOF"])]) + "\n"


@contextmanager
def _running(arguments: list[str], url: str, directory: Path) -> Iterator[str]:
    """Runs a server until the end; yields its URL once it answers."""
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(arguments, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + 60
            while True:
                assert process.poll() is None, (directory / "output").read_text()
                try:
                    if requests.get(f"{url}/health", timeout=5).status_code < 500:
                        break
                except requests.ConnectionError:
                    pass
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield url
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def prometheus(tools: tuple[str, str], directory: Path, pages: Pages) -> Iterator[str]:
    """Runs a Prometheus over blocks that promtool made of *pages*."""
    program, promtool = tools
    directory.mkdir()
    source = directory / "pages.om"
    source.write_text(text_of(pages, milliseconds=False))
    subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", source, "data"],
        cwd=directory,
        check=True,
        capture_output=True,
    )
    (directory / "prometheus.yml").write_text("")
    address = f"127.0.0.1:{free_port()}"
    arguments = [
        program,
        f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
    ]
    with _running(arguments, f"http://{address}", directory) as url:
        yield url


@contextmanager
def victoria_metrics(program: str, directory: Path, pages: Pages) -> Iterator[str]:
    """Runs a VictoriaMetrics that was sent *pages*."""
    directory.mkdir()
    address = f"127.0.0.1:{free_port()}"
    arguments = [
        program,
        f"-storageDataPath={directory}/data",
        f"-httpListenAddr={address}",
        "-retentionPeriod=100y",
    ]
    with _running(arguments, f"http://{address}", directory) as url:
        body = text_of(pages, milliseconds=True)
        sent = requests.post(
            f"{url}/api/v1/import/prometheus", data=body.encode(), timeout=30
        )
        sent.raise_for_status()
        requests.get(f"{url}/internal/force_flush", timeout=30)
        yield url

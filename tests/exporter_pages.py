"""Pages of the exporter, and the configurations under which it prints them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client import Metric as Family
from prometheus_client import parser as plain_parser
from prometheus_client.openmetrics import parser as openmetrics_parser
from running_exporter import RunningExporter, value
from synthetic_engine import MODEL

from analyzer.catalogue import SCRAPE_FAILURES
from analyzer.exposition import Sample, parse_text

EVENTS = "goodput_engine_criterion_events_total"
FAILURES = "goodput_target_scrape_failures_total"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
CLASSES = f"""
slo_classes:
  - name: interactive
    match: {{model: {MODEL}}}
    good: {{ttft: 100ms, tpot: 25ms, e2e: 2s}}
    objective: 0.95
"""


def source(name: str, url: str, *options: str) -> str:
    """Returns one line of the configuration's engines."""
    given = [f'url: "{url}"', *options]
    return f"  - {{name: {name}, {', '.join(given)}}}\n"


@dataclass(frozen=True)
class Page:
    """One page of the exporter: what it printed and the samples in it."""

    text: str
    samples: list[Sample]

    def value(self, name: str, **labels: str) -> float | None:
        """Returns one sample's value, None when it is not there."""
        return value(self.samples, name, **labels)

    def one_hot(self, name: str, label: str, **labels: str) -> str:
        """Returns which of a one-hot state's rows is 1."""
        rows = {
            s.labels[label]: s.value
            for s in self.samples
            if s.name == name and labels.items() <= dict(s.labels).items()
        }
        ones = [row for row, number in rows.items() if number == 1]
        assert len(ones) == 1
        assert set(rows.values()) == {0.0, 1.0}
        return ones[0]

    def failures(self, target: str) -> Mapping[str, float]:
        """Returns how often scrapes of a target failed, by reason; not the zeros."""
        rows = {
            s.labels["reason"]: s.value
            for s in self.samples
            if s.name == FAILURES and s.labels["target"] == target
        }
        assert rows.keys() == set(SCRAPE_FAILURES)
        return {reason: count for reason, count in rows.items() if count}


def scraped(exporter: RunningExporter, accept: str = "text/plain") -> Page:
    """Scrapes the exporter once."""
    got = exporter.get(Accept=accept)
    assert got.status_code == 200
    return Page(got.text, parse_text(got.text))


def parse_plain(text: str) -> list[Family]:
    """Returns the families as prometheus_client reads the text format."""
    return list(plain_parser.text_string_to_metric_families(text))


def parse_openmetrics(text: str) -> list[Family]:
    """Returns the families as prometheus_client reads OpenMetrics."""
    return list(openmetrics_parser.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def check_metrics(promtool: str, page: Page) -> None:
    """Fails when promtool finds a fault on a page."""
    found = subprocess.run(
        [promtool, "check", "metrics"],
        input=page.text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout + found.stderr) == (0, "")


def no_series_twice(page: Page) -> bool:
    """Whether every series stands once on a page."""
    series = [(s.name, *sorted(s.labels.items())) for s in page.samples]
    return len(series) == len(set(series))

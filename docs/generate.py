"""Writes the pages of this folder that follow from the code: metrics.md.

Run it from anywhere; it takes the page from the installed package's catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from analyzer.catalogue import ENGINE_STATES, METRICS, SCRAPE_FAILURES, Metric
from analyzer.slo import CRITERIA, STAGES
from analyzer.snapshot import Reset

INTRODUCTION = """\
# Metrics

<!-- Written by docs/generate.py from analyzer/catalogue.py; do not edit. -->

What `goodput-exporter` serves at `/metrics`, in the text format and in OpenMetrics.
Units are base units. A metric without a value is absent, never 0: an engine that does
not tell something has no series for it. Counters of a configured class, target or
reason exist at 0 before the first event, and with `--storage.path` they go on where
they were after a restart. Beside these there are the usual `process_*` metrics.

Good events are published as counters, so rates, ratios and burn rates are PromQL's
work over any window. The share that certainly met a criterion:

```promql
sum by (model, slo_class, criterion) (
  rate(goodput_engine_criterion_good_events_lower_total[1h])
)
/
sum by (model, slo_class, criterion) (
  rate(goodput_engine_criterion_events_total[1h])
)
```

The engine's metrics tell how many requests met each criterion, not which request met
which. So the share of requests that met all n criteria is a bound: at least
max(0, Σ p − (n − 1)) with each criterion's share p from its lower counter, at most the
smallest p from the upper counters. Take windows much longer than a request, since
TTFT counts at the first token and the others at the end.
"""

# A metric belongs to the first section whose prefix its name has.
SECTIONS: Mapping[str, str] = {
    "goodput_slo_": "The objectives of the configuration",
    "goodput_engine_": "Engines",
    "goodput_target_": "Targets",
    "goodput_": "The exporter itself",
}


def _one_of(values: Iterable[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


LABELS: Mapping[str, str] = {
    "criterion": f"The latency condition: {_one_of(CRITERIA)}.",
    "kind": "What the target is: `engine`.",
    "label": "The label whose limit of values was reached.",
    "model": "The served name of the model; aliases and adapters count under it. "
    "Names beyond the limit are `other`.",
    "percentile": "The percentile of the configuration, such as `p95`.",
    "python": "The version of Python.",
    "rank": "The data-parallel rank, `0` when there is one.",
    "reason": "Why, as the metric's help says. Of scrape failures: "
    f"{_one_of(SCRAPE_FAILURES)}.",
    "reset": "How far a counter reset went: "
    f"{_one_of(reset.value for reset in Reset if reset is not Reset.NONE)}.",
    "slo_class": "The name of the SLO class.",
    "source": "Where prompt tokens came from, in the engine's own words.",
    "stage": f"The part of the latency budget: {_one_of(STAGES)}.",
    "state": f"The engine's state: {_one_of(ENGINE_STATES)}.",
    "target": "The configured name of the source.",
    "version": "The version of the exporter.",
}


def metrics_page(metrics: Iterable[Metric] = METRICS) -> str:
    """Returns docs/metrics.md. Raises KeyError for a label that LABELS lacks."""
    sections: dict[str, list[Metric]] = {prefix: [] for prefix in SECTIONS}
    used: set[str] = set()
    for metric in metrics:
        prefix = next(p for p in SECTIONS if metric.name.startswith(p))
        sections[prefix].append(metric)
        used.update(metric.labels)
    lines = [INTRODUCTION]
    for prefix, title in SECTIONS.items():
        lines += [f"## {title}", "", *_table(sections[prefix]), ""]
    lines += ["## Labels", "", "| label | meaning |", "| --- | --- |"]
    lines += [f"| `{name}` | {LABELS[name]} |" for name in sorted(used)]
    return "\n".join(lines) + "\n"


def _table(metrics: Iterable[Metric]) -> list[str]:
    return [
        "| metric | type | labels | meaning |",
        "| --- | --- | --- | --- |",
        *(
            f"| `{metric.name}` | {metric.kind} | {_one_of(metric.labels)} "
            f"| {metric.documentation.replace('|', '&#124;')} |"
            for metric in metrics
        ),
    ]


def main() -> None:
    """Writes the pages beside this file."""
    page = Path(__file__).parent / "metrics.md"
    page.write_text(metrics_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
